"""Element-wise functions of one tensor. Each keeps shape and dtype; of integers the result is truncated.

MXNet computes a function of integers in float32 and casts back, as C does. Where ONNX Runtime has no float64 kernel, or
a formula needs more digits than float16 has, the computation is done in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.ops import elementwise as ew
from requant.ops.elementwise import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, same_shape

Function = Callable[[Emit, Value], Value]


def unary(
    name: str,
    *aliases: str,
    half: bool = True,
    double: bool = True,
    integers: bool = False,
    argument: str = "data",
) -> Callable[[Function], Function]:
    """Register a function of one tensor: a decorator for ``function(g, x)``.

    half, double: whether it is computed in float16 or float64 where the data is; in float32 otherwise.
    integers: whether it is computed on integers themselves (at least int32). argument: the input's name.
    """

    def register(function: Function) -> Function:
        def lower(g: Emit, a: NoAttrs, **operands: Value) -> Value:
            (data,) = operands.values()
            dtype = g.dtype(data)
            single = dtype == BFLOAT16 or (dtype == FLOAT16 and not half) or (dtype == FLOAT64 and not double)
            if ew.is_float(dtype):
                work = FLOAT32 if single else dtype
            else:
                work = ew.working(dtype) if integers else FLOAT32
            return g.cast(function(g, g.cast(data, work)), dtype)

        lower.__doc__ = function.__doc__
        lower.__module__ = function.__module__
        op(name, *aliases, inputs=(argument,), param_shapes=same_shape)(lower)
        return function

    return register


def _direct(name: str, op_type: str, *aliases: str, double: bool = True, integers: bool = False) -> None:
    """Register a function that is one ONNX operator."""

    def function(g: Emit, x: Value) -> Value:
        return g(op_type, x)

    function.__doc__ = f"{name}(x), element by element."
    unary(name, f"_npi_{name}", f"_sparse_{name}", *aliases, double=double, integers=integers)(function)


_direct("abs", "Abs", "_npi_absolute", integers=True)
_direct("sqrt", "Sqrt")
_direct("exp", "Exp")
_direct("log", "Log")
_direct("sin", "Sin")
_direct("cos", "Cos")
_direct("tan", "Tan", double=False)
_direct("arcsin", "Asin", double=False)
_direct("arccos", "Acos", double=False)
_direct("arctan", "Atan", double=False)
_direct("sinh", "Sinh", double=False)
_direct("cosh", "Cosh", double=False)
_direct("tanh", "Tanh", "_npx_tanh")
_direct("arcsinh", "Asinh", double=False)
_direct("arccosh", "Acosh", double=False)
_direct("arctanh", "Atanh", double=False)
_direct("reciprocal", "Reciprocal")


@unary("negative", "_np_negative", "_npi_negative", "_sparse_negative", integers=True)
def negative(g: Emit, x: Value) -> Value:
    """-x; unsigned integers wrap around."""
    return g("Neg", x)


@unary("_contrib_sign_ste", "_sparse__contrib_sign_ste", integers=True)
@unary("sign", "_npi_sign", "_sparse_sign", integers=True)
def sign(g: Emit, x: Value) -> Value:
    """-1, 0 or 1."""
    return g("Sign", x)


@unary("square", "_npi_square", "_sparse_square", integers=True)
def square(g: Emit, x: Value) -> Value:
    """x²"""
    return g("Mul", x, x)


@unary("rsqrt", "_sparse_rsqrt")
def rsqrt(g: Emit, x: Value) -> Value:
    """1 / √x"""
    return g("Reciprocal", g("Sqrt", x))


@unary("cbrt", "_npi_cbrt", "_sparse_cbrt", half=False)
def cbrt(g: Emit, x: Value) -> Value:
    """The cube root, negative where x is."""
    return g("Mul", g("Sign", x), g("Pow", g("Abs", x), 1.0 / 3.0))


@unary("rcbrt", half=False)
def rcbrt(g: Emit, x: Value) -> Value:
    """1 / ∛x"""
    return g("Reciprocal", cbrt(g, x))


# -- rounding: nothing happens to integers -----------------------------------------------------------------------


def _whole(g: Emit, x: Value) -> bool:
    return not ew.is_float(g.dtype(x))


@unary("floor", "_npi_floor", "_sparse_floor", integers=True)
def floor(g: Emit, x: Value) -> Value:
    """The largest integer that is not above x."""
    return x if _whole(g, x) else g("Floor", x)


@unary("ceil", "_npi_ceil", "_sparse_ceil", integers=True)
def ceil(g: Emit, x: Value) -> Value:
    """The smallest integer that is not below x."""
    return x if _whole(g, x) else g("Ceil", x)


@unary("fix", "_npi_fix", "_sparse_fix", integers=True)
def fix(g: Emit, x: Value) -> Value:
    """Rounded towards zero."""
    return x if _whole(g, x) else g("Mul", g("Sign", x), g("Floor", g("Abs", x)))


unary("trunc", "_npi_trunc", "_sparse_trunc", integers=True)(fix)


@unary("rint", "_npi_rint", "_sparse_rint", integers=True)
def rint(g: Emit, x: Value) -> Value:
    """The nearest integer; of two equally near ones the lower (not the even one, as C has it)."""
    if _whole(g, x):
        return x
    low = g("Floor", x)
    return g("Add", low, g.cast(g("Greater", g("Sub", x, low), 0.5), g.dtype(x)))


@unary("_contrib_round_ste", "_sparse__contrib_round_ste", integers=True)
@unary("round", "_sparse_round", integers=True)
def round_(g: Emit, x: Value) -> Value:
    """The nearest integer; of two equally near ones the one further from zero."""
    if _whole(g, x):
        return x
    size = g("Abs", x)
    low = g("Floor", size)
    up = g.cast(g("GreaterOrEqual", g("Sub", size, low), 0.5), g.dtype(x))
    return g("Mul", g("Sign", x), g("Add", low, up))


@dataclass(frozen=True)
class AroundAttrs(Attrs):
    decimals: int = 0


@op("_npi_around", "_npi_round", inputs=("x",), param_shapes=same_shape)
def around(g: Emit, a: AroundAttrs, x: Value) -> Value:
    """Rounded to so many decimals (negative: to tens, hundreds ...), halves to the even neighbour."""
    dtype = g.dtype(x)
    if not ew.is_float(dtype):
        return x
    if a.decimals == 0 and dtype != BFLOAT16:
        return g("Round", x)
    work = dtype if dtype == FLOAT64 else FLOAT32
    scale = 10.0**a.decimals
    return g.cast(g("Div", g("Round", g("Mul", g.cast(x, work), scale)), scale), dtype)


# -- exponentials and logarithms ---------------------------------------------------------------------------------


@unary("log10", "_npi_log10", "_sparse_log10")
def log10(g: Emit, x: Value) -> Value:
    """The logarithm to base 10."""
    return g("Mul", g("Log", x), 1.0 / math.log(10.0))


@unary("log2", "_npi_log2", "_sparse_log2")
def log2(g: Emit, x: Value) -> Value:
    """The logarithm to base 2."""
    return g("Mul", g("Log", x), 1.0 / math.log(2.0))


@unary("log1p", "_npi_log1p", "_sparse_log1p", half=False)
def log1p(g: Emit, x: Value) -> Value:
    """log(1 + x), right to the last digits for small x as well.

    What 1 + x loses by rounding is u - 1 - x; to first order the logarithm of u is off by that over u.
    """
    u = g("Add", x, 1)
    log_u = g("Log", u)
    lost = g("Sub", x, g("Sub", u, 1))
    return g("Where", g("Less", g("Abs", x), 0.5), g("Add", log_u, g("Div", lost, u)), log_u)


@unary("expm1", "_npi_expm1", "_sparse_expm1", half=False)
def expm1(g: Emit, x: Value) -> Value:
    """exp(x) - 1, right to the last digits for small x as well: there it is 2t / (1 - t) with t = tanh(x / 2)."""
    t = g("Tanh", g("Mul", x, 0.5))
    near = g("Div", g("Add", t, t), g("Sub", g.const(1, x), t))
    return g("Where", g("Less", g("Abs", x), 0.5), near, g("Sub", g("Exp", x), 1))


@unary("degrees", "_npi_degrees", "_npi_rad2deg", "_sparse_degrees")
def degrees(g: Emit, x: Value) -> Value:
    """Radians to degrees."""
    return g("Mul", x, 180.0 / math.pi)


@unary("radians", "_npi_radians", "_npi_deg2rad", "_sparse_radians")
def radians(g: Emit, x: Value) -> Value:
    """Degrees to radians."""
    return g("Mul", x, math.pi / 180.0)


# -- tests of a value --------------------------------------------------------------------------------------------


@unary("logical_not", integers=True)
def logical_not(g: Emit, x: Value) -> Value:
    """1 where x is 0, else 0, in the data's dtype."""
    return g.cast(g("Equal", x, 0), g.dtype(x))


