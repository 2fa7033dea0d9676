"""Into integers and back: quantize, quantize_v2, dequantize, requantize, quantize_asym.

Formulas and level counts are MXNet 1.9.1's (oneDNN build): 127.5 and 255.5 levels (R8) in quantize_v2 and dequantize,
127 and 255 (R7) in quantize, requantize and the ranges of int32 accumulators. Everything is symmetric around zero,
uint8 too; only quantize_asym has a zero point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs
from requant.errors import DTypeError
from requant.ops import ranges
from requant.ops.emit import Emit, Value
from requant.ops.ranges import FLOAT32, INT8, INT32, INT32_LEVELS, UINT8, Range, Triple
from requant.ops.registry import Shape, op
from requant.qmath import mxnet_levels

OutType = Literal["auto", "int8", "uint8"]


def _float_data(a: Attrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return dict.fromkeys(types, FLOAT32)


def _alike(a: Attrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    """Data has the shape of the first output."""
    data = shapes["data"] or shapes["output"]
    return {**({} if data is None else {"data": data}), **ranges.range_shapes(shapes)}


def extremes(g: Emit, data: Value) -> Range:
    """The smallest and largest number of a tensor, each of shape (1,)."""
    low, high = (g.reshape(g.reduce(kind, data, []), [1]) for kind in ("Min", "Max"))
    return low, high


@dataclass(frozen=True)
class QuantizeAttrs(Attrs):
    out_type: Literal["int8", "uint8"] = "uint8"


@op(
    "_contrib_quantize",
    "_npx_contrib_quantize",
    inputs=("data", "min_range", "max_range"),
    outputs=("output", "min", "max"),
    param_shapes=_alike,
    param_types=_float_data,
)
def quantize(g: Emit, a: QuantizeAttrs, data: Value, min_range: Value, max_range: Value) -> Triple:
    """float32 to int8 or uint8 for a given range R = max(|min|, |max|): ``sat(x · 127 / R)`` or ``sat(x · 255 / R)``.

    Returns integers and their range: (-R, R) for int8, the given range for uint8. Negative numbers become 0 in uint8.
    """
    ranges.expect(g, data, "data", FLOAT32)
    q = ranges.integers(g, data, np.dtype(a.out_type), min_range, max_range, "R7")
    if a.out_type == "uint8":
        return q, min_range, max_range
    return q, *_symmetric(g, min_range, max_range)


def _symmetric(g: Emit, low: Value, high: Value) -> Range:
    with g.folding():
        reach = ranges.largest(g, low, high)
        return g("Neg", reach), reach


@dataclass(frozen=True)
class QuantizeV2Attrs(Attrs):
    out_type: OutType = "int8"
    min_calib_range: float | None = None
    max_calib_range: float | None = None


@op(
    "_contrib_quantize_v2",
    "_npx_contrib_quantize_v2",
    inputs=("data",),
    outputs=("output", "min", "max"),
    param_shapes=_alike,
    param_types=_float_data,
)
def quantize_v2(g: Emit, a: QuantizeV2Attrs, data: Value) -> Triple:
    """float32 to int8 or uint8 for the calibrated range, or else for the range of the data itself.

    ``sat(x · 127.5 / R)`` or ``sat(x · 255.5 / R)`` with R = max(|min|, |max|). ``out_type='auto'`` is uint8 if both
    ends are calibrated and the minimum is not negative. Returns integers and their range: (-R, R) for int8, the range
    itself for uint8. int8 and uint8 data passes through as it is, its bytes read as ``out_type``.
    """
    dtype = ranges.out_dtype(a.out_type, a.min_calib_range, a.max_calib_range)
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    given = ranges.expect(g, data, "data", FLOAT32, INT8, UINT8)
    if given != FLOAT32:
        return _as_bytes(g, data, dtype), *_passed_range(g, given, calib)
    low, high = extremes(g, data) if calib is None else ranges.constant_range(g, calib)
    q = ranges.integers(g, data, dtype, low, high)
    return (q, low, high) if dtype == UINT8 else (q, *_symmetric(g, low, high))


def _as_bytes(g: Emit, q: Value, dtype: np.dtype) -> Value:
    """The same bytes as another 8-bit type."""
    if g.dtype(q) == dtype:
        return q
    wide = g.cast(q, np.int32)
    past, turn = (g("Greater", wide, 127), -256) if dtype == INT8 else (g("Less", wide, 0), 256)
    return g.cast(g("Where", past, g("Add", wide, turn), wide), dtype)


def _passed_range(g: Emit, dtype: np.dtype, calib: tuple[float, float] | None) -> Range:
    if calib is None:
        levels = float(mxnet_levels(dtype))
        calib = (-levels if dtype == INT8 else 0.0, levels)
    return ranges.constant_range(g, calib)


@dataclass(frozen=True)
class DequantizeAttrs(Attrs):
    out_type: Literal["float32"] = "float32"


def _dequantize_types(a: Attrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return {"data": INT8, **ranges.range_types(types)}


@op(
    "_contrib_dequantize",
    "_npx_contrib_dequantize",
    inputs=("data", "min_range", "max_range"),
    param_shapes=_alike,
    param_types=_dequantize_types,
)
def dequantize(g: Emit, a: DequantizeAttrs, data: Value, min_range: Value, max_range: Value) -> Value:
    """int8 or uint8 to float32: ``q · max(|min|, |max|) / 127.5`` (255.5 for uint8)."""
    ranges.expect(g, data, "data", INT8, UINT8)
    return ranges.real(g, data, min_range, max_range)


@dataclass(frozen=True)
class RequantizeAttrs(Attrs):
    out_type: OutType = "int8"
    min_calib_range: float | None = None
    max_calib_range: float | None = None


def _requantize_types(a: Attrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return {"data": INT32, **ranges.range_types(types)}


@op(
    "_contrib_requantize",
    "_npx_requantize",
    inputs=("data", "min_range", "max_range"),
    outputs=("output", "min", "max"),
    param_shapes=_alike,
    param_types=_requantize_types,
)
def requantize(g: Emit, a: RequantizeAttrs, data: Value, min_range: Value, max_range: Value) -> Triple:
    """int32 accumulators of a range to int8 or uint8, for the calibrated range or else for the range of the data.

    ``sat(q · (M / 2147483647) · (127 / R))`` (255 for uint8), M = max(|min_range|, |max_range|), R the largest
    magnitude to represent. Returns integers and their range, (-R, R) for int8 and (0, R) for uint8.
    """
    ranges.expect(g, data, "data", INT32)
    dtype = ranges.out_dtype(a.out_type, a.min_calib_range, a.max_calib_range)
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    if calib is not None:
        reach = ranges.largest(g, *ranges.constant_range(g, calib))
    else:
        reach = _reach(g, data, min_range, max_range)
    low = g.const(np.zeros(1, np.float32))
    if dtype == INT8:
        with g.folding():
            low = g("Neg", reach)
    value = ranges.real_of(g, data)
    if value is not None and ranges.known(g, (low, reach)):
        return ranges.integers(g, value, dtype, low, reach, "R7"), low, reach
    with g.folding():
        scale = g("Div", ranges.largest(g, min_range, max_range), INT32_LEVELS)
        scale = g("Mul", scale, ranges.multiplier(g, dtype, low, reach, "R7"))
    return ranges.saturated(g, g("Mul", g.cast(data, np.float32), scale), dtype), low, reach


def _reach(g: Emit, data: Value, low: Value, high: Value) -> Value:
    """The largest magnitude among int32 accumulators, as a real number."""
    ends = [g("Abs", g.cast(end, np.float32)) for end in extremes(g, data)]
    return g("Div", g("Mul", g("Max", *ends), ranges.largest(g, low, high)), INT32_LEVELS)


@dataclass(frozen=True)
class QuantizeAsymAttrs(Attrs):
    min_calib_range: float | None = None
    max_calib_range: float | None = None


@op(
    "_contrib_quantize_asym",
    "_npx_quantize_asym",
    inputs=("data",),
    outputs=("output", "scale", "shift"),
    named_outputs=True,
    param_shapes=_alike,
    param_types=_float_data,
)
def quantize_asym(g: Emit, a: QuantizeAsymAttrs, data: Value) -> Triple:
    """float32 of any shape to uint8 with a zero point, for a calibrated range or the data's: ``sat(x scale + shift)``.

    Returns integers, ``scale = 255 / (max - min)`` and ``shift = 255 - max · scale``, each of shape (1,). A range of
    width zero has the scale 1.
    """
    if g.dtype(data) != FLOAT32:
        raise DTypeError("quantize_asym takes float32", where=g.node, got=g.dtype(data).name, expected="float32")
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    low, high = extremes(g, data) if calib is None else ranges.constant_range(g, calib)
    with g.folding():
        width = g("Sub", high, low)
        scale = g("Where", g("Equal", width, 0.0), np.float32(1), g("Div", g.const(np.float32(255)), width))
        shift = g("Sub", g.const(np.float32(255)), g("Mul", high, scale))
    return ranges.saturated(g, g("Add", g("Mul", data, scale), shift), UINT8), scale, shift
