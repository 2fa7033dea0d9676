"""What calibration costs per value and per tensor, apart from running the model.

Three parts, everything by turns on the same data, fastest of all rounds in CPU time of the thread:

* ``count``: nanoseconds a value, min/max and histogram against ``numpy.histogram`` with MXNet's 8001 bins, on what
  activations look like (behind ReLU, mostly zero, signed);
* ``search``: milliseconds an entropy threshold takes, against the definition evaluated bin by bin, and that both agree;
* ``range``: milliseconds of every calibrator on a statistic that is there.

    python benchmarks/calibrators.py [--values 4194304] [--rounds 10] [--only count]

On two cores of a Sapphire Rapids server that other work kept busy (numpy 2.4), CPU time; idle, all are about half:

    count     min/max 0.5, histogram 3.3-4.1, numpy.histogram 9-10 ns a value
    search    8001 bins, 2 million values: ReLU 13, signed 51, float64 (from 2^24 values on) 6-10, bin by bin 400-500 ms
    range     percentile 0.5-0.8, mse 8-11, entropy 17-95, auto 27-110 ms

A ResNet-50 has 13.7 million observed values an image (71 tensors), 1.76 billion in 128 images.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from requant.quant.calibrators import calibrators, make
from requant.quant.histogram import Histogram, MinMax
from requant.quant.kl_threshold import _Float32Steps, find_threshold

Array = np.ndarray


def activations(size: int) -> dict[str, Array]:
    """Float32 arrays such as calibration meets."""
    r = np.random.RandomState(0)
    normal = r.randn(size).astype(np.float32)
    return {"relu": np.maximum(normal, 0), "mostly zero": np.maximum(normal - 1, 0), "signed": normal}


def fastest(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """CPU seconds of each call: the fastest of some rounds, by turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            best[name] = min(best[name], time.thread_time() - start)
    return best


def count(values: int, rounds: int) -> None:
    """Nanoseconds a value."""
    for kind, x in activations(values).items():
        like = Histogram.of(x)
        limit = float(np.abs(x).max())
        times = fastest(
            {
                "min/max": lambda x=x: MinMax.of(x),
                "histogram": lambda x=x, like=like: Histogram.of(x, like),
                "numpy.histogram": lambda x=x, t=limit: np.histogram(x, bins=8001, range=(-t, t)),
            },
            rounds,
        )
        shown = ", ".join(f"{name} {1e9 * t / values:.2f}" for name, t in times.items())
        print(f"count   {kind:12s} {shown} ns a value")


def _bin_by_bin(counts: Array, edges: Array, quantized_bins: int) -> float:
    """The threshold by evaluating every candidate."""
    half = np.arange(quantized_bins // 2, len(counts) // 2 + 1)
    steps = _Float32Steps(counts.astype(np.float32), half, quantized_bins)
    best = int(np.argmin([steps.divergence(k) for k in range(len(half))]))
    return float(np.float32(edges[len(counts) // 2 + half[best] + 1]))


def search(values: int, rounds: int) -> None:
    """Milliseconds a threshold."""
    for kind, x in activations(min(values, 2_000_000)).items():
        bins = 255 if kind == "signed" else 511
        limit = float(np.abs(x).max())
        counts, edges = np.histogram(x, bins=8001, range=(-limit, limit))
        times = fastest(
            {
                "ours": lambda c=counts, e=edges, b=bins: find_threshold(c, e, b),
                "ours, float64": lambda c=counts, e=edges, b=bins: find_threshold(c, e, b, rounding="float64"),
            },
            rounds,
        )
        times |= fastest({"bin by bin": lambda c=counts, e=edges, b=bins: _bin_by_bin(c, e, b)}, 2)
        assert find_threshold(counts, edges, bins).value == _bin_by_bin(counts, edges, bins)
        print(f"search  {kind:12s} " + ", ".join(f"{name} {1e3 * t:.1f}" for name, t in times.items()) + " ms")


def ranges(values: int, rounds: int) -> None:
    """Milliseconds a range."""
    for kind, x in activations(min(values, 2_000_000)).items():
        seen = Histogram.of(x)
        calls = {name: make(name, kind, statistic=seen).range for name in calibrators()}
        times = fastest(calls, max(2, rounds // 3))
        print(f"range   {kind:12s} " + ", ".join(f"{name} {1e3 * t:.1f}" for name, t in times.items()) + " ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=1 << 22)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--only", choices=["count", "search", "range"])
    given = parser.parse_args()
    for name, part in (("count", count), ("search", search), ("range", ranges)):
        if given.only in (None, name):
            part(given.values, given.rounds)


if __name__ == "__main__":
    main()
