"""``nd.contrib.calibrate_entropy``, which answers as MXNet 1.9.1 does."""

from __future__ import annotations

import numpy as np
import pytest

import requant.mx as mx
from requant.errors import CalibrationError


def test_threshold_and_divergence() -> None:
    """Recorded: numpy.random.RandomState(0), 20,000 standard normal numbers, 2,001 bins of -4.5..4.5."""
    counts, edges = np.histogram(np.random.RandomState(0).randn(20000), bins=2001, range=(-4.5, 4.5))
    for quantized_bins, threshold, divergence in RECORDED:
        found = mx.nd.contrib.calibrate_entropy(
            mx.nd.array(counts), mx.nd.array(edges), num_quantized_bins=quantized_bins
        )
        assert [f.shape for f in found] == [(1,), (1,)] and found[0].dtype == np.float32
        assert found[0].asscalar() == np.float32(threshold)
        assert found[1].asscalar() == pytest.approx(divergence, rel=1e-3)


def test_a_histogram_without_windows_that_fit() -> None:
    counts, edges = np.zeros(11), np.linspace(-1, 1, 12)
    found = mx.nd.contrib.calibrate_entropy(mx.nd.array(counts), mx.nd.array(edges), num_quantized_bins=7)
    assert found[1].asscalar() == np.finfo(np.float32).max


def test_a_histogram_must_be_symmetric() -> None:
    with pytest.raises(CalibrationError):
        mx.nd.contrib.calibrate_entropy(mx.nd.array(np.ones(10)), mx.nd.array(np.ones(11)))


RECORDED = [
    (255, 3.4115443229675293, 0.022485453635454178),
    (511, 3.748875617980957, 0.01752154901623726),
]
