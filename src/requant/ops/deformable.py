"""Deformable convolution: each element of the kernel reads data at a position of its own, between cells.

The samples are laid out as columns (GridSample), which a 1x1 convolution multiplies with the weights. ONNX's DeformConv
is not used: OpenVINO does not read it, and its edges are those of the modulated operator alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops.conv import spatial
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, op, product
from requant.ops.sizes import Size, reshape_to, sizes


@dataclass(frozen=True, kw_only=True)
class DeformableAttrs(Attrs):
    kernel: Ints
    stride: Ints = ()
    dilate: Ints = ()
    pad: Ints = ()
    num_filter: int
    num_group: int = 1
    num_deformable_group: int = 1
    workspace: int = 1024
    no_bias: bool = False


@dataclass(frozen=True, kw_only=True)
class PlainAttrs(DeformableAttrs):
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = None


@dataclass(frozen=True, kw_only=True)
class ModulatedAttrs(DeformableAttrs):
    im2col_step: int = 64
    layout: Literal["NCW", "NCHW", "NCDHW"] | None = None


def _shapes(a: DeformableAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out: dict[str, Shape] = {} if a.no_bias else {"bias": (a.num_filter,)}
    data, result = shapes["data"], shapes["output"]
    if data is not None and len(data) == 4 and data[1]:
        out["weight"] = (a.num_filter, data[1] // a.num_group, *a.kernel)
    if result is not None and len(result) == 4:
        taps = a.num_deformable_group * product(a.kernel)
        out["offset"] = (result[0], 2 * taps, *result[2:])
        if "mask" in shapes:
            out["mask"] = (result[0], taps, *result[2:])
    return out


def _check(g: Emit, a: PlainAttrs | ModulatedAttrs, data: Value, offset: Value) -> None:
    if len(a.kernel) != 2 or a.layout not in (None, "NCHW"):
        raise AttributeValueError(
            "deformable convolution is 2-D, in NCHW", where=g.node, got=f"kernel {a.kernel}, layout {a.layout}"
        )
    channels = 2 * a.num_deformable_group * product(a.kernel)
    if g.rank(data) != 4 or g.rank(offset) != 4 or g.dims(offset)[1] not in (channels, None):
        raise ShapeError(
            "data and offset do not fit the kernel",
            where=g.node,
            got=f"{g.dims(data)} and {g.dims(offset)}",
            expected=f"(N, C, H, W) and (N, {channels}, height, width)",
        )


def _axis_positions(g: Emit, count: Value, taps: np.ndarray, step: int, start: int, axis: int) -> Value:
    """Where the taps of the kernel are without offsets: (1, K, 1, height, 1) or (1, K, 1, 1, width)."""
    place = g("Range", g.const(np.int64(0)), g.squeeze(count, [0]), g.const(np.int64(1)))
    place = g("Add", g("Mul", g.cast(place, np.float32), float(step)), float(start))
    place = g.unsqueeze(place, [0, 1, 2, 7 - axis])
    return g("Add", place, g.const(taps.astype(np.float32).reshape(1, -1, 1, 1, 1)))


def _regular(g: Emit, a: DeformableAttrs, offset: Value) -> Value:
    """Positions (1, K, 2, height, width) as (y, x) of the taps of an ordinary convolution."""
    stride, dilate = spatial(a.stride, 2, 1, "stride", g.node), spatial(a.dilate, 2, 1, "dilate", g.node)
    pad = spatial(a.pad, 2, 0, "pad", g.node)
    g.count(product(a.kernel), "the kernel")
    taps = np.indices(a.kernel).reshape(2, -1) * np.array(dilate)[:, None]
    lines = [_axis_positions(g, g.size_of(offset, [2 + i]), taps[i], stride[i], -pad[i], 3 + i) for i in range(2)]
    shape = g.concat_sizes([1, product(a.kernel), 1, g.size_of(offset, [2]), g.size_of(offset, [3])])
    return g("Concat", *(g("Expand", line, shape) for line in lines), axis=2)


def _extent(g: Emit, data: Value) -> Value:
    """Height and width of data as (1, 1, 2, 1, 1)."""
    return g.unsqueeze(g.cast(g.size_of(data, [2, 3]), np.float32), [0, 1, 3, 4])


def _columns(g: Emit, a: DeformableAttrs, data: Value, position: Value, mask: Value | None, padding: str) -> Value:
    """Samples (N, C·K, height, width) of data (N, C, H, W) at positions (N·G, K, 2, height, width).

    Args:
        mask: factors (N·G, 1, K·height, width) of the samples.
        padding: what lies beside the data, ``zeros`` or ``border``.
    """
    batch, channels, high, wide = sizes(g, data)
    groups, taps = Size.number_of(a.num_deformable_group), Size.number_of(product(a.kernel))
    _, _, two, height, width = sizes(g, position)
    scale = g("Div", g.const(np.float32(2)), _extent(g, data))
    shift = g("Sub", g("Mul", scale, 0.5), 1.0)
    grid = g("Add", g("Mul", position, scale), shift)
    grid = g.transpose(g("Gather", grid, np.array([1, 0]), axis=2), [0, 1, 3, 4, 2])
    grid = reshape_to(g, grid, [batch * groups, taps * height, width, two], (position,))
    parts = reshape_to(g, data, [batch * groups, channels / groups, high, wide])
    samples = g("GridSample", parts, grid, mode="linear", padding_mode=padding, align_corners=0)
    samples = g.set_shape(samples, [s.label for s in (batch * groups, channels / groups, taps * height, width)])
    if mask is not None:
        samples = g("Mul", samples, mask)
    return reshape_to(g, samples, [batch, channels * taps, height, width], (data, position))


def _positions(g: Emit, a: DeformableAttrs, offset: Value) -> Value:
    """Positions (N·G, K, 2, height, width) as (y, x), from offsets (N, G·K·2, height, width)."""
    batch, _, height, width = sizes(g, offset)
    groups, taps = Size.number_of(a.num_deformable_group), Size.number_of(product(a.kernel))
    moved = reshape_to(g, offset, [batch * groups, taps, Size.number_of(2), height, width])
    return g("Add", moved, _regular(g, a, offset))


def _weighted(g: Emit, a: DeformableAttrs, columns: Value, weight: Value, bias: Value | None) -> Value:
    """Weights (F, C / groups, *kernel) times columns (N, C·K, height, width): (N, F, height, width).

    A matrix product, since columns are in the order that it wants; a convolution would bring them into another one.
    """
    batch, rows, height, width = sizes(g, columns)
    groups, filters = Size.number_of(a.num_group), Size.number_of(a.num_filter)
    lead = [groups] if a.num_group > 1 else []
    factors = reshape_to(g, g("Flatten", weight, axis=1), [*lead, filters / groups, rows / groups], (columns,))
    flat = reshape_to(g, columns, [batch, *lead, rows / groups, height * width])
    out = reshape_to(g, g("MatMul", factors, flat), [batch, filters, height, width], (columns,))
    return out if bias is None else g("Add", out, g.per_channel(bias, 4))


def _floats(g: Emit, *values: Value | None) -> list[Value | None]:
    return [None if v is None else g.cast(v, np.float32) for v in values]


@op(
    "_contrib_DeformableConvolution",
    inputs=lambda a: ("data", "offset", "weight") if a.no_bias else ("data", "offset", "weight", "bias"),
    param_shapes=_shapes,
)
def deformable_convolution(
    g: Emit, a: PlainAttrs, data: Value, offset: Value, weight: Value, bias: Value | None = None
) -> Value:
    """Deformable convolution (arXiv:1703.06211). offset (N, 2 · deformable groups · kernel, height, width), as (y, x).

    Samples beside the data are 0; between its last cells and its edge they are as on the last cells.
    """
    _check(g, a, data, offset)
    dtype = g.dtype(data)
    data, offset, weight, bias = _floats(g, data, offset, weight, bias)  # type: ignore[assignment]
    position = _positions(g, a, offset)
    inside = g("And", g("GreaterOrEqual", position, 0.0), g("Less", position, _extent(g, data)))
    inside = g("ReduceMin", g.cast(inside, np.float32), np.array([2], np.int64), keepdims=0)
    batch, taps, height, width = sizes(g, inside)
    mask = reshape_to(g, inside, [batch, Size.number_of(1), taps * height, width])
    columns = _columns(g, a, data, position, mask, "border")
    return g.cast(_weighted(g, a, columns, weight, bias), dtype)


def _modulated_inputs(a: ModulatedAttrs) -> tuple[str, ...]:
    return ("data", "offset", "mask", "weight", *(() if a.no_bias else ("bias",)))


@op("_contrib_ModulatedDeformableConvolution", inputs=_modulated_inputs, param_shapes=_shapes)
def modulated_deformable_convolution(
    g: Emit, a: ModulatedAttrs, data: Value, offset: Value, mask: Value, weight: Value, bias: Value | None = None
) -> Value:
    """Deformable convolution with factors (arXiv:1811.11168). mask (N, deformable groups · kernel, height, width).

    Samples beside the data fade to 0.
    """
    _check(g, a, data, offset)
    dtype = g.dtype(data)
    data, offset, mask, weight, bias = _floats(g, data, offset, mask, weight, bias)  # type: ignore[assignment]
    batch, _, height, width = sizes(g, mask)
    groups, taps = Size.number_of(a.num_deformable_group), Size.number_of(product(a.kernel))
    factors = reshape_to(g, mask, [batch * groups, Size.number_of(1), taps * height, width])
    columns = _columns(g, a, data, _positions(g, a, offset), factors, "zeros")
    return g.cast(_weighted(g, a, columns, weight, bias), dtype)
