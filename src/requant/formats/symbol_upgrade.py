"""MXNet's rules for symbol files of older versions (what ``mx.sym.load`` does to them before anything else).

Facts about operators come from the caller, through `OpFacts`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from requant.errors import GraphError, counted
from requant.formats.symbol_records import VERSION, Entry, GraphRecord, NodeRecord

#: Attributes that MXNet 0.9 began to hide as ``__key__``.
HIDDEN_KEYS = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")


class OpFacts(Protocol):
    """What the upgrade must know about operators."""

    def input_names(self, op: str, attrs: Mapping[str, str]) -> Sequence[str] | None:
        """Names of all inputs with these attributes, auxiliary states last; None if the operator is unknown.

        ``("data", "weight")`` for a Convolution with ``no_bias=True``.
        """


@dataclasses.dataclass
class _Node:
    """A node while it is being changed."""

    record: NodeRecord
    attrs: dict[str, str]
    inputs: list[Entry]


def _split_hidden(key: str) -> tuple[str, str] | None:
    """``("weight", "lr_mult")`` of ``weight_lr_mult``, ``("", "lr_mult")`` of ``lr_mult``, None of anything else."""
    for hidden in HIDDEN_KEYS:
        if key == hidden:
            return "", hidden
        if key.endswith("_" + hidden) and len(key) > len(hidden) + 1:
            return key[: -len(hidden) - 1], hidden
    return None


def _hide_keys(node: _Node, nodes: Sequence[_Node], facts: OpFacts) -> dict[str, dict[str, str]]:
    """Rename hidden keys, and move ``<input>_<key>`` to that input's variable.

    Returns:
        The keys of inputs that the file does not list (yet), by input name.
    """
    hidden = [(key, value, split) for key, value in node.attrs.items() if (split := _split_hidden(key)) is not None]
    pending: dict[str, dict[str, str]] = {}
    for key, _, _ in hidden:
        del node.attrs[key]
    for key, value, (argument, name) in hidden:
        if not argument:
            node.attrs[f"__{name}__"] = value
            continue
        names = [] if node.record.is_variable else list(facts.input_names(node.record.op, node.attrs) or ())
        place = names.index(argument) if argument in names else None
        if place is None:
            node.attrs.setdefault(key, value)
        elif place >= len(node.inputs):
            pending.setdefault(argument, {})[f"__{name}__"] = value
        elif nodes[node.inputs[place][0]].record.is_variable:
            nodes[node.inputs[place][0]].attrs[f"__{name}__"] = value
        else:
            node.attrs.setdefault(key, value)
    return pending


def _add_missing_inputs(
    node: _Node, nodes: list[_Node], facts: OpFacts, pending: Mapping[str, Mapping[str, str]]
) -> None:
    names = facts.input_names(node.record.op, node.attrs)
    for argument in (names or ())[len(node.inputs) :]:
        attrs = {**node.attrs, **pending.get(argument, {})}
        nodes.append(_Node(NodeRecord("null", f"{node.record.name}_{argument}"), attrs, []))
        node.inputs.append((len(nodes) - 1, 0))


def upgrade(graph: GraphRecord, facts: OpFacts, where: str = "symbol JSON") -> GraphRecord:
    """Apply what MXNet applies to files that are older than itself. Newer files come back as they are.

    - before 1.9.1: ``ctx_group``, ``lr_mult``, ``wd_mult``, ``force_mirroring`` and ``mirror_stage`` become
      ``__ctx_group__`` and so on; ``weight_lr_mult`` on an operator moves to the variable of its input ``weight``.
    - before 0.9.0: trailing inputs that are missing (BatchNorm's moving mean and variance) become variables
      ``<node>_<input>`` with the node's attributes.
    - before 0.9.5: ``axis=-1`` of argmin and argmax, which then meant "no axis", is removed.

    Nested graphs are left alone, as MXNet leaves them. The ``__init__`` hints that MXNet adds to files before 0.9.4
    are not added: they serve training only. ``attrs["mxnet_version"]`` keeps the file's version.

    Raises:
        GraphError: a node has more inputs than its operator (where missing ones would have to be added).
    """
    version = graph.version
    if version >= VERSION:
        return graph
    nodes: list[_Node] = []
    moved: list[int] = []  # new id of each old node
    for i, record in enumerate(graph.nodes):
        node = _Node(record, dict(record.attrs), [(moved[source], output) for source, output in record.inputs])
        pending = _hide_keys(node, nodes, facts)
        if not record.is_variable and version < 900:
            names = facts.input_names(record.op, node.attrs)
            if names is not None and len(names) < len(node.inputs):
                raise GraphError(
                    "a node has more inputs than its operator takes",
                    where=f"{where}, node {i} ({record.name!r})",
                    got=counted(len(node.inputs), "input"),
                    expected=f"{len(names)}: {', '.join(names)}",
                )
            _add_missing_inputs(node, nodes, facts, pending)
        else:
            for argument, attrs in pending.items():
                node.attrs.update({f"{argument}_{key[2:-2]}": value for key, value in attrs.items()})
        if version < 905 and record.op in ("argmin", "argmax") and node.attrs.get("axis") == "-1":
            del node.attrs["axis"]
        moved.append(len(nodes))
        nodes.append(node)
    return GraphRecord(
        nodes=tuple(
            dataclasses.replace(
                node.record,
                attrs=node.attrs,
                inputs=tuple(node.inputs),
                control_deps=tuple(moved[dep] for dep in node.record.control_deps),
                input_versions=node.record.input_versions
                and node.record.input_versions + (0,) * (len(node.inputs) - len(node.record.inputs)),
            )
            for node in nodes
        ),
        heads=tuple((moved[source], output) for source, output in graph.heads),
        arg_nodes=tuple(i for i, node in enumerate(nodes) if node.record.is_variable),
        attrs=graph.attrs,
        head_versions=graph.head_versions,
    )
