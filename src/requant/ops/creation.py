"""Tensors made from nothing or after the model of another: zeros, ranges, identity matrices, shapes as tensors.

They become constants, up to a size; beyond it one element is stored and expanded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError, UnsupportedError
from requant.ops import elementwise as ew
from requant.ops.cast import named
from requant.ops.elementwise import FLOAT32, NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, product, same_shape

#: Elements of a filled tensor that are stored one by one; more are expanded from one.
_STORED = 4096
#: Elements that a tensor named by an attribute may have: a shape in a file is not to be trusted.
_LARGEST = 1 << 28
#: Elements of a range, which are stored one by one.
_LARGEST_RANGE = 1 << 24


def _checked(g: Emit, shape: Ints, limit: int = _LARGEST) -> tuple[int, ...]:
    """``shape``, if it is one.

    Raises:
        ShapeError: a dimension is negative, or the tensor would be too large.
    """
    if any(d < 0 for d in shape):
        raise ShapeError("a dimension is negative", where=g.node or None, got=shape)
    if product(shape) > limit:
        raise ShapeError("too large a tensor", where=g.node or None, got=shape, expected=f"at most {limit} elements")
    return tuple(shape)


def filled(g: Emit, shape: Ints, value: float, dtype: np.dtype) -> Value:
    """A tensor of that shape, every element ``value`` (cast as C casts it)."""
    shape = _checked(g, shape)
    one = ew.constant(g, value, dtype)
    known = g.value_of(one)
    assert known is not None
    if product(shape) <= _STORED:
        return g.const(np.full(shape, known, dtype))
    return g("Expand", one, np.array(shape, np.int64))


def _filled_like(g: Emit, data: Value, value: float, dtype: np.dtype) -> Value:
    dims = g.dims(data)
    if all(d is not None for d in dims):
        return filled(g, tuple(d or 0 for d in dims), value, dtype)
    return g("Expand", ew.constant(g, value, dtype), g.size_of(data))


@dataclass(frozen=True)
class InitAttrs(Attrs):
    shape: Ints = ()
    ctx: str | None = None
    dtype: str | None = "float32"


@dataclass(frozen=True)
class FullAttrs(InitAttrs):
    value: float = 0.0


def _open_as_one(shape: Ints) -> Ints:
    """MXNet's 0 is a dimension that is not known, the batch of a recurrent state mostly: 1 broadcasts to it."""
    return tuple(d or 1 for d in shape)


def _fill(name: str, *aliases: str, value: float) -> None:
    def lower(g: Emit, a: InitAttrs) -> Value:
        return filled(g, _open_as_one(a.shape), value, named(g, a.dtype))

    def numpy_lower(g: Emit, a: InitAttrs) -> Value:
        return filled(g, tuple(1 if d == -1 else d for d in a.shape), value, named(g, a.dtype))

    lower.__doc__ = f"All {value:g}. A dimension of 0 is an unknown batch, and is made 1."
    numpy_lower.__doc__ = f"All {value:g}. A dimension of -1 is unknown, and is made 1."
    op(f"_{name}", *aliases, inputs=())(lower)
    op(f"_npi_{name}", inputs=())(numpy_lower)


_fill("zeros", "_zeros_without_dtype", value=0.0)
_fill("ones", value=1.0)


@op("_full", "_npi_full", inputs=())
def full(g: Emit, a: FullAttrs) -> Value:
    """All ``value``."""
    return filled(g, _open_as_one(a.shape), a.value, named(g, a.dtype))


@op("zeros_like", "_npi_zeros_like", "_np_zeros_like", "_sparse_zeros_like", param_shapes=same_shape)
def zeros_like(g: Emit, a: NoAttrs, data: Value) -> Value:
    """Zeros of the data's shape and dtype."""
    return _filled_like(g, data, 0.0, g.dtype(data))


