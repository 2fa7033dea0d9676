"""MXNet's own calibration histogram, which depends on the order of the data.

For scripts that keep MXNet's words (`mx.contrib.quantization`) and must get MXNet's numbers. Everything else uses
`requant.quant.histogram`, whose bins do not depend on which batch came first.

The scheme: the first batch fixes 8001 bins over (-t, t), t its largest magnitude. A later batch within t is counted on
the same bins; one beyond it adds whole bins of the same width at both ends, enough to cover it. So the lattice is fixed
by the first batch, and two histograms can be merged only if theirs began with the same t.

Values are counted on edges of float64, where MXNet's are float32. Values on an edge are so few that the counts, and the
thresholds, are MXNet's own in nearly every recorded case; numpy's float32 way of counting has changed since and is not.

Two faults of MXNet are mended: a first batch of zeros (its lattice has no width; the next batch that has a value other
than zero fixes it, and the zeros go to the middle bin), and growth without bound (`MAX_BINS`).

Source: the behaviour of MXNet 1.9.1 (`mxnet.contrib.quantization.combine_histogram`), recorded in
tests/quant/mxnet_histograms.json.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from requant.errors import CalibrationError
from requant.qmath import Range
from requant.quant.kl_threshold import find_threshold
from requant.quant.nonfinite import first_nonfinite

#: An outlier a thousand times the first batch would ask for eight million bins; MXNet's search then takes hours.
MAX_BINS = 1 << 20


class MXNetHistogram:
    """MXNet's growing histogram of one tensor.

    Attributes:
        counts: int64, shape (bins,), odd.
        edges: float64, shape (bins + 1,), from -threshold to threshold.
        low, high: smallest and largest value seen.
        threshold: MXNet's t: half the width of all bins.

    Args:
        bins: their number after the first batch; odd.
    """

    def __init__(self, bins: int = 8001) -> None:
        if bins < 1 or bins % 2 == 0:
            raise CalibrationError("the number of bins must be odd", got=bins, expected=8001)
        self.first_bins = bins
        self.counts: npt.NDArray[np.int64] = np.zeros(bins, np.int64)
        self.low, self.high = math.inf, -math.inf
        self.step = 0.0  # width of a bin; 0 until a value other than zero was seen
        self.threshold = 0.0

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        limit = self.threshold or 0.5  # numpy's, and so MXNet's, range for zeros alone
        return np.linspace(-limit, limit, len(self.counts) + 1, dtype=np.float64)

    def collect(self, values: npt.ArrayLike, tensor: str = "") -> None:
        """Add one batch. The first one fixes the lattice.

        Raises:
            CalibrationError: NaN or Inf in the batch, or a value so far beyond the first batch that the bins would
                not fit the memory. Nothing was added then.
        """
        array = np.asarray(values, np.float64)
        if not array.size:
            return
        bad = first_nonfinite(array)
        if bad is not None:
            raise CalibrationError("NaN or Inf in an activation", where=f"tensor {tensor!r}", got=f"at {list(bad)}")
        low, high = float(array.min()), float(array.max())
        limit = max(abs(low), abs(high))
        if not self.step and limit:
            self.step, self.threshold = 2 * limit / self.first_bins, limit
        elif limit > self.threshold:
            self._grow(limit, tensor)
        if self.step:
            self.counts += np.histogram(array, bins=len(self.counts), range=(-self.threshold, self.threshold))[0]
        else:
            self.counts[self.first_bins // 2] += array.size
        self.low, self.high = min(self.low, low), max(self.high, high)

    def _grow(self, limit: float, tensor: str) -> None:
        more = int((limit - self.threshold) // self.step + 1)
        if len(self.counts) + 2 * more > MAX_BINS:
            raise CalibrationError(
                "a value far beyond the first batch: MXNet's histogram would need too many bins",
                where=f"tensor {tensor!r}",
                got=f"{limit:.6g} where the first batch reached {self.step * self.first_bins / 2:.6g}",
                expected=f"at most {MAX_BINS} bins",
                next="put a typical batch first, or use the calibrator 'entropy' or 'percentile'",
            )
        self.counts = np.pad(self.counts, more)
        self.threshold += more * self.step

    def merge(self, other: MXNetHistogram) -> None:
        """Add the histogram of other batches that began with the same largest magnitude.

        Raises:
            CalibrationError: the bins have other widths.
        """
        if self.step and other.step and not math.isclose(self.step, other.step, rel_tol=1e-12):
            raise CalibrationError(
                "MXNet histograms with bins of different widths cannot be merged",
                got=f"{self.step:.9g} and {other.step:.9g}",
                next="collect all batches into one, or use requant's own calibrators, which merge in any order",
            )
        wide, narrow = (self, other) if len(self.counts) >= len(other.counts) else (other, self)
        counts = wide.counts + np.pad(narrow.counts, (len(wide.counts) - len(narrow.counts)) // 2)
        self.counts, self.threshold = counts, max(self.threshold, other.threshold)
        self.step = self.step or other.step
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def range(self, quantized_dtype: str = "auto") -> Range:
        """MXNet's calibrated range: (0, t) with 511 quantized bins for non-negative data that may become uint8, else
        (-t, t) with 255.

        Raises:
            CalibrationError: nothing was collected.
        """
        if self.low > self.high:
            raise CalibrationError("no value was collected")
        unsigned = self.low >= 0 and quantized_dtype in ("auto", "uint8")
        found = find_threshold(self.counts, self.edges, 511 if unsigned else 255).value
        return Range(0.0 if unsigned else -found, found)

    def as_tuple(self) -> tuple[Any, ...]:
        """MXNet's own form: ``(hist, hist_edges, min, max, th)``."""
        return self.counts, self.edges, self.low, self.high, self.threshold
