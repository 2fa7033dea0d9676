"""The entropy threshold search: MXNet's recorded thresholds, its definition written out, and hostile histograms."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from entropy_cases import Case, bins_of, cases, checksum
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.errors import CalibrationError
from requant.quant.kl_threshold import find_threshold

HERE = Path(__file__).parent
RECORDED = {row["name"]: row for row in json.loads((HERE / "entropy_thresholds.json").read_text("utf-8"))["cases"]}
REFERENCE = HERE.parents[2] / "shared" / "oracle" / "mxnet_int8_ref.py"


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_thresholds_are_mxnets(case: Case) -> None:
    counts, edges = case.make()
    row = RECORDED[case.name]
    assert checksum(counts) == row["checksum"], "this platform's generator differs from the recorder's"
    found = find_threshold(counts, edges, case.quantized_bins)
    assert found.value == row["threshold"]
    if row["divergence"] < 1e38:
        assert found.divergence == pytest.approx(row["divergence"], rel=2e-6, abs=1e-9)
    else:
        assert found.divergence == np.inf


def test_enough_thresholds_are_recorded() -> None:
    assert len(RECORDED) >= 30 and set(RECORDED) == {case.name for case in cases()}


def written_out(counts: np.ndarray, edges: np.ndarray, quantized_bins: int) -> tuple[np.ndarray, np.ndarray]:
    """The definition, bin by bin in float64: thresholds and divergences of all candidates."""
    hist = counts.astype(np.float64)
    middle, eps = len(hist) // 2, float(np.float32(1e-4))
    thresholds, divergences = [], []
    for i in range(quantized_bins // 2, middle + 1):
        a, b = middle - i, middle + i + 1
        s = hist[a:b].copy()
        s[0] = 0
        p = hist[a:b].copy()
        p[0], p[-1] = hist[: a + 1].sum(), hist[b - 1 :].sum()
        width = (b - a) // quantized_bins
        q = np.zeros(b - a)
        for j in range(quantized_bins):
            window = slice(j * width, (j + 1) * width if j < quantized_bins - 1 else b - a)
            occupied = np.count_nonzero(s[window])
            if occupied:
                q[window] = np.where(p[window] != 0, s[window].sum() / occupied, 0)
        smooth = []
        for d in (p, q):
            zeros, nonzeros = np.count_nonzero(d == 0), np.count_nonzero(d)
            if nonzeros and eps * zeros / nonzeros < 1:
                smooth.append(np.where(d == 0, eps, d - eps * zeros / nonzeros))
        thresholds.append(edges[b])
        if len(smooth) == 2:
            p, q = (d / d.sum() for d in smooth)
            divergences.append(float((p * np.log(p / q)).sum()))
        else:
            divergences.append(np.inf)
    return np.array(thresholds), np.array(divergences)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([31, 101, 401, 2001]),
    st.sampled_from([3, 15, 31]),
    st.sampled_from([0.003, 0.02, 0.3, 1.0]),
    st.sampled_from([1, 10**3, 10**10]),
)
def test_screening_equals_the_definition(seed: int, bins: int, quantized: int, density: float, largest: int) -> None:
    """Prefix sums and the series give the divergence of the definition, also beyond 2^24 counts."""
    r = np.random.RandomState(seed)
    counts = np.where(r.uniform(size=bins) < density, r.randint(0, 5, bins) * r.randint(1, largest + 1, bins), 0)
    counts = counts.astype(np.int64)
    edges = np.linspace(-1, 1, bins + 1)
    thresholds, divergences = written_out(counts, edges, quantized)
    found = find_threshold(counts, edges, quantized, rounding="float64")
    if np.isfinite(divergences).any():
        assert found.divergence == pytest.approx(divergences.min(), rel=1e-5, abs=1e-7)
        at = np.flatnonzero(thresholds.astype(np.float32) == np.float32(found.value))
        assert divergences[at].min() <= divergences.min() + 1e-6 + 1e-5 * abs(divergences.min())
    else:
        assert found == (np.float32(thresholds[0]), np.inf)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([255, 511]), st.integers(0, 4))
def test_no_candidate_is_missed(seed: int, quantized: int, kind: int) -> None:
    """Confirming only what screening leaves gives the same winner as confirming every candidate."""
    from requant.quant.kl_threshold import _Float32Steps

    r = np.random.RandomState(seed)
    n = int(10 ** r.uniform(2, 5.5))
    x = [r.randn(n), r.laplace(size=n), np.maximum(r.randn(n), 0), r.gamma(0.7, size=n), np.round(r.randn(n) * 9)][kind]
    counts, edges = bins_of(x, 1001)
    half = np.arange(quantized // 2, 501, dtype=np.int64)
    steps = _Float32Steps(counts.astype(np.float32), half, quantized)
    every = [steps.divergence(k) for k in range(len(half))]
    best = int(np.argmin(every)) if np.isfinite(every).any() else 0
    assert find_threshold(counts, edges, quantized).value == np.float32(edges[500 + half[best] + 1])


@pytest.mark.shared
@pytest.mark.parametrize("seed", range(2))
def test_equals_the_checked_reference(seed: int) -> None:
    if not REFERENCE.exists():
        pytest.skip("the reference lies beside a development checkout only")
    counts, edges = bins_of(np.random.RandomState(seed).laplace(size=30000), 1001)
    threshold, divergence = _load(REFERENCE).calibrate_entropy(counts, edges, 255)
    found = find_threshold(counts, edges, 255)
    assert found.value == threshold and found.divergence == pytest.approx(divergence, rel=1e-3)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("mxnet_int8_ref", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_misfits_are_refused() -> None:
    edges = np.linspace(-1, 1, 1001)
    with pytest.raises(CalibrationError, match="odd number of bins"):
        find_threshold(np.ones(1000), edges)
    with pytest.raises(CalibrationError, match="at least as many"):
        find_threshold(np.ones(101), np.linspace(-1, 1, 102))
    with pytest.raises(CalibrationError, match="edges do not fit"):
        find_threshold(np.ones(1001), edges)
    with pytest.raises(CalibrationError, match="negative counts"):
        find_threshold(-np.ones(1001), np.linspace(-1, 1, 1002))
