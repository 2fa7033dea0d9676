"""How much a range costs: the mean squared error of quantizing a tensor's values with it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from requant.qmath import Range
from requant.quant.forms import activation_params
from requant.quant.histogram import Histogram
from requant.scheme import Scheme

F64 = npt.NDArray[np.float64]


class QuantizationNoise:
    """The values of a histogram, to try ranges on.

    Cells are merged until there are some thousands: still sixteen or more in each quantization step.

    Args:
        histogram: with at least one value.
        scheme: the integer form that ranges are turned into.
    """

    def __init__(self, histogram: Histogram, scheme: Scheme) -> None:
        self.scheme = scheme
        self.values, counts = histogram.points(octaves=12)
        self.counts = counts.astype(np.float64)
        self.total = float(self.counts.sum())
        self._work = np.empty_like(self.values)

    def error(self, candidate: Range) -> float:
        """Mean over all values of ``(x - dequantize(quantize(x)))²``."""
        params = activation_params(self.scheme, candidate)
        scale, zero = float(params.scale), float(params.zero_point)
        q = self._work
        np.multiply(self.values, 1.0 / scale, out=q)
        np.rint(q, out=q)
        np.clip(q, params.limits.min - zero, params.limits.max - zero, out=q)
        q *= scale
        q -= self.values
        q *= q
        return float(q @ self.counts) / self.total

    @property
    def power(self) -> float:
        """Mean of x²: the signal that an error is compared with."""
        return float((self.values * self.values) @ self.counts) / self.total
