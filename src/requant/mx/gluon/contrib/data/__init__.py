"""``gluon.contrib.data``: a further sampler."""

from __future__ import annotations

from collections.abc import Iterator

from requant.errors import InputError
from requant.mx.gluon.data.sampler import Sampler

__all__ = ["IntervalSampler"]


class IntervalSampler(Sampler):
    """Numbers below ``length`` at equal distances: 0, 3, 6, ..., then (``rollover``) 1, 4, 7, ... and so on.

    Raises:
        InputError: the distance is longer than the length.
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        if interval > length:
            raise InputError("the interval is longer than the sequence", got=interval, expected=f"at most {length}")
        self._length, self._interval, self._rollover = length, interval, rollover

    def __iter__(self) -> Iterator[int]:
        for first in range(self._interval if self._rollover else 1):
            yield from range(first, self._length, self._interval)

    def __len__(self) -> int:
        return self._length