@op("_npi_logical_not", inputs=("x",), param_shapes=same_shape)
def npi_logical_not(g: Emit, a: NoAttrs, x: Value) -> Value:
    """Whether x is 0, as bool."""
    return g("Not", g.cast(x, BOOL))


@op("_npi_bitwise_not", "_npi_invert", inputs=("x",), param_shapes=same_shape)
def bitwise_not(g: Emit, a: NoAttrs, x: Value) -> Value:
    """All bits turned over; of bool: not."""
    dtype = g.dtype(x)
    if dtype == BOOL:
        return g("Not", x)
    work = ew.working(dtype)
    return g.cast(g("Sub", g.const(-1, work), g.cast(x, work)), dtype)


def _float_test(name: str, doc: str, test: Callable[[Emit, Value], Value], of_integers: bool) -> None:
    """Register a test that only floats can fail (or pass): of integers the answer is known."""

    def lower(g: Emit, a: NoAttrs, x: Value) -> Value:
        dtype = g.dtype(x)
        if ew.is_float(dtype):
            return test(g, g.cast(x, FLOAT32) if dtype == BFLOAT16 else x)
        same = g("Equal", x, x)
        return same if of_integers else g("Not", same)

    lower.__doc__ = doc
    op(name, inputs=("x",), param_shapes=same_shape)(lower)


