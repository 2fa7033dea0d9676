"""Measuring calls by turns: on a machine with neighbours, only what runs side by side can be compared."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

import numpy as np

Call = Callable[[], object]


def by_turns(calls: Mapping[str, Call], seconds: float, least: int = 5, most: int = 100_000) -> dict[str, np.ndarray]:
    """Seconds of each call, all by turns.

    Args:
        calls: what to measure, by name; each is called twice first, to warm up.
        seconds: time to spend on all of them together.
        least, most: rounds to do whatever the time.
    Returns:
        For each name the seconds of every round; the i-th of each stem from the same round.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    names = list(calls)
    orders = random.Random(0)
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < least or (time.perf_counter() < end and rounds < most):
        # Who comes before is worth some percent (caches, clocks): in a fixed cycle always the same one would profit.
        orders.shuffle(names)
        for name in names:
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
        rounds += 1
    return {name: np.array(t) for name, t in times.items()}
