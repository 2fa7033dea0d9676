"""Operators that change spatial sizes: adaptive pooling, bilinear resizing, upsampling, padding, cropping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError, counted
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, op


def _check_4d(g: Emit, data: Value) -> None:
    if g.rank(data) != 4:
        raise ShapeError(f"{g.mx_op} takes images", where=g.node, got=f"rank {g.rank(data)}", expected="(N, C, H, W)")


def _size(g: Emit, x: Value, axis: int) -> int | Value:
    """One dimension: a number where it is known, else a 1-D int64 value."""
    d = g.dims(x)[axis]
    return g.size_of(x, [axis]) if d is None else d


# -- adaptive pooling ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AdaptiveAvgPoolingAttrs(Attrs):
    output_size: Ints = ()


def _adaptive_windows(size: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    """First and one-past-last place of each window: floor(i · size / out), ceil((i + 1) · size / out)."""
    i = np.arange(out)
    return i * size // out, -((-(i + 1) * size) // out)


def _uniform(size: int, out: int) -> tuple[int, int] | None:
    """Kernel and stride, if the windows of an adaptive pooling are all alike."""
    start, end = _adaptive_windows(size, out)
    kernel, stride = int(end[0] - start[0]), int(start[1] - start[0]) if out > 1 else 1
    alike = np.array_equal(end - start, np.full(out, kernel)) and np.array_equal(start, np.arange(out) * stride)
    return (kernel, stride) if alike and stride > 0 else None


def _averaging(g: Emit, data: Value, axis: int, out: int, *, columns: bool) -> Value:
    """The matrix that averages along ``axis``: (out, size), or with a column for each window, (size, out)."""
    size = g.dims(data)[axis]
    g.count(out * (size or 1), "the output size")
    if size is not None:
        start, end = _adaptive_windows(size, out)
        place = np.arange(size)
        matrix = ((place >= start[:, None]) & (place < end[:, None])) / (end - start)[:, None]
        return g.const(matrix.T if columns else matrix, data)
    length = g.squeeze(g.size_of(data, [axis]), [0])
    i = g.const(np.arange(out).reshape((1, out) if columns else (out, 1)))
    first = g("Div", g("Mul", i, length), out)
    last = g("Div", g("Add", g("Mul", g("Add", i, 1), length), out - 1), out)
    places = g.unsqueeze(g("Range", g.const(np.int64(0)), length, g.const(np.int64(1))), [1 if columns else 0])
    inside = g("And", g("Not", g("Less", places, first)), g("Less", places, last))
    return g("Div", g.cast(inside, g.dtype(data)), g.cast(g("Sub", last, first), g.dtype(data)))


@op("_contrib_AdaptiveAvgPooling2D", "_npx_adaptive_avg_pooling2d")
def adaptive_avg_pooling(g: Emit, a: AdaptiveAvgPoolingAttrs, data: Value) -> Value:
    """Average pooling to a given size (one number: a square; none: 1 × 1). data (N, C, H, W)."""
    _check_4d(g, data)
    if len(a.output_size) > 2 or any(s < 1 for s in a.output_size):
        raise AttributeValueError(
            "output_size is no size", where=g.node, got=a.output_size, expected="one or two positive numbers"
        )
    height, width = a.output_size * 2 if len(a.output_size) == 1 else a.output_size or (1, 1)
    g.count(height * width, "output_size")
    if (height, width) == (1, 1):
        return g.in_float32("GlobalAveragePool", data)
    _, _, h, w = g.dims(data)
    if h is not None and w is not None:
        rows, columns = _uniform(h, height), _uniform(w, width)
        if rows and columns:
            return g.in_float32("AveragePool", data, kernel_shape=[rows[0], columns[0]], strides=[rows[1], columns[1]])
    out = g("MatMul", _averaging(g, data, 2, height, columns=False), data)
    return g("MatMul", out, _averaging(g, data, 3, width, columns=True))


# -- bilinear resizing -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BilinearResizeAttrs(Attrs):
    height: int = 1
    width: int = 1
    scale_height: float | None = None
    scale_width: float | None = None
    mode: Literal["size", "odd_scale", "like", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"] = "size"
    align_corners: bool = True


def _scaled(g: Emit, size: int | Value, scale: float) -> int | Value:
    """``size · scale`` rounded down, in single precision as MXNet computes it."""
    if isinstance(size, int):
        return int(np.float32(size) * np.float32(scale))
    return g.cast(g("Mul", g.cast(size, np.float32), scale), np.int64)


def _odd(g: Emit, size: int | Value) -> int | Value:
    """1 for odd sizes, 0 for even ones."""
    return size % 2 if isinstance(size, int) else g("Mod", size, 2)


def _plus(g: Emit, x: int | Value, y: int | Value, sign: int = 1) -> int | Value:
    if isinstance(x, int) and isinstance(y, int):
        return x + sign * y
    values = [g.const(np.array([v], np.int64)) if isinstance(v, int) else v for v in (x, y)]
    return g("Add" if sign > 0 else "Sub", *values)


#: Output size from input size and scale, per mode.
_SIZES: dict[str, Callable[[Emit, int | Value, float], int | Value]] = {
    "odd_scale": lambda g, n, s: _plus(g, _scaled(g, _plus(g, n, _odd(g, n), -1), s), _odd(g, n)),
    "to_even_down": lambda g, n, s: _plus(g, n, _odd(g, n), -1),
    "to_even_up": lambda g, n, s: _plus(g, n, _odd(g, n)),
    "to_odd_down": lambda g, n, s: _plus(g, _plus(g, n, 1, -1), _odd(g, n)),
    "to_odd_up": lambda g, n, s: _plus(g, _plus(g, n, 1), _odd(g, n), -1),
}


def _resize(g: Emit, data: Value, height: int | Value, width: int | Value, **attributes: object) -> Value:
    """A Resize of images to a size; batch and channels stay."""
    sizes = g.concat_sizes([_size(g, data, 0), _size(g, data, 1), height, width])  # OpenVINO 2025 knows no axes
    out = g.in_float32("Resize", data, None, None, sizes, **attributes)
    assert data.shape is not None
    return g.set_shape(out, [*data.shape[:2], *(s if isinstance(s, int) else None for s in (height, width))])


def _resize_inputs(a: BilinearResizeAttrs) -> tuple[str, ...]:
    return ("data", "like") if a.mode == "like" else ("data",)


def _resized(g: Emit, a: BilinearResizeAttrs, data: Value, like: Value | None) -> list[int | Value]:
    """Height and width of the result."""
    if like is not None:
        return [_size(g, like, 2), _size(g, like, 3)]
    scales = (a.scale_height, a.scale_width)
    if None in scales and (a.mode == "odd_scale" or scales != (None, None)):
        raise AttributeValueError(
            "scale_height and scale_width go together", where=g.node, got=scales, expected="two numbers"
        )
    if a.mode == "size" and a.scale_height is None:
        return [a.height, a.width]
    out: list[int | Value] = []
    for axis, scale in zip((2, 3), scales):
        size = _size(g, data, axis)
        factor = 1.0 if scale is None else scale
        out.append(_scaled(g, size, factor) if a.mode == "size" else _SIZES[a.mode](g, size, factor))
    return out


@op("_contrib_BilinearResize2D", "_npx_bilinear_resize2d", inputs=_resize_inputs)
def bilinear_resize(g: Emit, a: BilinearResizeAttrs, data: Value, like: Value | None = None) -> Value:
    """Bilinear interpolation to a size, a scale, the size of ``like``, or the next odd or even size.

    data (N, C, H, W). With ``align_corners`` (the default) the corners' centres are kept, else the corners themselves.
    """
    _check_4d(g, data)
    height, width = _resized(g, a, data, like)
    for size in (height, width):
        if isinstance(size, int) and size < 1:
            raise ShapeError("the resized image would be empty", where=g.node, got=(height, width))
    # MXNet resizes to size 1 by taking the first row or column, which is what PyTorch did once.
    mode = "align_corners" if a.align_corners else "pytorch_half_pixel"
    return _resize(g, data, height, width, mode="linear", coordinate_transformation_mode=mode)


# -- upsampling ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class UpSamplingAttrs(Attrs):
    scale: int
    num_filter: int = 0
    sample_type: Literal["nearest", "bilinear"]
    multi_input_mode: Literal["concat", "sum"] = "concat"
    num_args: int = 1
    workspace: int = 512


def _up_inputs(a: UpSamplingAttrs) -> tuple[str, ...]:
    return ("data", "weight") if a.sample_type == "bilinear" else tuple(f"arg{i}" for i in range(a.num_args))


def _up_shapes(a: UpSamplingAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes.get("data")
    if a.sample_type != "bilinear" or data is None or len(data) != 4 or not data[1]:
        return {}
    kernel = 2 * a.scale - a.scale % 2
    return {"weight": (data[1], 1, kernel, kernel)}


_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _enlarged(g: Emit, data: Value, rows: int, columns: int) -> Value:
    """Every pixel repeated that often."""
    out = g.in_float32("Resize", data, None, np.array([1, 1, rows, columns], np.float32), **_NEAREST)
    assert data.shape is not None
    grown = [d * k if isinstance(d, int) else None for d, k in zip(data.shape[2:], (rows, columns))]
    return g.set_shape(out, [*data.shape[:2], *grown])


def _nearest(g: Emit, data: Value, height: int | Value, width: int | Value) -> Value:
    """Repeat pixels so that the image gets that size, a multiple of its own."""
    _, _, h, w = g.dims(data)
    if isinstance(height, int) and isinstance(width, int) and h is not None and w is not None:
        if height % h or width % w:
            raise ShapeError(
                "an input of UpSampling does not fit the first one's output",
                where=g.node,
                got=f"{h} x {w}",
                expected=f"a divisor of {height} x {width}",
            )
        return _enlarged(g, data, height // h, width // w)
    return _resize(g, data, height, width, **_NEAREST)


@op(
    "UpSampling",
    "_npx_upsampling",
    inputs=_up_inputs,
    variadic="num_args",
    param_shapes=_up_shapes,
    default_init={"weight": '["bilinear", {}]'},
)
def up_sampling(g: Emit, a: UpSamplingAttrs, **inputs: Value) -> Value:
    """Upsampling by an integer: of one or several images by repetition, or of one by a transposed convolution.

    ``nearest``: every image (N, C_i, H_i, W_i) grows to ``scale`` times the first one's size; they are concatenated
    along channels or summed. ``bilinear``: data (N, C, H, W), weight (C, 1, k, k), k = 2 scale - scale mod 2.
    """
    if a.scale < 1:
        raise AttributeValueError("scale", where=g.node, got=a.scale, expected="a positive number")
    for x in inputs.values():
        _check_4d(g, x)
    if a.sample_type == "bilinear":
        if a.num_filter < 1:
            raise AttributeValueError("num_filter", where=g.node, got=a.num_filter, expected="the data's channel count")
        kernel, pad = 2 * a.scale - a.scale % 2, a.scale // 2
        return g.in_float32(
            "ConvTranspose",
            inputs["data"],
            inputs["weight"],
            kernel_shape=[kernel] * 2,
            strides=[a.scale] * 2,
            pads=[pad] * 4,
            group=a.num_filter,
        )
    first, *rest = inputs.values()
    one = _enlarged(g, first, a.scale, a.scale)
    if not rest:
        return one
    height, width = _size(g, one, 2), _size(g, one, 3)
    images = [one, *(_nearest(g, x, height, width) for x in rest)]
    return g("Sum", *images) if a.multi_input_mode == "sum" else g("Concat", *images, axis=1)


# -- padding and cropping --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PadAttrs(Attrs):
    mode: Literal["constant", "edge", "reflect"]
    pad_width: Ints
    constant_value: float = 0.0


def _pad_shapes(a: PadAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out = shapes["output"]
    if out is None or shapes["data"] is not None or len(a.pad_width) != 2 * len(out):
        return {}
    grown = [b + e for b, e in zip(a.pad_width[0::2], a.pad_width[1::2])]
    return {"data": tuple(max(d - n, 0) for d, n in zip(out, grown))}


@op("Pad", "pad", "_npx_pad", param_shapes=_pad_shapes)
def pad(g: Emit, a: PadAttrs, data: Value) -> Value:
    """Pad with a constant, the edge or a reflection; pad_width is (before, after) per dimension."""
    rank = g.rank(data)
    if len(a.pad_width) != 2 * rank or min(a.pad_width) < 0:
        raise AttributeValueError(
            "pad_width has (before, after) per dimension, none negative",
            where=g.node,
            got=a.pad_width,
            expected=counted(2 * rank, "number"),
        )
    before, after = a.pad_width[0::2], a.pad_width[1::2]
    if a.mode == "reflect":
        for d, b, e in zip(g.dims(data), before, after):
            if d is not None and max(b, e) >= d:
                raise ShapeError(
                    "a reflection must be smaller than the data", where=g.node, got=max(b, e), expected=f"< {d}"
                )
    value = g.const(a.constant_value, data) if a.mode == "constant" else None
    return g("Pad", data, np.array(before + after, np.int64), value, mode=a.mode)


@dataclass(frozen=True)
class CropAttrs(Attrs):
    num_args: int = 1
    offset: Ints = (0, 0)
    h_w: Ints = (0, 0)
    center_crop: bool = False


def _crop_inputs(a: CropAttrs) -> tuple[str, ...]:
    return ("data",) if a.num_args == 1 else ("data", "crop_like")


@op("Crop", inputs=_crop_inputs, variadic="num_args")
def crop(g: Emit, a: CropAttrs, data: Value, crop_like: Value | None = None) -> Value:
    """A window of an image (N, C, H, W): of size ``h_w`` or ``crop_like``'s, at ``offset`` or in the centre."""
    _check_4d(g, data)
    if len(a.h_w) != 2 or len(a.offset) != 2:
        raise AttributeValueError("h_w and offset are (y, x)", where=g.node, got=(a.h_w, a.offset))
    starts: list[int | Value] = []
    ends: list[int | Value] = []
    for i, axis in enumerate((2, 3)):
        want = a.h_w[i] if crop_like is None else _size(g, crop_like, axis)
        have = _size(g, data, axis)
        start: int | Value = a.offset[i]
        if a.center_crop:
            room = _plus(g, have, want, -1)
            start = room // 2 if isinstance(room, int) else g("Div", room, 2)
        end = _plus(g, start, want)
        if not (isinstance(want, Value) or isinstance(have, Value) or isinstance(start, Value)) and (
            want < 1 or start < 0 or start + want > have
        ):
            raise ShapeError(
                "the window does not lie within the image",
                where=g.node,
                got=f"{start} to {end} in dimension {axis}",
                expected=f"within 0 to {have}",
            )
        starts.append(start)
        ends.append(end)
    axes = np.array([2, 3], np.int64)
    out = g("Slice", data, g.concat_sizes(starts), g.concat_sizes(ends), axes)
    assert data.shape is not None
    window = a.h_w if crop_like is None or crop_like.shape is None else crop_like.shape[2:]
    return g.set_shape(out, [*data.shape[:2], *window])
