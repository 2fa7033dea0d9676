"""Arithmetic that the element-wise operators share: one function per kind, on tensors of one dtype.

MXNet computes in the inputs' dtype: integers wrap around, integer division truncates, a remainder has the divisor's
sign, and whatever is divided by zero has remainder 0. ONNX engines have no (or saturating) kernels for 8-bit integers
and bool, so these are computed in int32, and may fail on a remainder of integers by 0, which is guarded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from requant.attrs import Attrs
from requant.errors import DTypeError
from requant.ops.emit import Emit, Value

Kernel = Callable[[Emit, Value, Value], Value]

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
FLOAT16 = np.dtype(np.float16)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
BOOL = np.dtype(np.bool_)
_NARROW = {np.dtype(t) for t in (np.bool_, np.int8, np.uint8, np.int16, np.uint16)}


@dataclass(frozen=True)
class NoAttrs(Attrs):
    """An operator without attributes. As in MXNet it takes any and looks at none (``zeros_like(x, dtype="int64")``)."""

    @classmethod
    def parse(cls, raw: Mapping[str, object], where: object | None = None) -> NoAttrs:
        return cls()


def is_float(dtype: np.dtype) -> bool:
    """Whether a dtype is a floating-point type, bfloat16 included."""
    return dtype.kind == "f" or dtype == BFLOAT16


def working(dtype: np.dtype) -> np.dtype:
    """The dtype in which arithmetic on ``dtype`` is done: int32 for narrow integers, float32 for bfloat16."""
    if dtype in _NARROW:
        return np.dtype(np.int32)
    return FLOAT32 if dtype == BFLOAT16 else dtype


def same_dtype(g: Emit, lhs: Value, rhs: Value) -> np.dtype:
    """The dtype of both inputs.

    Raises:
        DTypeError: they differ. MXNet's operators do not promote.
    """
    left, right = g.dtype(lhs), g.dtype(rhs)
    if left != right:
        raise DTypeError(
            f"the inputs of {g.mx_op or 'an operator'} must have one dtype",
            where=g.node or None,
            got=f"{left} and {right}",
            next="cast one of them (op Cast)",
        )
    return left


def promote(left: np.dtype, right: np.dtype) -> np.dtype:
    """The result dtype of MXNet's numpy operators: a float type wins over integers, and the wider of two floats."""
    if is_float(left) != is_float(right):
        return left if is_float(left) else right
    return left if left == right else np.promote_types(left, right)


def constant(g: Emit, value: float, dtype: np.dtype) -> Value:
    """A scalar attribute in the dtype of the tensor it meets, cast as C casts it: truncated, and wrapped around.

    Raises:
        DTypeError: an infinity or NaN meets integers.
    """
    if is_float(dtype):
        return g.const(np.asarray(value, dtype))
    if not np.isfinite(value):
        raise DTypeError("this scalar does not fit the tensor", where=g.node or None, got=f"{value} and {dtype}")
    if dtype == BOOL:
        return g.const(np.asarray(bool(value)))
    bits = 8 * dtype.itemsize
    whole = int(value) % (1 << bits)
    if dtype.kind == "i" and whole >= 1 << (bits - 1):
        whole -= 1 << bits
    return g.const(np.asarray(whole, dtype))


def compute(g: Emit, kernel: Kernel, lhs: Value, rhs: Value, out: np.dtype | None = None) -> Value:
    """Apply a kernel to two tensors of one dtype; the result has that dtype too, or ``out``."""
    dtype = g.dtype(lhs)
    work = working(dtype)
    return g.cast(kernel(g, g.cast(lhs, work), g.cast(rhs, work)), dtype if out is None else out)


def add(g: Emit, a: Value, b: Value) -> Value:
    """a + b"""
    return g("Add", a, b)


def subtract(g: Emit, a: Value, b: Value) -> Value:
    """a - b"""
    return g("Sub", a, b)


def multiply(g: Emit, a: Value, b: Value) -> Value:
    """a * b"""
    return g("Mul", a, b)


def _safe_divisor(g: Emit, b: Value) -> Value:
    """``b`` with 1 in place of 0 and -1: no engine can fail on it (0, and the lowest integer by -1)."""
    known = g.value_of(b)
    if known is not None:
        bad = np.isin(known, (0, -1))
        return g.const(np.where(bad, 1, known).astype(known.dtype)) if bad.any() else b
    return g("Where", g("Or", g("Equal", b, 0), g("Equal", b, -1)), g.const(1, b), b)


