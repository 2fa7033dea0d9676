"""Correlation of two feature maps, as in FlowNet (arXiv:1504.06852)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, op, same_shape
from requant.ops.sizes import Size, reshape_to, sizes

_END = 2**31 - 1


@dataclass(frozen=True)
class CorrelationAttrs(Attrs):
    kernel_size: int = 1
    max_displacement: int = 1
    stride1: int = 1
    stride2: int = 1
    pad_size: int = 0
    is_multiply: bool = True


def _shapes(a: CorrelationAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    return same_shape(a, {k: v for k, v in shapes.items() if k != "output"})


def _check(g: Emit, a: CorrelationAttrs, data1: Value, data2: Value) -> None:
    if g.rank(data1) != 4 or g.rank(data2) != 4:
        raise ShapeError("both maps are (N, C, H, W)", where=g.node, got=f"{g.dims(data1)} and {g.dims(data2)}")
    if a.kernel_size < 1 or a.kernel_size % 2 == 0 or min(a.stride1, a.stride2) < 1:
        raise AttributeValueError("kernel_size is odd, strides are positive", where=g.node, got=a)
    for axis in (2, 3):
        size = g.dims(data1)[axis]
        if size is not None and size + 2 * a.pad_size < 2 * a.max_displacement + a.kernel_size:
            raise ShapeError(
                "the padded maps are smaller than the neighbourhood",
                where=g.node,
                got=f"size {size}, pad_size {a.pad_size}",
                expected=f"at least {2 * a.max_displacement + a.kernel_size} with padding",
            )


def _window(g: Emit, a: CorrelationAttrs, x: Value, axis: int, shift: int) -> Value:
    """The part of ``x`` that lies under the inner map, moved by ``shift`` along an axis."""
    after = a.max_displacement - shift
    return g.slice(x, [a.max_displacement + shift], [-after if after else _END], [axis])


def _products(g: Emit, a: CorrelationAttrs, first: Value, second: Value, shifts: list[int]) -> list[Value]:
    """For each vertical shift the products (N, shifts, h, w), summed over channels.

    A matrix product gives every pair of a row; of those the pairs that are as far apart as the shifts are taken.
    """
    rows = g.transpose(first, [0, 2, 3, 1])
    lines = g.transpose(second, [0, 2, 1, 3])
    batch, height, width, _ = sizes(g, rows)
    count, wide = g.size_of(rows, [2]), g.size_of(lines, [3])
    place = g("Range", g.const(np.int64(0)), g.squeeze(count, [0]), g.const(np.int64(1)))
    pairs = g("Mul", place, g("Add", wide, 1))
    index = g("Add", g.unsqueeze(pairs, [0]), g.const(np.array(shifts)[:, None] + a.max_displacement))
    index = g.reshape(index, [-1])
    out = []
    for shift in shifts:
        table = g("MatMul", rows, _window(g, a, lines, 1, shift))
        flat = g.reshape(table, [0, 0, -1])
        taken = g("Gather", flat, index, axis=2)
        taken = reshape_to(g, taken, [batch, height, Size.number_of(len(shifts)), width], (rows,))
        out.append(g.transpose(taken, [0, 2, 1, 3]))
    return out


def _differences(g: Emit, a: CorrelationAttrs, first: Value, second: Value, shifts: list[int]) -> list[Value]:
    """For each vertical and horizontal shift the absolute differences (N, 1, h, w), summed over channels."""
    out = []
    for down in shifts:
        band = _window(g, a, second, 2, down)
        for across in shifts:
            apart = g("Abs", g("Sub", first, _window(g, a, band, 3, across)))
            out.append(g.reduce("Sum", apart, [1], keepdims=True))
    return out


@op("Correlation", inputs=("data1", "data2"), hidden_outputs=2, param_shapes=_shapes)
def correlation(g: Emit, a: CorrelationAttrs, data1: Value, data2: Value) -> Value:
    """Mean products of the patches of data1 with those of data2 around them: (N, displacements², h, w).

    With ``is_multiply=False`` mean absolute differences. Displacements go from -max_displacement to max_displacement
    in steps of ``stride2``; patches of ``kernel_size`` are ``stride1`` apart.
    """
    _check(g, a, data1, data2)
    dtype = g.dtype(data1)
    pads = np.array([0, 0, a.pad_size, a.pad_size] * 2, np.int64)
    maps = [g.cast(x, np.float32) if dtype == np.float16 else x for x in (data1, data2)]
    first, second = (g("Pad", x, pads) if a.pad_size else x for x in maps)
    first = _window(g, a, _window(g, a, first, 2, 0), 3, 0)
    radius = a.max_displacement // a.stride2
    shifts = [i * a.stride2 for i in range(-radius, radius + 1)]
    kind = _products if a.is_multiply else _differences
    parts = kind(g, a, first, second, shifts)
    out = parts[0] if len(parts) == 1 else g("Concat", *parts, axis=1)
    channels = g.cast(g.size_of(data1, [1]), g.dtype(out))
    out = g("Div", out, channels)
    if a.kernel_size > 1 or a.stride1 > 1:
        out = g.in_float32(
            "AveragePool", out, kernel_shape=[a.kernel_size] * 2, strides=[a.stride1] * 2, count_include_pad=1
        )
    return g.cast(out, dtype)
