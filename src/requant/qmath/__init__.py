"""The arithmetic of scales, in one place: real = scale × (q − zero_point).

Everything that quantizes, dequantizes or converts between MXNet's (min, max) ranges and ONNX's (scale, zero_point)
does it here. Three facts that are easy to get wrong:

- **Rounding** is half to even and **saturating**, as ONNX ``QuantizeLinear`` and oneDNN do it.
- **MXNet counts levels in two ways** (since 1.6; the family is named in every conversion below): ``R8`` = 127.5 / 255.5
  in ``quantize_v2``, ``dequantize`` and all fused operators; ``R7`` = 127 / 255 in ``quantize`` (v1), ``requantize``,
  and int32 ranges. MXNet's ranges are symmetric around zero, for uint8 too: scale = max(|min|, |max|) / levels, the
  zero point 0.
- **Ranges of width zero** exist (an all-zero channel, a dead layer). Their scale is 1, so zeros stay zeros and nothing
  divides by zero.
"""

from __future__ import annotations

from requant.qmath.affine import (
    F32,
    SMALLEST_SCALE,
    Array,
    FloatArray,
    IntArray,
    Limits,
    QuantParams,
    Range,
    addend_range,
    as_unsigned,
    asymmetric,
    bias_params,
    channel_ranges,
    dequantize,
    fake_quantize,
    limits,
    quantize,
    represented,
    symmetric,
    weight_params,
)
from requant.qmath.measures import (
    sqnr,
)
from requant.qmath.mxnet import (
    MXNET_ZERO_RANGE_SCALE,
    Levels,
    from_mxnet_range,
    mxnet_auto_dtype,
    mxnet_levels,
    mxnet_maxabs,
    mxnet_multiplier,
    mxnet_quantize,
    to_mxnet_range,
)

__all__ = [
    "F32",
    "MXNET_ZERO_RANGE_SCALE",
    "SMALLEST_SCALE",
    "Array",
    "FloatArray",
    "IntArray",
    "Levels",
    "Limits",
    "QuantParams",
    "Range",
    "addend_range",
    "as_unsigned",
    "asymmetric",
    "bias_params",
    "channel_ranges",
    "dequantize",
    "fake_quantize",
    "from_mxnet_range",
    "limits",
    "mxnet_auto_dtype",
    "mxnet_levels",
    "mxnet_maxabs",
    "mxnet_multiplier",
    "mxnet_quantize",
    "quantize",
    "represented",
    "sqnr",
    "symmetric",
    "to_mxnet_range",
    "weight_params",
]
