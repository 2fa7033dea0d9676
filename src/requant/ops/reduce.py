"""Reductions: sums, means, extremes, norms, indices of extremes, moments, cumulative sums.

MXNet's own operators give shape (1,) where everything is reduced and no dimension is kept; NumPy's (``_np_``,
``_npi_``) give a scalar. Narrow integers are reduced in int32 and wrapped around.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops import elementwise as ew
from requant.ops.cast import named
from requant.ops.elementwise import BFLOAT16, BOOL, FLOAT16, FLOAT32, NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, product

#: ``reducer(g, x, axes, keepdims)`` with at least one axis.
Reducer = Callable[[Emit, Value, list[int], bool], Value]

INT64 = np.dtype(np.int64)


def axes_of(g: Emit, x: Value, axis: Ints | None, exclude: bool = False) -> list[int]:
    """The axes to reduce, counted from the front, in order. None or no axis means all of them.

    Raises:
        ShapeError: an axis is out of range or given twice.
    """
    rank = g.rank(x)
    if not axis:
        return list(range(rank))
    found = [g.axis(x, i) for i in axis]
    if len(set(found)) != len(found):
        raise ShapeError("an axis is given twice", where=g.node or None, got=axis)
    return [i for i in range(rank) if (i in found) != exclude]


def _legacy_shape(g: Emit, out: Value, everything: bool, keepdims: bool) -> Value:
    """MXNet has no scalars: where nothing is left the result has shape (1,)."""
    return g.reshape(out, [1]) if everything and not keepdims else out


def _simple(kind: str) -> Reducer:
    def reducer(g: Emit, x: Value, axes: list[int], keepdims: bool) -> Value:
        return g.reduce(kind, x, axes, keepdims)

    return reducer


def _count(g: Emit, x: Value, axes: list[int]) -> Value:
    """The number of elements that fall together, as an int64 scalar."""
    dims = [g.dims(x)[i] for i in axes]
    if all(d is not None for d in dims):
        return g.const(np.int64(product([d or 0 for d in dims])))
    return g.reduce("Prod", g.size_of(x, axes), [0])


def _mean(g: Emit, x: Value, axes: list[int], keepdims: bool) -> Value:
    dtype = g.dtype(x)
    if ew.is_float(dtype):
        return g.reduce("Mean", x, axes, keepdims)
    total = g.reduce("Sum", x, axes, keepdims)
    return ew.divide(g, total, g.cast(_count(g, x, axes), dtype))


def _without_nan(kind: str, neutral: float) -> Reducer:
    def reducer(g: Emit, x: Value, axes: list[int], keepdims: bool) -> Value:
        if ew.is_float(g.dtype(x)):
            x = g("Where", g("IsNaN", x), g.const(neutral, x), x)
        return g.reduce(kind, x, axes, keepdims) if axes else x

    return reducer


@dataclass(frozen=True)
class ReduceAttrs(Attrs):
    axis: Ints | None = None
    keepdims: bool = False
    exclude: bool = False


def _legacy(name: str, *aliases: str, reducer: Reducer, doc: str, always: bool = False) -> None:
    """Register a reduction with ``axis``, ``keepdims`` and ``exclude``; the dtype stays.

    always: the reducer does something even where no axis is left.
    """

    def lower(g: Emit, a: ReduceAttrs, data: Value) -> Value:
        axes = axes_of(g, data, a.axis, a.exclude)
        if not axes and not always:
            return data
        dtype = g.dtype(data)
        # The mean of bool is bool in MXNet: whether anything is true.
        chosen = _simple("Max") if reducer is _mean and dtype == BOOL else reducer
        out = g.cast(chosen(g, g.cast(data, ew.working(dtype)), axes, a.keepdims), dtype)
        return _legacy_shape(g, out, len(axes) == g.rank(data), a.keepdims)

    lower.__doc__ = doc + " over ``axis``, or over all axes but those if ``exclude``."
    op(name, *aliases)(lower)


_legacy("sum", "sum_axis", "_sparse_sum", reducer=_simple("Sum"), doc="The sum")
_legacy("mean", "_sparse_mean", reducer=_mean, doc="The mean (of integers: truncated)")
_legacy("max", "max_axis", reducer=_simple("Max"), doc="The maximum")
_legacy("min", "min_axis", reducer=_simple("Min"), doc="The minimum")
_legacy("prod", reducer=_simple("Prod"), doc="The product")
_legacy("nansum", reducer=_without_nan("Sum", 0.0), doc="The sum of what is not NaN", always=True)
_legacy("nanprod", reducer=_without_nan("Prod", 1.0), doc="The product of what is not NaN", always=True)


# -- NumPy's manner ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumpyReduceAttrs(Attrs):
    axis: Ints | None = None
    dtype: str | None = None
    keepdims: bool = False
    initial: float | None = None


def _numpy(name: str, *aliases: str, reducer: Reducer, join: ew.Kernel | None, doc: str) -> None:
    """Register a reduction in NumPy's manner. ``join`` takes in ``initial``; sums and products of bool are int64."""

    def lower(g: Emit, attrs: NumpyReduceAttrs, a: Value) -> Value:
        dtype = g.dtype(a)
        default: np.dtype = dtype
        if reducer is _mean and not ew.is_float(dtype):
            default = FLOAT32
        elif join in (ew.add, ew.multiply) and dtype == BOOL:
            default = INT64
        target = named(g, attrs.dtype, default)
        work = ew.working(target)
        axes = axes_of(g, a, attrs.axis)
        out = g.cast(a, work)
        if axes:
            out = reducer(g, out, axes, attrs.keepdims)
        if attrs.initial is not None and join is not None:
            out = join(g, out, ew.constant(g, attrs.initial, work))
        return g.cast(out, target)

    lower.__doc__ = doc + " over ``axis``, in NumPy's manner."
    op(name, *aliases, inputs=("a",))(lower)


