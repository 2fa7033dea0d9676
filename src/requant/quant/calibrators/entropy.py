"""Entropy: the threshold whose int8 histogram differs least, in information, from the float one.

MXNet's definition (``calib_mode='entropy'``), on a histogram that does not depend on the order of the data. Four
things differ from MXNet on purpose:

- bins are a power of two wide, so that there are 5,700 to 11,600 of them rather than 8001 (`requant.quant.histogram`);
- if the smallest window that the search knows (1/32 of the range) already holds 99.9 % of the values that are not
  zero, the histogram is drawn over half the range, and again, until it does not: a lone outlier a thousand times the
  rest would otherwise leave a handful of integers for the rest;
- where the values fall into a handful of bins (constants, masks, one-hot rows) there is no distribution to compare,
  and the range is what was seen; MXNet takes its smallest window, or one that makes 0 and 1 share a merged bin;
- the definition is evaluated in float64. MXNet's float32 sums lose counts from 2^24 values on, where their rounding
  alone picks the winner; and to follow that rounding costs four times the search.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from requant.errors import CalibrationError
from requant.qmath import Range
from requant.quant.calibrator import Calibrator, Statistic, around_zero, is_unsigned
from requant.quant.histogram import Bins, Histogram
from requant.quant.kl_threshold import find_threshold
from requant.scheme import Scheme

_BINS = 8001
#: Share of the non-zero values that must lie above the smallest window.
_RESOLVED = 1e-3
#: Fewer non-zero bins than this are no distribution.
_FEWEST_BINS = 16


@final
class EntropyCalibrator(Calibrator):
    """MXNet's entropy calibration: 255 quantized bins, 511 for non-negative tensors that are stored unsigned."""

    name: ClassVar[str] = "entropy"
    needs: ClassVar[type[Statistic]] = Histogram

    def _range(self, scheme: Scheme) -> Range:
        seen = self.statistic.range
        quantized_bins = 511 if is_unsigned(scheme, seen) else 255
        bins = self.bins(quantized_bins)
        if len(bins.counts) < quantized_bins or np.count_nonzero(bins.counts) < _FEWEST_BINS:
            return around_zero(seen.absmax, scheme, seen)
        found = find_threshold(bins.counts, bins.edges, quantized_bins, rounding="float64")
        return around_zero(found.value if np.isfinite(found.divergence) else seen.absmax, scheme, seen)

    def bins(self, quantized_bins: int) -> Bins:
        """The histogram that the search is given."""
        if not isinstance(self.statistic, Histogram):  # the constructor has refused it
            raise CalibrationError("entropy needs a histogram", where=f"tensor {self.tensor!r}")
        histogram = self.statistic
        limit = histogram.range.absmax
        magnitudes, counts = histogram.magnitudes()
        from_top = np.cumsum(counts[::-1])[::-1]
        nonzero = int(from_top[magnitudes > 0][0]) if (magnitudes > 0).any() else 0
        smallest = quantized_bins / _BINS
        bins = histogram.bins(limit, _BINS)
        while True:
            above = np.searchsorted(magnitudes, limit * smallest, side="right")
            if (int(from_top[above]) if above < len(from_top) else 0) >= _RESOLVED * nonzero:
                return bins
            narrower = histogram.bins(limit / 2, _BINS)
            if len(narrower.counts) < 2 * quantized_bins:
                return bins  # the cells give no more
            limit, bins = limit / 2, narrower
