"""MXNet's (min, max) ranges: their level counts, and the arithmetic between them and (scale, zero point)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from requant.errors import QuantizationError
from requant.qmath.affine import F32, SMALLEST_SCALE, Array, IntArray, QuantParams, Range, limits

#: Family of level counts: ``R8`` is 127.5/255.5, ``R7`` is 127/255 (see the package's docstring).
Levels = Literal["R8", "R7"]

_LEVELS: dict[tuple[str, str], float] = {
    ("R8", "int8"): 127.5,
    ("R8", "uint8"): 255.5,
    ("R7", "int8"): 127.0,
    ("R7", "uint8"): 255.0,
}
#: The scale MXNet >= 1.7 uses in fused operators when a range is zero.
MXNET_ZERO_RANGE_SCALE = F32(2147483647)


def mxnet_levels(dtype: npt.DTypeLike, levels: Levels = "R8") -> np.float32:
    """The number of levels that MXNet divides a range by: 127.5, 255.5 (R8) or 127, 255 (R7)."""
    key = (levels, np.dtype(dtype).name)
    if key not in _LEVELS:
        raise QuantizationError("MXNet has no such quantized type", got=key, expected=sorted(_LEVELS))
    return F32(_LEVELS[key])


def mxnet_maxabs(low: float, high: float) -> np.float32:
    """``max(|low|, |high|)`` in float32."""
    return max(abs(F32(low)), abs(F32(high)))


def mxnet_multiplier(low: float, high: float, dtype: npt.DTypeLike, levels: Levels = "R8") -> np.float32:
    """What MXNet multiplies real values by, ``levels / max(|low|, |high|)`` in float32; 2147483647 for a zero range
    (the guard of MXNet 1.7's fused operators, here for all)."""
    largest = mxnet_maxabs(low, high)
    with np.errstate(over="ignore", divide="ignore"):
        multiplier = F32(mxnet_levels(dtype, levels) / largest)
    return multiplier if np.isfinite(multiplier) else MXNET_ZERO_RANGE_SCALE  # zero, or so small that it overflows


def mxnet_auto_dtype(low: float | None, high: float | None) -> np.dtype:
    """MXNet's ``out_type='auto'``: uint8 if both ends are calibrated and ``low >= 0`` (-0.0 is), else int8."""
    return np.dtype(np.uint8 if low is not None and high is not None and low >= 0.0 else np.int8)


def from_mxnet_range(low: float, high: float, dtype: npt.DTypeLike, levels: Levels = "R8") -> QuantParams:
    """The (scale, zero point) of an MXNet triple (q, min, max): ``scale = max(|min|, |max|) / levels``, zero point 0.

    Raises:
        QuantizationError: the range is not finite.
    """
    if not (np.isfinite(low) and np.isfinite(high)):
        raise QuantizationError("an MXNet range must be finite", got=(low, high))
    dtype = np.dtype(dtype)
    largest = mxnet_maxabs(low, high)
    scale = max(F32(largest / mxnet_levels(dtype, levels)), SMALLEST_SCALE) if largest else F32(1)
    return QuantParams(np.asarray(scale, np.float32), np.zeros((), dtype), dtype)


def to_mxnet_range(params: QuantParams, levels: Levels = "R8") -> Range:
    """The MXNet range of symmetric per-tensor parameters: (-R, R) for int8, (0, R) for uint8, R = scale × levels.

    Raises:
        QuantizationError: the parameters are per channel or have a zero point; MXNet has no word for those.
    """
    if params.per_channel or not params.symmetric:
        raise QuantizationError(
            "MXNet ranges are symmetric and per tensor",
            got="per-channel scales" if params.per_channel else f"zero point {params.zero_point}",
            next="plan with a symmetric per-tensor scheme before writing an MXNet symbol",
        )
    largest = float(F32(params.scale * mxnet_levels(params.dtype, levels)))
    return Range(-largest if params.dtype.kind == "i" else 0.0, largest)


def mxnet_quantize(real: Array, low: float, high: float, dtype: npt.DTypeLike, levels: Levels = "R8") -> IntArray:
    """MXNet's quantization, bit for bit: ``saturate(round_half_even(real × multiplier))``, one float32 multiplication.

    It differs from `quantize` with `from_mxnet_range` only where the two roundings (multiply by a rounded reciprocal,
    or divide by a rounded scale) fall on different sides of a tie. NaN becomes 127 (int8) or 0 (uint8), as in MXNet.
    """
    whole = limits(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        q = np.rint(np.asarray(real, np.float32) * mxnet_multiplier(low, high, dtype, levels))
    q = np.nan_to_num(q, nan=127.0 if whole.min < 0 else 0.0, posinf=np.inf, neginf=-np.inf)
    return np.asarray(np.clip(q, whole.min, whole.max)).astype(dtype)
