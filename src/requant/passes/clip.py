"""Bring clipping activations to one form: Relu, or one Clip with constant bounds."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import (
    NodePass,
    absorb,
    bypass,
    can_bypass,
    constant,
    initializer,
    maker,
    replace_node,
    scalar,
)

_CLIPPING = ("Relu", "Clip", "Min", "Max")


def bounds(node: ir.Node) -> tuple[float, float] | None:
    """The lower and upper bound of Relu, Clip, or Min and Max with a scalar; None if they are not constants."""
    if node.op_type == "Relu":
        return 0.0, math.inf
    if node.op_type == "Clip":
        found = []
        for index, default in ((1, -math.inf), (2, math.inf)):
            value = node.inputs[index] if len(node.inputs) > index else None
            number = default if value is None else scalar(value)
            if number is None or math.isnan(number):
                return None
            found.append(number)
        return found[0], found[1]
    if len(node.inputs) != 2:
        return None
    at = _scalar_side(node)
    number = None if at is None else scalar(node.inputs[at])
    if number is None or math.isnan(number):
        return None
    return (-math.inf, number) if node.op_type == "Min" else (number, math.inf)


def _scalar_side(node: ir.Node) -> int | None:
    """Which input is a scalar constant that does not raise the rank of the result."""
    for at in (1, 0):
        array = constant(node.inputs[at])
        other = node.inputs[1 - at]
        if array is None or array.size != 1 or other is None or constant(other) is not None:
            continue
        if array.ndim == 0 or (other.shape is not None and array.ndim <= other.shape.rank()):
            return at
    return None


def data_input(node: ir.Node) -> ir.Value | None:
    """The tensor that is clipped."""
    if node.op_type in ("Min", "Max"):
        at = _scalar_side(node)
        return None if at is None else node.inputs[1 - at]
    return node.inputs[0]


class MergeClips(NodePass):
    """A chain of Relu, Clip, Min and Max with scalars becomes one Relu or Clip; one that changes nothing goes."""

    op_types = frozenset(_CLIPPING)

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Merge one clipping operator with the one before it, and write the result in its simplest form."""
        own, source = bounds(node), data_input(node)
        if own is None or source is None or source.dtype not in _FLOATS:
            return False
        before = maker(source, *_CLIPPING)
        inner = None if before is None or before.graph is not graph else bounds(before)
        inner_source = None if before is None else data_input(before)
        if before is not None and inner is not None and inner_source is not None:
            # clip(clip(x, a, b), c, d): the outer bounds cut what the inner ones leave
            low, high = (min(max(v, own[0]), own[1]) for v in inner)
            _write(graph, node, inner_source, low, high, before)
            return True
        if own[0] == -math.inf and own[1] == math.inf and can_bypass(node, source):
            bypass(node, source)
            return True
        if node.op_type == "Relu" or (node.op_type == "Clip" and own != (0.0, math.inf)):
            return False
        _write(graph, node, source, *own)
        return True


def _write(
    graph: ir.Graph, node: ir.Node, source: ir.Value, low: float, high: float, before: ir.Node | None = None
) -> None:
    """Put the Relu or Clip with these bounds in the place of ``node`` and of the clip ``before`` it."""
    if low == 0.0 and high == math.inf:
        made = replace_node(graph, node, "Relu", [source])
    else:
        assert source.dtype is not None
        dtype = source.dtype.numpy()
        ends = [
            None if math.isinf(v) else initializer(graph, f"{node.outputs[0].name}_{which}", np.asarray(v, dtype))
            for which, v in (("min", low), ("max", high))
        ]
        made = replace_node(graph, node, "Clip", [source, *ends])
    if before is not None:
        absorb(made, before)
        graph.remove(before, safe=True)


_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)
