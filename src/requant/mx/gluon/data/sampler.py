"""Samplers: in which order the samples of a dataset are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError


class Sampler:
    """Base of samplers: an iterable of indices with a length."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class SequentialSampler(Sampler):
    """start, start + 1, ... for ``length`` samples."""

    def __init__(self, length: int, start: int = 0) -> None:
        self._length, self._start = length, start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """All of 0 .. length - 1 in random order."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self) -> Iterator[int]:
        order = np.arange(self._length)
        np.random.shuffle(order)
        return iter(order.tolist())

    def __len__(self) -> int:
        return self._length


class FilterSampler(Sampler):
    """Samples of a dataset for which a function is true."""

    def __init__(self, fn: Callable[[Any], bool], dataset: Any) -> None:
        self._indices = [i for i in range(len(dataset)) if fn(dataset[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class BatchSampler(Sampler):
    """Lists of ``batch_size`` indices of another sampler.

    Args:
        last_batch: what becomes of the rest: ``keep``, ``discard``, or ``rollover`` into the next pass.
    """

    def __init__(self, sampler: Sampler | Sequence[int], batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in ("keep", "discard", "rollover"):
            raise InputError("unknown last_batch", got=last_batch, expected="keep, discard or rollover")
        self._sampler, self._batch_size, self._last_batch = sampler, batch_size, last_batch
        self._left: list[int] = []

    def __iter__(self) -> Iterator[list[int]]:
        batch, self._left = self._left, []
        for i in self._sampler:
            batch.append(i)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if batch and self._last_batch == "keep":
            yield batch
        elif batch and self._last_batch == "rollover":
            self._left = batch

    def __len__(self) -> int:
        size = self._batch_size
        if self._last_batch == "keep":
            return -(-len(self._sampler) // size)
        return (len(self._sampler) + (len(self._left) if self._last_batch == "rollover" else 0)) // size
