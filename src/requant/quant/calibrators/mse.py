"""MSE: the range with the smallest mean squared error of quantizing the values that were seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, final

import numpy as np

from requant.qmath import Range
from requant.quant.calibrator import Calibrator, Statistic, around_zero, is_symmetric
from requant.quant.histogram import Histogram
from requant.quant.range_error import QuantizationNoise
from requant.scheme import Scheme

#: Candidates: the whole range, and down by 2^(1/8) for twelve octaves; then steps between the best one's neighbours.
_RATIOS = 2.0 ** (-np.arange(97) / 8)
_FINE = 17


@final
class MseCalibrator(Calibrator):
    """Minimises rounding plus saturation error over thresholds; over both ends where the zero point moves."""

    name: ClassVar[str] = "mse"
    needs: ClassVar[type[Statistic]] = Histogram

    def _range(self, scheme: Scheme) -> Range:
        histogram = self.statistic
        assert isinstance(histogram, Histogram)
        seen = histogram.range
        noise = QuantizationNoise(histogram, scheme)
        if is_symmetric(scheme, seen):
            return around_zero(
                _smallest(lambda t: noise.error(around_zero(t, scheme, seen)), seen.absmax), scheme, seen
            )
        low, high = min(seen.min, 0.0), max(seen.max, 0.0)
        shrink = _smallest(lambda r: noise.error(Range(low * r, high * r)), 1.0)
        low, high = low * shrink, high * shrink
        for _ in range(2):  # one end at a time, from the best common ratio

            def upper(t: float, low: float = low) -> float:
                return noise.error(Range(low, t))

            high = _between(upper, 0.5 * high, min(2 * high, max(seen.max, 0.0)), high)

            def lower(t: float, high: float = high) -> float:
                return noise.error(Range(t, high))

            low = _between(lower, 0.5 * low, max(2 * low, min(seen.min, 0.0)), low)
        return Range(low, high)


def _smallest(error: Callable[[float], float], largest: float) -> float:
    """The argument in (0, largest] with the smallest error. Of equals, the larger."""
    candidates = largest * _RATIOS
    errors = [error(float(t)) for t in candidates]
    best = int(np.argmin(errors))
    low, high = float(candidates[min(best + 1, len(candidates) - 1)]), float(candidates[max(best - 1, 0)])
    return _between(error, low, high, float(candidates[best]))


def _between(error: Callable[[float], float], low: float, high: float, start: float) -> float:
    """The best of evenly spaced arguments and ``start``."""
    candidates = [start, *np.linspace(high, low, _FINE).tolist()]
    return float(candidates[int(np.argmin([error(t) for t in candidates]))])
