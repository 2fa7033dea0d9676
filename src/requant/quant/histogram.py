"""What calibration keeps of a tensor: its range, or a histogram that any split and order of the data add up to.

**Why not MXNet's growing histogram.** MXNet counts on a lattice of bins of width ``2t/8001``, where t is the largest
magnitude *of the first batch*; later batches add bins at both ends, never change the width. So the width, and with it
every count, depends on which batch came first, and partial histograms of two workers do not fit together. (That exact
statistic is `requant.quant.mxnet_histogram`; the threshold search on a given histogram is
`requant.quant.kl_threshold`.)

**The lattice.** Cells are ``2^e`` wide and cut towards zero: cell k > 0 holds ``[k 2^e, (k+1) 2^e)``, cell -k its
mirror image, cell 0 what is between. Multiplying by a power of two is exact, so the cell of a value is exact; and
cutting towards zero nests: cell k of exponent e is part of cell trunc(k/2) of exponent e + 1. Hence a count at e + 1 is
a sum of counts at e, whenever the step is taken, and a histogram is a pure function of (all the values, e).

**The exponent** must then be a pure function of all the values, too, and one that only grows while values arrive:
e is the smallest exponent for which at most `OUTLIERS` values lie outside ``2^(e + BODY_BITS)``. More data can only
raise it. The rule is about the `OUTLIERS`-th largest magnitude, not the largest one, so that a few wild values do not
cost the others their resolution. Cells are kept to ``2^EXTRA_BITS`` times the body; what is beyond (at most `OUTLIERS`
values, by the rule) is kept value by value. So memory is bounded whatever the number of batches, counts are int64, and
merging partial results in any order gives the same numbers, bit for bit.

**What MXNet's search gets** (`Histogram.bins`): uniform bins around zero, an odd number near 8001, whose width is a
power of two: bin 0 is cell 0 and bin ±j are the cells ±(2j - 1), ±2j (or multiples).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from requant.errors import CalibrationError, counted
from requant.qmath import Range
from requant.quant.counting import (
    BODY_BITS,
    CHUNK,
    LIMIT,
    LOWEST_EXPONENT,
    OUTLIERS,
    Counter,
    merge_ends,
)

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def _flat(values: npt.ArrayLike) -> Floats:
    """The values in memory order as contiguous float32 (order does not matter to any statistic)."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise CalibrationError("not a tensor of numbers", got=array.dtype.name, expected="a float or integer type")
    with np.errstate(over="ignore"):
        return np.ravel(array, order="K").astype(np.float32, copy=False)


@dataclass
class MinMax:
    """The smallest and largest value and the number of values: all that min/max calibration needs.

    Attributes:
        count: number of values; 0 means that nothing was seen and the ends mean nothing.
        low, high: float32 values, as Python floats.
    """

    kind: ClassVar[str] = "minmax"
    count: int = 0
    low: float = math.inf
    high: float = -math.inf

    @classmethod
    def of(cls, values: npt.ArrayLike, like: MinMax | None = None) -> MinMax:
        """The statistic of one array.

        Raises:
            NonFiniteError: there is NaN or Inf among the values.
            CalibrationError: the array is not numeric.
        """
        flat = _flat(values)
        if not flat.size:
            return cls()
        low, high = math.inf, -math.inf
        for start in range(0, flat.size, CHUNK):
            chunk = flat[start : start + CHUNK]
            low, high = merge_ends(low, high, chunk, start)
        return cls(flat.size, low, high)

    def merge(self, other: MinMax) -> None:
        """Add what another one has seen."""
        self.count += other.count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    @property
    def range(self) -> Range:
        """The closed range of the values; 0..0 if there were none."""
        return Range(self.low, self.high) if self.count else Range(0.0, 0.0)

    def state(self) -> dict[str, Any]:
        """Plain numbers and arrays, enough for `from_state`."""
        return {"count": self.count, "low": self.range.min, "high": self.range.max}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> MinMax:
        """The statistic of a `state`.

        Raises:
            CalibrationError: the state is not one that `state` returns.
        """
        count, low, high = _checked_ends(state)
        return cls(count, low, high) if count else cls()


