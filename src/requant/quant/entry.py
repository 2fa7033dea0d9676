"""One row of a calibration table: what is known of one tensor, how rows are merged, and how a file keeps one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from requant.errors import CalibrationError
from requant.formats.calibration_table import StoredStatistic
from requant.qmath import Range
from requant.quant.calibrator import Statistic, merge, statistic_from_state
from requant.quant.calibrators import calibrator as calibrator_of
from requant.quant.channel_mean import ChannelMean
from requant.quant.histogram import Histogram


@dataclass
class Entry:
    """What is known of one tensor: seen, held out, or (from another tool's table) only a finished range."""

    statistic: Statistic
    held_out: Statistic | None = None
    fixed: Range | None = None
    mean: ChannelMean | None = None

    @property
    def known(self) -> bool:
        """It has a range."""
        return self.fixed is not None or self.statistic.count > 0

    def check_merge(self, other: Entry | None, tensor: str) -> None:
        """Refuse what `merge` cannot do; None is a row that is not there yet.

        Raises:
            CalibrationError: one of them is a finished range, or they keep different kinds of statistics.
        """
        if self.fixed is not None or (other is not None and other.fixed is not None):
            raise CalibrationError("finished ranges cannot be merged", where=repr(tensor), next="calibrate again")
        if other is not None and other.statistic.kind != self.statistic.kind:
            merge(other.statistic, self.statistic, tensor)  # raises, with the reason

    def merge(self, other: Entry, tensor: str) -> None:
        """Add what was seen by another."""
        merge(self.statistic, other.statistic, tensor)
        if other.held_out is not None:
            self.held_out = self.held_out if self.held_out is not None else type(other.held_out)()
            merge(self.held_out, other.held_out, tensor)
        if other.mean is not None:
            self.mean = self.mean or ChannelMean()
            self.mean.merge(other.mean)

    @classmethod
    def together(cls, rows: Sequence[Entry], tensor: str) -> Entry:
        """The row of a tensor whose values are those of others together. It has no means of channels.

        Raises:
            CalibrationError: some are finished ranges, and some are not.
        """
        fixed = [row.fixed for row in rows if row.fixed is not None]
        if fixed and len(fixed) == len(rows):
            ends = Range(min(r.min for r in fixed), max(r.max for r in fixed))
            return cls(type(rows[0].statistic)(), fixed=ends)
        made = cls(type(rows[0].statistic)())
        for row in rows:
            made.check_merge(row, tensor)
            made.merge(cls(row.statistic, row.held_out, row.fixed), tensor)
        return made

    def to_stored(self) -> dict[str, StoredStatistic]:
        """The row as the plain data of a file."""
        if self.fixed is not None:
            return {"statistic": {"kind": "range", "low": self.fixed.min, "high": self.fixed.max}}
        parts: dict[str, StoredStatistic] = {"statistic": {"kind": self.statistic.kind, **self.statistic.state()}}
        if self.held_out is not None:
            parts["held_out"] = {"kind": self.held_out.kind, **self.held_out.state()}
        if self.mean is not None:
            parts["mean"] = {"kind": self.mean.kind, **self.mean.state()}
        return parts

    @classmethod
    def from_stored(cls, parts: Mapping[str, StoredStatistic], calibrator: str, tensor: str) -> Entry:
        """The row of plain data, in a table of that calibrator.

        Raises:
            CalibrationError: a statistic is impossible, or not enough for the calibrator; the message names the tensor.
        """
        needs = calibrator_of(calibrator).needs
        statistic = dict(parts["statistic"])
        if statistic.get("kind") == "range":
            return cls(needs(), fixed=_fixed(tensor, statistic))
        entry = cls(statistic_from_state(statistic, tensor))
        if needs is Histogram and not isinstance(entry.statistic, Histogram):
            raise CalibrationError(
                "min and max are not enough for the table's calibrator", where=repr(tensor), got=calibrator
            )
        if "held_out" in parts:
            entry.held_out = statistic_from_state(dict(parts["held_out"]), tensor)
        if "mean" in parts:
            entry.mean = ChannelMean.from_state(parts["mean"])
        return entry


def _fixed(name: str, statistic: Mapping[str, object]) -> Range:
    low, high = statistic.get("low"), statistic.get("high")
    if not isinstance(low, int | float) or not isinstance(high, int | float) or not -np.inf < low <= high < np.inf:
        raise CalibrationError("a range must be finite and ordered", where=repr(name), got=f"{low} .. {high}")
    return Range(float(low), float(high))
