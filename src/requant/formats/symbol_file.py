"""Symbol ↔ symbol JSON: links the records of ``symbol_json`` to the registry and the expression tree."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from requant.errors import FormatError, GraphError
from requant.formats.atomic import atomic_write
from requant.formats.symbol_json import parse
from requant.formats.symbol_records import VERSION, GraphRecord, NodeRecord
from requant.formats.symbol_writer import dumps as write_record
from requant.ops import registry
from requant.symbol.tree import Entry, Node, Symbol, post_order

_AMP_CASTS = {"amp_cast", "amp_multicast"}


class _Facts:
    """What the reader needs to know of operators for upgrading old files."""

    def input_names(self, op: str, attrs: Mapping[str, str]) -> list[str] | None:
        found = registry.find(op)
        if found is None:
            return None
        parsed = found.parse(attrs, where=f"operator {op}")
        count = int(attrs.get(found.variadic, 0)) if found.variadic else None
        return list(found.input_names(parsed, count))


def loads(text: str | bytes, where: object = "symbol JSON") -> Symbol:
    """Read a symbol from JSON text of any MXNet version, 0.8 to 2.0.

    Raises:
        FormatError: not a symbol file. GraphError, UnknownOperatorError, AttributeValueError: it names the node.
    """
    return to_symbol(parse(text, str(where), _Facts()), where)


def load(path: str | os.PathLike[str]) -> Symbol:
    """Read a symbol file.

    Raises:
        FileNotFoundError: there is no such file. Others as ``loads``.
    """
    return loads(Path(path).read_bytes(), os.fspath(path))


def to_symbol(record: GraphRecord, where: object = "symbol JSON") -> Symbol:
    """Build the tree of a record. Every operator must be known and every attribute readable."""
    nodes: list[Node] = []
    for r in record.nodes:
        if r.op == "null":
            nodes.append(Node(None, r.name, r.attrs))
            continue
        op = registry.get(r.op, where=f"{where}: node {r.name!r}")
        inner = [to_symbol(s, f"{where}: subgraph of {r.name!r}") for s in r.subgraphs]
        node = Node(op, r.name, r.attrs, [(nodes[i], k) for i, k in r.inputs], inner)
        _check_inputs(node, where)
        nodes.append(node)
    return Symbol([_entry(nodes, i, k, where) for i, k in record.heads])


def _entry(nodes: list[Node], index: int, output: int, where: object) -> Entry:
    node = nodes[index]
    count = len(node.output_names())
    if output >= count:
        raise GraphError(
            "an output of the graph does not exist",
            where=f"{where}: node {node.name!r}",
            got=f"output {output}",
            expected=f"0 to {count - 1}",
        )
    return node, output


def _check_inputs(node: Node, where: object) -> None:
    assert node.op is not None
    names = node.op.input_names(node.parsed, len(node.inputs))
    needed = [n for n in names if n not in node.op.optional and n not in node.op.labels]
    if len(node.inputs) > len(names) or len(node.inputs) < len(needed):
        raise GraphError(
            "wrong number of inputs",
            where=f"{where}: node {node.name!r} ({node.op.name})",
            got=len(node.inputs),
            expected=f"{len(names)}: {', '.join(names)}",
        )
    for source, output in node.inputs:
        if output >= max(1, len(source.output_names())):
            raise GraphError(
                "an input reads an output that does not exist",
                where=f"{where}: node {node.name!r} ({node.op.name})",
                got=f"output {output} of {source.name!r}",
                expected=f"0 to {len(source.output_names()) - 1}",
            )


def to_record(symbol: Symbol, version: int | None = VERSION) -> GraphRecord:
    """The record of a symbol: nodes in depth-first post-order, as MXNet writes them."""
    order = post_order(symbol.entries)
    index = {id(n): i for i, n in enumerate(order)}
    records = tuple(
        NodeRecord(
            op="null" if n.op is None else n.op.name,
            name=n.name,
            attrs=dict(n.attrs),
            inputs=tuple((index[id(s)], k) for s, k in n.inputs),
            subgraphs=tuple(to_record(s, None) for s in n.subgraphs),
        )
        for n in order
    )
    heads = [(index[id(n)], k) for n, k in symbol.entries]
    return GraphRecord.build(records, heads, {} if version is None else {"mxnet_version": ("int", version)})


def _total_outputs(record: NodeRecord) -> int:
    if record.op == "null":
        return 1
    op = registry.get(record.op)
    return op.count_outputs(op.parse(record.attrs))


def _mutated(record: NodeRecord) -> tuple[int, ...]:
    """Places of the auxiliary states, which MXNet counts as written by the node."""
    if record.op == "null":
        return ()
    op = registry.get(record.op)
    names = op.input_names(op.parse(record.attrs), len(record.inputs))
    return tuple(i for i, n in enumerate(names) if n in op.aux)


def dumps(symbol: Symbol, *, remove_amp_cast: bool = False) -> str:
    """JSON text in the layout of MXNet 1.9.1.

    Args:
        remove_amp_cast: drop ``amp_cast`` and ``amp_multicast`` nodes, as ``Symbol.save`` does by default.
    """
    if remove_amp_cast:
        symbol = without_amp_casts(symbol)
    return write_record(to_record(symbol), VERSION, outputs=_total_outputs, mutated=_mutated)


def without_amp_casts(symbol: Symbol) -> Symbol:
    """The same symbol with casts of automatic mixed precision taken out; an output keeps its own, as in MXNet."""
    made: dict[tuple[int, int], Entry] = {}
    for node in symbol.nodes:
        inputs = [made[id(s), k] for s, k in node.inputs]
        if node.op is not None and node.op.name in _AMP_CASTS:
            for k, entry in enumerate(inputs):
                made[id(node), k] = entry
            continue
        same = all(a is b and i == k for (a, i), (b, k) in zip(inputs, node.inputs))
        copy = node if same else Node(node.op, node.name, node.attrs, inputs, node.subgraphs)
        for k in range(len(node.output_names())):
            made[id(node), k] = (copy, k)
    heads = {id(n): n for n, _ in symbol.entries if n.op is not None and n.op.name in _AMP_CASTS}
    for i, node in heads.items():
        copy = Node(node.op, node.name, node.attrs, [made[id(s), k] for s, k in node.inputs])
        for k in range(len(node.output_names())):
            made[i, k] = (copy, k)
    return Symbol([made[id(n), k] for n, k in symbol.entries])


def save(symbol: Symbol, path: str | os.PathLike[str], *, remove_amp_cast: bool = True) -> None:
    """Write a symbol file, atomically."""
    text = dumps(symbol, remove_amp_cast=remove_amp_cast)
    if not text:
        raise FormatError("an empty symbol cannot be written", where=os.fspath(path))
    with atomic_write(path) as file:
        file.write(text.encode())
