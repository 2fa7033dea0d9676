"""Trying int8 models: those that may meet the goals, one after the other; the best is measured and reported."""

from __future__ import annotations

import logging
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines import machine
from requant.engines.base import EngineOptions
from requant.errors import CalibrationError, QuantizationError, counted, shown
from requant.formats import onnx_file
from requant.formats.dataset import Dataset
from requant.pipeline import measured, verify
from requant.pipeline.calibrate import ranges
from requant.pipeline.measurements import Measurements
from requant.pipeline.model import Model
from requant.quant.apply import apply
from requant.quant.derived import derived
from requant.quant.fingerprint import fingerprint
from requant.quant.moments import Moments
from requant.quant.plan import Mode, Plan
from requant.quant.planner import plan
from requant.quant.table import CalibrationTable
from requant.report import Choice, Report

log = logging.getLogger(__name__)

#: What other calibrators are tried, in this order, when a goal is missed; they read the same table.
ALTERNATIVES = ("auto", "mse", "percentile", "naive", "entropy")
#: How many of the worst layers are returned to float, in turn, when calibrators alone do not reach the goal.
RETREATS = (1, 2, 4, 8, 16)
#: Decibel that the outputs may lose in mode ``measured`` where no goal bounds the error, beside those of mode ``best``.
SLACK = 1.0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and math.isfinite(value)


@dataclass(frozen=True)
class Goals:
    """What the int8 model must reach.

    Attributes:
        max_drop: percent points of the metric, or of agreement on the best class, that may be lost.
        min_speedup: how many times faster than float it must be, at the first measured batch size.
        min_sqnr: least signal to noise of the worst output, in decibel.
    """

    max_drop: float | None = None
    min_speedup: float | None = None
    min_sqnr: float | None = None

    def __post_init__(self) -> None:
        for name, least in (("max_drop", 0.0), ("min_speedup", 0.0), ("min_sqnr", -math.inf)):
            given = getattr(self, name)
            if given is not None and not (_is_number(given) and given >= least):
                raise QuantizationError(
                    f"{name} is not a goal",
                    got=repr(given),
                    expected="a finite number" if least < 0 else "a finite number, not below 0",
                    next="leave it out to set no goal",
                )

    def __bool__(self) -> bool:
        return any(g is not None for g in (self.max_drop, self.min_speedup, self.min_sqnr))

    def accuracy_met(self, found: verify.Accuracy) -> bool:
        """Whether the accuracy goals are met."""
        worst = min(found.outputs.values(), default=float("inf"))
        if self.min_sqnr is not None and worst < self.min_sqnr:
            return False
        return self.max_drop is None or verify.drop(found) <= self.max_drop


@dataclass(frozen=True)
class Attempt:
    """One int8 model, its plan and what it reached."""

    model: ir.Model
    plan: Plan
    calibrator: str
    accuracy: verify.Accuracy

    @property
    def rank(self) -> tuple[float, float]:
        found = self.accuracy
        quality = found.metric[1] if found.metric is not None else found.agreement or 0.0
        return quality, min(found.outputs.values(), default=0.0)


class timed:
    """Adds the seconds of a block to a dict."""

    def __init__(self, into: dict[str, float], name: str) -> None:
        self.into, self.name = into, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *fault: object) -> None:
        self.into[self.name] = self.into.get(self.name, 0.0) + time.perf_counter() - self.start


@dataclass(frozen=True)
class Budget:
    """What bounds a search of mode ``measured``."""

    seconds: float
    path: str | os.PathLike[str] | None
    precisions: tuple[measured.Precision, ...]


def budget_of(
    mode: str,
    check: bool,
    budget: float | None,
    path: str | os.PathLike[str] | None,
    precisions: Iterable[measured.Precision],
) -> Budget | None:
    """What mode ``measured`` was told, or None in other modes."""
    precisions = tuple(precisions)
    given = {"budget": budget, "measurements": path, "precisions": precisions or None}
    if mode != "measured":
        for name, value in given.items():
            if value is not None:
                raise QuantizationError(
                    f"{name!r} belongs to mode 'measured'",
                    got=f"mode {mode!r}",
                    next=f"mode='measured' (--mode measured), or leave {name} out",
                )
        return None
    if not check:
        raise QuantizationError("mode 'measured' verifies what it measures", next="leave out check=False")
    seconds = measured.BUDGET if budget is None else budget
    if not (_is_number(seconds) and seconds > 0 and math.isfinite(seconds)):
        raise QuantizationError(
            "the budget must be a positive number of seconds",
            where="quantize: budget",
            got=shown(budget),
            expected="a number above 0",
            next="leave it out to search for a minute",
        )
    Measurements(path, {})  # a file of something else is told before anything is run
    return Budget(seconds, path, precisions)


