"""Resolve what a user wants left in float: node names old and new, scopes, globs, operator types."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

import onnx_ir as ir

from requant.errors import QuantizationError, nearest
from requant.passes.rewrite import names_of

_SEPARATORS = ("/", ".", "_", ":")
MX_OP = "mx.op"


def op_types_of(node: ir.Node) -> tuple[str, ...]:
    """The operator types a node is known by: ONNX's and MXNet's."""
    return (
        tuple(dict.fromkeys((node.op_type, *node.metadata_props.get(MX_OP, "").split("\n"))))
        if MX_OP in node.metadata_props
        else (node.op_type,)
    )


def excluded_nodes(
    nodes: Sequence[ir.Node], names: Iterable[str] = (), op_types: Iterable[str] = ()
) -> dict[ir.Node, str]:
    """Which nodes a list of excludes means, with the reason for each.

    A name is looked for, in this order: as the name of a node, now or before it was fused (MXNet's names too); as a
    glob over those names, if it has ``*``, ``?`` or ``[``; as a scope, that is, what names begin with up to a
    separator (``/ . _ :``).

    Args:
        nodes: the nodes of the graph.
        names: names, globs and scopes.
        op_types: operator types of ONNX or MXNet.

    Raises:
        QuantizationError: a name or type matches nothing; the message gives the nearest ones.
    """
    found: dict[ir.Node, str] = {}
    known = {node: names_of(node) for node in nodes}
    for pattern in names:
        hits = _match(pattern, known)
        if not hits:
            everything = list(dict.fromkeys(n for all_names in known.values() for n in all_names))
            raise QuantizationError(
                "an excluded name matches no node",
                got=pattern,
                expected="a node, a scope or a glob",
                next=nearest(pattern, everything),
            )
        for node in hits:
            found.setdefault(node, f"excluded by name {pattern!r}")
    types = {node: op_types_of(node) for node in nodes}
    for op_type in op_types:
        hits = [node for node, own in types.items() if op_type in own]
        if not hits:
            everything = list(dict.fromkeys(t for own in types.values() for t in own))
            raise QuantizationError(
                "an excluded operator type is not in the graph", got=op_type, next=nearest(op_type, everything)
            )
        for node in hits:
            found.setdefault(node, f"excluded by operator type {op_type!r}")
    return found


def _match(pattern: str, known: dict[ir.Node, tuple[str, ...]]) -> list[ir.Node]:
    exact = [node for node, own in known.items() if pattern in own]
    if exact:
        return exact
    if any(c in pattern for c in "*?["):
        return [node for node, own in known.items() if any(fnmatch.fnmatchcase(n, pattern) for n in own)]
    scope = pattern if pattern.endswith(_SEPARATORS) else None
    return [
        node
        for node, own in known.items()
        if any(n.startswith(scope) if scope else n.startswith(tuple(pattern + s for s in _SEPARATORS)) for n in own)
    ]
