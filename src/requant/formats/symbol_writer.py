"""Records to the text that MXNet 1.9.1 writes, byte for byte."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from requant.errors import GraphError, counted
from requant.formats.symbol_records import VERSION, Entry, GraphAttr, GraphRecord, NodeRecord

_ESCAPES = str.maketrans({"\r": "\\r", "\n": "\\n", "\\": "\\\\", "\t": "\\t", '"': '\\"'})
#: Lists of numbers up to this length stay on one line.
_ONE_LINE = 10


def _string(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _bracket(items: Sequence[str], brackets: str, pad: str, multi_line: bool) -> str:
    if not items or not multi_line:
        return brackets[0] + ", ".join(items) + brackets[1]
    inner = "\n" + pad + "  "
    return brackets[0] + inner + (", " + inner).join(items) + "\n" + pad + brackets[1]


def _numbers(values: Iterable[int], pad: str) -> str:
    items = [str(value) for value in values]
    return _bracket(items, "[]", pad, len(items) > _ONE_LINE)


def _entries(entries: Sequence[Entry], versions: Sequence[int], pad: str) -> str:
    numbers = versions or (0,) * len(entries)
    if len(numbers) != len(entries):
        raise GraphError(
            "entry versions do not fit the entries",
            got=f"{len(numbers)} for {counted(len(entries), 'entry', 'entries')}",
        )
    items = [f"[{node}, {output}, {version}]" for (node, output), version in zip(entries, numbers)]
    return _bracket(items, "[]", pad, len(items) > _ONE_LINE)


def _object(pairs: Mapping[str, str], pad: str, multi_line: bool) -> str:
    return _bracket([f'"{key}": {value}' for key, value in pairs.items()], "{}", pad, multi_line)


def _strings(attrs: Mapping[str, str], pad: str) -> str:
    items = [f"{_string(key)}: {_string(attrs[key])}" for key in sorted(attrs, key=str.encode)]
    return _bracket(items, "{}", pad, len(items) > 1)


def _graph_attr(attr: GraphAttr, pad: str) -> str:
    kind, value = attr
    if isinstance(value, int):
        text = str(value)
    elif isinstance(value, str):
        text = _string(value)
    elif kind == "list_str":
        text = _bracket([_string(str(item)) for item in value], "[]", pad, True)
    else:
        text = _numbers((int(item) for item in value), pad)
    return f'["{kind}", {text}]'


def _written(graph: GraphRecord, mutated: Callable[[NodeRecord], Sequence[int]]) -> GraphRecord:
    """The same graph with entry versions where it has none: how often each state was written before."""
    counts: dict[int, int] = {}
    nodes = []
    for node in graph.nodes:
        writes = frozenset(mutated(node)) if not node.is_variable else frozenset()
        versions = []
        for place, (source, _) in enumerate(node.inputs):
            if place in writes:
                counts[source] = counts.get(source, 0) + 1
            versions.append(counts.get(source, 0))
        nodes.append(dataclasses.replace(node, input_versions=node.input_versions or tuple(versions)))
    heads = graph.head_versions or tuple(counts.get(source, 0) for source, _ in graph.heads)
    return GraphRecord(tuple(nodes), graph.heads, graph.arg_nodes, graph.attrs, heads)


def _node(node: NodeRecord, outputs: Callable[[NodeRecord], int], pad: str) -> str:
    inner = pad + "  "
    pairs = {"op": _string(node.op), "name": _string(node.name)}
    if node.attrs:
        pairs["attrs"] = _strings(node.attrs, inner)
    pairs["inputs"] = _entries(node.inputs, node.input_versions, inner)
    if node.control_deps:
        pairs["control_deps"] = _numbers(node.control_deps, inner)
    if node.subgraphs:
        nested = [_graph(graph, outputs, inner + "  ") for graph in node.subgraphs]
        pairs["subgraphs"] = _bracket(nested, "[]", inner, True)
    return _object(pairs, pad, True)


def _graph(graph: GraphRecord, outputs: Callable[[NodeRecord], int], pad: str) -> str:
    inner = pad + "  "
    row_ptr = [0]
    for node in graph.nodes:
        row_ptr.append(row_ptr[-1] + (1 if node.is_variable else outputs(node)))
    pairs = {
        "nodes": _bracket([_node(node, outputs, inner + "  ") for node in graph.nodes], "[]", inner, True),
        "arg_nodes": _numbers(graph.arg_nodes, inner),
        "node_row_ptr": _numbers(row_ptr, inner),
        "heads": _entries(graph.heads, graph.head_versions, inner),
    }
    if graph.attrs:
        attrs = {key: _graph_attr(graph.attrs[key], inner + "  ") for key in sorted(graph.attrs)}
        pairs["attrs"] = _object(attrs, inner, len(attrs) > 1)
    return _object(pairs, pad, True)


def dumps(
    graph: GraphRecord,
    version: int = VERSION,
    *,
    outputs: Callable[[NodeRecord], int],
    mutated: Callable[[NodeRecord], Sequence[int]] | None = None,
) -> str:
    """The symbol JSON of a graph, in the layout of MXNet 1.9.1.

    Args:
        graph: what to write. Its ``mxnet_version`` is replaced by ``version``; other graph attributes are kept.
        version: ``major * 10000 + minor * 100 + patch``.
        outputs: the total number of outputs of an operator node, hidden ones included (``node_row_ptr``).
        mutated: the input places that a node writes (``(3, 4)`` for BatchNorm). If given, entry versions that the
            records do not have are counted from it; if not, they are 0. No reader needs them.

    Raises:
        GraphError: a record holds more or fewer entry versions than entries.
    """
    written = graph if mutated is None else _written(graph, mutated)
    attrs: dict[str, GraphAttr] = {**graph.attrs, "mxnet_version": ("int", version)}
    return _graph(
        GraphRecord(written.nodes, written.heads, written.arg_nodes, attrs, written.head_versions), outputs, ""
    )
