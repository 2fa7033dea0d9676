"""The calibration table: what was seen of every observed tensor, kept so that nothing needs to be run twice.

A table holds statistics, not ranges. A range is computed when it is asked for, so another calibrator, another scheme or
another list of excluded nodes reads the same table and runs no data. It belongs to one model (by fingerprint), can be
saved, loaded, merged with the table of another worker, and compared.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from requant.errors import CalibrationError, nearest
from requant.formats import calibration_table as stored
from requant.qmath import Range
from requant.quant.calibrator import (
    MXNET,
    Statistic,
    merge,
    statistic_of,
)
from requant.quant.calibrators import calibrator as calibrator_of
from requant.quant.calibrators import make
from requant.quant.channel_mean import ChannelMean
from requant.quant.entry import Entry
from requant.quant.histogram import MinMax
from requant.quant.nonfinite import NonFiniteActivation, NonFiniteEnds, bad_samples
from requant.scheme import Scheme

Array = npt.NDArray[Any]
T = TypeVar("T")
#: What to do with a sample that makes NaN or Inf somewhere: stop with an error, or leave the sample out everywhere.
Policy = Literal["error", "skip"]


class Observed(NamedTuple):
    """What one batch came to: samples counted, and the places in the batch of those left out."""

    samples: int
    skipped: tuple[int, ...] = ()


class CalibrationTable:
    """Statistics of the observed tensors of one model.

    Attributes:
        model: fingerprint of the model ("" if unknown).
        calibrator, options: what ranges are computed with, unless `range` is asked otherwise.
        samples, held_out_samples, skipped: how many samples were counted, kept apart, and left out.
        metadata: notes, kept in the file (preprocessing, for instance).
    """

    def __init__(
        self,
        tensors: Iterable[str] = (),
        calibrator: str = "entropy",
        *,
        model: str = "",
        options: Mapping[str, float] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.model, self.calibrator, self.options = model, calibrator, dict(options or {})
        self.metadata = dict(metadata or {})
        self.samples = self.held_out_samples = self.skipped = 0
        self._needs = calibrator_of(calibrator).needs
        make(calibrator, "", **self.options)  # a wrong option is an error now, not after the data have run
        self._entries = {name: Entry(self._needs()) for name in tensors}
        self._ranges: dict[tuple[object, ...], Range] = {}

    # --- reading ---

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, tensor: object) -> bool:
        return tensor in self._entries

    def entry(self, tensor: str) -> Entry:
        """What is known of a tensor.

        Raises:
            CalibrationError: the table does not have it; the message names the nearest.
        """
        if tensor not in self._entries:
            raise CalibrationError(
                "the calibration table does not have this tensor", where=repr(tensor), next=nearest(tensor, self)
            )
        return self._entries[tensor]

    def joined(self, tensors: Mapping[str, Sequence[str]]) -> CalibrationTable:
        """A table that also has tensors whose values are those of others together.

        Args:
            tensors: new names -> names that are in the table.
        Raises:
            CalibrationError: some of the others are finished ranges of another tool, and some are not.
        """
        new = copy.copy(self)
        new._entries, new._ranges = dict(self._entries), {}
        for name, parts in tensors.items():
            new._entries[name] = Entry.together([self.entry(p) for p in parts], name)
        return new

    def check_model(self, model: str) -> None:
        """Refuse the table of another model.

        Raises:
            CalibrationError: both fingerprints are known and differ.
        """
        if self.model and model and self.model != model:
            raise CalibrationError(
                "the calibration table belongs to another model",
                got=self.model[:16],
                expected=model[:16],
                next="calibrate this model; ranges of another one are worse than none",
            )

    def range(self, tensor: str, calibrator: str | None = None, *, scheme: Scheme = MXNET, **options: float) -> Range:
        """The range of a tensor. Computed when first asked for; no data are run.

        Args:
            tensor: its name.
            calibrator: another calibrator than the table's own; it takes its own ``options``.
            scheme: the integer forms that the range is for.

        Raises:
            CalibrationError: the tensor is unknown, nothing was seen of it, or the calibrator needs a histogram where
                only min and max were kept.
        """
        entry = self.entry(tensor)
        if entry.fixed is not None and (calibrator is None or calibrator == self.calibrator):
            return entry.fixed
        name = calibrator or self.calibrator
        if name == self.calibrator:
            options = {**self.options, **options}
        key = (tensor, name, scheme.unsigned, scheme.signed, *sorted(options.items()))
        if key not in self._ranges:
            if entry.fixed is not None:
                raise CalibrationError(
                    "only a finished range is known of this tensor",
                    where=repr(tensor),
                    next=f"use the table's own calibrator {self.calibrator!r}, or calibrate again",
                )
            made = make(name, tensor, statistic=entry.statistic, held_out=entry.held_out, **options)
            self._ranges[key] = made.range(scheme)
        return self._ranges[key]

    def ranges(
        self,
        tensors: Iterable[str] | None = None,
        calibrator: str | None = None,
        *,
        scheme: Scheme = MXNET,
        threads: int = 1,
        **options: float,
    ) -> dict[str, Range]:
        """The ranges of several tensors (all, if none are named); searches may share ``threads`` threads.

        Raises:
            CalibrationError: as `range`.
        """

        def one(tensor: str) -> Range:
            return self.range(tensor, calibrator, scheme=scheme, **options)

        return _each(self._entries if tensors is None else tensors, one, threads)

    # --- observing ---

    def observe(
        self,
        batch: Mapping[str, Array],
        *,
        samples: int | None = None,
        held_out: bool = False,
        policy: Policy = "error",
        threads: int = 1,
    ) -> Observed:
        """Add one batch: all of the table's tensors, or nothing if it raises.

        Args:
            batch: by tensor name; other names are ignored. Axis 0 is the batch.
            samples: number of samples in the batch; by default the length of the first tensor's axis 0.
            held_out: keep the batch apart, to judge ranges by (`auto` does).
            policy: what to do with samples that make NaN or Inf in any tensor: ``error`` or ``skip``.
            threads: how many tensors are counted at once.

        Returns:
            How many samples were counted, and which were skipped.

        Raises:
            NonFiniteActivation: NaN or Inf under the policy ``error``; it names the tensor and the sample.
            CalibrationError: a tensor is missing from the batch or is not numeric; the policy is unknown.
        """
        if policy not in ("error", "skip"):
            raise CalibrationError("unknown policy", got=repr(policy), expected="'error' or 'skip'")
        missing = [name for name in self._entries if name not in batch]
        if missing:
            raise CalibrationError(
                "a tensor to be observed is missing from the batch",
                where=repr(missing[0]),
                next=nearest(missing[0], batch),
            )
        arrays = {name: np.asarray(batch[name]) for name in self._entries}
        if samples is None:
            samples = next((a.shape[0] for a in arrays.values() if a.ndim), 1)
        skipped: tuple[int, ...] = ()
        try:
            parts = self._measure(arrays, held_out, threads)
        except NonFiniteActivation:
            if policy == "error":
                raise
            skipped = bad_samples(arrays, samples)
            keep = np.setdiff1d(np.arange(samples), skipped)
            arrays = {name: a[keep] for name, a in arrays.items()} if len(keep) else {}
            parts = self._measure(arrays, held_out, threads) if arrays else {}
        for name, part in parts.items():
            entry = self._entries[name]
            if held_out and entry.held_out is None:
                entry.held_out = self._needs()
            merge(entry.held_out if held_out and entry.held_out is not None else entry.statistic, part, name)
        self._count(samples - len(skipped), held_out, len(skipped))
        return Observed(samples - len(skipped), skipped)

    def _measure(self, arrays: Mapping[str, Array], held_out: bool, threads: int) -> dict[str, Statistic]:
        def one(name: str) -> Statistic:
            entry = self._entries[name]
            like = entry.held_out if held_out else entry.statistic
            return statistic_of(self._needs, name, arrays[name], like)

        return _each(arrays, one, threads)

    def observe_ends(self, ends: Mapping[str, tuple[float, float]], *, samples: int, values: Mapping[str, int]) -> None:
        """Add the smallest and largest value of each tensor, found elsewhere (reduced inside the graph, say).

        Args:
            ends: (low, high) by tensor name.
            samples: how many samples they are of.
            values: how many values each tensor has.

        Raises:
            CalibrationError: the table keeps histograms; a tensor is missing; an end is not finite.
        """
        if self._needs is not MinMax:
            raise CalibrationError(
                "min and max are not enough for this calibrator", got=self.calibrator, expected="naive"
            )
        parts = {}
        for name in self._entries:
            if name not in ends:
                raise CalibrationError("a tensor to be observed is missing", where=repr(name), next=nearest(name, ends))
            low, high = (float(end) + 0.0 for end in ends[name])
            if not -np.inf < low <= high < np.inf:
                raise NonFiniteEnds(name, low, high)
            parts[name] = MinMax(int(values[name]), low, high)
        for name, part in parts.items():
            merge(self._entries[name].statistic, part, name)
        self._count(samples, False, 0)

    def observe_means(self, means: Mapping[str, Array]) -> None:
        """Add channel means, for bias correction.

        Args:
            means: by tensor name, shape (samples, channels): the mean of each channel of each sample. Tensors that the
                table does not have are ignored.
        """
        for name, rows in means.items():
            entry = self._entries.get(name)
            if entry is not None:
                entry.mean = entry.mean or ChannelMean()
                entry.mean.observe(rows)

    def means(self) -> dict[str, Array]:
        """The mean of each channel, by tensor name, where it is known: shape (channels,)."""
        return {n: e.mean.mean for n, e in self._entries.items() if e.mean is not None and e.mean.count}

    def _count(self, samples: int, held_out: bool, skipped: int) -> None:
        if held_out:
            self.held_out_samples += samples
        else:
            self.samples += samples
        self.skipped += skipped
        self._ranges.clear()

    # --- whole tables ---

    def merge(self, other: CalibrationTable) -> None:
        """Add the table of another part of the data. The order of merging does not matter.

        Raises:
            CalibrationError: the tables are of different models, or keep different kinds of statistics. Nothing was
                added then.
        """
        self.check_model(other.model)
        for name, entry in other._entries.items():
            entry.check_merge(self._entries.get(name), name)
        for name, entry in other._entries.items():
            self._entries.setdefault(name, Entry(type(entry.statistic)())).merge(entry, name)
        self.model = self.model or other.model
        self.samples += other.samples
        self.held_out_samples += other.held_out_samples
        self.skipped += other.skipped
        self._ranges.clear()

    def diff(self, other: CalibrationTable, *, scheme: Scheme = MXNET, tolerance: float = 0.0) -> list[str]:
        """What differs from ``other``, one line each; empty if they say the same.

        Args:
            scheme: the integer forms that ranges are compared under.
            tolerance: relative change of a range's largest magnitude that is not reported.
        """
        lines = [
            f"{what}: {getattr(self, what)!r} -> {getattr(other, what)!r}"
            for what in ("model", "calibrator", "options", "samples", "held_out_samples", "skipped")
            if getattr(self, what) != getattr(other, what)
        ]
        lines += [f"{name}: only in the first" for name in self if name not in other]
        lines += [f"{name}: only in the second" for name in other if name not in self]
        for name in self:
            if name not in other:
                continue
            a, b = (t.range(name, scheme=scheme) if t.entry(name).known else None for t in (self, other))
            if a is None or b is None:
                if a != b:
                    lines.append(f"{name}: {a or 'nothing seen'} -> {b or 'nothing seen'}")
                continue
            change = max(abs(a.min - b.min), abs(a.max - b.max))
            if change > tolerance * max(a.absmax, b.absmax):
                lines.append(f"{name}: ({a.min:.6g}, {a.max:.6g}) -> ({b.min:.6g}, {b.max:.6g})")
        return lines

    # --- files ---

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to a JSON file, as a whole or not at all. Equal data give equal bytes.

        Raises:
            OSError: the file cannot be written.
        """
        stored.write_table(self.to_stored(), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CalibrationTable:
        """Read a table.

        Raises:
            FormatError: the file is damaged or no table.
            CalibrationError: its statistics are impossible, or its calibrator is unknown.
            OSError: the file cannot be read.
        """
        return cls.from_stored(stored.read_table(path))

    def to_stored(self) -> stored.StoredTable:
        """The table as the plain data of a file."""
        return stored.StoredTable(
            model=self.model,
            calibrator=self.calibrator,
            tensors={name: entry.to_stored() for name, entry in self._entries.items()},
            options=self.options,
            samples=self.samples,
            held_out_samples=self.held_out_samples,
            skipped=self.skipped,
            metadata=self.metadata,
        )

    @classmethod
    def from_stored(cls, table: stored.StoredTable) -> CalibrationTable:
        """The table of plain data.

        Raises:
            CalibrationError: a statistic is impossible, or the calibrator is unknown; the message names the tensor.
        """
        out = cls((), table.calibrator, model=table.model, options=table.options, metadata=table.metadata)
        out.samples, out.held_out_samples, out.skipped = table.samples, table.held_out_samples, table.skipped
        for name, parts in table.tensors.items():
            out._entries[name] = Entry.from_stored(parts, table.calibrator, name)
        return out

    def to_tensorrt(self, *, scheme: Scheme = MXNET, version: int = 8601) -> stored.TensorRTCache:
        """TensorRT's calibration cache: per tensor, largest magnitude / 127.

        Raises:
            CalibrationError: nothing was seen of a tensor.
        """
        algorithm = "MinMaxCalibration" if self.calibrator == "naive" else "EntropyCalibration2"
        ranges = self.ranges(scheme=scheme)
        scales = {name: float(np.float32(r.absmax / 127)) for name, r in ranges.items()}
        return stored.TensorRTCache(scales, version, algorithm)

    @classmethod
    def from_tensorrt(cls, cache: stored.TensorRTCache, *, model: str = "") -> CalibrationTable:
        """A table of finished ranges, ±127 × scale. It has no statistics: no other calibrator can read it."""
        out = cls((), "naive" if cache.algorithm.startswith("MinMax") else "entropy", model=model)
        for name, scale in cache.scales.items():
            out._entries[name] = Entry(out._needs(), fixed=Range(-127.0 * scale, 127.0 * scale))
        return out


def _each(tensors: Iterable[str], one: Callable[[str], T], threads: int) -> dict[str, T]:
    """``one`` of each tensor, by its name."""
    names = list(tensors)
    if threads < 2 or len(names) < 2:
        return {name: one(name) for name in names}
    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(names, pool.map(one, names)))
