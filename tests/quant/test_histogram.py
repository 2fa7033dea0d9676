"""The calibration histogram: exact counts on a lattice, the same whatever the split and the order of the data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant.errors import CalibrationError
from requant.quant.counting import BODY_BITS, EXTRA_BITS, LOWEST_EXPONENT, OUTLIERS
from requant.quant.histogram import Histogram, MinMax
from requant.quant.nonfinite import NonFiniteError, first_nonfinite

F32 = np.float32


def draw(seed: int, kind: int, size: int) -> np.ndarray:
    r = np.random.RandomState(seed)
    x = [
        lambda: r.randn(size),
        lambda: np.maximum(r.randn(size), 0),
        lambda: np.zeros(size),
        lambda: r.standard_cauchy(size),
        lambda: np.full(size, -0.3),
        lambda: np.where(r.uniform(size=size) < 0.01, -np.abs(r.randn(size)), -0.0),
        lambda: 10.0 ** r.uniform(-45, 34, size),
    ][kind]()
    return (x * 2.0 ** r.randint(-12, 13)).astype(F32)


def same(a: Histogram, b: Histogram) -> bool:
    x, y = a.state(), b.state()
    return all(np.array_equal(x[key], y[key]) for key in x)


parts = st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 6), st.integers(0, 5000)), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(parts, st.randoms(use_true_random=False))
def test_any_split_and_order_give_the_same_histogram(plan, random) -> None:
    arrays = [draw(*p) for p in plan]
    whole = Histogram.of(np.concatenate(arrays))
    pieces = [Histogram.of(a) for a in arrays]  # a tree of merges in random order
    while len(pieces) > 1:
        taken = pieces.pop(random.randrange(len(pieces)))
        pieces[random.randrange(len(pieces))].merge(taken)
    assert same(whole, pieces[0])
    stream = Histogram()
    random.shuffle(arrays)
    for a in arrays:
        for half in np.array_split(a, 2):
            stream.merge(Histogram.of(half, stream))
    assert same(whole, stream)
    assert same(whole, Histogram.from_state(whole.state()))


@settings(max_examples=60, deadline=None)
@given(parts)
def test_cells_are_exact_and_the_exponent_follows_its_rule(plan) -> None:
    x = np.concatenate([draw(*p) for p in plan])
    h = Histogram.of(x)
    magnitude = np.abs(x.astype(np.float64))
    body = math.ldexp(1.0, h.exponent + BODY_BITS)
    assert np.count_nonzero(magnitude >= body) <= OUTLIERS
    assert h.exponent == LOWEST_EXPONENT or np.count_nonzero(magnitude >= body / 2) > OUTLIERS
    keys = np.trunc(np.ldexp(x.astype(np.float64), -h.exponent))
    inside = np.abs(keys) < 2 ** (BODY_BITS + EXTRA_BITS)
    expected, counts = np.unique(keys[inside], return_counts=True)
    occupied = np.flatnonzero(h.cells)
    np.testing.assert_array_equal(h.first + occupied, expected)
    np.testing.assert_array_equal(h.cells[occupied], counts)
    np.testing.assert_array_equal(h.outliers, np.sort(x[~inside]))
    assert (h.count, h.low, h.high) == (x.size, x.min() if x.size else math.inf, x.max() if x.size else -math.inf)


def test_large_arrays_in_chunks_dense_sparse_and_signed() -> None:
    r = np.random.RandomState(0)
    x = r.randn(3 * 65536 + 17).astype(F32)
    x[65536:131072] = np.maximum(x[65536:131072] - 1.5, 0)  # a chunk that is mostly zero
    x[-5] = 1e9
    h = Histogram.of(x)
    keys, counts = np.unique(np.trunc(x[np.abs(x) < 1e8].astype(np.float64) * 2.0**-h.exponent), return_counts=True)
    np.testing.assert_array_equal(np.flatnonzero(h.cells) + h.first, keys)
    np.testing.assert_array_equal(h.cells[h.cells > 0], counts)
    assert h.outliers.tolist() == [F32(1e9)]


def test_counts_beyond_2_to_24_are_exact() -> None:
    one = Histogram.of(np.array([0.5, -0.25, 0.0], F32))
    for _ in range(40):
        one.merge(Histogram.from_state(one.state()))
    assert one.count == 3 * 2**40
    assert one.cells.sum() + len(one.outliers) == 3 * 2**40
    assert sorted(one.cells[one.cells > 0].tolist()) == [2**40] * 3


def test_memory_does_not_depend_on_the_number_of_batches() -> None:
    h = Histogram()
    r = np.random.RandomState(1)
    largest = 0
    for i in range(800):
        h.merge(Histogram.of((r.standard_cauchy(2000) * 2.0 ** (i % 40)).astype(F32), h))
        largest = max(largest, len(h.cells))
    assert largest < 2 ** (BODY_BITS + EXTRA_BITS + 1) and len(h.outliers) <= OUTLIERS
    assert h.count == 800 * 2000


def test_an_outlier_does_not_cost_the_rest_its_resolution() -> None:
    r = np.random.RandomState(2)
    x = r.randn(100000).astype(F32)
    plain, wild = Histogram.of(x), Histogram.of(np.append(x, F32(1e30)))
    assert plain.exponent == wild.exponent and np.array_equal(plain.cells, wild.cells)
    assert wild.high == F32(1e30)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [MinMax, Histogram])
@pytest.mark.parametrize("at", [0, 70000])
def test_nonfinite_values_are_found_and_change_nothing(kind, bad: float, at: int) -> None:
    x = np.random.RandomState(3).randn(100000).astype(F32)
    before = kind.of(x)
    broken = x.copy()
    broken[at] = bad
    with pytest.raises(NonFiniteError) as error:
        kind.of(broken)
    assert error.value.index == at
    assert first_nonfinite(broken.reshape(1000, 100)) == divmod(at, 100)
    after = kind.of(x)
    assert before.state()["count"] == after.state()["count"]
    if kind is Histogram:
        assert same(before, after)  # nothing was left behind in the buffers


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "int64", "bool"])
def test_other_types_are_taken_as_float32(dtype: str) -> None:
    x = np.arange(-3, 4).astype(dtype)
    assert same(Histogram.of(x), Histogram.of(x.astype(F32)))


def test_what_is_not_numeric_is_refused() -> None:
    with pytest.raises(CalibrationError, match="not a tensor of numbers"):
        Histogram.of(np.array(["a"]))
    with pytest.raises(NonFiniteError):
        MinMax.of(np.array([1e300]))  # does not fit float32


def test_strided_arrays_and_negative_zero() -> None:
    x = np.random.RandomState(4).randn(64, 48).astype(F32)
    assert same(Histogram.of(x.T), Histogram.of(x)) and same(Histogram.of(x[::2]), Histogram.of(x[::2].copy()))
    a, b = Histogram.of(np.array([-0.0], F32)), Histogram.of(np.array([0.0], F32))
    assert same(a, b) and math.copysign(1, a.low) == 1


@pytest.mark.parametrize("kind", range(5))
def test_bins_are_uniform_odd_and_hold_everything(kind: int) -> None:
    x = draw(5, kind, 20000)
    h = Histogram.of(x)
    limit = h.range.absmax or 1.0
    counts, edges = h.bins(limit, 8001)
    assert len(counts) % 2 == 1 and counts.sum() == len(x)
    np.testing.assert_allclose(np.diff(edges), edges[-1] * 2 / len(counts), rtol=1e-9)
    np.testing.assert_array_equal(edges, -edges[::-1])
    assert edges[-1] >= limit
    inner = np.abs(x) < edges[-1]
    width = edges[1] - edges[0]
    index = np.trunc((np.trunc(np.abs(x[inner].astype(np.float64)) / (width / 2)) + 1) / 2) * np.sign(x[inner])
    expected = np.bincount((index + len(counts) // 2).astype(int), minlength=len(counts))
    np.testing.assert_array_equal(counts[1:-1], expected[1:-1])
    if kind in (0, 1):
        assert 8001 / 1.5 < len(counts) < 8001 * 1.5


def test_magnitudes_and_points_account_for_all_values() -> None:
    x = draw(6, 3, 30000)
    h = Histogram.of(x)
    for values, counts in (h.magnitudes(), h.points(), h.points(octaves=10)):
        assert counts.sum() == x.size and (np.diff(values) >= 0).all()
    magnitudes, counts = h.magnitudes()
    for share in (0.5, 0.9, 0.999):
        rank = math.ceil(share * x.size)
        exact = np.sort(np.abs(x))[rank - 1]
        found = magnitudes[np.searchsorted(np.cumsum(counts), rank)]
        assert exact <= found <= exact + math.ldexp(1.0, h.exponent)


@pytest.mark.parametrize(
    "change",
    [
        {"count": -1},
        {"count": True},
        {"count": 5},
        {"low": float("nan")},
        {"low": 3.0, "high": 2.0},
        {"exponent": "x"},
        {"exponent": 4000},
        {"first": -(2**40)},
        {"cells": np.array([-1, 5], np.int64)},
        {"cells": np.zeros((2, 2), np.int64)},
        {"outliers": np.zeros(OUTLIERS + 1, F32)},
        {"outliers": np.array([np.nan], F32)},
        {"outliers": np.full(3, 1e30, F32)},
    ],
)
def test_impossible_states_are_refused(change: dict) -> None:
    state = Histogram.of(np.array([1.0, 2.0, -1.0], F32)).state()
    with pytest.raises(CalibrationError):
        Histogram.from_state({**state, **change})
