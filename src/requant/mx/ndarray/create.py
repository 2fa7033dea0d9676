"""Making arrays: ``array``, ``zeros``, ``arange`` and so on. float32 unless told otherwise, as in MXNet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.dtypes import as_dtype
from requant.errors import InputError
from requant.mx.context import Context, checked
from requant.mx.ndarray.by_name import run
from requant.mx.ndarray.ndarray import NDArray, wrap

Shape = int | Sequence[int]


def array(source_array: Any, ctx: Context | None = None, dtype: object = None) -> NDArray:
    """A new array with a copy of the values.

    Args:
        source_array: a number, list, numpy array or NDArray.
        dtype: the source's if it is an NDArray, else float32, whatever a numpy source has.
    Raises:
        InputError: it is not an array of numbers.
    """
    if dtype is None:
        dtype = source_array.dtype if isinstance(source_array, NDArray) else np.float32
    target = as_dtype(dtype)
    try:
        with np.errstate(invalid="ignore", over="ignore"):
            values = np.array(source_array).astype(target, copy=False)
    except (TypeError, ValueError) as fault:
        raise InputError(
            "not an array of numbers", got=f"{type(source_array).__name__}: {fault}", expected="numbers, all rows equal"
        ) from fault
    return NDArray(np.ascontiguousarray(values).reshape(values.shape), checked(ctx))


def from_numpy(ndarray: np.ndarray, zero_copy: bool = True) -> NDArray:
    """An NDArray around a numpy array, sharing its memory unless ``zero_copy`` is False; the dtype is kept.

    Raises:
        InputError: the array is not C-contiguous. DTypeError: MXNet does not have its dtype.
    """
    as_dtype(ndarray.dtype)
    if not ndarray.flags.c_contiguous:
        raise InputError("only C-contiguous arrays can be shared", next="numpy.ascontiguousarray(x)")
    if not zero_copy:
        return NDArray(ndarray.copy(), checked(None))
    return NDArray(ndarray, checked(None), [math.nan])  # never equal to what it was: it may have changed


def _shape(shape: Shape) -> tuple[int, ...]:
    dims = tuple(int(d) for d in shape) if np.iterable(shape) else (int(shape),)
    if any(d < 0 for d in dims):
        raise InputError("a shape has no negative dimensions", got=dims)
    return dims


def empty(shape: Shape, ctx: Context | None = None, dtype: object = None) -> NDArray:
    """An array that is yet to be filled."""
    return NDArray(np.empty(_shape(shape), as_dtype(dtype)), checked(ctx))


def zeros(
    shape: Shape, ctx: Context | None = None, dtype: object = None, stype: str | None = None, **kwargs: Any
) -> Any:
    """An array of zeros; sparse if ``stype`` says so."""
    made = NDArray(np.zeros(_shape(shape), as_dtype(dtype)), checked(ctx))
    return made if stype in (None, "default") else made.tostype(str(stype))


def ones(shape: Shape, ctx: Context | None = None, dtype: object = None, **kwargs: Any) -> NDArray:
    """An array of ones."""
    return NDArray(np.ones(_shape(shape), as_dtype(dtype)), checked(ctx))


def full(
    shape: Shape, val: float, ctx: Context | None = None, dtype: object = np.float32, out: NDArray | None = None
) -> NDArray:
    """An array of one value."""
    made = NDArray(np.full(_shape(shape), val, as_dtype(dtype)), checked(ctx))
    return made if out is None else made.copyto(out)


def eye(
    N: int,
    M: int = 0,
    k: int = 0,
    ctx: Context | None = None,
    dtype: object = None,
    **kwargs: Any,
) -> NDArray:
    """A matrix with ones on the ``k``-th diagonal; M columns (N if 0)."""
    return NDArray(np.eye(N, M or N, k, dtype=as_dtype(dtype)), checked(ctx))


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool | None = None,
    ctx: Context | None = None,
    dtype: object = np.float32,
) -> NDArray:
    """Evenly spaced values of [start, stop), each ``repeat`` times; [0, start) without ``stop``."""
    first, last = (0, start) if stop is None else (start, stop)
    values = np.arange(first, last, step, dtype=np.float64).astype(as_dtype(dtype))
    return NDArray(np.repeat(values, repeat), checked(ctx))


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: object = np.float32,
) -> NDArray:
    """``num`` evenly spaced values from start to stop."""
    return NDArray(np.linspace(start, stop, num, endpoint).astype(as_dtype(dtype)), checked(ctx))


def concatenate(arrays: Sequence[NDArray], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Arrays one after another along ``axis``."""
    if len(arrays) == 1 and not always_copy:
        return arrays[0]
    if not arrays:
        raise InputError("nothing to concatenate", expected="at least one array")
    made = run("Concat", [a._data for a in arrays], (("num_args", len(arrays)), ("dim", axis)))
    result: NDArray = wrap(made, arrays[0]._ctx)
    return result


def moveaxis(tensor: NDArray, source: int | Sequence[int], destination: int | Sequence[int]) -> NDArray:
    """Dimensions moved to other places, the rest kept in order."""
    try:
        moved = np.moveaxis(tensor._data, source, destination)
    except ValueError as fault:  # numpy's AxisError is one
        raise InputError("axes cannot be moved like that", got=f"{source} to {destination}", expected=fault) from fault
    return NDArray(np.ascontiguousarray(moved), tensor._ctx)


def split_v2(
    ary: NDArray, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
) -> NDArray | list[NDArray]:
    """Pieces along ``axis``: so many equal ones, or cut at the given indices."""
    attrs: list[tuple[str, Any]] = [("axis", axis), ("squeeze_axis", squeeze_axis)]
    if isinstance(indices_or_sections, int):
        attrs += [("indices", ()), ("sections", indices_or_sections)]
    else:
        attrs += [("indices", (0, *indices_or_sections)), ("sections", 0)]
    result: NDArray | list[NDArray] = wrap(run("_split_v2", [ary._data], tuple(attrs)), ary._ctx)
    return result


def histogram(
    a: NDArray, bins: int | NDArray = 10, range: tuple[float, float] | None = None
) -> tuple[NDArray, NDArray]:
    """Counts and edges of bins."""
    edges_in = bins._data if isinstance(bins, NDArray) else bins
    counts, edges = np.histogram(a._data, bins=edges_in, range=range)
    return NDArray(counts.astype(np.int64), a._ctx), NDArray(edges.astype(a._data.dtype), a._ctx)


def waitall() -> None:
    """Does nothing: operators have finished when they return."""
