"""The quantized triple (q, min, max): from real numbers to integers and back, in MXNet's arithmetic.

A scale follows from the range: ``step = max(|min|, |max|) / levels`` is one integer's worth of real numbers and
``multiplier = levels / max(|min|, |max|)`` its inverse, both in float32. Ranges are constants in a calibrated graph,
where triples become QuantizeLinear and DequantizeLinear nodes of constant scale, which engines fuse into int8 kernels.
They are tensors of shape (1,) in a call on arrays and in a graph without calibration: the same formulas are nodes then.

A range of width zero has the multiplier 2147483647, as in MXNet's fused operators since 1.7: zeros stay zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from requant.attrs import Attrs
from requant.errors import AttributeValueError, DTypeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape
from requant.qmath import MXNET_ZERO_RANGE_SCALE, SMALLEST_SCALE, Levels, mxnet_auto_dtype, mxnet_levels

INT8, UINT8, INT32, FLOAT32 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.float32)
#: What int32 accumulators of a range (-M, M) count M as.
INT32_LEVELS = 2147483647.0
#: The largest float32 below 2^31.
_LARGEST_INT32 = 2147483520.0
#: The key of an accumulator's unit among ``Emit.reals``, where real numbers go by the bytes of a scale.
_UNIT = b"unit"

Range = tuple[Value, Value]
Triple = tuple[Value, Value, Value]


def expect(g: Emit, x: Value, what: str, *allowed: np.dtype) -> np.dtype:
    """The dtype of an input, if it is one of ``allowed``.

    Raises:
        DTypeError: it is another one.
    """
    dtype = g.dtype(x)
    if dtype not in allowed:
        shown = " or ".join(d.name for d in allowed)
        raise DTypeError(
            f"input {what!r} of {g.mx_op} has the wrong type",
            where=g.node,
            got=dtype.name,
            expected=shown,
            next="quantize it first (_contrib_quantize_v2)" if dtype == FLOAT32 else None,
        )
    return dtype


def calibrated(g: Emit, low: float | None, high: float | None) -> tuple[float, float] | None:
    """A calibration range in float32, if both ends are set and finite numbers."""
    if low is None or high is None:
        return None
    if not (np.isfinite(low) and np.isfinite(high)):
        raise AttributeValueError("a calibration range must be finite", where=g.node, got=(low, high))
    return float(np.float32(low)), float(np.float32(high))


def out_dtype(out_type: str, low: float | None, high: float | None) -> np.dtype:
    """``out_type`` as a dtype; ``auto`` is uint8 for a calibrated range without negative numbers."""
    return mxnet_auto_dtype(low, high) if out_type == "auto" else np.dtype(out_type)


def constant_range(g: Emit, calib: tuple[float, float]) -> Range:
    """A range as two constants of shape (1,)."""
    low, high = (g.const(np.array([v], np.float32)) for v in calib)
    return low, high


def number(g: Emit, x: Value) -> float | None:
    """The number in a constant of one element; None if it is not known."""
    known = g.value_of(x)
    return None if known is None or known.size != 1 else float(known.reshape(-1)[0])


def largest(g: Emit, low: Value, high: Value) -> Value:
    """``max(|low|, |high|)``, shape (1,)."""
    with g.folding():
        return g("Max", g("Abs", low), g("Abs", high))


def multiplier(g: Emit, dtype: np.dtype, low: Value, high: Value, levels: Levels = "R8") -> Value:
    """Integers per real number, shape (1,)."""
    with g.folding():
        reach = largest(g, low, high)
        plain = g("Div", g.const(mxnet_levels(dtype, levels)), reach)
        return g("Where", g("Equal", reach, 0.0), MXNET_ZERO_RANGE_SCALE, plain)


def step(g: Emit, dtype: np.dtype, low: Value, high: Value, levels: Levels = "R8") -> Value:
    """Real numbers per integer, shape (1,)."""
    with g.folding():
        return g("Div", largest(g, low, high), g.const(mxnet_levels(dtype, levels)))


def constant_step(g: Emit, dtype: np.dtype, low: Value, high: Value) -> float:
    """The same of a range that is ``known``."""
    found = number(g, step(g, dtype, low, high))
    assert found is not None
    return found


def saturated(g: Emit, x: Value, dtype: np.dtype) -> Value:
    """``x`` rounded half to even and clipped to an 8-bit type. In exact mode NaN is 127 or 0, as in MXNet."""
    if not g.exact:
        return g("QuantizeLinear", x, g.const(np.float32(1)), g.const(np.zeros((), dtype)))
    limits = np.iinfo(dtype)
    x = g("Where", g("IsNaN", x), np.float32(127 if dtype == INT8 else 0), x)
    return g.cast(g("Clip", g("Round", x), float(limits.min), float(limits.max)), dtype)


def saturated32(g: Emit, x: Value) -> Value:
    """``x`` rounded half to even and clipped to int32 (to what float32 can tell of it)."""
    return g.cast(g("Clip", g("Round", x), -2147483648.0, _LARGEST_INT32), np.int32)


def integers(g: Emit, x: Value, dtype: np.dtype, low: Value, high: Value, levels: Levels = "R8") -> Value:
    """Real numbers quantized to an 8-bit type for a range."""
    scale = number(g, step(g, dtype, low, high, levels))
    if g.exact or scale is None:
        return saturated(g, g("Mul", x, multiplier(g, dtype, low, high, levels)), dtype)
    smallest = float(np.float32(1) / MXNET_ZERO_RANGE_SCALE)
    scale = scale or smallest
    return g("QuantizeLinear", x, g.const(np.float32(scale)), g.const(np.zeros((), dtype)))


def restored(g: Emit, q: Value, scale: npt.ArrayLike, axis: int | None = None) -> Value:
    """``q × scale``: a DequantizeLinear of constant scale, one for each value and scale."""
    scale = np.maximum(np.asarray(scale, np.float32), SMALLEST_SCALE)
    key = (q, scale.tobytes() + bytes(axis is not None))
    if key not in g.reals:
        zero = g.const(np.zeros(scale.shape, g.dtype(q)))
        g.reals[key] = g("DequantizeLinear", q, g.const(scale), zero, axis=axis)
    return g.reals[key]


def real(g: Emit, q: Value, low: Value, high: Value, levels: Levels = "R8") -> Value:
    """The real numbers that 8-bit integers of a range stand for."""
    scale = step(g, g.dtype(q), low, high, levels)
    known = number(g, scale)
    if known is None or g.exact:
        return g("Mul", g.cast(q, np.float32), scale)
    return restored(g, q, np.asarray(known, np.float32))


def known(g: Emit, *ranges: Range) -> bool:
    """Whether all these ranges are constants in a graph: then real numbers flow, and integers are made of them."""
    return not g.exact and all(number(g, v) is not None for pair in ranges for v in pair)


def set_real(g: Emit, accumulator: Value, value: Value, unit: Value | None = None) -> Value:
    """State which float value holds the real numbers of an int32 accumulator. Returns the accumulator.

    Args:
        unit: the real numbers that one integer stands for, a constant of one element, where ``value`` divided by it
            gives the very integers; None where those are rounded on the way.
    """
    g.reals[accumulator, b""] = value
    if unit is not None:
        g.reals[accumulator, _UNIT] = unit
    return accumulator


def real_of(g: Emit, accumulator: Value) -> Value | None:
    """The float value that `set_real` stated, if any."""
    return g.reals.get((accumulator, b""))


def as_float(g: Emit, accumulator: Value) -> Value | None:
    """An int32 accumulator as float32, out of its real numbers, so that engines need not make the integers at all.

    None where `set_real` stated nothing, or real numbers that were not rounded as the integers are.
    """
    value, unit = real_of(g, accumulator), g.reals.get((accumulator, _UNIT))
    known = None if unit is None else number(g, unit)
    if value is None or not known:
        return None
    return value if known == 1.0 else g("Mul", value, np.float32(1 / known))


def through(g: Emit, q: Value, low: Value, high: Value, move: Callable[[Value], Value]) -> Triple:
    """An operator that moves or selects values: the same scale before and after it."""
    if not known(g, (low, high)):
        return move(q), low, high
    return integers(g, move(real(g, q, low, high)), g.dtype(q), low, high), low, high


# --- rules of inference ----------------------------------------------------------------------------------------------


def range_shapes(shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    """Every input called a minimum or maximum has the shape (1,)."""
    return {n: (1,) for n in shapes if "min" in n.split("_") or "max" in n.split("_")}


def range_types(types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    """Every input called a minimum or maximum is float32."""
    return {n: FLOAT32 for n in types if "min" in n.split("_") or "max" in n.split("_")}


def range_rule(a: Attrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    """Shape rule of operators that have ranges and nothing else to tell."""
    return range_shapes(shapes)


def int8_types(a: Attrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    """Type rule of operators whose data is int8 unless it is known to be uint8."""
    return {**dict.fromkeys(types, INT8), **range_types(types)}