def divide(g: Emit, a: Value, b: Value) -> Value:
    """a / b; of integers: truncated towards zero.

    Integers are divided as float64, exactly up to 2^53 where the engine has float64: engines disagree on how an integer
    division rounds once it is fused, and may fail on a divisor of 0.
    """
    dtype = g.dtype(b)
    if is_float(dtype):
        return g("Div", a, b)
    return g.cast(g("Div", g.cast(a, FLOAT64), g.cast(b, FLOAT64)), dtype)


def modulo(g: Emit, a: Value, b: Value) -> Value:
    """a - floor(a / b) * b, which has the sign of b; 0 where b is 0."""
    if not is_float(g.dtype(b)):
        return g("Mod", a, _safe_divisor(g, b))
    zero = g.const(0, b)
    rest = g("Mod", a, b, fmod=1)
    known = g.value_of(b)
    if known is not None and known.size == 1 and known != 0:
        wrong = g("Less" if known > 0 else "Greater", rest, zero)
        return g("Where", wrong, g("Add", rest, b), rest)
    wrong = g("Less", g("Mul", g("Sign", rest), g("Sign", b)), zero)
    out = g("Where", wrong, g("Add", rest, b), rest)
    return g("Where", g("Equal", b, zero), zero, out)


def power(g: Emit, a: Value, b: Value) -> Value:
    """a to the power of b; of integers: truncated."""
    return g("Pow", a, b)


def maximum(g: Emit, a: Value, b: Value) -> Value:
    """The larger of a and b."""
    return g("Max", a, b)


def minimum(g: Emit, a: Value, b: Value) -> Value:
    """The smaller of a and b."""
    return g("Min", a, b)


def hypot(g: Emit, a: Value, b: Value) -> Value:
    """sqrt(a² + b²), in float32 at least, so that squares of float16 do not overflow."""
    dtype = g.dtype(a)
    work = FLOAT64 if dtype == FLOAT64 else FLOAT32
    a, b = g.cast(a, work), g.cast(b, work)
    return g.cast(g("Sqrt", g("Add", g("Mul", a, a), g("Mul", b, b))), dtype)


def arctan2(g: Emit, a: Value, b: Value) -> Value:
    """The angle of the point (b, a), in (-pi, pi]. In float32."""
    dtype = g.dtype(a)
    a, b = g.cast(a, FLOAT32), g.cast(b, FLOAT32)
    zero, pi = g.const(0, a), g.const(np.float32(np.pi))
    inner = g("Atan", g("Div", a, b))
    turned = g("Where", g("Less", a, zero), g("Sub", inner, pi), g("Add", inner, pi))
    out = g("Where", g("Less", b, zero), turned, inner)
    return g.cast(g("Where", g("And", g("Equal", a, zero), g("Equal", b, zero)), zero, out), dtype)


def copysign(g: Emit, a: Value, b: Value) -> Value:
    """The magnitude of a with the sign of b (a zero counts as positive)."""
    size = g("Abs", a)
    return g("Where", g("Less", b, g.const(0, b)), g("Neg", size), size)


def ldexp(g: Emit, a: Value, b: Value) -> Value:
    """a · 2ᵇ; of integers: truncated."""
    dtype = g.dtype(a)
    work = dtype if is_float(dtype) else FLOAT32
    return g.cast(g("Mul", g.cast(a, work), g("Pow", g.const(2, work), g.cast(b, work))), dtype)


def _comparison(op_type: str, sign: str, negate: bool = False) -> Kernel:
    def kernel(g: Emit, a: Value, b: Value) -> Value:
        found = g(op_type, a, b)
        return g("Not", found) if negate else found

    kernel.__doc__ = f"Whether a {sign} b"
    return kernel


def _logical(op_type: str, word: str) -> Kernel:
    def kernel(g: Emit, a: Value, b: Value) -> Value:
        return g(op_type, g.cast(a, BOOL), g.cast(b, BOOL))

    kernel.__doc__ = f"a {word} b, where all but 0 is true"
    return kernel


def _bitwise(op_type: str, word: str) -> Kernel:
    def kernel(g: Emit, a: Value, b: Value) -> Value:
        return g(op_type, a, b)

    kernel.__doc__ = f"a {word} b, bit by bit"
    return kernel


equal = _comparison("Equal", "=")
not_equal = _comparison("Equal", "≠", negate=True)
greater = _comparison("Greater", ">")
greater_equal = _comparison("GreaterOrEqual", "≥")
lesser = _comparison("Less", "<")
lesser_equal = _comparison("LessOrEqual", "≤")
logical_and = _logical("And", "and")
logical_or = _logical("Or", "or")
logical_xor = _logical("Xor", "xor")
bitwise_and = _bitwise("BitwiseAnd", "and")
bitwise_or = _bitwise("BitwiseOr", "or")
bitwise_xor = _bitwise("BitwiseXor", "xor")
