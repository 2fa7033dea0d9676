"""Operators run by name on numpy arrays, beside numbers."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant import eager
from requant.ops import registry

Array = np.ndarray[Any, Any]


@functools.lru_cache(4096)
def prepared(name: str, attrs: tuple[tuple[str, Any], ...]) -> tuple[Any, Any]:
    """An operator and its attributes, parsed once."""
    op = registry.get(name)
    return op, op.parse(dict(attrs))


def run(name: str, arrays: Sequence[Array], attrs: tuple[tuple[str, Any], ...] = ()) -> list[Array]:
    """Run an operator by name on numpy arrays; ``attrs`` as (key, value) pairs."""
    op, parsed = prepared(name, attrs)
    return eager.invoke(op, parsed, arrays)


def number(value: Any, dtype: np.dtype[Any]) -> Array:
    """A Python or numpy number beside an array: it takes the array's dtype, as in MXNet.

    Raises:
        TypeError: it is no number.
    """
    if not isinstance(value, numbers.Real | np.generic):
        raise TypeError(
            f"type {type(value).__name__} is not supported beside an NDArray; numpy arrays become one by mx.nd.array(x)"
        )
    if dtype.kind in "iub":
        # As the C cast: towards zero, and wrapped around.
        return np.asarray(int(value), dtype=np.int64).astype(dtype)  # type: ignore[arg-type]
    return np.asarray(value, dtype=dtype)
