"""Recipes of the histograms whose entropy thresholds were recorded from MXNet 1.9.1.

Only seeds and sizes are kept, not arrays: numpy's legacy generator (``RandomState``) gives the same numbers in every
release. A checksum of the counts is recorded with each threshold: a platform whose generator differs is noticed.
Runs on Python 3.8 (the recorder's) and later.
"""

from __future__ import annotations

import zlib
from typing import Callable, NamedTuple, Tuple  # noqa: UP035

import numpy as np

Histogram = Tuple[np.ndarray, np.ndarray]  # noqa: UP006


class Case(NamedTuple):
    """One histogram: what makes it, and the number of quantized bins of the search."""

    name: str
    make: Callable[[], Histogram]
    quantized_bins: int


def checksum(counts: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(counts, np.int64).tobytes())


def bins_of(values: np.ndarray, bins: int, limit: float = 0.0) -> Histogram:
    """MXNet's histogram of one batch: ``bins`` bins over (-t, t), t the largest magnitude (0.5 if all is zero)."""
    t = limit or float(np.abs(values).max()) or 0.5
    counts, edges = np.histogram(values, bins=bins, range=(-t, t))
    return counts.astype(np.int64), edges


def grown(batches: list[np.ndarray], bins: int) -> Histogram:
    """Several batches on the lattice of the first one, as MXNet grows it."""
    t = float(np.abs(batches[0]).max())
    step = 2 * t / bins
    extra = 0
    for batch in batches[1:]:
        new = float(np.abs(batch).max())
        if new > t:
            k = int((new - t) // step + 1)
            extra, t = extra + k, t + k * step
    total = bins + 2 * extra
    counts = sum(np.histogram(batch, bins=total, range=(-t, t))[0] for batch in batches)
    return counts.astype(np.int64), np.linspace(-t, t, total + 1)


def _random(seed: int) -> np.random.RandomState:
    return np.random.RandomState(seed)


def _spikes(seed: int, values: list[float], noise: int, bins: int) -> Histogram:
    r = _random(seed)
    x = np.concatenate([r.choice(values, 5000), r.randn(noise)]) if noise else r.choice(values, 5000)
    return bins_of(x, bins, 4.0)


def _with_zeros(values: np.ndarray, zeros: int, bins: int) -> Histogram:
    """The first batch is all zero: its counts belong to the middle bin of the lattice that the next batch defines."""
    counts, edges = bins_of(values, bins)
    counts[bins // 2] += zeros
    return counts, edges


def cases() -> list[Case]:
    out: dict[str, Case] = {}

    def add(name: str, make: Callable[[], Histogram], quantized_bins: int = 255) -> None:
        assert name not in out, name
        out[name] = Case(name, make, quantized_bins)

    for seed in range(4):
        n = [3000, 20000, 100000, 400000][seed]
        add(f"normal {seed}", lambda s=seed, n=n: bins_of(_random(s).randn(n), 8001))
        add(f"laplace {seed}", lambda s=seed, n=n: bins_of(_random(s + 10).laplace(size=n), 8001))
        add(f"relu {seed}", lambda s=seed, n=n: bins_of(np.maximum(_random(s + 20).randn(n), 0), 8001), 511)
        add(f"relu as int8 {seed}", lambda s=seed, n=n: bins_of(np.maximum(_random(s + 30).randn(n), 0), 8001))
    add("relu6", lambda: bins_of(np.clip(_random(40).randn(200000) * 3, 0, 6), 8001), 511)
    add("student t, heavy tails", lambda: bins_of(_random(41).standard_t(3, 100000), 8001))
    add("outlier 1000 times the rest", lambda: bins_of(np.append(_random(42).randn(50000), 4000.0), 8001))
    add("uniform", lambda: bins_of(_random(43).uniform(-1, 1, 100000), 4001))
    add("gamma", lambda: bins_of(_random(44).gamma(0.5, size=100000), 4001), 511)
    add("two normals", lambda: bins_of(_random(45).randn(60000) * _random(46).choice([1, 6], 60000), 8001))
    add("shifted", lambda: bins_of(_random(47).randn(60000) + 2, 8001))
    add("rounded values", lambda: bins_of(np.round(_random(48).randn(30000) * 20), 4001))
    add("spikes", lambda: _spikes(49, [-3, 0, 1, 2.5], 0, 4001))
    add("spikes on noise", lambda: _spikes(50, [-3, 0, 1, 2.5], 20000, 4001))
    add("two spikes", lambda: _spikes(51, [-2.0, 2.0], 0, 2001))
    add("few values", lambda: bins_of(_random(52).randn(40), 2001))
    add("constant", lambda: bins_of(np.full(10000, 0.7), 8001))
    add("constant negative", lambda: bins_of(np.full(10000, -0.7), 8001))
    add("one value", lambda: bins_of(np.array([1e-3]), 2001))
    add("all zero", lambda: bins_of(np.zeros(5000), 8001))
    add("all zero, 511", lambda: bins_of(np.zeros(5000), 8001), 511)
    add("no counts", lambda: (np.zeros(2001, np.int64), np.linspace(-1, 1, 2002)))
    add("first batch zero", lambda: _with_zeros(_random(53).randn(20000), 20000, 8001))
    add("first batch zero, relu", lambda: _with_zeros(np.maximum(_random(54).randn(20000), 0), 20000, 8001), 511)
    add("range below 1e-6", lambda: bins_of(_random(55).randn(50000) * 1e-8, 8001))
    add("large values", lambda: bins_of(_random(56).randn(50000) * 1e20, 8001))
    add("grown", lambda: grown([_random(57).randn(5000) * s for s in (1, 1.4, 0.5, 2)], 8001))
    add(
        "grown relu", lambda: grown([np.maximum(_random(58 + i).randn(9000), 0) * (1 + i) for i in range(3)], 8001), 511
    )
    add("counts beyond 2^24", lambda: _scaled(bins_of(_random(61).randn(60000), 4001), 1000))
    add("counts beyond 2^24, relu", lambda: _scaled(bins_of(np.maximum(_random(62).randn(60000), 0), 4001), 1000), 511)
    add("smallest histogram", lambda: bins_of(_random(63).randn(5000), 255))
    add("511 bins", lambda: bins_of(_random(64).randn(5000), 511))
    add("even quantized bins", lambda: bins_of(_random(65).randn(20000), 2001), 254)
    add("15 quantized bins", lambda: bins_of(_random(66).randn(20000), 1001), 15)
    for i in range(12):
        n, bins, q = 2000 * 3 ** (i % 4), [1001, 4001, 8001][i % 3], [255, 511][i % 2]
        add(f"mixture {i}", lambda s=i, n=n, b=bins: bins_of(_mixture(s, n), b), q)
    return list(out.values())


def _mixture(seed: int, n: int) -> np.ndarray:
    """A random mixture of what activations look like."""
    r = _random(100 + seed)
    kind = r.randint(0, 4, n)
    x = np.where(kind == 0, r.randn(n), np.where(kind == 1, r.laplace(size=n) * 2, r.gamma(1.5, size=n)))
    x = np.where(kind == 3, 0.0, x)
    return np.maximum(x, 0) if seed % 3 else x


def _scaled(histogram: Histogram, factor: int) -> Histogram:
    return histogram[0] * factor, histogram[1]
