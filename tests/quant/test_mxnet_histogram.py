"""MXNet's growing histogram: the numbers MXNet records, and where its faults are mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from requant.errors import CalibrationError
from requant.quant.mxnet_histogram import MXNetHistogram

RECORDED = json.loads(Path(__file__).with_name("mxnet_histograms.json").read_text("utf-8"))


def batches(seed: int, sign: str, scales: list[float]) -> Iterator[np.ndarray]:
    r = np.random.RandomState(seed)
    for scale in scales:
        x = (r.randn(3000) * scale).astype(np.float32)
        yield np.maximum(x, 0) if sign == "relu" else x


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: str(row["case"]))
def test_it_grows_as_mxnet_grows(row: dict) -> None:
    h = MXNetHistogram()
    for x in batches(*row["case"]):
        h.collect(x)
    assert len(h.counts) == row["bins"] and h.threshold == pytest.approx(row["threshold"], rel=1e-6)
    assert h.counts.sum() == 3000 * len(row["case"][2])
    occupied = np.flatnonzero(h.counts)[::50]
    # MXNet counts in float32: a value on the edge of a bin may fall to the other side.
    assert np.abs(occupied[: len(row["occupied"])] - row["occupied"][: len(occupied)]).max() <= 60
    for dtype, threshold in row["thresholds"].items():
        assert h.range(dtype).max == pytest.approx(threshold, rel=2e-3), dtype


def test_first_batch_all_zero_then_not() -> None:
    """MXNet fails with 'cannot convert float infinity to integer'."""
    x = np.random.RandomState(0).randn(3000)
    a, b = MXNetHistogram(), MXNetHistogram()
    a.collect(np.zeros(100))
    a.collect(x)
    b.collect(x)
    assert np.array_equal(a.edges, b.edges)
    b.counts[4000] += 100
    assert np.array_equal(a.counts, b.counts)


def test_all_zero_throughout_is_mxnets_odd_threshold() -> None:
    h = MXNetHistogram()
    h.collect(np.zeros(100))
    h.collect(np.zeros(7))
    assert h.range("auto") == (0, pytest.approx(0.0319, abs=1e-4))


def test_lattices_merge_only_if_they_are_the_same() -> None:
    x = np.random.RandomState(1).randn(4, 2000)
    whole, a, b = MXNetHistogram(), MXNetHistogram(), MXNetHistogram()
    for part in (x[0], x[1], x[2] * 2):
        whole.collect(part)
    a.collect(x[0])
    a.collect(x[1])
    b.collect(x[0])
    b.counts[:] = 0
    b.collect(x[2] * 2)
    a.merge(b)
    assert np.array_equal(a.counts, whole.counts) and a.threshold == whole.threshold and a.high == whole.high
    other = MXNetHistogram()
    other.collect(x[3] * 3)
    with pytest.raises(CalibrationError, match="different widths"):
        a.merge(other)


def test_hostile_batches_change_nothing() -> None:
    h = MXNetHistogram()
    h.collect(np.ones(3))
    for bad, message in (([1.0, np.nan], "NaN or Inf"), ([1e9], "too many bins")):
        with pytest.raises(CalibrationError, match=message):
            h.collect(bad, "conv0_output")
        assert h.counts.sum() == 3 and h.high == 1
    with pytest.raises(CalibrationError, match="no value"):
        MXNetHistogram().range()
    with pytest.raises(CalibrationError, match="must be odd"):
        MXNetHistogram(8000)