def _infinite(g: Emit, x: Value, low: bool = True, high: bool = True) -> Value:
    """Whether x is an infinity. Not by ``IsInf``, whose flags engines read differently."""
    found = []
    if high:
        found.append(g("Equal", x, np.inf))
    if low:
        found.append(g("Equal", x, -np.inf))
    return found[0] if len(found) == 1 else g("Or", *found)


_float_test("_npi_isnan", "Whether x is not a number, as bool.", lambda g, x: g("IsNaN", x), False)
_float_test("_npi_isinf", "Whether x is infinite, as bool.", _infinite, False)
_float_test("_npi_isposinf", "Whether x is +∞, as bool.", lambda g, x: _infinite(g, x, low=False), False)
_float_test("_npi_isneginf", "Whether x is -∞, as bool.", lambda g, x: _infinite(g, x, high=False), False)
_float_test(
    "_npi_isfinite",
    "Whether x is a number and not infinite, as bool.",
    lambda g, x: g("Not", g("Or", g("IsNaN", x), _infinite(g, x))),
    True,
)


@dataclass(frozen=True)
class NanToNumAttrs(Attrs):
    copy: bool = True
    nan: float = 0.0
    posinf: float | None = None
    neginf: float | None = None


@op("_npi_nan_to_num", param_shapes=same_shape)
def nan_to_num(g: Emit, a: NanToNumAttrs, data: Value) -> Value:
    """NaN and infinities replaced by numbers; infinities by the largest ones of the dtype if none are given."""
    dtype = g.dtype(data)
    if not ew.is_float(dtype):
        return data
    largest = float(np.finfo(dtype).max) if dtype != BFLOAT16 else 3.3895e38
    high = largest if a.posinf is None else a.posinf
    low = -largest if a.neginf is None else a.neginf
    out = g("Where", g("IsNaN", data), g.const(a.nan, dtype), data)
    out = g("Where", g("Equal", data, np.inf), g.const(high, dtype), out)
    return g("Where", g("Equal", data, -np.inf), g.const(low, dtype), out)
