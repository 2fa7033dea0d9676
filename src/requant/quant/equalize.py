"""Cross-layer equalization: channels of equal size between two layers, without changing what the network computes.

A channel may be divided by a positive number where it is made, and multiplied by it where it is read, if all that lies
between commutes with that: Relu, pooling, sums of tensors that are divided alike. One scale for all channels of a
tensor is finest where they are of equal size; depthwise networks come out of training with channels that differ by
factors of a hundred. Weights alone say what to divide by: row range and column range meet in the middle (Nagel et al.
2019, section 4.1).

Clip is left alone: Relu6 of a divided channel would be another function, and most channels fill 0 to 6 anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from requant.passes.rewrite import (
    Array,
    attribute,
    constant,
    forget_names,
    is_default,
    is_float,
    rank,
    replace_constant,
)

F64 = npt.NDArray[np.float64]

#: Operators that a positive factor on a channel passes through unchanged.
_HOMOGENEOUS = frozenset(
    {"Relu", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Identity", "Dropout"}
)
#: Channels are divided by at most this, and at least one over this.
_LARGEST = 64.0


@dataclass
class _Tied:
    """Tensors whose channels are divided alike: by whom they are made and read."""

    values: list[ir.Value] = field(default_factory=list)
    made: list[F64] = field(default_factory=list)
    read: list[F64] = field(default_factory=list)


def equalized(model: ir.Model) -> ir.Model:
    """A model that computes the same with channels of more equal size. The given model is not touched.

    Args:
        model: an optimized float model.
    """
    new = model.clone()
    forget_names(new)
    factors = _Equalizer(new.graph).factors()
    for node in new.graph:
        _rescale(new.graph, node, factors)
    return new


class _Equalizer:
    """Which tensors are tied to each other, and which to something that cannot be rescaled."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.parents: dict[ir.Value, ir.Value] = {}
        self.fixed: set[ir.Value] = set()
        nested = any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for n in graph for a in _attributes(n))
        for node in graph:
            if nested or not self._passes(node):
                self._fix(*node.inputs, *node.outputs)
        self._fix(*graph.inputs, *graph.outputs)

    def factors(self) -> dict[ir.Value, F64]:
        """What each tensor's channels are divided by, where that is not 1 throughout."""
        fixed = {self._root(v) for v in self.fixed}
        groups: dict[ir.Value, _Tied] = {}
        for node in self.graph:
            for value in node.outputs:
                if (root := self._root(value)) not in fixed:
                    groups.setdefault(root, _Tied()).values.append(value)
        for node in self.graph:
            sizes = _sizes(node)
            source, made = _source(node), node.outputs[0] if node.outputs else None
            if sizes is None or source is None or made is None:
                continue
            if (group := groups.get(self._root(made))) is not None:
                group.made.append(sizes[1])
            if (group := groups.get(self._root(source))) is not None:
                group.read.append(sizes[0])
        found: dict[ir.Value, F64] = {}
        for group in groups.values():
            factor = _middle(group)
            if factor is not None:
                found.update(dict.fromkeys(group.values, factor))
        return found

    def _passes(self, node: ir.Node) -> bool:
        """Note how a node ties its tensors; False if they cannot be rescaled."""
        if not is_default(node) or not node.inputs or node.inputs[0] is None:
            return False
        out = node.outputs[0]
        if _sizes(node) is not None:
            return True  # it makes one tensor and reads another: they are not tied
        if node.op_type in _HOMOGENEOUS:
            return self._tie(node.inputs[0], out)
        if node.op_type in ("Flatten", "Reshape", "Squeeze"):
            before, after = node.inputs[0].shape, out.shape
            if before is None or after is None or after.rank() != 2 or before.rank() < 3 or before[1] != after[1]:
                return False
            return self._tie(node.inputs[0], out)
        if node.op_type == "Add" and len(node.inputs) == 2:
            left, right = node.inputs
            if left is None or right is None:
                return False
            vector = _vector(node)
            if vector is not None:
                return self._tie(right if constant(left) is not None else left, out)
            if constant(left) is None and constant(right) is None and rank(left) == rank(right) == rank(out):
                same = left.shape is not None and right.shape is not None and left.shape[1] == right.shape[1]
                return same and self._tie(left, out) and self._tie(right, out)
        return False

    def _tie(self, one: ir.Value, other: ir.Value) -> bool:
        if (rank(one) or 0) < 2 or (rank(other) or 0) < 2:
            return False
        a, b = self._root(one), self._root(other)
        if a is not b:
            self.parents[a] = b
        return True

    def _root(self, value: ir.Value) -> ir.Value:
        while (parent := self.parents.get(value)) is not None:
            value = parent
        return value

    def _fix(self, *values: ir.Value | None) -> None:
        self.fixed.update(v for v in values if v is not None and constant(v) is None)


