"""From observed batches to a verified INT8 model, step by step, so that a serving process keeps its breath."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.machine import usable_cores
from requant.engines.tensors import TensorSpec, bind
from requant.errors import CalibrationError, QuantizationError, RequantError, counted
from requant.formats.dataset import Arrays, Batch
from requant.passes import optimize
from requant.pipeline import verify
from requant.pipeline.calibrate import Observer, ranges
from requant.pipeline.compiled import Compiled
from requant.pipeline.model import Model
from requant.pipeline.quantization import QuantizedModel, quantize
from requant.pipeline.tables import complete
from requant.pipeline.timing import by_turns
from requant.quant.apply import apply
from requant.quant.bias import mean_axes
from requant.quant.fingerprint import fingerprint
from requant.quant.plan import Plan
from requant.quant.plan import from_json as plan_from_json
from requant.quant.planner import plan
from requant.quant.table import CalibrationTable
from requant.report import Report, Speed

if TYPE_CHECKING:
    from requant.pipeline.live import Live

log = logging.getLogger(__name__)

#: Samples of a batch that are observed at once.
_PIECE = 16
#: Every fourth batch is what ``auto`` judges candidate ranges by: what is asked of a service drifts with time.
_APART = 4
#: Sessions for observing that are kept, one for each shape that came.
_SESSIONS = 4
#: Where a table keeps what verification found.
_METADATA = "requant.live"
#: Where it keeps the plan that mode ``measured`` found.
_PLAN = "requant.live.plan"

Pause = Callable[[float], None]


class NotGoodEnough(QuantizationError):
    """The INT8 model is right, but misses a bound; ``report`` has the figures."""

    def __init__(self, what: str, report: Report) -> None:
        self.report = report
        super().__init__(what, next="lower the bound, exclude the weakest layers, or keep the float model")


@dataclass(frozen=True)
class Made:
    """A verified INT8 model, ready to serve."""

    compiled: Compiled
    quantized: QuantizedModel
    report: Report


class Builder:
    """Observes batches of one model, and makes its INT8 form.

    Args:
        floating: the float model, compiled.
        live: how it becomes INT8.
        cache_size: sessions that the INT8 model may keep.
    """

    def __init__(self, floating: Compiled, live: Live, cache_size: int) -> None:
        self.floating, self.live, self.cache_size = floating, live, cache_size
        self.engine = engines.get(floating.engine)
        self.threads = live.threads or max(1, usable_cores() // 4)
        self.seconds: dict[str, float] = {}
        self.kept: deque[Batch] = deque(maxlen=live.keep)
        self._graph: ir.Model | None = None
        self._source: ir.Model | None = None
        self._plan: Plan | None = None
        self._fingerprint = ""
        self._inputs: tuple[TensorSpec, ...] = ()
        self._observer: Observer | None = None
        self._samples = 0

    # -- the graph ---------------------------------------------------------------------------------------------------

    def _planned(self, shapes: Mapping[str, Sequence[int | None]]) -> tuple[ir.Model, Plan]:
        """The optimized float graph, and what of it becomes INT8; made once."""
        if self._graph is None or self._plan is None:
            with self._timed("prepare"):
                fixed = {n: [d for d in s if d is not None] for n, s in shapes.items()}
                known = all(len(fixed[n]) == len(s) for n, s in shapes.items())
                source = self.floating.model.onnx_for(fixed) if known else self.floating.model.onnx
                graph = optimize(source)
                self._source = source
                self._plan = plan(
                    graph,
                    "best" if self.live.mode == "measured" else self.live.mode,
                    self.engine.scheme,
                    exclude=self.live.exclude,
                    exclude_ops=self.live.exclude_ops,
                )
                self._fingerprint = fingerprint(graph)
                self._inputs, _ = bind(graph, None, self.engine.name)
                self._graph = graph
        return self._graph, self._plan

    def takes(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether the graph that was quantized takes inputs of these shapes.

        One that was lowered for the sizes of the first batch may not: the float model then has another graph for these.
        """
        return all(s.accepts(shapes[s.name]) for s in self._inputs if s.name in shapes)

    def belongs(self, table: CalibrationTable, shapes: Mapping[str, Sequence[int | None]]) -> bool:
        """Whether a table is of this model."""
        self._planned(shapes)
        return not table.model or table.model == self._fingerprint

    # -- observing ---------------------------------------------------------------------------------------------------

    def observe(self, batch: Batch, number: int) -> CalibrationError | None:
        """Count one batch.

        Args:
            batch: arrays by input name.
            number: how many were counted before.
        Returns:
            Why it could not be: NaN or Inf in a tensor, which the message names. Nothing of it was counted then, but
            for the pieces of a large batch before the one at fault.
        """
        observer = self._observing(batch)
        apart = self.live.calibrator == "auto" and number % _APART == _APART - 1
        try:
            with self._timed("observe"):
                for piece in self._pieces(batch, observer):
                    observer.observe(piece, self._samples, apart)
                    self._samples += len(next(iter(piece.values())))
        except CalibrationError as fault:
            return fault
        while len(observer.sessions) > _SESSIONS:
            observer.sessions.pop(next(iter(observer.sessions))).close()
        self.kept.append(batch)
        return None

    def _observing(self, batch: Batch) -> Observer:
        if self._observer is None:
            graph, made = self._planned({n: a.shape for n, a in batch.items()})
            tensors = made.observed
            if self.live.mode == "measured":  # in a mixture any of them may need a range of its own
                tensors = tuple(dict.fromkeys((*tensors, *(t.name for t in made.tensors))))
            table = CalibrationTable(tensors, self.live.calibrator, model=self._fingerprint, options=self.live.options)
            self._observer = Observer(
                graph,
                tensors,
                table,
                self.engine,
                "error",
                self.threads,
                mean_axes(graph, made),
                EngineOptions(threads=self.threads, split=False),
            )
        return self._observer

    def _pieces(self, batch: Batch, observer: Observer) -> Iterator[Batch]:
        """Parts small enough for the observed tensors to stay within bounds; statistics do not depend on the cuts."""
        lengths = {len(a) if a.ndim else 0 for a in batch.values()}
        opened = all(s.shape and not isinstance(s.shape[0], int) for s in self._inputs)
        count = lengths.pop()
        if lengths or not opened or count < 2:
            yield batch
            return
        size = observer.batch_size(Arrays(batch), _PIECE)
        for start in range(0, count, size):
            yield {n: a[start : start + size] for n, a in batch.items()}

    def forget(self) -> None:
        """Free what only the way to INT8 needed."""
        if self._observer is not None:
            for session in self._observer.sessions.values():
                session.close()
        self._observer = None
        self.kept.clear()

    # -- building ----------------------------------------------------------------------------------------------------

    def from_table(self, table: CalibrationTable, shapes: Mapping[str, tuple[int | None, ...]]) -> Made:
        """The INT8 model that a table makes. It is not verified again: the table was written after verification.

        Raises:
            CalibrationError: the table lacks tensors, or statistics that the calibrator needs.
            EngineError: the engine refuses the INT8 model.
        """
        graph, made = self._planned(shapes)
        if self.live.mode == "measured":
            if _PLAN not in table.metadata:
                raise CalibrationError("the calibration table has no measured plan", next="it is measured anew")
            made = self._plan = plan_from_json(table.metadata[_PLAN])
        quantized = self._apply(complete(table, graph, made, "the live table"))
        compiled = self._compile(quantized)
        compiled.prepare(shapes)
        found = _stored(table.metadata.get(_METADATA))
        quantized.report = self._report(quantized, *found, ("from a calibration table: verified when it was written",))
        return Made(compiled, quantized, quantized.report)

    def build(self, shapes: Sequence[Mapping[str, tuple[int, ...]]], pause: Pause, notes: tuple[str, ...]) -> Made:
        """The INT8 model of what was observed, with sessions for the shapes that came, and verified.

        Args:
            shapes: input shapes, oldest first.
            pause: called between steps with the seconds that the last one took.
            notes: for the report.
        Raises:
            NotGoodEnough: a bound is missed. QuantizationError: nothing becomes INT8.
            EngineError: the engine refuses the INT8 model.
        """
        assert self._observer is not None and self._plan is not None
        table = self._observer.table
        with self._timed("ranges"):
            for tensor in self._plan.observed:  # one by one: the table remembers them, and requests get their turn
                start = time.perf_counter()
                if table.entry(tensor).statistic.count:
                    table.range(tensor, scheme=self._plan.scheme)
                pause(time.perf_counter() - start)
        quantized = self._search(table) if self.live.mode == "measured" else self._apply(table)
        pause(self.seconds.get("apply", 0.0))
        compiled = self._compile(quantized)
        with self._timed("load"):
            for shape in list(shapes)[-self.cache_size :]:
                if self.takes(shape):
                    compiled.prepare(shape)
        pause(self.seconds["load"])
        with self._timed("verify"):
            accuracy, speed = self._measure(compiled, quantized)
        report = self._report(quantized, accuracy, speed, notes, self._executed(quantized))
        self._judge(report)
        table.metadata[_METADATA] = report.to_json()
        quantized.report = report
        return Made(compiled, quantized, report)

    def _apply(self, table: CalibrationTable) -> QuantizedModel:
        assert self._graph is not None and self._plan is not None
        with self._timed("apply"):
            found = ranges(table, self._plan, self.live.calibrator)
            int8 = apply(self._graph, self._plan, found, means=table.means())
        return QuantizedModel(int8, source=self.floating.model.source, plan=self._plan, table=table, report=None)

    def _search(self, table: CalibrationTable) -> QuantizedModel:
        """The mixture of INT8 and float that is measured as fastest, judged by the kept batches.

        Raises:
            QuantizationError: that is the model all in float.
        """
        assert self._source is not None
        with self._timed("search"):
            found = quantize(
                Model.from_onnx(self._source, source=self.floating.model.source),
                table=table,
                held_out=list(self.kept),
                mode="measured",
                budget=self.live.budget,
                calibrator=self.live.calibrator,
                engine=self.engine.name,
                exclude=self.live.exclude,
                exclude_ops=self.live.exclude_ops,
                min_sqnr=self.live.min_sqnr,
                batches=(len(next(iter(self.kept[-1].values()))),),
            )
        if found.plan.count("int8") == 0:
            raise QuantizationError("all in float was measured as fastest within the bound")
        self._plan = found.plan
        table.metadata[_PLAN] = found.plan.to_json()
        return found

    def _compile(self, int8: QuantizedModel) -> Compiled:
        """As the float model is compiled, with the same options."""
        like = self.floating
        return Compiled(int8, like.engine, like.options, dynamic=like.dynamic, cache_size=self.cache_size)

    def _measure(self, compiled: Compiled, int8: QuantizedModel) -> tuple[verify.Accuracy, tuple[Speed, ...]]:
        """Both models on the kept batches, in the sessions that serve."""
        pair = verify.Pair(self.floating.model.onnx_for(_shapes(self.kept[-1])), int8.onnx, self.engine.name)
        for batch in self.kept:
            shapes = _shapes(batch)
            pair.sessions[tuple(shapes.items())] = (self.floating._session(shapes), compiled._session(shapes))
        accuracy = verify.compare(pair, self.kept)
        feeds = self.kept[-1]
        first, second = pair.on(feeds)
        calls = {"float": lambda: first.run(feeds), "int8": lambda: second.run(feeds)}
        times = by_turns(calls, verify.SECONDS / 2, least=9)
        speed = Speed(
            batch=len(next(iter(feeds.values()))),
            float_ms=1e3 * float(np.median(times["float"])),
            int8_ms=1e3 * float(np.median(times["int8"])),
            speedup=float(np.median(times["float"] / times["int8"])),
        )
        return accuracy, (speed,)

    def _executed(self, int8: QuantizedModel) -> dict[str, int]:
        """Layers as the engine runs them on one sample; nothing where the graph takes no single sample."""
        sample = {n: a[:1] for n, a in self.kept[-1].items()}
        try:
            return verify.executed(int8.onnx, self.engine.name, sample) if self.takes(_shapes(sample)) else {}
        except RequantError as fault:  # it is for the report alone
            log.info("what the engine executed as INT8 cannot be told: %s", fault)
            return {}

    def _judge(self, report: Report) -> None:
        bounds = self.live
        if bounds.min_sqnr is not None and report.sqnr < bounds.min_sqnr:
            worst = min(report.outputs, key=lambda n: report.outputs[n])
            raise NotGoodEnough(
                f"output {worst!r} has {report.sqnr:.1f} dB of signal to noise on the last "
                f"{counted(len(self.kept), 'batch', 'batches')}, "
                f"and {bounds.min_sqnr:g} dB are wanted",
                report,
            )
        for speed in report.speed:
            if bounds.min_speedup is not None and speed.speedup < bounds.min_speedup:
                raise NotGoodEnough(
                    f"INT8 is {speed.speedup:.2f} times as fast as float ({speed.int8_ms:.3g} ms, float "
                    f"{speed.float_ms:.3g} ms), and {bounds.min_speedup:g} is wanted",
                    report,
                )

    def _report(
        self,
        int8: QuantizedModel,
        accuracy: verify.Accuracy,
        speed: tuple[Speed, ...],
        notes: tuple[str, ...],
        executed: Mapping[str, int] | None = None,
    ) -> Report:
        assert self._graph is not None
        decisions = Counter(d.chosen for d in int8.plan.decisions)
        return Report(
            source=int8.source,
            engine=self.engine.name,
            mode=int8.plan.mode,
            calibrator=self.live.calibrator,
            samples=int8.table.samples + int8.table.held_out_samples,
            held_out=sum(len(next(iter(b.values()))) for b in self.kept),
            decisions={str(k): decisions.get(k, 0) for k in ("int8", "through", "fused", "float")},
            reasons=dict(Counter(d.why for d in int8.plan.decisions if d.chosen == "float").most_common()),
            executed=executed or {},
            outputs=accuracy.outputs,
            layers=(),
            agreement=accuracy.agreement,
            metric=None,
            speed=speed,
            float_bytes=_bytes(self._graph),
            int8_bytes=_bytes(int8.onnx),
            seconds={k: round(v, 3) for k, v in self.seconds.items()},
            notes=notes,
        )

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def _shapes(batch: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
    return {n: a.shape for n, a in batch.items()}


def _bytes(model: ir.Model) -> int:
    """Bytes of the parameters."""
    tensors = (v.const_value for v in model.graph.initializers.values())
    return sum(int(t.nbytes) for t in tensors if t is not None)


def _stored(text: str | None) -> tuple[verify.Accuracy, tuple[Speed, ...]]:
    """What verification found when a table was written; nothing, where the table does not say."""
    try:
        found = json.loads(text or "{}")
        outputs = {str(n): float("inf") if v is None else float(v) for n, v in found.get("outputs", {}).items()}
        agreement = found.get("agreement")
        speed = tuple(Speed(**s) for s in found.get("speed", ()))
        return verify.Accuracy(outputs, None if agreement is None else float(agreement)), speed
    except (ValueError, TypeError, AttributeError):
        return verify.Accuracy({}, None), ()