_numpy("_np_sum", "_npi_sum", reducer=_simple("Sum"), join=ew.add, doc="The sum")
_numpy("_npi_mean", "_np_mean", reducer=_mean, join=None, doc="The mean (of integers: float32)")
_numpy("_np_prod", "_npi_prod", "_np_product", reducer=_simple("Prod"), join=ew.multiply, doc="The product")
_numpy("_np_max", "_np_amax", "_npi_max", "_npi_amax", reducer=_simple("Max"), join=ew.maximum, doc="The maximum")
_numpy("_np_min", "_np_amin", "_npi_min", "_npi_amin", reducer=_simple("Min"), join=ew.minimum, doc="The minimum")


@dataclass(frozen=True)
class AnyAttrs(Attrs):
    axis: Ints | None = None
    keepdims: bool = False


def _truth(name: str, *aliases: str, kind: str, doc: str) -> None:
    def lower(g: Emit, a: AnyAttrs, data: Value) -> Value:
        flags = g.cast(g.cast(data, BOOL), np.int32)
        axes = axes_of(g, data, a.axis)
        return g.cast(g.reduce(kind, flags, axes, a.keepdims) if axes else flags, BOOL)

    lower.__doc__ = doc
    op(name, *aliases)(lower)


_truth("_np_any", "_npi_any", "_np_sometrue", kind="Max", doc="Whether any element over ``axis`` is not 0, as bool.")
_truth("_np_all", "_npi_all", kind="Min", doc="Whether all elements over ``axis`` are not 0, as bool.")


@dataclass(frozen=True)
class SpreadAttrs(Attrs):
    axis: Ints | None = None
    dtype: str | None = None
    ddof: int = 0
    keepdims: bool = False


def _variance(g: Emit, x: Value, axes: list[int], keepdims: bool) -> tuple[Value, Value]:
    """Mean and variance of floats (the mean of squared differences)."""
    mean = g.reduce("Mean", x, axes, True)
    apart = g("Sub", x, mean)
    variance = g.reduce("Mean", g("Mul", apart, apart), axes, keepdims)
    return mean if keepdims else g.squeeze(mean, axes), variance


def _spread(name: str, *aliases: str, root: bool, doc: str) -> None:
    def lower(g: Emit, attrs: SpreadAttrs, a: Value) -> Value:
        dtype = g.dtype(a)
        target = named(g, attrs.dtype, dtype)
        work = FLOAT32 if target in (FLOAT16, BFLOAT16) or not ew.is_float(target) else target
        axes = axes_of(g, a, attrs.axis)
        x = g.cast(a, work)
        _, out = _variance(g, x, axes, attrs.keepdims)
        if attrs.ddof:
            n = g.cast(_count(g, a, axes), work)
            out = g("Mul", out, g("Div", n, g("Sub", n, attrs.ddof)))
        return g.cast(g("Sqrt", out) if root else out, target)

    lower.__doc__ = doc
    op(name, *aliases, inputs=("a",), outputs=("std" if root else "var",), named_outputs=True, hidden_outputs=1)(lower)


_spread(
    "_npi_std",
    root=True,
    doc="The standard deviation over ``axis``, with ``ddof`` taken off the count; integers truncated.",
)
_spread(
    "_npi_var", root=False, doc="The variance over ``axis``, with ``ddof`` taken off the count; integers truncated."
)


