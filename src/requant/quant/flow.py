"""How int8 spreads through a graph: MXNet's ``smart`` rule, and which nodes hand an int8 tensor on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

#: Operators that MXNet quantizes always, as ONNX names (Convolution, FullyConnected, RNN, fused attention).
MUST = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
#: Operators that MXNet quantizes when it pays (Pooling, Activation, Concat, Flatten, elemwise_add, elemwise_mul,
#: BatchNorm, Embedding). Activation means relu, and Concat means an axis after the first.
SUPPORT = frozenset(
    {
        "MaxPool",
        "AveragePool",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "Relu",
        "Concat",
        "Flatten",
        "Add",
        "Mul",
        "BatchNormalization",
    }
)


def before(node: ir.Node) -> list[ir.Node]:
    """The nodes that make the inputs of a node."""
    return [p for v in node.inputs if v is not None and (p := v.producer()) is not None]


def after(node: ir.Node) -> list[ir.Node]:
    """The nodes that read the outputs of a node."""
    return list(dict.fromkeys(use.node for out in node.outputs for use in out.uses()))


def reached(
    nodes: Sequence[ir.Node], seeds: Callable[[ir.Node], bool], links: Callable[[ir.Node], bool], *, forward: bool
) -> set[ir.Node]:
    """Nodes that a chain of links joins to a seed, in one direction. Seeds are not in it unless chains reach them.

    Args:
        nodes: in topological order.
        seeds, links: which nodes start a chain, and which carry it on.
    """
    found: set[ir.Node] = set()
    for node in nodes if forward else reversed(nodes):
        neighbours = before(node) if forward else after(node)
        if any(seeds(n) or (links(n) and n in found) for n in neighbours):
            found.add(node)
    return found


def smart(
    nodes: Sequence[ir.Node], must: Callable[[ir.Node], bool], support: Callable[[ir.Node], bool]
) -> set[ir.Node]:
    """MXNet's ``smart`` mode: all must nodes, and each support node that lies on a chain of nothing but support nodes
    from one must node to another (an ancestor of one and a descendant of one, each way through support nodes alone).
    """
    down = reached(nodes, must, support, forward=True)
    up = reached(nodes, must, support, forward=False)
    return {n for n in nodes if must(n) or (support(n) and n in down and n in up)}
