"""Percentile: the range that holds a given share of the values; the rest saturates."""

from __future__ import annotations

import math
from typing import ClassVar, final

import numpy as np

from requant.errors import CalibrationError
from requant.qmath import Range
from requant.quant.calibrator import Calibrator, Statistic, around_zero, is_symmetric
from requant.quant.histogram import Histogram
from requant.scheme import Scheme


@final
class PercentileCalibrator(Calibrator):
    """The smallest range that holds ``percentile`` per cent of the values.

    Where the zero point is fixed, the range is around zero and counts magnitudes; where it moves, each end cuts off
    half of the rest. The precision is one histogram cell, 1/8000 or less of the 1024th largest magnitude.

    Args:
        percentile: in (0, 100].
    """

    name: ClassVar[str] = "percentile"
    needs: ClassVar[type[Statistic]] = Histogram

    def __init__(
        self,
        tensor: str = "",
        *,
        percentile: float = 99.99,
        statistic: Statistic | None = None,
        held_out: Statistic | None = None,
    ) -> None:
        if not isinstance(percentile, int | float) or not 0 < percentile <= 100:
            raise CalibrationError("not a percentile", got=percentile, expected="a number above 0 and up to 100")
        self.percentile = float(percentile)
        super().__init__(tensor, statistic=statistic, held_out=held_out)

    def options(self) -> dict[str, float]:
        return {"percentile": self.percentile}

    def _range(self, scheme: Scheme) -> Range:
        histogram = self.statistic
        assert isinstance(histogram, Histogram)
        seen = histogram.range
        if is_symmetric(scheme, seen):
            magnitudes, counts = histogram.magnitudes()
            return around_zero(_quantile(magnitudes, counts, self.percentile / 100) or seen.absmax, scheme, seen)
        values, counts = histogram.points()
        cut = (1 - self.percentile / 100) / 2
        high = max(_quantile(values, counts, 1 - cut), 0.0)
        low = min(-_quantile(-values[::-1], counts[::-1], 1 - cut), 0.0)
        return Range(low, high) if high > low else seen  # more than the share is zero: nothing would be left


def _quantile(values: np.ndarray, counts: np.ndarray, share: float) -> float:
    """The smallest value that at least ``share`` of all are not above."""
    upto = np.cumsum(counts)
    return float(values[np.searchsorted(upto, min(math.ceil(share * int(upto[-1])), int(upto[-1])))])