# -- norms, moments ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NormAttrs(Attrs):
    ord: Literal[1, 2] = 2
    axis: Ints | None = None
    out_dtype: str | None = None
    keepdims: bool = False


@op("norm", "_sparse_norm")
def norm(g: Emit, a: NormAttrs, data: Value) -> Value:
    """The L1 or L2 norm over ``axis`` (over two axes: the Frobenius norm). At least in float32; integers truncated."""
    dtype = g.dtype(data)
    work = FLOAT32 if dtype in (FLOAT16, BFLOAT16) or not ew.is_float(dtype) else dtype
    axes = axes_of(g, data, a.axis)
    out = g.reduce(f"L{a.ord}", g.cast(data, work), axes, a.keepdims)
    out = g.cast(out, named(g, a.out_dtype, dtype))
    return _legacy_shape(g, out, len(axes) == g.rank(data), a.keepdims)


@dataclass(frozen=True)
class MomentsAttrs(Attrs):
    axes: Ints | None = None
    keepdims: bool = False


@op("moments", outputs=("mean", "var"))
def moments(g: Emit, a: MomentsAttrs, data: Value) -> tuple[Value, Value]:
    """Mean and variance over ``axes``."""
    if not a.axes:
        raise AttributeValueError("moments needs axes", where=g.node or None, got=a.axes, expected="such as (0, 2)")
    dtype = g.dtype(data)
    work = FLOAT32 if dtype in (FLOAT16, BFLOAT16) or not ew.is_float(dtype) else dtype
    axes = axes_of(g, data, a.axes)
    everything = len(axes) == g.rank(data)
    mean, variance = _variance(g, g.cast(data, work), axes, a.keepdims)
    return (
        _legacy_shape(g, g.cast(mean, dtype), everything, a.keepdims),
        _legacy_shape(g, g.cast(variance, dtype), everything, a.keepdims),
    )


# -- indices of extremes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArgAttrs(Attrs):
    axis: int | None = None
    keepdims: bool = False


def _index(g: Emit, a: ArgAttrs, data: Value, op_type: str) -> Value:
    """The index of the first extreme, int64; over the flattened tensor if there is no axis (a scalar then)."""
    x = g.cast(data, ew.working(g.dtype(data)))
    if a.axis is not None:
        return g(op_type, x, axis=g.axis(data, a.axis), keepdims=int(a.keepdims))
    out = g(op_type, g.reshape(x, [-1]), axis=0, keepdims=0)
    return g.reshape(out, [1] * g.rank(data)) if a.keepdims else out


def _argument(name: str, op_type: str) -> None:
    def lower(g: Emit, a: ArgAttrs, data: Value) -> Value:
        out = g.cast(_index(g, a, data, op_type), g.dtype(data))
        return _legacy_shape(g, out, g.rank(out) == 0, a.keepdims)

    def numpy_lower(g: Emit, a: ArgAttrs, data: Value) -> Value:
        return _index(g, a, data, op_type)

    what = "largest" if op_type == "ArgMax" else "smallest"
    lower.__doc__ = f"The index of the first {what} element along ``axis`` (flattened if None), in the data's dtype."
    numpy_lower.__doc__ = f"The index of the first {what} element along ``axis`` (flattened if None), as int64."
    op(name)(lower)
    op(f"_npi_{name}", f"_np_{name}")(numpy_lower)


_argument("argmax", "ArgMax")
_argument("argmin", "ArgMin")


@op("argmax_channel")
def argmax_channel(g: Emit, a: NoAttrs, data: Value) -> Value:
    """The index of the first largest element along axis 1, in the data's dtype."""
    return g.cast(_index(g, ArgAttrs(axis=1), data, "ArgMax"), g.dtype(data))


# -- cumulative sums ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CumsumAttrs(Attrs):
    axis: int | None = None
    dtype: str | None = None


@op("_np_cumsum", "cumsum", "_npi_cumsum", inputs=("a",))
def cumsum(g: Emit, attrs: CumsumAttrs, a: Value) -> Value:
    """The cumulative sum along ``axis``, of the flattened tensor if None; of bool: int64."""
    dtype = g.dtype(a)
    target = named(g, attrs.dtype, INT64 if dtype == BOOL else dtype)
    x = g.cast(a, ew.working(target))
    axis = 0 if attrs.axis is None else g.axis(a, attrs.axis)
    if attrs.axis is None:
        x = g.reshape(x, [-1])
    return g.cast(g("CumSum", x, np.int64(axis)), target)
