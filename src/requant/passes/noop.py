"""Remove nodes that hand their input on unchanged."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import (
    NodePass,
    absorb,
    attribute,
    bypass,
    can_bypass,
    constant,
    int_list,
    ints,
    rank,
    static_shape,
)


class RemoveNoOps(NodePass):
    """Identity, Dropout at inference, casts to the same type, reshapes to the same shape, and so on."""

    op_types = frozenset(
        {
            "Identity", "Dropout", "Cast", "Reshape", "Flatten", "Transpose", "Concat", "Sum", "Max", "Min", "Mean",
            "Mul", "Add", "Sub", "Div", "Pow", "Pad", "Expand", "Tile", "Slice", "Squeeze", "Unsqueeze",
        }
    )  # fmt: skip

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Remove one node if it changes nothing."""
        source = _handed_on(node)
        if source is None or any(o.uses() or o.is_graph_output() for o in node.outputs[1:]):
            return False
        if not can_bypass(node, source):
            return False
        before = source.producer()
        if before is not None:
            absorb(before, node)
        bypass(node, source)
        return True


def _handed_on(node: ir.Node) -> ir.Value | None:
    """The input that comes out unchanged, or None."""
    first = node.inputs[0] if node.inputs else None
    kind, out = node.op_type, node.outputs[0]
    if first is None:
        return None
    if kind == "Identity":
        return first
    if kind == "Dropout":
        training = constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else np.zeros(1)
        return first if training is not None and not training.any() else None
    if kind == "Cast":
        return first if first.dtype is not None and int(first.dtype) == attribute(node, "to", None) else None
    if kind in ("Concat", "Sum", "Max", "Min", "Mean"):
        return first if len(node.inputs) == 1 else None
    if kind in ("Mul", "Add", "Sub", "Div", "Pow"):
        return _neutral(node)
    if kind == "Transpose":
        order = ints(node, "perm")
        size = rank(first)
        return first if (order is not None and order == sorted(order)) or size in (0, 1) else None
    if kind == "Pad":
        pads = int_list(node.inputs[1]) if len(node.inputs) > 1 else None
        return first if pads is not None and not any(pads) else None
    if kind == "Tile":
        repeats = int_list(node.inputs[1])
        return first if repeats is not None and all(r == 1 for r in repeats) else None
    before, after = static_shape(first), static_shape(out)
    if before is not None and before == after:
        return first if kind != "Slice" or _forward(node) else None
    if kind == "Reshape" and _open_but_same(first, out, node):
        return first
    return None


def _neutral(node: ir.Node) -> ir.Value | None:
    """x + 0, x − 0, x × 1, x / 1, x ** 1, where the constant does not grow the shape."""
    neutral = 0 if node.op_type in ("Add", "Sub") else 1
    for at in (1, 0) if node.op_type in ("Add", "Mul") else (1,):
        array, other = constant(node.inputs[at]), node.inputs[1 - at]
        if array is None or other is None or array.size == 0 or not np.all(array == neutral):
            continue
        if _stays(array.shape, other):
            return other
    return None


def _stays(shape: tuple[int, ...], other: ir.Value) -> bool:
    """Broadcasting a constant of this shape against a tensor leaves the tensor's shape as it is."""
    if all(d == 1 for d in shape) and len(shape) <= (rank(other) or 0):
        return True
    if other.shape is None or len(shape) > other.shape.rank():
        return not shape
    return all(d in (1, own) for d, own in zip(shape, list(other.shape)[other.shape.rank() - len(shape) :]))


def _forward(node: ir.Node) -> bool:
    """A Slice that keeps the shape keeps the order too, unless a step is negative."""
    steps = int_list(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else [1]
    return steps is not None and all(s == 1 for s in steps)


def _open_but_same(first: ir.Value, out: ir.Value, node: ir.Node) -> bool:
    """A reshape whose target names all dimensions but one, which are those of its input."""
    target = int_list(node.inputs[1])
    if target is None or first.shape is None or len(target) != first.shape.rank():
        return False
    open_dims = [i for i, t in enumerate(target) if not (t > 0 and first.shape[i] == t)]
    if len(open_dims) > 1:
        return all(target[i] == 0 for i in open_dims) and not attribute(node, "allowzero", 0)
    return all(target[i] == -1 or (target[i] == 0 and not attribute(node, "allowzero", 0)) for i in open_dims)
