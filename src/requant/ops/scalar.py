"""Element-wise operators of a tensor and a number, and clip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.ops import elementwise as ew
from requant.ops.elementwise import BOOL, FLOAT32, FLOAT64, Kernel
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, same_shape


@dataclass(frozen=True)
class ScalarAttrs(Attrs):
    scalar: float = 1.0
    is_int: bool = True


def _result_type(dtype: np.dtype, is_int: bool) -> np.dtype:
    """MXNet's rule: a fraction (``is_int=False``) turns integers into float64; bool with an integer gives int64."""
    if ew.is_float(dtype):
        return dtype
    if not is_int:
        return FLOAT64
    return np.dtype(np.int64) if dtype == BOOL else dtype


def _scalar(
    name: str,
    *aliases: str,
    kernel: Kernel,
    reverse: bool = False,
    logical: bool = False,
    true_divide: bool = False,
    whole: bool = False,
) -> None:
    """Register ``kernel(data, scalar)``, or ``kernel(scalar, data)`` if ``reverse``.

    logical: the result is bool, as NumPy has it. true_divide: integers become float32. whole: integers stay.
    """

    def lower(g: Emit, a: ScalarAttrs, data: Value) -> Value:
        dtype = g.dtype(data)
        if true_divide and not ew.is_float(dtype):
            dtype = FLOAT32
        elif not whole and not (logical and dtype == BOOL):
            dtype = _result_type(dtype, a.is_int)
        operands = [g.cast(data, dtype), ew.constant(g, a.scalar, dtype)]
        if reverse:
            operands.reverse()
        return ew.compute(g, kernel, operands[0], operands[1], BOOL if logical else None)

    kind = (kernel.__doc__ or "").split("\n")[0].rstrip(".")
    lower.__doc__ = f"{kind}, where {'a' if reverse else 'b'} is the scalar."
    op(name, *aliases, param_shapes=same_shape)(lower)


def _both_ways(kinds: dict[str, tuple[Kernel, str, str]]) -> None:
    """Register comparisons: ``_<kind>_scalar`` keeps the dtype, ``_npi_<kind>_scalar`` gives bool."""
    for kind, (kernel, camel, numpy_name) in kinds.items():
        _scalar(f"_{kind}_scalar", camel, kernel=kernel)
        _scalar(f"_npi_{numpy_name}_scalar", kernel=kernel, logical=True)


_scalar("_plus_scalar", "_PlusScalar", kernel=ew.add)
_scalar("_minus_scalar", "_MinusScalar", kernel=ew.subtract)
_scalar("_rminus_scalar", "_RMinusScalar", kernel=ew.subtract, reverse=True)
_scalar("_mul_scalar", "_MulScalar", kernel=ew.multiply)
_scalar("_div_scalar", "_DivScalar", kernel=ew.divide)
_scalar("_rdiv_scalar", "_RDivScalar", kernel=ew.divide, reverse=True)
_scalar("_mod_scalar", "_ModScalar", kernel=ew.modulo)
_scalar("_rmod_scalar", "_RModScalar", kernel=ew.modulo, reverse=True)
_scalar("_power_scalar", "_PowerScalar", kernel=ew.power)
_scalar("_rpower_scalar", "_RPowerScalar", kernel=ew.power, reverse=True)
_scalar("_maximum_scalar", "_MaximumScalar", "_npi_maximum_scalar", "_npi_fmax_scalar", kernel=ew.maximum)
_scalar("_minimum_scalar", "_MinimumScalar", "_npi_minimum_scalar", "_npi_fmin_scalar", kernel=ew.minimum)
_scalar("_hypot_scalar", "_HypotScalar", "_npi_hypot_scalar", kernel=ew.hypot)
_scalar("_scatter_plus_scalar", kernel=ew.add)
_scalar("_scatter_minus_scalar", kernel=ew.subtract)

_both_ways(
    {
        "equal": (ew.equal, "_EqualScalar", "equal"),
        "not_equal": (ew.not_equal, "_NotEqualScalar", "not_equal"),
        "greater": (ew.greater, "_GreaterScalar", "greater"),
        "greater_equal": (ew.greater_equal, "_GreaterEqualScalar", "greater_equal"),
        "lesser": (ew.lesser, "_LesserScalar", "less"),
        "lesser_equal": (ew.lesser_equal, "_LesserEqualScalar", "less_equal"),
        "logical_and": (ew.logical_and, "_LogicalAndScalar", "logical_and"),
        "logical_or": (ew.logical_or, "_LogicalOrScalar", "logical_or"),
        "logical_xor": (ew.logical_xor, "_LogicalXorScalar", "logical_xor"),
    }
)

