"""Counting the values of an array into a histogram's cells, as fast as numpy counts.

What the cells are, and why, says `requant.quant.histogram`.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from requant.quant.nonfinite import NonFiniteError

if TYPE_CHECKING:
    from requant.quant.histogram import Histogram

Floats = npt.NDArray[np.float32]

#: The `OUTLIERS`-th largest magnitude lies between cells 2^(BODY_BITS - 1) and 2^BODY_BITS.
BODY_BITS = 14
#: Cells are kept up to this many octaves above the body.
EXTRA_BITS = 2
#: Values that may lie outside the body.
OUTLIERS = 1024
#: Magnitudes below 2^LOWEST_EXPONENT count as zero (engines flush such numbers anyway).
LOWEST_EXPONENT = -100
#: Values that are worked on at a time: their buffers stay in the processor's second cache.
CHUNK = 1 << 16
_LANES = 2
#: Keys of cells are below this in magnitude.
LIMIT = 1 << (BODY_BITS + EXTRA_BITS)


def _positive_zero(value: Any) -> float:
    return float(value) + 0.0  # -0.0 and 0.0 are one value: which of them a minimum returns depends on the order


def merge_ends(low: float, high: float, chunk: Floats, start: int) -> tuple[float, float]:
    """The ends of a range widened by a chunk, which begins at flat position ``start``.

    Raises:
        NonFiniteError: there is NaN or Inf in the chunk.
    """
    least, most = chunk.min(), chunk.max()
    if not (least > -math.inf and most < math.inf):  # NaN compares false, too
        bad = int(np.argmax(~np.isfinite(chunk)))
        raise NonFiniteError("NaN or Inf among the values", start + bad)
    return min(low, _positive_zero(least)), max(high, _positive_zero(most))


class _Scratch(threading.local):
    """Buffers of one thread, reused by every call."""

    def __init__(self) -> None:
        self.narrow = np.empty(CHUNK, np.int32)
        self.keys = np.empty(CHUNK, np.int64)
        self.lane = (np.arange(CHUNK) % _LANES).astype(np.int32)
        self.signed = np.zeros(2 * LIMIT - 1, np.int64)
        self.lanes = np.zeros(LIMIT * _LANES, np.int64)


_scratch = _Scratch()


class Counter:
    """Counts the values of one array into a fresh histogram.

    A value costs: minimum, maximum, one multiplication, one conversion and one increment, on a chunk that stays in the
    cache. Where most values are zero (behind ReLU), consecutive increments hit one counter and wait for each other;
    two interleaved tables ("lanes") keep them apart, which pays from two thirds of zeros on.
    """

    def __init__(self, out: Histogram) -> None:
        self.out = out
        self.least = self.most = 0  # the keys that the scratch tables may hold
        self.used_lanes = False

    def count(self, flat: Floats) -> None:
        """Count contiguous values. If it raises, the histogram is to be thrown away.

        Raises:
            NonFiniteError: there is NaN or Inf.
        """
        out, scratch = self.out, _scratch
        try:
            for start in range(0, flat.size, CHUNK):
                chunk = flat[start : start + CHUNK]
                low, high = merge_ends(math.inf, -math.inf, chunk, start)
                out.low, out.high = min(out.low, low), max(out.high, high)
                self._chunk(chunk, low, high)
            self._fold()
        except BaseException:
            scratch.signed[:] = 0
            scratch.lanes[:] = 0
            raise
        out.count = flat.size
        out.outliers = np.sort(out.outliers)
        out.settle()

    def _chunk(self, chunk: Floats, low: float, high: float) -> None:
        out, scratch = self.out, _scratch
        removed = 0
        if max(-low, high) >= math.ldexp(LIMIT, out.exponent):
            chunk, removed = self._without_outliers(chunk)
        n, scale = len(chunk), math.ldexp(1.0, -out.exponent)
        self.least = max(min(self.least, math.trunc(low * scale)), 1 - LIMIT)
        self.most = min(max(self.most, math.trunc(high * scale)), LIMIT - 1)
        keys, factor = scratch.keys[:n], np.float32(scale)
        if low < 0:
            narrow = scratch.narrow[:n]
            np.multiply(chunk, factor, out=narrow, casting="unsafe", dtype=np.float32)
            np.add(narrow, LIMIT - 1, out=keys)
            np.add.at(scratch.signed, keys, 1)
        elif n == CHUNK and 3 * np.count_nonzero(chunk[::64]) < n // 64:
            narrow = scratch.narrow[:n]
            np.multiply(chunk, factor, out=narrow, casting="unsafe", dtype=np.float32)
            np.left_shift(narrow, 1, out=narrow)
            np.bitwise_or(narrow, scratch.lane[:n], out=narrow)
            np.copyto(keys, narrow)
            np.add.at(scratch.lanes, keys, 1)
            self.used_lanes = True
        else:
            np.multiply(chunk, factor, out=keys, casting="unsafe", dtype=np.float32)
            np.add.at(scratch.signed[LIMIT - 1 :], keys, 1)
        scratch.signed[LIMIT - 1] -= removed  # they were counted as zeros

    def _without_outliers(self, chunk: Floats) -> tuple[Floats, int]:
        """A copy of the chunk with its outliers set to zero; they go to the list of values."""
        out = self.out
        magnitude = np.abs(chunk)
        # Whatever the rest holds, the exponent must rise as far as these values alone ask for.
        self._raise_for(np.concatenate([np.abs(out.outliers), magnitude]))
        limit = math.ldexp(LIMIT, out.exponent)
        if float(magnitude.max()) < limit:
            return chunk, 0
        beyond = magnitude >= np.float32(limit)
        out.outliers = np.concatenate([out.outliers, chunk[beyond]])
        return np.where(beyond, np.float32(0), chunk), int(np.count_nonzero(beyond))

    def _raise_for(self, magnitude: Floats) -> None:
        if len(magnitude) > OUTLIERS:
            value = float(np.partition(magnitude, -OUTLIERS - 1)[-OUTLIERS - 1])
            exponent = math.frexp(value)[1] - BODY_BITS if value else LOWEST_EXPONENT
            if exponent > self.out.exponent:
                self._fold()
                self.out.coarsen(exponent)

    def _fold(self) -> None:
        """Move the counts of the scratch tables into the histogram."""
        out, scratch = self.out, _scratch
        held = scratch.signed[self.least + LIMIT - 1 : self.most + LIMIT]
        out.add(self.least, held)
        held[:] = 0
        if self.used_lanes:
            lanes = scratch.lanes[: (self.most + 1) * _LANES]
            out.add(0, lanes.reshape(-1, _LANES).sum(axis=1))
            lanes[:] = 0
        self.least, self.most, self.used_lanes = 0, 0, False
