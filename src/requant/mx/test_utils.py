"""``mx.test_utils``: comparing arrays, and making random ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.mx import random as _random
from requant.mx.context import Context, current_context
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import as_numpy

_RTOL = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-4, "float64": 1e-5}
_ATOL = {"float16": 1e-1, "bfloat16": 1e-1, "float32": 1e-3, "float64": 1e-20}


def default_context() -> Context:
    """The context that new arrays get."""
    return current_context()


def default_dtype() -> type[np.generic]:
    """float32."""
    return np.float32


def same(a: Any, b: Any) -> bool:
    """Whether two arrays are equal in shape and in every element."""
    return bool(np.array_equal(as_numpy(a), as_numpy(b)))


def _tolerances(a: np.ndarray, b: np.ndarray, rtol: float | None, atol: float | None) -> tuple[float, float]:
    names = (a.dtype.name, b.dtype.name)
    return (
        max(_RTOL.get(n, 0.0) for n in names) if rtol is None else rtol,
        max(_ATOL.get(n, 0.0) for n in names) if atol is None else atol,
    )


def almost_equal(a: Any, b: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False) -> bool:
    """Whether |a - b| <= atol + rtol |b| everywhere; tolerances follow the dtypes if not given."""
    x, y = as_numpy(a), as_numpy(b)
    r, t = _tolerances(x, y, rtol, atol)
    return bool(np.allclose(x.astype(np.float64), y.astype(np.float64), rtol=r, atol=t, equal_nan=equal_nan))


def assert_almost_equal(
    a: Any,
    b: Any,
    rtol: float | None = None,
    atol: float | None = None,
    names: Sequence[str] = ("a", "b"),
    equal_nan: bool = False,
    **kwargs: Any,
) -> None:
    """AssertionError unless ``almost_equal``; the message says where they differ most."""
    x, y = as_numpy(a), as_numpy(b)
    r, t = _tolerances(x, y, rtol, atol)
    np.testing.assert_allclose(
        x.astype(np.float64),
        y.astype(np.float64),
        rtol=r,
        atol=t,
        equal_nan=equal_nan,
        err_msg=f"{names[0]} and {names[1]} differ",
    )


def rand_shape_nd(num_dim: int, dim: int = 10) -> tuple[int, ...]:
    """A random shape with sizes from 1 to ``dim``."""
    return tuple(int(d) for d in _random.generator().integers(1, dim + 1, num_dim))


def rand_ndarray(shape: Sequence[int], stype: str = "default", dtype: Any = None, ctx: Any = None, **kw: Any) -> Any:
    """A random array, uniform over [-1, 1)."""
    made = array(_random.generator().uniform(-1, 1, tuple(shape)), ctx=ctx, dtype=dtype or np.float32)
    return made.tostype(stype)


def list_gpus() -> list[int]:
    """None."""
    return []
