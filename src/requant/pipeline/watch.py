"""Models whose outputs are what calibration looks at: whole tensors, or numbers that the graph itself reduces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import forget_names


def watching(model: ir.Model, tensors: Sequence[str], *, channels_last: bool = False) -> ir.Model:
    """The model with these tensors as its outputs, and nothing else.

    Args:
        channels_last: hand out images as (batch, ..., channels), for engines in whose memory they lie so.
    """
    new = model.clone()
    forget_names(new)
    values = {str(v.name): v for n in new.graph for v in n.outputs}
    new.graph.outputs.clear()
    for i, tensor in enumerate(tensors):
        value = values[tensor]
        new.graph.outputs.append(_turned(new, value, i) if channels_last else value)
    return new


def _turned(model: ir.Model, value: ir.Value, number: int) -> ir.Value:
    """The value with its channels last, if it is an image that something with channels in front has made."""
    if value.shape is None or len(value.shape) not in (4, 5):
        return value
    order = [0, *range(2, len(value.shape)), 1]
    shape = ir.Shape([value.shape[axis] for axis in order])
    out = ir.Value(name=f"requant.turned.{number}", type=value.type, shape=shape)
    attributes = [ir.AttrInt64s("perm", order)]
    model.graph.append(ir.Node("", "Transpose", [value], attributes=attributes, outputs=[out], name=f"{out.name}.node"))
    return out


#: Operators that can make NaN of finite numbers. Without them NaN comes from Inf alone, which a maximum shows.
_MAKES_NAN = frozenset(
    {"Div", "Log", "Sqrt", "Pow", "Reciprocal", "Acos", "Asin", "Acosh", "Atanh", "Mod", "LayerNormalization"}
    | {"InstanceNormalization", "GroupNormalization", "BatchNormalization", "LpNormalization", "Softmax", "LogSoftmax"}
)
_REDUCTIONS = ("ReduceMin", "ReduceMax", "ReduceSum", "Size")


@dataclass(frozen=True)
class Reduction:
    """A model whose outputs are the ends of tensors, and which output is what of which tensor."""

    model: ir.Model
    outputs: tuple[tuple[str, str], ...]

    def read(self, outs: Sequence[np.ndarray]) -> tuple[dict[str, tuple[float, float]], dict[str, int], bool]:
        """Ends and sizes by tensor, and whether all sums were finite."""
        found: dict[str, dict[str, float]] = {}
        for (tensor, kind), out in zip(self.outputs, outs):
            found.setdefault(tensor, {})[kind] = float(out)
        ends = {t: (f.get("ReduceMin", 0.0), f["ReduceMax"]) if f["Size"] else (0.0, 0.0) for t, f in found.items()}
        # The minimum of what a Relu made is 0; where all of it is positive, the range still reaches down to 0.
        sizes = {t: int(f["Size"]) for t, f in found.items()}
        return ends, sizes, all(np.isfinite(f.get("ReduceSum", 0.0)) for f in found.values())


def reducing(model: ir.Model, tensors: Sequence[str]) -> Reduction:
    """The model with the ends of tensors as outputs: maximum, size, minimum where it can be below zero, and the sum
    where NaN could arise, since minimum and maximum may pass over a NaN and a sum cannot."""
    new = watching(model, tensors)
    watched = list(new.graph.outputs)
    new.graph.outputs.clear()
    checked = any(n.op_type in _MAKES_NAN for n in new.graph)
    kept: list[tuple[str, str]] = []
    for i, value in enumerate(watched):
        for kind in _REDUCTIONS:
            if (kind == "ReduceMin" and _is_rectified(value)) or (kind == "ReduceSum" and not checked):
                continue
            attributes = [] if kind == "Size" else [ir.AttrInt64("keepdims", 0)]
            out = ir.Value(
                name=f"requant.{kind}.{i}",
                type=ir.TensorType(ir.DataType.INT64 if kind == "Size" else ir.DataType.FLOAT),
                shape=ir.Shape([]),
            )
            new.graph.append(ir.Node("", kind, [value], attributes=attributes, outputs=[out], name=f"{out.name}.node"))
            new.graph.outputs.append(out)
            kept.append((tensors[i], kind))
    return Reduction(new, tuple(kept))


def _is_rectified(value: ir.Value) -> bool:
    """What made the value cuts off at zero."""
    node = value.producer()
    if node is None:
        return False
    if node.op_type in ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool") and node.inputs[0] is not None:
        return _is_rectified(node.inputs[0])
    if node.op_type == "Clip":
        low = node.inputs[1] if len(node.inputs) > 1 else None
        return low is not None and low.const_value is not None and float(low.const_value.numpy()) == 0.0
    return node.op_type == "Relu"


def averaging(model: ir.Model, axes: Mapping[str, int]) -> ir.Model:
    """Add outputs (samples, channels) to a model: the mean of each channel of each sample.

    Args:
        model: is changed.
        axes: by tensor name, the axis of its channels; axis 0 is the batch.
    """
    values = {str(v.name): v for n in model.graph for v in n.outputs}
    for i, (tensor, axis) in enumerate(axes.items()):
        value = values[tensor]
        assert value.shape is not None
        over = [a for a in range(1, value.shape.rank()) if a != axis % value.shape.rank()]
        name = f"requant.mean.{i}"
        out = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT))
        inputs, attributes = [value], [ir.AttrInt64("keepdims", 0)]
        if (model.opset_imports.get("") or 0) < 18:
            attributes.append(ir.AttrInt64s("axes", over))
        elif over:
            axes_value = ir.Value(
                name=f"{name}.axes",
                type=ir.TensorType(ir.DataType.INT64),
                shape=ir.Shape([len(over)]),
                const_value=ir.Tensor(np.array(over, np.int64), name=f"{name}.axes"),
            )
            model.graph.initializers[f"{name}.axes"] = axes_value
            inputs.append(axes_value)
        if not over:  # without axes it would reduce all of its input
            op, attributes = "Identity", []
        else:
            op = "ReduceMean"
        model.graph.append(ir.Node("", op, inputs, attributes=attributes, outputs=[out], name=f"{name}.node"))
        model.graph.outputs.append(out)
    return model


def by_depth(model: ir.Model) -> list[int]:
    """Sort the outputs of a watching model by where what they look at is made; for each of before, its place now.

    Engines compute in the order of the outputs. So what looks at a tensor runs right behind what makes it, while it is
    in the caches, and its memory is free again: without this, calibration by minimum and maximum of ResNet-50 takes a
    tenth of the forward pass longer.

    Args:
        model: is changed.
    """
    made = {out: i for i, node in enumerate(model.graph) for out in node.outputs}

    def depth(value: ir.Value) -> int:
        node = value.producer()
        if node is not None and str(value.name).startswith("requant.") and node.inputs[0] is not None:
            value = node.inputs[0]
        return made.get(value, -1)

    before = list(model.graph.outputs)
    after = sorted(before, key=depth)
    model.graph.outputs.clear()
    model.graph.outputs.extend(after)
    places = {id(v): i for i, v in enumerate(after)}
    return [places[id(v)] for v in before]


def averaged(model: ir.Model, axes: Mapping[str, int]) -> dict[str, int]:
    """Those of ``axes`` whose tensor has a batch axis in front of its channels."""
    values = {str(v.name): v for n in model.graph for v in n.outputs}
    found: dict[str, int] = {}
    for tensor, axis in axes.items():
        shape = values[tensor].shape if tensor in values else None
        if shape is not None and shape.rank() >= 2 and axis % shape.rank() != 0:
            found[tensor] = axis
    return found
