"""Fold shape arithmetic: what a graph computes from the shapes of its tensors, where the shapes are known.

Exporters write ``Reshape(x, Concat(Gather(Shape(x), 0), [-1]))`` for a flatten. As long as that stands, engines see a
reshape whose target is data. Vectors of integers are therefore followed through the graph with open dimensions
(the batch) kept as symbols; what turns out to be all numbers becomes a constant, and a reshape target with one open
dimension becomes a constant with 0 (keep) or -1 (the rest) in its place.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import (
    GraphPass,
    attribute,
    constant,
    initializer,
    int_list,
    is_default,
    replace_constant,
)

#: A number, the name of a symbolic dimension, or the (value, axis) that an unnamed dimension belongs to.
Dim = int | str | tuple[str, int]


class _Vector:
    """Integers of a tensor of rank 0 or 1."""

    def __init__(self, dims: list[Dim], is_scalar: bool = False) -> None:
        self.dims, self.is_scalar = dims, is_scalar

    @property
    def known(self) -> bool:
        return all(isinstance(d, int) for d in self.dims)


_LONGEST = 64  # no tensor has a rank near this; longer vectors are data, not shapes


def shape_dims(value: ir.Value) -> list[Dim] | None:
    """The dimensions of a tensor, or None if its rank is unknown."""
    if value.shape is None:
        return None
    dims: list[Dim] = []
    for axis, d in enumerate(value.shape):
        if isinstance(d, int):
            dims.append(d)
        else:
            dims.append(d.value if d.value else (str(value.name), axis))
    return dims


def _shape(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    dims = shape_dims(node.inputs[0]) if node.inputs[0] is not None else None
    if dims is None:
        return None
    start, end = int(attribute(node, "start", 0)), attribute(node, "end", None)
    return _Vector(dims[start : None if end is None else int(end)])


def _gather(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    data, at = read(0), read(1)
    if data is None or at is None or data.is_scalar or not at.known or attribute(node, "axis", 0) not in (0, -1):
        return None
    picks = [int(i) for i in at.dims if isinstance(i, int)]
    if any(not -len(data.dims) <= i < len(data.dims) for i in picks):
        return None
    return _Vector([data.dims[i] for i in picks], at.is_scalar)


def _slice(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    data = read(0)
    parts = [
        int_list(node.inputs[i]) if len(node.inputs) > i and node.inputs[i] is not None else None for i in (1, 2, 3, 4)
    ]
    starts, ends, axes, steps = parts
    if data is None or data.is_scalar or starts is None or ends is None or len(starts) != 1 or len(ends) != 1:
        return None
    if axes not in (None, [0], [-1]) or (steps is not None and (len(steps) != 1 or steps[0] == 0)):
        return None
    step = steps[0] if steps else 1
    end: int | None = ends[0]
    if step < 0 and ends[0] < -len(data.dims):
        end = None  # "before the first" has no number in Python's slices
    return _Vector(data.dims[slice(starts[0], end, step)])


def _concat(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    parts = [read(i) for i in range(len(node.inputs))]
    dims: list[Dim] = []
    for part in parts:
        if part is None or part.is_scalar:
            return None
        dims += part.dims
    return _Vector(dims)


def _squeeze(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    data = read(0)
    return _Vector(data.dims, True) if data is not None and len(data.dims) == 1 else None


def _unsqueeze(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    data = read(0)
    return _Vector(data.dims) if data is not None and data.is_scalar else None


def _same(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    return read(0)


def _cast(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    return read(0) if attribute(node, "to", 0) in (int(ir.DataType.INT64), int(ir.DataType.INT32)) else None


def _reshape(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    data, target = read(0), int_list(node.inputs[1])
    if data is None or target is None or len(target) > 1:
        return None
    return _Vector(data.dims, not target)


def _arithmetic(node: ir.Node, read: Callable[[int], _Vector | None]) -> _Vector | None:
    a, b = read(0), read(1)
    if a is None or b is None or (len(a.dims) != len(b.dims) and 1 not in (len(a.dims), len(b.dims))):
        return None
    size = max(len(a.dims), len(b.dims)) if a.dims and b.dims else 0
    left, right = ((v.dims * size if len(v.dims) == 1 else v.dims)[:size] for v in (a, b))
    out = [_number(node.op_type, x, y) for x, y in zip(left, right)]
    if any(d is None for d in out):
        return None
    return _Vector([d for d in out if d is not None], a.is_scalar and b.is_scalar)


def _number(kind: str, x: Dim, y: Dim) -> Dim | None:
    if isinstance(x, int) and isinstance(y, int):
        if kind == "Div":
            if y == 0:
                return None
            return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)  # integers divide toward zero
        result = {"Add": x + y, "Sub": x - y, "Mul": x * y}[kind]
        return result if abs(result) < 2**62 else None
    neutral = 1 if kind in ("Mul", "Div") else 0
    if y == neutral:
        return x
    return y if x == neutral and kind in ("Add", "Mul") else None


_RULES: dict[str, Callable[[ir.Node, Callable[[int], _Vector | None]], _Vector | None]] = {
    "Shape": _shape,
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Identity": _same,
    "Cast": _cast,
    "Reshape": _reshape,
    "Add": _arithmetic,
    "Sub": _arithmetic,
    "Mul": _arithmetic,
    "Div": _arithmetic,
}


class FoldShapeArithmetic(GraphPass):
    """Turn computed shapes into constants. Needs shapes in the graph (shape inference runs before)."""

    def graph(self, graph: ir.Graph) -> bool:
        """Follow the integer vectors of one graph and write what is known."""
        vectors: dict[ir.Value, _Vector] = {}

        def vector(value: ir.Value | None) -> _Vector | None:
            if value is None:
                return None
            if value not in vectors:
                array = constant(value)
                if array is None or array.ndim > 1 or array.size > _LONGEST or array.dtype.kind not in "iu":
                    return None
                vectors[value] = _Vector([int(v) for v in array.reshape(-1)], array.ndim == 0)
            return vectors[value]

        changed = False
        for node in list(graph):
            rule = _RULES.get(node.op_type) if is_default(node) else None
            if rule is None or constant(node.outputs[0]) is not None:
                continue
            is_data = node.outputs[0].dtype not in (None, ir.DataType.INT64, ir.DataType.INT32)
            found = None if is_data else rule(node, lambda i, n=node: vector(n.inputs[i]))  # type: ignore[misc]
            if found is not None:
                vectors[node.outputs[0]] = found
                changed |= found.known and _write(graph, node, found)
            elif node.op_type == "Reshape":
                changed |= _reshape_target(graph, node, vector(node.inputs[1]))
        return changed


def _write(graph: ir.Graph, node: ir.Node, found: _Vector) -> bool:
    """Let the readers of a computed vector read a constant instead."""
    out = node.outputs[0]
    if out.is_graph_output() or not out.uses() or out.dtype is None:
        return False
    numbers = np.asarray(found.dims, dtype=out.dtype.numpy())
    value = initializer(graph, f"{out.name}_folded", numbers.reshape(()) if found.is_scalar else numbers)
    ir.convenience.replace_all_uses_with(out, value)
    return True


def _reshape_target(graph: ir.Graph, node: ir.Node, target: _Vector | None) -> bool:
    """Write the target of a Reshape as a constant where at most one of its dimensions is open after matching."""
    source = node.inputs[0]
    if target is None or target.known or target.is_scalar or source is None or attribute(node, "allowzero", 0):
        return False
    dims = shape_dims(source)
    out: list[int] = []
    for i, d in enumerate(target.dims):
        if isinstance(d, int):
            out.append(d)
        elif dims is not None and i < len(dims) and dims[i] == d:
            out.append(0)
        else:
            out.append(-1)
    if out.count(-1) > 1:
        return False
    replace_constant(graph, node, 1, np.asarray(out, np.int64), f"{node.outputs[0].name}_shape")
    return True