_scalar("_npi_add_scalar", kernel=ew.add)
_scalar("_npi_subtract_scalar", kernel=ew.subtract)
_scalar("_npi_rsubtract_scalar", kernel=ew.subtract, reverse=True)
_scalar("_npi_multiply_scalar", kernel=ew.multiply)
_scalar("_npi_true_divide_scalar", kernel=ew.divide, true_divide=True)
_scalar("_npi_rtrue_divide_scalar", kernel=ew.divide, reverse=True, true_divide=True)
_scalar("_npi_mod_scalar", kernel=ew.modulo)
_scalar("_npi_rmod_scalar", kernel=ew.modulo, reverse=True)
_scalar("_npi_power_scalar", kernel=ew.power)
_scalar("_npi_rpower_scalar", kernel=ew.power, reverse=True)
_scalar("_npi_arctan2_scalar", kernel=ew.arctan2)
_scalar("_npi_rarctan2_scalar", kernel=ew.arctan2, reverse=True)
_scalar("_npi_copysign_scalar", kernel=ew.copysign)
_scalar("_npi_rcopysign_scalar", kernel=ew.copysign, reverse=True)
_scalar("_npi_ldexp_scalar", kernel=ew.ldexp)
_scalar("_npi_rldexp_scalar", kernel=ew.ldexp, reverse=True)
_scalar("_npi_bitwise_and_scalar", kernel=ew.bitwise_and, whole=True)
_scalar("_npi_bitwise_or_scalar", kernel=ew.bitwise_or, whole=True)
_scalar("_npi_bitwise_xor_scalar", kernel=ew.bitwise_xor, whole=True)


@dataclass(frozen=True)
class ClipAttrs(Attrs):
    a_min: float
    a_max: float


def _bound(g: Emit, value: float, dtype: np.dtype) -> Value:
    """A bound in the tensor's dtype; for integers truncated, and no further than the dtype reaches."""
    if ew.is_float(dtype):
        return g.const(np.asarray(value, dtype))
    limits = np.iinfo(dtype)
    return g.const(np.asarray(int(min(max(value, limits.min), limits.max)), dtype))


@op("clip", "_sparse_clip", "_npi_clip", param_shapes=same_shape)
def clip(g: Emit, a: ClipAttrs, data: Value) -> Value:
    """Limit to [a_min, a_max]; any shape, any dtype but bool."""
    dtype = g.dtype(data)
    return g("Clip", data, _bound(g, a.a_min, dtype), _bound(g, a.a_max, dtype))


@dataclass(frozen=True)
class SmoothL1Attrs(Attrs):
    scalar: float = 1.0


@op("smooth_l1", "_npx_smooth_l1", param_shapes=same_shape)
def smooth_l1(g: Emit, a: SmoothL1Attrs, data: Value) -> Value:
    """(scalar · x)² / 2 where |x| < 1 / scalar², else |x| - 0.5 / scalar²; of integers: truncated."""
    dtype = g.dtype(data)
    x = data if ew.is_float(dtype) else g.cast(data, FLOAT32)
    square = a.scalar * a.scalar
    size = g("Abs", x)
    inner = g("Mul", g("Mul", x, x), 0.5 * square)
    edge = 1.0 / square if square else np.inf
    outer = g("Sub", size, 0.5 * edge)
    return g.cast(g("Where", g("Less", size, edge), inner, outer), dtype)


@dataclass(frozen=True)
class QuadraticAttrs(Attrs):
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0


@op("_contrib_quadratic", param_shapes=same_shape)
def quadratic(g: Emit, a: QuadraticAttrs, data: Value) -> Value:
    """a·x² + b·x + c"""
    return g("Add", g("Mul", data, g("Add", g("Mul", data, a.a), a.b)), a.c)


@op("_contrib_gradientmultiplier", param_shapes=same_shape)
def gradientmultiplier(g: Emit, a: ScalarAttrs, data: Value) -> Value:
    """The data itself: only gradients are multiplied."""
    return data
