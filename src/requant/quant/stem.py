"""The convolution that reads an image: whether its integers are worth what they cost.

An image comes with 256 levels a channel, and quantizing it, with one scale for channels of different spread, adds noise
of the size of those levels: in small networks that is half of all noise that int8 makes. The convolution that reads it
has three input channels, which integer kernels fill badly anyway. Where it is a small part of all multiplications it is
computed in float: nothing is quantized before it, and its output as it would have been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from requant.passes.rewrite import constant
from requant.quant import flow
from requant.quant.macs import node_macs

#: Input channels of an image.
CHANNELS = 4


def cheap_stems(
    nodes: Sequence[ir.Node], compute: set[ir.Node], carries: Callable[[ir.Node], bool], share: float
) -> set[ir.Node]:
    """Convolutions of an input of few channels that make up at most a share of all multiplications, together.

    Args:
        nodes: of the graph, in order, with shapes inferred.
        compute: those that multiply and would become int8.
        carries: which nodes only move or rescale values, so that what is behind them is still the input.
        share: from 0 (none) to 1.
    """
    if share <= 0:
        return set()
    made = flow.reached(nodes, lambda n: n in compute, lambda n: True, forward=True)
    found = {n for n in compute if n not in made and _reads_an_image(n, carries)}
    counts = {n: node_macs(n, open_batch=True) for n in compute}
    if not found or any(c is None for c in counts.values()):
        return set()
    total, own = sum(c or 0 for c in counts.values()), sum(counts[n] or 0 for n in found)
    return found if own <= share * total else set()


def _reads_an_image(node: ir.Node, carries: Callable[[ir.Node], bool]) -> bool:
    weight = constant(node.inputs[1]) if node.op_type == "Conv" else None
    if weight is None or weight.ndim != 4 or weight.shape[1] > CHANNELS:
        return False
    source = node.inputs[0]
    while source is not None and (maker := source.producer()) is not None:
        if not carries(maker):
            return False
        source = next((v for v in maker.inputs if v is not None and v.const_value is None), None)
    return source is not None and source.is_graph_input()