def _checked_ends(state: dict[str, Any]) -> tuple[int, float, float]:
    count, low, high = state.get("count"), state.get("low"), state.get("high")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise CalibrationError("the statistic has no count", got=count, expected="an integer >= 0")
    if not (isinstance(low, int | float) and isinstance(high, int | float)) or not -math.inf < low <= high < math.inf:
        raise CalibrationError("the statistic has no range", got=f"{low} .. {high}", expected="finite, low <= high")
    return count, float(low), float(high)


class Bins(NamedTuple):
    """A uniform histogram around zero, as MXNet's threshold search takes it.

    Attributes:
        counts: int64, shape (bins,), odd. What lies outside is counted in the first and last bin.
        edges: float64, shape (bins + 1,).
    """

    counts: Counts
    edges: F64


@dataclass
class Histogram:
    """The histogram of the module's docstring.

    Attributes:
        count, low, high: as in `MinMax`.
        exponent: cells are 2^exponent wide.
        first: the key of ``cells[0]``.
        cells: int64 counts of consecutive cells; they begin and end with a non-zero one (empty if nothing was counted).
        outliers: float32, ascending: the values beyond the cells, at most `OUTLIERS`.
    """

    kind: ClassVar[str] = "histogram"
    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    exponent: int = LOWEST_EXPONENT
    first: int = 0
    cells: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    outliers: Floats = field(default_factory=lambda: np.zeros(0, np.float32))

    @classmethod
    def of(cls, values: npt.ArrayLike, like: Histogram | None = None) -> Histogram:
        """The histogram of one array.

        Args:
            values: any shape and any real type; taken as float32.
            like: a histogram that the result will be merged into: its exponent saves steps. It is not changed.

        Raises:
            NonFiniteError: there is NaN or Inf among the values.
            CalibrationError: the array is not numeric.
        """
        flat = _flat(values)
        out = cls(exponent=like.exponent if like is not None else LOWEST_EXPONENT)
        if flat.size:
            Counter(out).count(flat)
        return out

    def merge(self, other: Histogram) -> None:
        """Add what another one has seen. The order of merging does not matter."""
        exponent = max(self.exponent, other.exponent)
        self.coarsen(exponent)
        first, cells, outliers = other._at(exponent)
        self.add(first, cells)
        self.outliers = np.sort(np.concatenate([self.outliers, outliers]))
        self.count += other.count
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.settle()

    # --- the lattice ---

    def add(self, first: int, cells: Counts) -> None:
        """Add counts of consecutive cells that begin at key ``first``."""
        if not len(cells):
            return
        if not len(self.cells):
            self.first, self.cells = first, cells.copy()
            return
        begin = min(self.first, first)
        end = max(self.first + len(self.cells), first + len(cells))
        if begin != self.first or end != self.first + len(self.cells):
            grown = np.zeros(end - begin, np.int64)
            grown[self.first - begin : self.first - begin + len(self.cells)] = self.cells
            self.first, self.cells = begin, grown
        self.cells[first - begin : first - begin + len(cells)] += cells

    def _at(self, exponent: int) -> tuple[int, Counts, Floats]:
        """First key, cells and outliers at a coarser exponent; outliers that now fit become counts."""
        first, cells = _coarser(self.first, self.cells, exponent - self.exponent)
        if exponent == self.exponent or not len(self.outliers):
            return first, cells, self.outliers
        fits = np.abs(self.outliers) < math.ldexp(LIMIT, exponent)
        if fits.any():
            scratch = Histogram(exponent=exponent, first=first, cells=cells)
            keys = _keys(self.outliers[fits], exponent)
            least = int(keys.min())
            scratch.add(least, np.bincount(keys - least).astype(np.int64))
            first, cells = scratch.first, scratch.cells
        return first, cells, self.outliers[~fits]

    def coarsen(self, exponent: int) -> None:
        """Raise the exponent, if it is lower."""
        if exponent > self.exponent:
            self.first, self.cells, self.outliers = self._at(exponent)
            self.exponent = exponent

    def _outside(self) -> tuple[int, int]:
        """How many values lie outside the body, and the exponent step that the (OUTLIERS + 1)-th largest asks for."""
        body = 1 << BODY_BITS
        above = self.cells[max(body - self.first, 0) :] if self.first + len(self.cells) > body else self.cells[:0]
        below = self.cells[: max(-body + 1 - self.first, 0)]
        number = int(above.sum() + below.sum()) + len(self.outliers)
        if number <= OUTLIERS:
            return number, 0
        # Rank OUTLIERS + 1 from the top: from the kept values if they are enough, else from the cells.
        if len(self.outliers) > OUTLIERS:
            value = float(np.partition(np.abs(self.outliers), -OUTLIERS - 1)[-OUTLIERS - 1])
            return number, math.frexp(value)[1] - BODY_BITS - self.exponent
        magnitude = np.zeros(LIMIT, np.int64)
        magnitude[max(self.first, body) :][: len(above)] += above
        if len(below):
            magnitude[-self.first - np.arange(len(below))] += below
        from_top = np.cumsum(magnitude[::-1]) + len(self.outliers)
        key = LIMIT - 1 - int(np.searchsorted(from_top, OUTLIERS + 1))
        return number, key.bit_length() - BODY_BITS

    def settle(self) -> None:
        """Raise the exponent to the smallest one that the rule allows, and trim the cells."""
        step = self._outside()[1]
        if step:
            self.coarsen(self.exponent + step)
        occupied = np.flatnonzero(self.cells[[0, -1]]) if len(self.cells) else ()
        if len(occupied) < 2 and len(self.cells):
            inside = np.flatnonzero(self.cells)
            begin, end = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (0, 0)
            self.first, self.cells = self.first + begin if end else 0, self.cells[begin:end].copy()

    # --- reading ---

    @property
    def range(self) -> Range:
        """The closed range of the values; 0..0 if there were none."""
        return Range(self.low, self.high) if self.count else Range(0.0, 0.0)

    def bins(self, limit: float, about: int = 8001) -> Bins:
        """A uniform histogram over (-limit, limit), or a little more.

        The number of bins is odd and within a factor √2 of ``about``, unless the cells are too wide for so many.

        Args:
            limit: > 0. Values beyond it are counted in the first and last bin.
            about: the wished number of bins.
        """
        # Bins are 2^shift cells wide, shift >= 1; the nearest power of two, in the logarithm.
        ideal = math.log2(2.0 * limit / about) - self.exponent
        shift = max(1, round(ideal))
        width = math.ldexp(1.0, self.exponent + shift)
        side = max(1, math.ceil(limit / width - 0.5))
        counts = np.zeros(2 * side + 1, np.int64)
        halves = math.ldexp(1.0, shift - 1)  # cells per half bin

        def put(keys: npt.NDArray[Any], numbers: Counts) -> None:
            half_bins = np.abs(np.trunc(keys / halves))
            index = np.minimum((half_bins + 1) // 2, side).astype(np.int64)
            np.add.at(counts, side + np.where(keys < 0, -index, index), numbers)

        put(self.first + np.arange(len(self.cells), dtype=np.float64), self.cells)
        if len(self.outliers):
            values = self.outliers.astype(np.float64)
            put(values / math.ldexp(1.0, self.exponent), np.ones(len(values), np.int64))
        edges = (np.arange(2 * side + 2, dtype=np.float64) - side - 0.5) * width
        return Bins(counts, edges)

    def magnitudes(self) -> tuple[F64, Counts]:
        """Ascending magnitudes and how many values have each: upper cell edges (0 for cell 0), then the outliers."""
        folded = np.zeros(max(abs(self.first), abs(self.first + len(self.cells))) + 1, np.int64)
        np.add.at(folded, np.abs(self.first + np.arange(len(self.cells))), self.cells)
        occupied = np.flatnonzero(folded)
        edges = np.where(occupied > 0, occupied + 1.0, 0.0) * math.ldexp(1.0, self.exponent)
        edges = np.minimum(edges, self.range.absmax)
        outliers = np.sort(np.abs(self.outliers)).astype(np.float64)
        return np.concatenate([edges, outliers]), np.concatenate([folded[occupied], np.ones(len(outliers), np.int64)])

    def points(self, octaves: int = BODY_BITS) -> tuple[F64, Counts]:
        """Ascending values and how many there are of each: cell centres (0 for cell 0) and the outliers.

        Args:
            octaves: fewer than `BODY_BITS` merges cells: 12 leaves a quarter as many.
        """
        steps = max(BODY_BITS - octaves, 0)
        first, cells = _coarser(self.first, self.cells, steps)
        occupied = np.flatnonzero(cells)
        keys = first + occupied
        centres = (keys + 0.5 * np.sign(keys)) * math.ldexp(1.0, self.exponent + steps)
        centres = np.clip(centres, *self.range)
        values = np.concatenate([centres, self.outliers.astype(np.float64)])
        numbers = np.concatenate([cells[occupied], np.ones(len(self.outliers), np.int64)])
        order = np.argsort(values, kind="stable")
        return values[order], numbers[order]

    def state(self) -> dict[str, Any]:
        """Plain numbers and arrays, enough for `from_state`. Equal data give equal states, however they came."""
        return {
            "count": self.count,
            "low": self.range.min,
            "high": self.range.max,
            "exponent": self.exponent,
            "first": self.first,
            "cells": self.cells.copy(),
            "outliers": self.outliers.copy(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Histogram:
        """The histogram of a `state`.

        Raises:
            CalibrationError: the state is not one that `state` returns: keys or counts that cannot be.
        """
        count, low, high = _checked_ends(state)
        exponent, first = state.get("exponent"), state.get("first")
        if not isinstance(exponent, int) or not isinstance(first, int):
            raise CalibrationError("the histogram has no lattice", got=(exponent, first), expected="two integers")
        cells = np.asarray(state.get("cells", ()), np.int64)
        outliers = np.asarray(state.get("outliers", ()), np.float32)
        if cells.ndim != 1 or outliers.ndim != 1 or len(outliers) > OUTLIERS or not np.isfinite(outliers).all():
            raise CalibrationError("the histogram has impossible outliers", got=counted(outliers.size, "value"))
        if not LOWEST_EXPONENT <= exponent <= 128 or first <= -LIMIT or first + len(cells) > LIMIT:
            raise CalibrationError("the histogram's cells are out of reach", got=f"exponent {exponent}, key {first}")
        if (len(cells) and cells.min() < 0) or sum(map(int, cells)) + len(outliers) != count:
            raise CalibrationError("the histogram's counts do not add up", expected=count)
        out = cls(count, low, high, exponent, first, cells.copy(), np.sort(outliers))
        if not count:
            return cls()
        if float(np.abs(out.outliers).max(initial=0)) > out.range.absmax:
            raise CalibrationError("the histogram has outliers beyond its range", got=out.range)
        return out


def _keys(values: Floats, exponent: int) -> npt.NDArray[np.int64]:
    return np.trunc(values.astype(np.float64) * math.ldexp(1.0, -exponent)).astype(np.int64)


def _coarser(first: int, cells: Counts, steps: int) -> tuple[int, Counts]:
    """The cells at an exponent that is ``steps`` higher: keys are divided by 2^steps and cut towards zero."""
    if not steps or not len(cells):
        return first, cells.copy()
    keys = first + np.arange(len(cells), dtype=np.int64)
    steps = min(steps, 62)
    new = np.sign(keys) * (np.abs(keys) >> steps)
    begin = int(new[0])
    runs = np.flatnonzero(np.diff(new, prepend=begin - 1))  # keys ascend: equal ones are neighbours, none is skipped
    return begin, np.add.reduceat(cells, runs)
