"""The float network behind an INT8 graph: quantizers taken out, fused nodes unfolded."""

from __future__ import annotations

from requant.ops import registry
from requant.symbol.tree import Entry, Node, Symbol

#: int8 layers and the float operators they came from.
LAYERS = {
    "_contrib_quantized_pooling": "Pooling",
    "_contrib_quantized_concat": "Concat",
    "_contrib_quantized_flatten": "Flatten",
}
_MOST_OUTPUTS = 32


def float_network(symbol: Symbol) -> Symbol:
    """The same outputs in float."""
    made: dict[tuple[int, int], Entry] = {}

    def put(node: Node, entry: Entry) -> None:
        made.update({(id(node), i): entry for i in range(3)})

    for node in symbol.nodes:
        if node.op is None:
            put(node, (node, 0))
            continue
        inputs = [made[id(n), i] for n, i in node.inputs]
        if node.op.name in ("_contrib_quantize_v2", "_contrib_dequantize"):
            put(node, inputs[0])
        elif node.subgraphs:
            put(node, _unfold(node.subgraphs[0], inputs))
        elif node.op.name in LAYERS:
            put(node, (Node(registry.get(LAYERS[node.op.name]), node.name, node.attrs, inputs[: len(inputs) // 3]), 0))
        else:
            copy = Node(node.op, node.name, node.attrs, inputs)
            made.update({(id(node), i): (copy, i) for i in range(_MOST_OUTPUTS)})
    return Symbol([made[id(n), i] for n, i in symbol.entries])


def _unfold(graph: Symbol, inputs: list[Entry]) -> Entry:
    made: dict[tuple[int, int], Entry] = {(id(v), 0): e for v, e in zip(graph.variables(), inputs)}
    for node in graph.nodes:
        if node.op is not None:
            made[id(node), 0] = (Node(node.op, node.name, node.attrs, [made[id(n), i] for n, i in node.inputs]), 0)
    head, index = graph.entries[0]
    return made[id(head), index]
