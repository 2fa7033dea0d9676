"""``mx.nd.random``: numpy's generator behind MXNet's functions. The numbers are not MXNet's for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from requant.dtypes import as_dtype
from requant.errors import InputError
from requant.mx import random as _seeded
from requant.mx.context import Context, checked
from requant.mx.ndarray.ndarray import NDArray

Draw = Callable[[np.random.Generator, tuple[Any, ...], tuple[int, ...]], Any]


def _shape(shape: Any) -> tuple[int, ...]:
    if shape is None:
        return (1,)
    return tuple(int(d) for d in shape) if np.iterable(shape) else (int(shape),)


def _sample(draw: Draw, parameters: tuple[Any, ...], shape: Any, dtype: Any, ctx: Any, out: Any) -> NDArray:
    """Draw ``shape`` numbers; with array parameters, ``shape`` numbers for each of their elements."""
    arrays = [p for p in parameters if isinstance(p, NDArray)]
    if dtype in (None, "None"):
        dtype = arrays[0].dtype if arrays else np.float32
    if out is not None:
        shape = out.shape
    if arrays:
        dims = arrays[0].shape
        extra = () if shape is None or out is not None else _shape(shape)
        wide = [np.asarray(p).reshape(*np.asarray(p).shape, *(1,) * len(extra)) for p in parameters]
        values = draw(_seeded.generator(), tuple(wide), (*dims, *extra))
        ctx = arrays[0].context
    else:
        values = draw(_seeded.generator(), parameters, _shape(shape))
    made = NDArray(np.asarray(values).astype(as_dtype(dtype)), checked(ctx))
    return made if out is None else made.copyto(out)


def uniform(
    low: Any = 0,
    high: Any = 1,
    shape: Any = None,
    dtype: Any = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Uniform over [low, high)."""
    return _sample(lambda g, p, s: g.uniform(p[0], p[1], s), (low, high), shape, dtype, ctx, out)


def normal(
    loc: Any = 0,
    scale: Any = 1,
    shape: Any = None,
    dtype: Any = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    **kwargs: Any,
) -> NDArray:
    """Normal with mean ``loc`` and standard deviation ``scale``."""
    return _sample(lambda g, p, s: g.normal(p[0], p[1], s), (loc, scale), shape, dtype, ctx, out)


def randn(*shape: int, loc: Any = 0, scale: Any = 1, dtype: Any = None, ctx: Any = None, out: Any = None) -> NDArray:
    """``normal`` with the shape as arguments."""
    return normal(loc, scale, shape or None, dtype, ctx, out)


def poisson(lam: Any = 1, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None) -> NDArray:
    """Poisson with mean ``lam``."""
    return _sample(lambda g, p, s: g.poisson(p[0], s), (lam,), shape, dtype, ctx, out)


def exponential(scale: Any = 1, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None) -> NDArray:
    """Exponential with mean ``scale``."""
    return _sample(lambda g, p, s: g.exponential(p[0], s), (scale,), shape, dtype, ctx, out)


def gamma(
    alpha: Any = 1, beta: Any = 1, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None
) -> NDArray:
    """Gamma with shape ``alpha`` and scale ``beta``."""
    return _sample(lambda g, p, s: g.gamma(p[0], p[1], s), (alpha, beta), shape, dtype, ctx, out)


def randint(low: int, high: int, shape: Any = None, dtype: Any = None, ctx: Any = None, out: Any = None) -> NDArray:
    """Integers of [low, high); int32 unless told otherwise."""
    kind = "int32" if dtype in (None, "None") else dtype
    return _sample(lambda g, p, s: g.integers(low, high, s), (), shape, kind, ctx, out)


def multinomial(data: NDArray, shape: Any = None, get_prob: bool = False, dtype: Any = "int32") -> Any:
    """Category numbers drawn from rows of probabilities: ``shape`` of them for each row.

    Returns:
        The numbers, and with ``get_prob`` the logarithms of their probabilities.
    """
    rows = data._data.reshape(-1, data.shape[-1]).astype(np.float64)
    if (rows < 0).any() or (rows.sum(axis=1) == 0).any():
        raise InputError("not probabilities", where="multinomial", expected="rows of numbers that are not negative")
    extra = () if shape is None else _shape(shape)
    count = int(np.prod(extra)) if extra else 1
    edges = np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1)
    drawn = _seeded.generator().uniform(0, 1, (len(rows), count))
    picks = np.minimum((drawn[:, :, None] >= edges[:, None, :]).sum(axis=2), rows.shape[1] - 1)
    dims = (*data.shape[:-1], *extra) or (1,)
    numbers = NDArray(picks.reshape(dims).astype(as_dtype(dtype)), data.context)
    if not get_prob:
        return numbers
    chance = np.take_along_axis(rows, picks, axis=1)
    return numbers, NDArray(np.log(chance).reshape(dims).astype(data.dtype), data.context)


def shuffle(data: NDArray, **kwargs: Any) -> NDArray:
    """The rows in random order, as a copy."""
    return NDArray(data._data[_seeded.generator().permutation(len(data))], data.context)


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Start the sequence of random numbers anew."""
    _seeded.seed(seed_state, ctx)
