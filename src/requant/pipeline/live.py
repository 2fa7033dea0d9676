"""A compiled model that serves in float, calibrates on what it is asked, and becomes INT8 while it serves."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from requant.engines.base import EngineOptions
from requant.engines.session import Session
from requant.errors import QuantizationError, nearest
from requant.pipeline.compiled import Compiled
from requant.pipeline.feeds import Data
from requant.pipeline.life import Life, State
from requant.pipeline.model import Model
from requant.quant.calibrators import calibrator as calibrator_of
from requant.quant.plan import MEASURED, MODES, Mode
from requant.report import Report

if TYPE_CHECKING:
    from requant.pipeline.quantization import QuantizedModel

#: Bytes of batches that may wait for the background, if nothing else is said.
MEMORY = 64 * 2**20
#: Seconds that mode ``measured`` searches: less than offline, since requests share the machine with it.
BUDGET = 20.0
_MODES = (*MODES, MEASURED)


@dataclass(frozen=True)
class Live:
    """How a serving model becomes INT8: ``model.compile(int8=Live(iters=500, table="net.calib.json"))``.

    Args:
        iters: batches to calibrate on. Only batches that were observed count: one that came while the queue was full,
            or that made NaN, is answered like any other and not counted.
        table: path of a calibration table. If it is there and of this model, the model is INT8 at its first call, with
            no batch observed; else it is written when the INT8 model is ready.
        calibrator, options: as in ``requant.quantize``.
        mode, exclude, exclude_ops: what becomes INT8, as in ``requant.quantize``. With ``measured`` the background
            tries mixtures of INT8 and float for ``budget`` seconds, beside the requests.
        budget: seconds of that search.
        min_sqnr: least signal to noise of the worst output, in decibel, that the INT8 model must reach on the kept
            batches; None asks for nothing.
        min_speedup: how many times as fast as float it must be, measured by turns; None asks for nothing.
        keep: how many of the last batches are kept, to verify on.
        memory: bytes of batches that may wait to be observed.
        threads: CPU threads of the background; a quarter of those usable (at least one) by default.
        on_ready: called with the report, in the background, when the INT8 model serves.
        backend: what the log calls the engine; its own name by default.
    Raises:
        QuantizationError: a value out of range. CalibrationError: an unknown calibrator.
    """

    iters: int
    table: str | os.PathLike[str] | None = None
    calibrator: str = "auto"
    options: Mapping[str, float] | None = None
    mode: Mode = "best"
    exclude: Iterable[str] = ()
    exclude_ops: Iterable[str] = ()
    budget: float = BUDGET
    min_sqnr: float | None = 15.0
    min_speedup: float | None = 1.0
    keep: int = 4
    memory: int = MEMORY
    threads: int | None = None
    on_ready: Callable[[Report], object] | None = None
    backend: str | None = None

    def __post_init__(self) -> None:
        for name in ("exclude", "exclude_ops"):
            given = getattr(self, name)
            object.__setattr__(self, name, (given,) if isinstance(given, str) else tuple(given))
        for name in ("iters", "keep", "memory", *(("threads",) if self.threads is not None else ())):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise QuantizationError(
                    "out of range", where=f"Live({name}=...)", got=repr(value), expected="a whole number, 1 or more"
                )
        if self.mode not in _MODES:
            raise QuantizationError(
                "unknown mode",
                where="Live(mode=...)",
                got=self.mode,
                expected=", ".join(_MODES),
                next=nearest(self.mode, _MODES),
            )
        if self.on_ready is not None and not callable(self.on_ready):
            raise QuantizationError(
                "not a function",
                where="Live(on_ready=...)",
                got=type(self.on_ready).__name__,
                next="pass the function itself, or leave it out",
            )
        calibrator_of(self.calibrator)


class LiveCompiled(Compiled):
    """A model on an engine that turns itself from float into INT8. Safe to share between threads.

    It answers in float from the first call, to the bit as the float model does, and copies what it is asked for a
    background thread, which observes, builds and verifies the INT8 model and puts it in place between two calls. What
    goes wrong there never reaches a caller: the model then stays in float, and ``state`` and the log say why.

    Made by ``Model.compile(int8=Live(...))``.
    """

    def __init__(
        self, model: Model, engine: str, options: EngineOptions, *, dynamic: bool, cache_size: int, live: Live
    ) -> None:
        super().__init__(model, engine, options, dynamic=dynamic, cache_size=cache_size)
        floating = Compiled(model, engine, options, dynamic=dynamic, cache_size=cache_size)
        self.live = live
        self._life = Life(floating, live, cache_size)
        # The background knows the life alone, so a model that nobody holds any more ends its own background.
        weakref.finalize(self, self._life.stop)

    # -- what has become of it ---------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Where it is: float, calibrating, building, int8, or kept float (with the reason)."""
        return self._life.state

    @property
    def report(self) -> Report | None:
        """What verification found, beside the float model; None until then."""
        return self._life.report

    @property
    def quantized(self) -> QuantizedModel | None:
        """The INT8 model that serves, with its plan and table, to be saved for instance; None until then."""
        return self._life.quantized

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is decided: INT8, or kept float.

        Args:
            timeout: seconds to wait at most; None waits as long as it takes. Batches must come meanwhile.
        Returns:
            Whether it is decided.
        """
        return self._life.settled.wait(timeout)

    # -- running -----------------------------------------------------------------------------------------------------

    def prepare(self, shapes: Mapping[str, Sequence[int | None]]) -> Session:
        """Build the session for these shapes now: in INT8, if there is a fitting table."""
        fixed = {n: tuple(s) for n, s in shapes.items()}
        return self._life.begin(fixed).prepare(fixed)

    def _session(self, shapes: Mapping[str, tuple[int, ...]]) -> Session:
        return self._life.serving(shapes)._session(shapes)

    def run(self, data: Data | None = None, /, **named: Any) -> list[np.ndarray]:
        """Run once. Returns the outputs, in order.

        Raises:
            InputError: names, dtypes or ranks do not fit; the message lists the true inputs.
        """
        session, feeds = self._ready(data, named)
        outputs = session.run(feeds)
        if self._life.open:
            self._life.offer(feeds)
        return outputs

    __call__ = run

    def submit(self, data: Data | None = None, /, **named: Any) -> Future[list[np.ndarray]]:
        """Start a run and return at once."""
        session, feeds = self._ready(data, named)
        future = session.submit(feeds)
        if self._life.open:
            self._life.offer(feeds)
        return future

    def _next(self, source: Iterator[Data]) -> dict[str, np.ndarray] | None:
        feeds = super()._next(source)
        if feeds is not None and self._life.open:
            self._life.offer(feeds)
        return feeds

    def close(self) -> None:
        """Free the engine's memory, and end the background."""
        self._life.stop()
        self._life.clear()

    def __repr__(self) -> str:
        return f"<requant.LiveCompiled {self.model.source} on {self.engine}: {self.state}>"
