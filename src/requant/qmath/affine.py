"""Scales and zero points of tensors: made from ranges, and applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from requant.errors import QuantizationError

F32 = np.float32
FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.integer]
Array = npt.NDArray[np.generic]

#: Scales are kept at or above the smallest normal float32: engines flush smaller ones to zero.
SMALLEST_SCALE = F32(np.finfo(np.float32).tiny)


class Range(NamedTuple):
    """A closed range of real values that quantization must represent. Values beyond it saturate."""

    min: float
    max: float

    @property
    def absmax(self) -> float:
        """max(|min|, |max|): MXNet's ``MaxAbs``, and what symmetric quantization is made of."""
        return max(abs(self.min), abs(self.max))


class Limits(NamedTuple):
    """The smallest and largest quantized integer in use."""

    min: int
    max: int


def limits(dtype: npt.DTypeLike, *, narrow: bool = False, reduced: bool = False) -> Limits:
    """The integers that a quantized type may use.

    Args:
        dtype: int8, uint8, int16, uint16, int32 (bias).
        narrow: drop the most negative integer of a signed type (-127..127): the rule for weights.
        reduced: use half the range (7 bits of 8): products of u8 × s8 pairs then never overflow the 16-bit sums of CPUs
            without VNNI (AVX2, plain AVX-512).

    Raises:
        QuantizationError: the type is not an integer type.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "iu":
        raise QuantizationError(
            "not a quantized type", got=dtype.name, expected="an integer type, int8 or uint8 usually"
        )
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    if reduced:
        low, high = -(-low // 2), high // 2
    if narrow and low < 0:
        low = -high
    return Limits(low, high)


@dataclass(frozen=True, eq=False)
class QuantParams:
    """Scale and zero point of one tensor: real = scale × (q − zero_point).

    Attributes:
        scale: float32, shape () per tensor or (channels,) per channel; positive, finite, never zero.
        zero_point: ``dtype``, the shape of ``scale``.
        dtype: the quantized type.
        axis: the channel axis, or None per tensor.
        bounds: the integers in use (`quantize` saturates to them); None means the whole type.

    Raises:
        QuantizationError: shapes differ, a scale is not positive and finite, or the axis is missing or surplus.
    """

    scale: FloatArray
    zero_point: IntArray
    dtype: np.dtype
    axis: int | None = None
    bounds: Limits | None = None

    def __post_init__(self) -> None:
        scale = np.array(self.scale, dtype=np.float32)
        dtype = np.dtype(self.dtype)
        whole = limits(dtype)
        zero = np.array(self.zero_point)
        if scale.ndim != (0 if self.axis is None else 1):
            raise QuantizationError(
                "scale and axis do not fit together",
                got=f"scale of shape {scale.shape}, axis {self.axis}",
                expected="shape () and axis None, or shape (channels,) and a channel axis",
            )
        if zero.shape != scale.shape:
            raise QuantizationError(
                "scale and zero point differ in shape", got=f"zero point of shape {zero.shape}", expected=scale.shape
            )
        if not (np.isfinite(scale) & (scale > 0)).all():
            raise QuantizationError(
                "a scale must be positive and finite",
                got=scale[()] if scale.ndim == 0 else scale[~(np.isfinite(scale) & (scale > 0))][:4],
                next="look for NaN or Inf in the weights or in the calibration range",
            )
        if zero.size and (int(zero.min()) < whole.min or int(zero.max()) > whole.max):
            raise QuantizationError(
                "a zero point lies outside its type",
                got=f"{zero.min()}..{zero.max()}",
                expected=f"{whole.min}..{whole.max}",
            )
        zero = zero.astype(dtype)
        scale.setflags(write=False)
        zero.setflags(write=False)
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "zero_point", zero)
        object.__setattr__(self, "dtype", dtype)

    @property
    def limits(self) -> Limits:
        """The smallest and largest integer in use."""
        return self.bounds or limits(self.dtype)

    @property
    def symmetric(self) -> bool:
        """All zero points are 0."""
        return not self.zero_point.any()

    @property
    def per_channel(self) -> bool:
        """There is one scale a channel."""
        return self.axis is not None

    def same_as(self, other: QuantParams) -> bool:
        """Bit-equal scale, zero point, type, axis and limits."""
        return (
            self.dtype == other.dtype
            and self.axis == other.axis
            and self.limits == other.limits
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


def _range_arrays(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    low64, high64 = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if low64.shape != high64.shape:
        raise QuantizationError("range ends differ in shape", got=f"{low64.shape} and {high64.shape}")
    if not (np.isfinite(low64) & np.isfinite(high64) & (low64 <= high64)).all():
        raise QuantizationError(
            "a range must be finite and ordered",
            got=f"{low64.ravel()[:4].tolist()} .. {high64.ravel()[:4].tolist()}",
            expected="min <= max",
            next="look for NaN or Inf in the weights or in the calibration data",
        )
    return low64, high64


def _guarded(scale: npt.NDArray[np.float64]) -> FloatArray:
    """float32 scales, 1 where the range is zero, and never below the smallest normal number."""
    return np.where(scale > 0, np.maximum(scale, SMALLEST_SCALE), 1.0).astype(np.float32)


def _as_dtype(zero: npt.NDArray[np.float64], dtype: np.dtype) -> IntArray:
    return zero.astype(dtype)


def symmetric(
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    dtype: npt.DTypeLike = np.int8,
    *,
    axis: int | None = None,
    narrow: bool = True,
    reduced: bool = False,
) -> QuantParams:
    """Parameters with zero point 0 that represent every value of a range.

    ``scale = max(|low|, |high|) / largest integer``. For an unsigned type the range must not go below 0: that part
    would be cut off silently.

    Args:
        low, high: ends of the range, scalars or shape (channels,).
        dtype: the quantized type.
        axis: channel axis, when the ends are per channel.
        narrow, reduced: see `limits`.

    Raises:
        QuantizationError: not finite, not ordered, or negative with an unsigned type.
    """
    low64, high64 = _range_arrays(low, high)
    dtype = np.dtype(dtype)
    use = limits(dtype, narrow=narrow, reduced=reduced)
    if use.min == 0 and (low64 < 0).any():
        raise QuantizationError(
            "an unsigned symmetric type cannot represent negative values",
            got=f"min = {low64.min()}",
            expected="min >= 0",
            next="use a signed type, or an asymmetric one",
        )
    scale = _guarded(np.maximum(np.abs(low64), np.abs(high64)) / use.max)
    return QuantParams(scale, np.zeros(scale.shape, dtype), dtype, axis, use)


def asymmetric(
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    dtype: npt.DTypeLike = np.uint8,
    *,
    axis: int | None = None,
    reduced: bool = False,
) -> QuantParams:
    """Parameters whose zero point moves the integers over the range.

    The range is widened to contain 0, and 0 is represented exactly (padding and ReLU depend on it): the zero point is
    rounded, and the scale then grows just as much as both ends need to stay inside.

    Args:
        low, high: ends of the range, scalars or shape (channels,).
        dtype: the quantized type.
        axis: channel axis, when the ends are per channel.
        reduced: see `limits`.

    Raises:
        QuantizationError: not finite or not ordered.
    """
    low64, high64 = _range_arrays(low, high)
    low64, high64 = np.minimum(low64, 0.0), np.maximum(high64, 0.0)
    dtype = np.dtype(dtype)
    use = limits(dtype, reduced=reduced)
    scale = (high64 - low64) / (use.max - use.min)
    safe = np.where(scale > 0, scale, 1.0)
    zero = np.clip(np.rint(use.min - low64 / safe), use.min, use.max)
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.where(use.max > zero, high64 / (use.max - zero), 0.0)
        below = np.where(zero > use.min, -low64 / (zero - use.min), 0.0)
    grown = np.maximum(scale, np.maximum(above, below))
    return QuantParams(_guarded(grown), _as_dtype(zero, dtype), dtype, axis, use)


def channel_ranges(array: Array, axis: int) -> tuple[FloatArray, FloatArray]:
    """The smallest and largest value of each channel.

    Args:
        array: float, any rank >= 1.
        axis: the channel axis.

    Returns:
        Two float32 arrays of shape (channels,); a channel without elements has the range 0..0.

    Raises:
        QuantizationError: there is NaN or Inf in the array; the message names the channel.
    """
    rows = np.moveaxis(np.asarray(array, np.float32), axis, 0)
    rows = rows.reshape(rows.shape[0], -1)
    if rows.shape[1] == 0:
        return np.zeros(rows.shape[0], np.float32), np.zeros(rows.shape[0], np.float32)
    low, high = rows.min(axis=1), rows.max(axis=1)
    bad = ~(np.isfinite(low) & np.isfinite(high))
    if bad.any():
        raise QuantizationError(
            "NaN or Inf in an array to be quantized", where=f"channel {int(np.argmax(bad))} of axis {axis}"
        )
    return low, high


def weight_params(
    weight: Array, axis: int | None, dtype: npt.DTypeLike = np.int8, *, narrow: bool = True, reduced: bool = False
) -> QuantParams:
    """Symmetric parameters of a weight: its largest magnitude, per channel or (``axis`` None) of the whole tensor."""
    if axis is None:
        flat = np.asarray(weight, np.float32).reshape(1, -1)
        low, high = channel_ranges(flat, 0)
        return symmetric(low[0], high[0], dtype, narrow=narrow, reduced=reduced)
    low, high = channel_ranges(weight, axis)
    return symmetric(low, high, dtype, axis=axis, narrow=narrow, reduced=reduced)


def bias_params(activation: QuantParams, weight: QuantParams) -> QuantParams:
    """int32 parameters of a bias: scale = activation scale × weight scale, zero point 0 (the accumulator's scale)."""
    scale = activation.scale * weight.scale
    scale = np.maximum(scale, SMALLEST_SCALE)
    axis = 0 if np.ndim(scale) else None
    return QuantParams(scale, np.zeros(np.shape(scale), np.int32), np.dtype(np.int32), axis)


def _spread(values: npt.NDArray[Any], ndim: int, axis: int | None) -> npt.NDArray[Any]:
    """A per-channel vector shaped to broadcast along ``axis`` of a tensor of rank ``ndim``."""
    if axis is None:
        return values
    shape = [1] * ndim
    shape[axis] = -1
    return values.reshape(shape)


def quantize(real: Array, params: QuantParams) -> IntArray:
    """``saturate(round_half_even(real / scale) + zero_point)``, as ONNX ``QuantizeLinear`` (float32 division).

    Args:
        real: float array.
        params: scale and zero point; per channel they broadcast along ``params.axis``.

    Returns:
        An array of ``params.dtype`` and the shape of ``real``. NaN becomes the zero point.
    """
    wide: np.dtype[Any] = np.dtype(
        np.float64 if params.dtype.itemsize > 2 else np.float32
    )  # int32 needs more than 24 bits
    x = np.asarray(real, np.float32).astype(wide)
    scale = _spread(params.scale, x.ndim, params.axis).astype(wide)
    zero = _spread(params.zero_point, x.ndim, params.axis).astype(wide)
    with np.errstate(over="ignore", invalid="ignore"):
        q = np.nan_to_num(np.rint(x / scale), nan=0.0, posinf=np.inf, neginf=-np.inf)
    q = np.clip(q + zero, params.limits.min, params.limits.max)
    return np.asarray(q).astype(params.dtype)


def dequantize(q: Array, params: QuantParams) -> FloatArray:
    """``scale × (q − zero_point)`` in float32, as ONNX ``DequantizeLinear``."""
    q = np.asarray(q)
    scale = _spread(params.scale, q.ndim, params.axis)
    zero = _spread(params.zero_point, q.ndim, params.axis)
    wide = np.int64 if params.dtype.itemsize > 2 else np.int32
    return np.asarray((q.astype(wide) - zero.astype(wide)).astype(np.float32) * scale, np.float32)


def fake_quantize(real: Array, params: QuantParams) -> FloatArray:
    """What ``real`` becomes on its way through the integers: ``dequantize(quantize(real))``."""
    return dequantize(quantize(real, params), params)


def represented(params: QuantParams) -> tuple[FloatArray, FloatArray]:
    """The smallest and largest real value that the parameters represent, each of the shape of ``params.scale``."""
    use = params.limits
    zero = params.zero_point.astype(np.float32)
    return np.asarray((use.min - zero) * params.scale, np.float32), np.asarray(
        (use.max - zero) * params.scale, np.float32
    )


def as_unsigned(integers: Array) -> IntArray:
    """int8 as uint8, 128 higher: with a zero point that moves along, it means the same numbers."""
    return (integers.astype(np.int16) + 128).astype(np.uint8)


def addend_range(total: QuantParams, other: QuantParams) -> Range:
    """What can be added to a tensor without the sum saturating: beyond it, any number gives the same integer.

    Args:
        total, other: parameters of the sum and of the tensor that is added to, one scale each.
    """
    low, high = (float(end) for end in represented(total))
    least, most = (float(end) for end in represented(other))
    return Range(low - most, high - least)
