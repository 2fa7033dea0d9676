"""``mx.nd.contrib``: operators whose registered name starts with ``_contrib_``."""

from __future__ import annotations

import math

import numpy as np

from requant.mx.generate import Function, Namespace
from requant.mx.ndarray.call import function
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray
from requant.quant.kl_threshold import find_threshold

_functions = Namespace(__name__, "contrib", function)


def isnan(data: NDArray) -> NDArray:
    """1 where an element is not a number, else 0, in the dtype of the data."""
    return data != data


def isinf(data: NDArray) -> NDArray:
    """1 where an element is infinite, else 0, in the dtype of the data."""
    return abs(data) == math.inf


def isfinite(data: NDArray) -> NDArray:
    """1 where an element is a finite number, else 0, in the dtype of the data."""
    return abs(data) < math.inf


def calibrate_entropy(hist: NDArray, hist_edges: NDArray, num_quantized_bins: int = 255) -> list[NDArray]:
    """The threshold that loses least of a histogram in ``num_quantized_bins`` levels, by divergence of distributions.

    Args:
        hist: counts, shape (bins,), an odd number, symmetric around zero.
        hist_edges: edges of the bins, shape (bins + 1,).
    Returns:
        threshold and divergence, each float32 of shape (1,).
    Raises:
        CalibrationError: the histogram does not fit.
    """
    found = find_threshold(hist.asnumpy(), hist_edges.asnumpy(), int(num_quantized_bins))
    largest = float(np.finfo(np.float32).max)  # what MXNet says where no window has a divergence
    return [array([v], dtype="float32") for v in (found.value, min(found.divergence, largest))]


def __getattr__(name: str) -> Function:
    return _functions.get(name)


def __dir__() -> list[str]:
    return sorted([*_functions, "calibrate_entropy", "isfinite", "isinf", "isnan"])