class Search:
    """Tries int8 models until one meets the accuracy goals, and keeps the best."""

    def __init__(
        self,
        floating: ir.Model,
        first: Plan,
        table: CalibrationTable,
        engine: str,
        judged: Dataset,
        batch: int,
        metric: verify.Metric | None,
        goals: Goals,
        seconds: dict[str, float],
        moments: Mapping[str, Moments] | None = None,
    ) -> None:
        self.moments = moments
        self.floating, self.first, self.table, self.engine = floating, first, table, engine
        self.judged, self.batch, self.metric, self.goals, self.seconds = judged, batch, metric, goals, seconds
        self.reloaded = floating
        self.options = EngineOptions()
        self.choice: Choice | None = None
        self.float_bytes = self.int8_bytes = 0

    def run(self, calibrator: str, choice: tuple[Mode, tuple[str, ...], tuple[str, ...]]) -> Attempt:
        best: Attempt | None = None
        for attempt in self._attempts(calibrator, choice):
            if best is None or attempt.rank > best.rank:
                best = attempt
            if self.goals.accuracy_met(attempt.accuracy):
                return attempt
            log.info("goal missed with %s, %s", attempt.calibrator, counted(attempt.plan.count("int8"), "int8 node"))
        assert best is not None
        return best

    def _attempts(self, calibrator: str, choice: tuple[Mode, tuple[str, ...], tuple[str, ...]]) -> Iterator[Attempt]:
        first = self._attempt(self.first, calibrator)
        yield first
        names = [a for a in ALTERNATIVES if a != calibrator and self._can(a)]
        tried = [first]
        for name in names:
            tried.append(self._attempt(self.first, name))
            yield tried[-1]
        best = max(tried, key=lambda a: a.rank)
        mode, exclude, exclude_ops = choice
        worst = self._weak_nodes(best)
        for count in RETREATS:
            if count > len(worst) or count >= self.first.count("int8"):
                return
            smaller = plan(
                self.floating,
                mode,
                self.first.scheme,
                exclude=(*exclude, *worst[:count]),
                exclude_ops=exclude_ops,
            )
            yield self._attempt(smaller, best.calibrator)

    def _can(self, calibrator: str) -> bool:
        try:
            self.table.range(self.first.observed[0], calibrator, scheme=self.first.scheme)
        except CalibrationError:
            return False  # only minimum and maximum were kept
        return True

    def _weak_nodes(self, attempt: Attempt) -> list[str]:
        """Nodes that read the tensors with the worst signal to noise, worst first."""
        pair = verify.Pair(self.floating, attempt.model, self.engine)
        errors = verify.layers(pair, attempt.plan.observed, self.judged)
        readers: dict[str, list[str]] = {}
        int8 = {d.node for d in attempt.plan.decisions if d.chosen == "int8"}
        for node in self.floating.graph:
            if node.name in int8:
                for value in node.inputs:
                    if value is not None:
                        readers.setdefault(str(value.name), []).append(str(node.name))
        return list(dict.fromkeys(n for e in errors for n in readers.get(e.tensor, [])))

    def _apply(self, chosen: Plan, calibrator: str) -> ir.Model:
        found = ranges(derived(self.table, self.floating.graph, chosen.observed), chosen, calibrator)
        return apply(self.floating, chosen, found, means=self.table.means(), moments=self.moments)

    def _attempt(self, chosen: Plan, calibrator: str) -> Attempt:
        with timed(self.seconds, "apply"):
            int8 = self._apply(chosen, calibrator)
        with timed(self.seconds, "verify"):
            found = verify.accuracy(self._pair(int8), self.judged, self.batch, self.metric)
        return Attempt(int8, chosen, calibrator, found)

    def _pair(self, int8: ir.Model) -> verify.Pair:
        """The pair to judge: the int8 model as it comes back from its file."""
        with tempfile.TemporaryDirectory(prefix="requant-") as folder:
            path = os.path.join(folder, "int8.onnx")
            onnx_file.write(int8, path)
            self.int8_bytes = _bytes_in(folder)
            self.reloaded = onnx_file.read(path)
            for value in self.reloaded.graph.initializers.values():  # the file goes; nothing may point into it
                if isinstance(value.const_value, ir.ExternalTensor):
                    value.const_value = ir.Tensor(value.const_value.numpy().copy(), name=value.name)
        return verify.Pair(self.floating, self.reloaded, self.engine, self.options)

    def measure(
        self,
        base: Attempt,
        choice: tuple[Mode, tuple[str, ...], tuple[str, ...]],
        batch: int,
        budget: Budget,
        notes: list[str],
    ) -> Attempt:
        """The mixture of int8 and float that is measured as fastest, among those that keep the bound of ``base``."""
        rule, exclude, exclude_ops = choice
        left = {d.node for d in self.first.decisions if d.chosen == "int8"}
        left -= {d.node for d in base.plan.decisions if d.chosen == "int8"}
        floor = min(base.accuracy.outputs.values(), default=math.inf) - SLACK
        bounded = self.goals.min_sqnr is not None or self.goals.max_drop is not None

        def make(floats: frozenset[str]) -> tuple[Plan, ir.Model]:
            if not floats:
                return base.plan, base.model
            names = (*exclude, *sorted(left | floats))
            made = plan(self.floating, rule, self.first.scheme, exclude=names, exclude_ops=exclude_ops)
            return made, self._apply(made, base.calibrator)

        def judge(made: Plan, model: ir.Model, precision: measured.Precision) -> tuple[bool, float]:
            found = base.accuracy
            if made != base.plan or precision != "f32":
                pair = verify.Pair(self.floating, model, self.engine, EngineOptions(precision=precision))
                found = verify.accuracy(pair, self.judged, self.batch, self.metric)
            worst = min(found.outputs.values(), default=math.inf)
            return self.goals.accuracy_met(found) if bounded else worst >= floor, worst

        sample = self.judged.samples(0, 1)
        feeds = verify.repeated(sample, batch)
        facts = {
            "model": fingerprint(self.floating),
            "engine": self.engine,
            "version": engines.get(self.engine).available().version,
            "cpu": machine.cpu_name(),
            "instruction sets": sorted(machine.instruction_sets()),
            "cores": machine.usable_cores(),
            "shapes": {n: list(a.shape) for n, a in feeds.items()},
            "int8": [d.node for d in base.plan.decisions if d.chosen == "int8"],
        }
        search = measured.Search(
            self.floating,
            base.plan,
            make,
            judge,
            feeds,
            engine=self.engine,
            figures=Measurements(budget.path, facts),
            budget=budget.seconds,
            precisions=budget.precisions,
        )
        with timed(self.seconds, "search"):
            outcome = search.run()
        self.choice, self.options = outcome.choice, EngineOptions(precision=outcome.precision)
        if outcome.plan.count("int8") == 0:
            notes.append("all in float was measured as fastest within the bound: the result is the float model")
        if outcome.precision != "f32":
            outcome.model.metadata_props["requant.precision"] = outcome.precision
            notes.append(
                f"its float layers were measured in {outcome.precision}: compile(precision={outcome.precision!r})"
            )
        with timed(self.seconds, "verify"):
            found = verify.accuracy(self._pair(outcome.model), self.judged, self.batch, self.metric)
        return Attempt(outcome.model, outcome.plan, base.calibrator, found)

    def report(
        self, best: Attempt, model: Model, table: CalibrationTable, batches: tuple[int, ...], notes: list[str]
    ) -> Report:
        """Measure the chosen model as its file gives it."""
        pair = self._pair(best.model)
        with tempfile.TemporaryDirectory(prefix="requant-") as folder:
            onnx_file.write(self.floating, os.path.join(folder, "float.onnx"))
            self.float_bytes = _bytes_in(folder)
        sample = self.judged.samples(0, 1)
        with timed(self.seconds, "measure"):
            errors = verify.layers(pair, best.plan.observed, self.judged)
            speeds = tuple(verify.speed(pair, sample, b) for b in batches)
            layers = verify.executed(self.reloaded, self.engine, sample, self.options)
        reached, met = self._goals(best, speeds[0].speedup if speeds else None)
        if speeds and min(s.speedup for s in speeds) < 1 and self.choice is None:
            notes.append("INT8 is slower than float here; keep the float model, or leave the choice to mode 'measured'")
        if table.skipped:
            notes.append(f"skipped, for making NaN or Inf: {counted(table.skipped, 'sample')}")
        decisions = Counter(d.chosen for d in best.plan.decisions)
        return Report(
            source=model.source,
            engine=self.engine,
            mode=best.plan.mode,
            calibrator=best.calibrator,
            samples=table.samples + table.held_out_samples,
            held_out=len(self.judged),
            decisions={str(k): decisions.get(k, 0) for k in ("int8", "through", "fused", "float")},
            reasons=dict(
                Counter(measured.reason(d.why) for d in best.plan.decisions if d.chosen == "float").most_common()
            ),
            executed=layers,
            outputs=best.accuracy.outputs,
            layers=errors,
            agreement=best.accuracy.agreement,
            metric=best.accuracy.metric,
            speed=speeds,
            float_bytes=self.float_bytes,
            int8_bytes=self.int8_bytes,
            seconds={k: round(v, 3) for k, v in self.seconds.items()},
            goals=reached,
            met=met,
            notes=tuple(notes),
            choice=self.choice,
        )

    def _goals(self, best: Attempt, speedup: float | None) -> tuple[dict[str, str], bool]:
        goals, found = self.goals, best.accuracy
        reached: dict[str, str] = {}
        oks = []
        if goals.max_drop is not None:
            lost = verify.drop(found)
            oks.append(lost <= goals.max_drop)
            reached["max_drop"] = f"{lost:.3g} points lost, {goals.max_drop:g} allowed: {_word(oks[-1])}"
        if goals.min_sqnr is not None:
            worst = min(found.outputs.values(), default=float("inf"))
            oks.append(worst >= goals.min_sqnr)
            reached["min_sqnr"] = f"{worst:.1f} dB, {goals.min_sqnr:g} wanted: {_word(oks[-1])}"
        if goals.min_speedup is not None and speedup is not None:
            oks.append(speedup >= goals.min_speedup)
            reached["min_speedup"] = f"{speedup:.2f} times, {goals.min_speedup:g} wanted: {_word(oks[-1])}"
        return reached, all(oks)


def _word(ok: bool) -> str:
    return "reached" if ok else "MISSED"


def _bytes_in(folder: str) -> int:
    return sum(p.stat().st_size for p in Path(folder).iterdir())
