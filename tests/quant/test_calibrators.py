"""What each calibrator does in particular."""

from __future__ import annotations

import numpy as np
import pytest

from requant import qmath
from requant.errors import CalibrationError
from requant.quant.calibrator import MXNET
from requant.quant.calibrators import make
from requant.quant.calibrators.auto import AutoCalibrator
from requant.quant.calibrators.entropy import EntropyCalibrator
from requant.quant.forms import activation_params
from requant.quant.histogram import Histogram
from requant.quant.kl_threshold import find_threshold
from requant.quant.range_error import QuantizationNoise
from requant.scheme import Scheme

F32 = np.float32
INT8 = Scheme("int8", unsigned=False)
ASYMMETRIC = Scheme("asymmetric", signed="uint8_asymmetric")


def observed(name: str, x: np.ndarray, **options: float):
    c = make(name, "t", **options)
    c.observe(x)
    return c


def test_naive_is_min_and_max() -> None:
    x = np.random.RandomState(0).randn(1000).astype(F32)
    for scheme in (MXNET, INT8, ASYMMETRIC):
        assert observed("naive", x).range(scheme) == (x.min(), x.max())


def test_entropy_is_the_search_on_its_histogram() -> None:
    x = np.random.RandomState(1).laplace(size=40000).astype(F32)
    c = observed("entropy", x)
    assert isinstance(c, EntropyCalibrator)
    t = find_threshold(*c.bins(255), 255).value
    assert c.range() == (-t, t) == c.range(INT8)
    positive = observed("entropy", np.abs(x))
    t = find_threshold(*positive.bins(511), 511).value
    assert positive.range() == (0, t)
    t = find_threshold(*positive.bins(255), 255).value
    assert positive.range(INT8) == (-t, t)


def test_entropy_is_near_mxnets_own_histogram() -> None:
    """Other bins give another threshold, but not one that matters: within a few per cent."""
    for seed in range(3):
        x = np.random.RandomState(seed).randn(200000).astype(F32)
        t = float(np.abs(x).max())
        counts, edges = np.histogram(x, bins=8001, range=(-t, t))
        ours = observed("entropy", x).range().max
        assert abs(ours / find_threshold(counts, edges).value - 1) < 0.15


def test_entropy_zooms_in_behind_an_outlier() -> None:
    x = np.random.RandomState(2).randn(100000).astype(F32)
    plain = observed("entropy", x).range().max
    assert 0.7 < observed("entropy", np.append(x, F32(4000))).range().max / plain < 1.5
    assert find_threshold(*Histogram.of(np.append(x, F32(4000))).bins(4000.0)).value > 100  # what MXNet would do


def test_percentile() -> None:
    x = np.random.RandomState(3).randn(100000).astype(F32)
    c = observed("percentile", x, percentile=99.0)
    assert c.range().max == pytest.approx(np.quantile(np.abs(x), 0.99), rel=1e-3)
    low, high = c.range(ASYMMETRIC)
    assert (low, high) == pytest.approx((np.quantile(x, 0.005), np.quantile(x, 0.995)), rel=1e-2)
    assert observed("percentile", x, percentile=100).range().max == np.abs(x).max()
    shifted = observed("percentile", x + F32(10), percentile=99.0).range(ASYMMETRIC)
    assert shifted.min == 0.0  # a range must hold zero
    for bad in (0, -1, 101, float("nan"), "99"):
        with pytest.raises(CalibrationError, match="not a percentile"):
            make("percentile", percentile=bad)


def test_percentile_of_a_very_sparse_tensor_is_not_zero() -> None:
    x = np.zeros(10**6, F32)
    x[:20] = 3
    for scheme in (MXNET, INT8, ASYMMETRIC):
        assert observed("percentile", x).range(scheme).max == 3


@pytest.mark.parametrize("scheme", [MXNET, INT8, ASYMMETRIC], ids=lambda s: s.name)
@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_mse_beats_a_fine_grid_of_thresholds(scheme: Scheme, shift: float) -> None:
    x = (np.random.RandomState(4).laplace(size=30000) + shift).astype(F32)
    found = observed("mse", x).range(scheme)

    def error(range_: qmath.Range) -> float:
        return float(np.mean((qmath.fake_quantize(x, activation_params(scheme, range_)).astype(np.float64) - x) ** 2))

    best = min(error(qmath.Range(x.min() * r, x.max() * r)) for r in np.linspace(0.2, 1, 60))
    assert error(found) <= 1.01 * best


def test_noise_is_the_measured_error() -> None:
    x = np.random.RandomState(5).randn(20000).astype(F32)
    for scheme, range_ in ((MXNET, qmath.Range(-3.0, 3.0)), (ASYMMETRIC, qmath.Range(-1.0, 4.0))):
        noise = QuantizationNoise(Histogram.of(x), scheme)
        back = qmath.fake_quantize(x, activation_params(scheme, range_)).astype(np.float64)
        assert noise.error(range_) == pytest.approx(np.mean((back - x) ** 2), rel=0.01)
        assert noise.power == pytest.approx(np.mean(x.astype(np.float64) ** 2), rel=1e-3)


def test_auto_takes_what_does_best_on_held_out_data() -> None:
    r = np.random.RandomState(6)
    c = AutoCalibrator("t")
    c.observe(np.append(r.randn(50000), 300.0).astype(F32))
    assert c.range().absmax > 100  # judged on itself, the outlier weighs too much to be cut off
    c.observe(r.randn(50000).astype(F32), held_out=True)
    assert 3 < c.range().absmax < 6  # the held-out data have no such value
    proposals = c.proposals(MXNET)
    assert {"naive", "entropy", "mse", "percentile 99.99"} <= {p.calibrator for p in proposals}
    assert min(p.error for p in proposals) == next(p.error for p in proposals if p.range == c.range())


def test_auto_prefers_min_max_where_it_is_better_than_entropy() -> None:
    x = np.random.RandomState(7).uniform(-1, 1, 50000).astype(F32)
    c = AutoCalibrator("t")
    c.observe(x)
    errors = {p.calibrator: p.error for p in c.proposals(MXNET)}
    assert errors["naive"] <= errors["entropy"]
    assert c.range().absmax == pytest.approx(1, abs=0.02)
