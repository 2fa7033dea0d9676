"""The life of a live model as a stopwatch sees it: which state it was in, since when, and how long calls took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from requant import engines
from requant.pipeline.live import Live, LiveCompiled
from requant.pipeline.model import Model
from requant.report import Report

#: States in the order of a life.
PHASES = ("float", "calibrating", "building", "int8", "kept float")


@dataclass(frozen=True)
class Stage:
    """One state of a life.

    Attributes:
        phase: the state.
        since: seconds after the start at which the first call met it.
        seconds: time spent in it.
        calls: how many calls began in it.
        median_ms, p99_ms: milliseconds that they took.
    """

    phase: str
    since: float
    seconds: float
    calls: int
    median_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Lived:
    """A whole life: its stages in order, how it ended, and what verification found."""

    stages: tuple[Stage, ...]
    end: str
    report: Report | None


def lived(
    model: Model,
    feeds: Sequence[Mapping[str, np.ndarray]],
    live: Live,
    *,
    engine: str = engines.DEFAULT,
    threads: int | None = None,
    seconds: float = 3.0,
    limit: float = 600.0,
    told: Callable[[str], object] | None = None,
) -> Lived:
    """Run a model from its first call in float until it is decided, and on for a while.

    Args:
        model: the float model.
        feeds: inputs by name, all of the same shapes; asked by turns.
        live: how it becomes INT8.
        engine, threads: as in ``Model.compile``.
        seconds: time spent in float before calibration begins, and after the decision.
        limit: seconds after which an undecided life ends.
        told: called with the state as text, after every call.
    """
    shapes = {n: a.shape for n, a in feeds[0].items()}
    alone = model.compile(engine, threads=threads, shapes=shapes)
    served = model.compile(engine, threads=threads, shapes=shapes, int8=live)
    assert isinstance(served, LiveCompiled)
    alone.run(feeds[0])
    start = time.perf_counter()
    calls: dict[str, list[tuple[float, float]]] = {}
    number, decided = 0, None
    while True:
        before = time.perf_counter() - start
        warming = before < seconds and served.state.phase == "float"
        phase = "float" if warming else served.state.phase
        (alone if warming else served).run(feeds[number % len(feeds)])
        after = time.perf_counter() - start
        calls.setdefault(phase, []).append((before, after - before))
        number += 1
        if told is not None:
            told(str(served.state))
        if decided is None and served.wait(0):
            decided = after
        if after > limit or (decided is not None and after > decided + seconds):
            break
    stages = tuple(_stage(p, calls[p]) for p in PHASES if p in calls)
    found = Lived(stages, str(served.state), served.report)
    served.close()
    return found


def _stage(phase: str, calls: Sequence[tuple[float, float]]) -> Stage:
    spent = np.array([s for _, s in calls])
    first, last = calls[0][0], calls[-1][0] + calls[-1][1]
    return Stage(
        phase,
        first,
        last - first,
        len(calls),
        1e3 * float(np.median(spent)),
        1e3 * float(np.percentile(spent, 99)),
    )
