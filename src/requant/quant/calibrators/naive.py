"""Min/max: the range is what was seen. Nothing is cut off; one outlier can cost all others their resolution."""

from __future__ import annotations

from typing import ClassVar, final

from requant.qmath import Range
from requant.quant.calibrator import Calibrator, Statistic
from requant.quant.histogram import MinMax
from requant.scheme import Scheme


@final
class NaiveCalibrator(Calibrator):
    """MXNet's ``calib_mode='naive'``: (min, max) over all batches, unmodified."""

    name: ClassVar[str] = "naive"
    needs: ClassVar[type[Statistic]] = MinMax

    def _range(self, scheme: Scheme) -> Range:
        return self.statistic.range
