"""Auto: per tensor, the calibrator whose range does best on data that it has not seen.

Entropy is not always better than min/max, nor percentile than either. Each calibrator proposes a range from the
statistic; each proposal quantizes the held-out values; the smallest mean squared error wins. Without held-out data the
statistic judges itself.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, final

from requant.qmath import Range
from requant.quant.calibrator import Calibrator, Statistic
from requant.quant.calibrators.entropy import EntropyCalibrator
from requant.quant.calibrators.mse import MseCalibrator
from requant.quant.calibrators.naive import NaiveCalibrator
from requant.quant.calibrators.percentile import PercentileCalibrator
from requant.quant.histogram import Histogram
from requant.quant.range_error import QuantizationNoise
from requant.scheme import Scheme

_PERCENTILES = (99.9, 99.99, 99.999)


class Proposal(NamedTuple):
    """One calibrator's range and its mean squared error on the held-out data."""

    calibrator: str
    range: Range
    error: float


@final
class AutoCalibrator(Calibrator):
    """Measures the proposals of all other calibrators; of equal ones the first wins (min/max first)."""

    name: ClassVar[str] = "auto"
    needs: ClassVar[type[Statistic]] = Histogram

    def proposals(self, scheme: Scheme) -> list[Proposal]:
        """What each calibrator proposes, with the error measured."""
        judge = self.held_out if isinstance(self.held_out, Histogram) and self.held_out.count else self.statistic
        assert isinstance(judge, Histogram)
        noise = QuantizationNoise(judge, scheme)
        tensor, seen = self.tensor, self.statistic
        makers: list[tuple[str, Calibrator]] = [("naive", NaiveCalibrator(tensor, statistic=seen))]
        for share in reversed(_PERCENTILES):
            makers.append((f"percentile {share}", PercentileCalibrator(tensor, statistic=seen, percentile=share)))
        makers.append(("entropy", EntropyCalibrator(tensor, statistic=seen)))
        makers.append(("mse", MseCalibrator(tensor, statistic=seen)))
        return [Proposal(name, found := maker.range(scheme), noise.error(found)) for name, maker in makers]

    def _range(self, scheme: Scheme) -> Range:
        return min(self.proposals(scheme), key=lambda p: p.error).range