@op("ones_like", "_npi_ones_like", "_np_ones_like", param_shapes=same_shape)
def ones_like(g: Emit, a: NoAttrs, data: Value) -> Value:
    """Ones of the data's shape and dtype."""
    return _filled_like(g, data, 1.0, g.dtype(data))


@dataclass(frozen=True)
class FullLikeAttrs(Attrs):
    fill_value: float
    ctx: str | None = None
    dtype: str | None = None


@op("_npi_full_like", inputs=("a",), param_shapes=same_shape)
def full_like(g: Emit, attrs: FullLikeAttrs, a: Value) -> Value:
    """``fill_value`` everywhere, in the data's shape, and its dtype unless one is given."""
    return _filled_like(g, a, attrs.fill_value, named(g, attrs.dtype, g.dtype(a)))


# -- ranges ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RangeAttrs(Attrs):
    start: float
    stop: float | None = None
    step: float = 1.0
    repeat: int = 1
    infer_range: bool = False
    ctx: str | None = None
    dtype: str | None = "float32"


def _steps(start: float, step: float, index: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """start + index · step; for integers start and step are truncated first, as MXNet has it."""
    if not ew.is_float(dtype):
        start, step = int(start), int(step)
    return np.asarray(np.asarray(start + index * step).astype(dtype))


@op("_arange", "_npi_arange", inputs=())
def arange(g: Emit, a: RangeAttrs) -> Value:
    """start, start + step, ... below stop, each ``repeat`` times. Without a stop: from 0 up to start."""
    start, stop = (a.start, a.stop) if a.stop is not None else (0.0, a.start)
    if a.infer_range and a.stop is None:
        raise UnsupportedError(
            "a range whose end follows from its use is not supported",
            where=g.node or None,
            got="infer_range=True without stop",
            next="give stop",
        )
    if a.step == 0 or not all(map(math.isfinite, (start, stop, a.step))) or (stop - start) / a.step <= 0:
        raise AttributeValueError("not a range", where=g.node or None, got=f"{start} to {stop} by {a.step}")
    if a.repeat < 1:
        raise AttributeValueError("repeat must be 1 at least", where=g.node or None, got=a.repeat)
    count = min(math.ceil((stop - start) / a.step), _LARGEST)
    _checked(g, (count, a.repeat), _LARGEST_RANGE)
    dtype = named(g, a.dtype)
    return g.const(np.repeat(_steps(start, a.step, np.arange(count), dtype), a.repeat))


@dataclass(frozen=True)
class LinspaceAttrs(Attrs):
    start: float
    stop: float
    num: int = 50
    endpoint: bool = True
    ctx: str | None = None
    dtype: str | None = "float32"


@op("_linspace", "_npi_linspace", inputs=())
def linspace(g: Emit, a: LinspaceAttrs) -> Value:
    """``num`` numbers evenly spread from start to stop, stop itself left out unless ``endpoint``."""
    _checked(g, (a.num,), _LARGEST_RANGE)
    if not (math.isfinite(a.start) and math.isfinite(a.stop)):
        raise AttributeValueError("not a range", where=g.node or None, got=f"{a.start} to {a.stop}")
    return g.const(np.linspace(a.start, a.stop, a.num, a.endpoint).astype(named(g, a.dtype)))


@dataclass(frozen=True)
class LogspaceAttrs(Attrs):
    start: float
    stop: float
    num: int = 50
    endpoint: bool = True
    base: float = 10.0
    ctx: str | None = None
    dtype: str | None = "float32"


@op("_npi_logspace", inputs=())
def logspace(g: Emit, a: LogspaceAttrs) -> Value:
    """``num`` powers of ``base``, their exponents evenly spread from start to stop."""
    _checked(g, (a.num,), _LARGEST_RANGE)
    with np.errstate(all="ignore"):
        values = np.logspace(a.start, a.stop, a.num, a.endpoint, a.base)
    return g.const(values.astype(named(g, a.dtype)))


@dataclass(frozen=True)
class ArangeLikeAttrs(Attrs):
    start: float = 0.0
    step: float = 1.0
    repeat: int = 1
    ctx: str | None = None
    axis: int | None = None


@op("_contrib_arange_like", "_npx_arange_like")
def arange_like(g: Emit, a: ArangeLikeAttrs, data: Value) -> Value:
    """A range of the data's shape, or as long as one axis of it; each number ``repeat`` times. The data's dtype."""
    if a.repeat < 1:
        raise AttributeValueError("repeat must be 1 at least", where=g.node or None, got=a.repeat)
    if not (math.isfinite(a.start) and math.isfinite(a.step)):
        raise AttributeValueError("not a range", where=g.node or None, got=f"from {a.start} by {a.step}")
    dtype, dims = g.dtype(data), g.dims(data)
    axes = list(range(len(dims))) if a.axis is None else [g.axis(data, a.axis)]
    sizes = [d for i in axes if (d := dims[i]) is not None]
    if len(sizes) == len(axes):
        index = np.arange(product(_checked(g, tuple(sizes), _LARGEST_RANGE))) // a.repeat
        return g.const(_steps(a.start, a.step, index, dtype).reshape(sizes))
    work = FLOAT32 if ew.is_float(dtype) else dtype
    count = g.reduce("Prod", g.size_of(data, axes), [0])
    counted = g("Range", g.const(0), count, g.const(1))
    if a.repeat > 1:
        counted = g("Div", counted, a.repeat)
    start, step = ew.constant(g, a.start, work), ew.constant(g, a.step, work)
    out = g.cast(g("Add", g("Mul", g.cast(counted, work), step), start), dtype)
    return out if a.axis is not None else g("Reshape", out, g.size_of(data))


# -- matrices, shapes --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EyeAttrs(Attrs):
    N: int
    M: int | None = 0
    k: int = 0
    ctx: str | None = None
    dtype: str | None = "float32"


@op("_eye", "_npi_eye", inputs=())
def eye(g: Emit, a: EyeAttrs) -> Value:
    """N rows and M columns (N, if 0 or None) with ones on the k-th diagonal."""
    rows, columns = _checked(g, (a.N, a.M or a.N), _LARGEST_RANGE)
    shift = max(-rows, min(columns, a.k))
    return g.const(np.eye(rows, columns, shift, dtype=named(g, a.dtype)))


@op("_npi_identity", inputs=())
def identity_matrix(g: Emit, a: InitAttrs) -> Value:
    """An identity matrix; ``shape`` is (n, n)."""
    shape = _checked(g, a.shape, _LARGEST_RANGE)
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ShapeError("an identity matrix is square", where=g.node or None, got=shape)
    return g.const(np.eye(shape[0], dtype=named(g, a.dtype)))


@dataclass(frozen=True)
class IndicesAttrs(Attrs):
    dimensions: Ints
    dtype: str | None = "int32"
    ctx: str | None = None


@op("_npi_indices", inputs=())
def indices(g: Emit, a: IndicesAttrs) -> Value:
    """The index of every element of a grid of that shape along each of its axes: (rank, *dimensions)."""
    shape = _checked(g, (len(a.dimensions), *a.dimensions), _LARGEST_RANGE)
    return g.const(np.indices(shape[1:]).astype(named(g, a.dtype)))


@op("shape_array", "_npx_shape_array")
def shape_array(g: Emit, a: NoAttrs, data: Value) -> Value:
    """The data's shape as int64 (rank,)."""
    return g.size_of(data)


@op("size_array")
def size_array(g: Emit, a: NoAttrs, data: Value) -> Value:
    """The number of the data's elements as int64 (1,)."""
    dims = g.dims(data)
    if all(d is not None for d in dims):
        return g.const(np.array([product([d or 0 for d in dims])], np.int64))
    return g.reshape(g("Size", data), [1])