def _attributes(node: ir.Node) -> list[ir.Attr]:
    return list(node.attributes.values())


def _middle(group: _Tied) -> F64 | None:
    """The geometric mean of row and column range, around 1."""
    if not group.made or not group.read or len({len(v) for v in (*group.made, *group.read)}) != 1:
        return None
    made, read = np.max(group.made, axis=0), np.max(group.read, axis=0)
    alive = (made > 0) & (read > 0)
    if not alive.any():
        return None
    factor = np.ones(len(made))
    factor[alive] = np.sqrt(made[alive] / read[alive])
    factor[alive] /= np.exp(np.log(factor[alive]).mean())
    return np.clip(factor, 1 / _LARGEST, _LARGEST)


def _source(node: ir.Node) -> ir.Value | None:
    """The computed tensor that a linear node reads."""
    return next((v for v in node.inputs[:2] if v is not None and constant(v) is None), None)


def _matrix(node: ir.Node) -> F64 | None:
    """The weight of a linear node as (groups, rows, columns, taps); None if its channels are not told."""
    weight = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None or not is_float(weight) or constant(node.inputs[0]) is not None:
        return None
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = constant(node.inputs[2])
        if bias is None or bias.ndim != 1:
            return None
    wide = weight.astype(np.float64)
    if node.op_type == "Conv" and weight.ndim >= 3:
        groups = int(attribute(node, "group", 1))
        return wide.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    if node.op_type == "Gemm" and weight.ndim == 2 and not attribute(node, "transA", 0):
        return (wide if attribute(node, "transB", 0) else wide.T)[None, :, :, None]
    return None


def _vector(node: ir.Node) -> Array | None:
    """The constant that a Mul or Add applies to each channel, if it is one."""
    if node.op_type not in ("Mul", "Add") or len(node.inputs) != 2:
        return None
    sides = [constant(v) for v in node.inputs]
    if (sides[0] is None) == (sides[1] is None):
        return None
    number = sides[0] if sides[0] is not None else sides[1]
    shape = node.outputs[0].shape
    if number is None or not is_float(number) or shape is None or shape.rank() < 2:
        return None
    full = (1,) * (shape.rank() - number.ndim) + number.shape
    if len(full) != shape.rank() or full[1] != shape[1] or number.size != full[1]:
        return None
    return number


def _sizes(node: ir.Node) -> tuple[F64, F64] | None:
    """How large the numbers are that each input channel is multiplied by, and each output channel made with."""
    if node.op_type == "Mul":
        vector = _vector(node)
        if vector is None:
            return None
        scale = np.abs(vector.astype(np.float64)).reshape(-1)
        return scale, scale
    matrix = _matrix(node) if node.op_type in ("Conv", "Gemm") else None
    if matrix is None or not matrix.size:
        return None
    size = np.abs(matrix)
    return size.max(axis=(1, 3)).reshape(-1), size.max(axis=(2, 3)).reshape(-1)


def _rescale(graph: ir.Graph, node: ir.Node, factors: Mapping[ir.Value, F64]) -> None:
    """Multiply what reads divided channels, and divide what makes them."""
    source, out = _source(node), node.outputs[0] if node.outputs else None
    read = None if source is None else factors.get(source)
    made = None if out is None else factors.get(out)
    if read is None and made is None:
        return
    vector = _vector(node)
    if vector is not None:
        index = 0 if constant(node.inputs[0]) is not None else 1
        wide = vector.astype(np.float64)
        if node.op_type == "Mul" and read is not None:
            wide = wide * read.reshape(wide.shape)
        if made is not None:
            wide = wide / made.reshape(wide.shape)
        replace_constant(graph, node, index, wide.astype(vector.dtype))
        return
    matrix = _matrix(node) if node.op_type in ("Conv", "Gemm") else None
    weight = constant(node.inputs[1]) if matrix is not None else None
    if matrix is None or weight is None:
        return
    groups, rows, columns, _ = matrix.shape
    if read is not None:
        matrix = matrix * read.reshape(groups, 1, columns, 1)
    if made is not None:
        matrix = matrix / made.reshape(groups, rows, 1, 1)
        if len(node.inputs) > 2 and (bias := constant(node.inputs[2])) is not None:
            replace_constant(graph, node, 2, (bias / made).astype(bias.dtype))
    if node.op_type == "Gemm" and not attribute(node, "transB", 0):
        matrix = matrix.transpose(0, 2, 1, 3)
    replace_constant(graph, node, 1, matrix.reshape(weight.shape).astype(weight.dtype))
