"""``x[key]`` with MXNet's rules where they are not numpy's: no array without dimensions, float indices, no masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from requant.errors import InputError

Array = np.ndarray[Any, Any]

_BASIC = (slice, type(None), type(...))


def _one(key: Any) -> Any:
    """One part of a key as numpy takes it."""
    if isinstance(key, (bool, np.bool_)):
        return int(key)  # MXNet reads True as row 1
    if isinstance(key, (int, np.integer)):
        return int(key)
    if isinstance(key, _BASIC):
        return key
    if isinstance(key, (list, tuple)):
        key = np.array([np.asarray(k) for k in key]) if len(key) else np.empty(0, np.int64)
    if hasattr(key, "asnumpy"):
        key = key.__array__()
    if isinstance(key, np.ndarray):
        if key.dtype.kind == "b":
            return key
        if key.dtype.kind in "iu":
            return key
        if key.dtype.kind == "f":  # index arrays are float32 by default in MXNet
            return key.astype(np.int64)
    raise InputError(
        "an array cannot be indexed by that",
        got=f"{type(key).__name__} {key!r}",
        expected="integers, slices, None, ..., or lists and arrays of indices",
    )


def _parts(key: Any) -> tuple[tuple[Any, ...], bool]:
    """The parts of a key, and whether it is basic (no index arrays)."""
    parts = tuple(_one(k) for k in key) if isinstance(key, tuple) else (_one(key),)
    return parts, not any(isinstance(p, np.ndarray) for p in parts)


def _is_element(parts: tuple[Any, ...], ndim: int) -> bool:
    """Whether a key picks one element: the result is then of shape (1,), not ()."""
    return ndim > 0 and sum(isinstance(p, int) for p in parts) == ndim and all(p is not None for p in parts)


def get_item(data: Array, key: Any) -> tuple[Array, bool]:
    """The elements that a key picks, and whether they share memory: if it is basic and the result contiguous.

    Raises:
        IndexError: out of range. InputError: not a key.
    """
    parts, basic = _parts(key)
    if basic and _is_element(parts, data.ndim):
        parts = (*parts, None)
    found: Array = data[parts]
    if basic and found.flags.c_contiguous:
        return found, True
    # np.array, not ascontiguousarray: a contiguous result of an index array must not stay the caller's memory
    return np.array(found, order="C").reshape(found.shape or (1,)), False


def set_item(data: Array, key: Any, value: Any) -> None:
    """Write to the elements that a key picks; the value is cast and broadcast.

    Raises:
        IndexError, InputError: as ``get_item``. ValueError: the value's shape does not fit.
    """
    parts, basic = _parts(key)
    if basic and _is_element(parts, data.ndim):
        parts = (*parts, None)
    values = value.__array__() if hasattr(value, "asnumpy") else np.asarray(value)
    data[parts] = values.astype(data.dtype, copy=False)
