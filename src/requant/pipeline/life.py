"""The life of a model that becomes INT8 while it serves: batches in, one background thread, and a swap.

Requests do two things here: they ask who serves (one attribute), and they hand in a copy of their batch if there is
room for it. Everything else happens in the background thread.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from requant.errors import InputError, RequantError, ShapeError, counted
from requant.formats.dataset import Batch
from requant.pipeline.compiled import Compiled
from requant.pipeline.live_build import Builder, NotGoodEnough
from requant.quant.table import CalibrationTable
from requant.report import Report

if TYPE_CHECKING:
    from requant.pipeline.live import Live
    from requant.pipeline.quantization import QuantizedModel

log = logging.getLogger(__name__)

Phase = Literal["float", "calibrating", "building", "int8", "kept float"]
#: Seconds that the end of the process waits for the background to put down what it holds of the engine.
_FAREWELL = 30.0
#: Seconds after the swap until the float sessions are freed: a request that was told "float" just before must find its
#: session, and not build it anew.
_GRACE = 5.0
_living: weakref.WeakSet[Life] = weakref.WeakSet()


@dataclass(frozen=True)
class State:
    """Where a model is on its way from float to INT8.

    Attributes:
        phase: ``float`` (no batch was observed yet), ``calibrating``, ``building``, ``int8`` or ``kept float``.
        seen, wanted: batches observed, and to observe.
        why: the reason of ``kept float``; where ``int8`` came from.
    """

    phase: Phase
    seen: int = 0
    wanted: int = 0
    why: str = ""

    def __str__(self) -> str:
        if self.phase == "calibrating":
            return f"calibrating {self.seen} of {self.wanted}"
        return f"kept float: {self.why}" if self.phase == "kept float" else self.phase


class _Stopped(Exception):
    """The model was closed."""


class Life:
    """Float model, background and INT8 model of one ``LiveCompiled``.

    Args:
        floating: the float model, compiled.
        live: how it becomes INT8.
        cache_size: sessions that the INT8 model may keep.
    Attributes:
        open: whether batches are taken; requests look at this alone when there is nothing to hand in.
        state, report, quantized: see ``LiveCompiled``.
        settled: set when it is decided, one way or the other.
    """

    def __init__(self, floating: Compiled, live: Live, cache_size: int) -> None:
        self.floating, self.live = floating, live
        self.open = True
        self.state = State("float", 0, live.iters)
        self.report: Report | None = None
        self.quantized: QuantizedModel | None = None
        self.settled = threading.Event()
        self.skipped = self.missed = 0
        self._int8: Compiled | None = None
        self._builder = Builder(floating, live, cache_size)
        self._path = None if live.table is None else os.fspath(live.table)
        self._begun = False
        self._beginning = threading.Lock()
        self._changed = threading.Condition()
        self._queue: deque[tuple[Batch, int]] = deque()
        self._queued = self._taken = 0
        self._shapes: dict[tuple[tuple[str, tuple[int, ...]], ...], None] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    @property
    def backend(self) -> str:
        """What the log calls the engine."""
        return self.live.backend or self.floating.engine

    # -- what requests do --------------------------------------------------------------------------------------------

    def serving(self, shapes: Mapping[str, tuple[int, ...]]) -> Compiled:
        """Who answers a request of these shapes."""
        if not self._begun:
            self.begin(shapes)
        int8 = self._int8
        if int8 is None or not self._builder.takes(shapes):
            return self.floating
        return int8

    def begin(self, shapes: Mapping[str, tuple[int | None, ...]]) -> Compiled:
        """Start from the table, if it is there and fits. Threads that come meanwhile wait: the first answer of a
        model with a table is INT8 already."""
        with self._beginning:
            if not self._begun:
                if self._path is not None:
                    self._from_table(self._path, shapes)
                self._begun = True
        return self._int8 or self.floating

    def offer(self, feeds: Mapping[str, np.ndarray]) -> None:
        """Hand in a batch, which is copied if there is room and need for it. Never raises, never waits for work."""
        try:
            size = sum(a.nbytes for a in feeds.values())
            with self._changed:
                if not self.open or self._taken >= self.live.iters:
                    return
                if self._queued and self._queued + size > self.live.memory:
                    self.missed += 1
                    return
                self._taken += 1
                self._queued += size
                self._shapes[tuple((n, a.shape) for n, a in feeds.items())] = None
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name="requant-live", daemon=True)
                    _living.add(self)
                    self._thread.start()
            copy = {n: np.array(a, order="C") for n, a in feeds.items()}
            with self._changed:
                self._queue.append((copy, size))
                self._changed.notify()
        except Exception as fault:  # no thread, no memory: the request was answered, and that is what counts
            self._give_up(fault)

    def stop(self) -> None:
        """End the background; the state stays what it is."""
        with self._changed:
            self._stopped = True
            self.open = False
            self._queue.clear()
            self._changed.notify_all()
        self.settled.set()

    def clear(self) -> None:
        """Free the engine's memory."""
        self.floating.close()
        if self._int8 is not None:
            self._int8.close()

    def join(self, timeout: float) -> None:
        """Wait until the background has ended."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    # -- the table ---------------------------------------------------------------------------------------------------

    def _from_table(self, path: str, shapes: Mapping[str, tuple[int | None, ...]]) -> None:
        """INT8 at once from a table of this model; with any other table, float and calibration as without one."""
        if not Path(path).exists():
            folder = Path(path).absolute().parent
            if not folder.is_dir():
                log.warning("%s: there is no folder %s, so the calibration table cannot be written", path, folder)
            return
        try:
            table = CalibrationTable.load(path)
        except (RequantError, OSError) as fault:
            log.warning("%s", fault)
            log.warning("%s cannot be read: calibrating on live batches; it is written anew when ready", path)
            return
        try:
            if not self._builder.belongs(table, shapes):
                self._path = None  # somebody else's: it is not ours to overwrite
                log.error(
                    "%s belongs to another model: it is not used and not overwritten; calibrating on live batches, "
                    "whose table is not saved. Give each model a table of its own",
                    path,
                )
                return
            made = self._builder.from_table(table, shapes)
        except (InputError, ShapeError):
            raise  # of a request that does not fit the model; the next one may
        except Exception as fault:
            log.warning("%s", fault)
            log.warning("%s cannot be used: calibrating on live batches; it is written anew when ready", path)
            return
        self._swap(made.compiled, made.quantized, made.report, f"table {path}")

    def _save(self, table: CalibrationTable) -> None:
        if self._path is None:
            return
        try:
            table.save(self._path)
            log.info("calibration table written to %s", self._path)
        except Exception as fault:
            log.error("%s: the calibration table cannot be written (%s); INT8 goes on without it", self._path, fault)

    # -- the background ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            self._observe_all()
            self.state = State("building", self.live.iters, self.live.iters)
            shapes = [dict(key) for key in self._shapes]
            made = self._builder.build(shapes, self._pause, self._notes())
            self._check()
            self._save(made.quantized.table)
            self._swap(
                made.compiled, made.quantized, made.report, counted(self.live.iters, "live batch", "live batches")
            )
            self._rest(_GRACE)
            self.floating.close()  # its memory; whatever still runs keeps its own session
        except _Stopped:
            pass
        except Exception as fault:
            self._give_up(fault)
        finally:
            self._builder.forget()

    def _observe_all(self) -> None:
        seen = 0
        while seen < self.live.iters:
            batch = self._take()
            start = time.perf_counter()
            fault = self._builder.observe(batch, seen)
            if fault is None:
                seen += 1
                self.state = State("calibrating", seen, self.live.iters)
            else:
                self._skip(fault)
            self._pause(time.perf_counter() - start)
        self.open = False
        log.info("%s observed; building INT8 for %s", counted(seen, "batch", "batches"), self.backend)

    def _skip(self, fault: Exception) -> None:
        """A batch that cannot be observed is left out, and another one taken for it."""
        self.skipped += 1
        if self.skipped & (self.skipped - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...: no flood
            log.warning("calibration skips a batch, %d by now: %s", self.skipped, fault)
        with self._changed:
            self._taken -= 1

    def _take(self) -> Batch:
        with self._changed:
            while not self._queue:
                if self._stopped:
                    raise _Stopped
                self._changed.wait()
            batch, size = self._queue.popleft()
            self._queued -= size
        return batch

    def _pause(self, spent: float) -> None:
        """Rest as long as the last step took, so that the background takes at most half of its threads' time."""
        self._check()
        self._rest(min(spent, 1.0))
        self._check()

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, seconds)

    def _check(self) -> None:
        if self._stopped:
            raise _Stopped

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if self.skipped:
            notes.append(f"skipped, for making NaN or Inf: {counted(self.skipped, 'batch', 'batches')}")
        if self.missed:
            notes.append(
                f"not observed, for coming while the queue was full: {counted(self.missed, 'batch', 'batches')}"
            )
        return tuple(notes)

    # -- the end of the way ------------------------------------------------------------------------------------------

    def _swap(self, compiled: Compiled, quantized: QuantizedModel, report: Report, why: str) -> None:
        self.open = False
        self.quantized, self.report = quantized, report
        self._int8 = compiled  # from here on, requests are answered by it; those under way end where they began
        self.state = State("int8", self.state.seen, self.live.iters, why)
        log.info("The executor with %s INT8 engines is ready!", self.backend)
        self.settled.set()
        if self.live.on_ready is not None:
            self._call(self.live.on_ready, report)

    def _call(self, callback: Callable[[Report], Any], report: Report) -> None:
        try:
            callback(report)
        except Exception:
            log.exception("on_ready failed; INT8 goes on")

    def _give_up(self, fault: Exception) -> None:
        """Stay in float for good."""
        self.open = False
        why = str(fault) if isinstance(fault, RequantError) else f"{type(fault).__name__}: {fault}"
        if isinstance(fault, NotGoodEnough):
            self.report, self.quantized = fault.report, None
            why = fault.what
        self.state = State("kept float", self.state.seen, self.live.iters, why)
        with self._changed, contextlib.suppress(Exception):
            self._queue.clear()
        unexpected = not isinstance(fault, RequantError)
        log.error("no INT8 for %s, the float model goes on: %s", self.backend, why, exc_info=unexpected)
        self.settled.set()


@atexit.register
def _farewell() -> None:
    """Native code of an engine must not outlive the interpreter: ask all backgrounds to end, and wait for them."""
    lives = list(_living)
    for life in lives:
        life.stop()
    end = time.monotonic() + _FAREWELL
    for life in lives:
        life.join(max(0.0, end - time.monotonic()))
