"""``mx.gluon.data.batchify``: ways to make a batch of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray, as_numpy

Batchify = Callable[[Sequence[Any]], Any]


class Stack:
    """Samples of one shape, stacked."""

    def __init__(self, use_shared_mem: bool = False) -> None:
        self._shared = use_shared_mem

    def __call__(self, data: Sequence[Any]) -> NDArray:
        stacked = np.stack([as_numpy(d) for d in data])
        return array(stacked, dtype=stacked.dtype)


class Pad:
    """Samples of different sizes, filled up to the largest with ``val``.

    Args:
        axis: the one that differs; all where left out. ret_length: also return the sizes along it.
    """

    def __init__(
        self,
        val: float = 0,
        axis: int | None = None,
        dtype: Any = None,
        ret_length: bool = False,
        use_shared_mem: bool = False,
        round_to: int | None = None,
    ) -> None:
        self._val, self._axis, self._dtype, self._lengths, self._round = val, axis, dtype, ret_length, round_to

    def __call__(self, data: Sequence[Any]) -> Any:
        arrays = [as_numpy(d) for d in data]
        largest = [max(sizes) for sizes in zip(*(a.shape for a in arrays))]
        if self._round:
            largest = [-(-n // self._round) * self._round for n in largest]
        dtype = self._dtype or arrays[0].dtype
        made = np.full((len(arrays), *largest), self._val, dtype)
        for i, a in enumerate(arrays):
            made[i][tuple(slice(n) for n in a.shape)] = a
        batch = array(made, dtype=dtype)
        if not self._lengths:
            return batch
        return batch, array(np.array([a.shape[self._axis or 0] for a in arrays], np.int32), dtype="int32")


class Append:
    """Samples as a list of arrays, each a batch of one if ``expand``."""

    def __init__(self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False) -> None:
        self._expand, self._axis = expand, batch_axis

    def __call__(self, data: Sequence[Any]) -> list[NDArray]:
        arrays = [as_numpy(d) for d in data]
        if self._expand:
            arrays = [np.expand_dims(a, self._axis) for a in arrays]
        return [array(a, dtype=a.dtype) for a in arrays]


class Tuple:
    """A way for each element of the samples."""

    def __init__(self, fn: Batchify | Sequence[Batchify], *args: Batchify) -> None:
        first: Any = fn
        self._fns: tuple[Batchify, ...] = tuple(first) if isinstance(fn, (list, tuple)) else (first, *args)

    def __call__(self, data: Sequence[Any]) -> tuple[Any, ...]:
        if len(data[0]) != len(self._fns):
            raise InputError("samples and ways differ in number", got=len(data[0]), expected=len(self._fns))
        return tuple(fn([d[i] for d in data]) for i, fn in enumerate(self._fns))


class Group(Tuple):
    """``Tuple`` under its later name."""


class AsList:
    """Samples as they are, in a list."""

    def __call__(self, data: Sequence[Any]) -> list[Any]:
        return list(data)


List = AsList
