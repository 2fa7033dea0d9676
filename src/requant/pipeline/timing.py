"""Measuring calls by turns: on a machine with neighbours, only what runs side by side can be compared."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping

import numpy as np

Call = Callable[[], object]


#: Seconds after which the threads of another library, which spin for more work, have gone to sleep.
SETTLE = 0.25


def in_blocks(calls: Mapping[str, Call], seconds: float, blocks: int = 4) -> dict[str, np.ndarray]:
    """Seconds of each call, for calls of different libraries: threads of one go on spinning on the cores of the next.

    So each has the machine for itself for a while, after a rest and two calls that are not counted, in several blocks
    by turns.

    Args:
        calls: what to measure, by name.
        seconds: time that each of them is measured for.
        blocks: how often each has its turn.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(blocks):
        for name, call in calls.items():
            if len(calls) > 1:
                time.sleep(SETTLE)
            call()
            call()
            end = time.perf_counter() + seconds / blocks
            while not times[name] or time.perf_counter() < end:
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    return {name: np.array(t) for name, t in times.items()}


def by_turns(calls: Mapping[str, Call], seconds: float, least: int = 5, most: int = 100_000) -> dict[str, np.ndarray]:
    """Seconds of each call, all by turns; for calls of one library.

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
