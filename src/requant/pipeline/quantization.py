"""Quantize: plan, calibrate, apply, verify, and keep the best model that meets the goals."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

import requant
from requant import engines
from requant.engines.machine import usable_cores
from requant.errors import CalibrationError, FormatError, QuantizationError
from requant.formats import onnx_file
from requant.formats.dataset import Dataset, from_program
from requant.passes import optimize
from requant.pipeline import verify
from requant.pipeline.calibrate import Progress, calibrate, misfit, ranges
from requant.pipeline.model import Model
from requant.quant.apply import apply
from requant.quant.calibrator import MXNET
from requant.quant.plan import Mode, Plan, plan
from requant.quant.table import CalibrationTable, Policy, fingerprint
from requant.report import Report
from requant.rewrite.to_symbol import Int8Symbol, more_tensors, to_symbol

log = logging.getLogger(__name__)

#: What other calibrators are tried, in this order, when a goal is missed; they read the same table.
ALTERNATIVES = ("auto", "mse", "percentile", "naive", "entropy")
#: How many of the worst layers are returned to float, in turn, when calibrators alone do not reach the goal.
RETREATS = (1, 2, 4, 8, 16)


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

    def __bool__(self) -> bool:
        return any(g is not None for g in (self.max_drop, self.min_speedup, self.min_sqnr))

    def accuracy_met(self, found: verify.Accuracy) -> bool:
        """Whether the accuracy goals are met."""
        worst = min(found.outputs.values(), default=float("inf"))
        if self.min_sqnr is not None and worst < self.min_sqnr:
            return False
        return self.max_drop is None or verify.drop(found) <= self.max_drop


@dataclass(frozen=True)
class _Attempt:
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


class QuantizedModel(Model):
    """An int8 model, with what is known of it.

    Attributes:
        report: accuracy, speed and size beside the float model; None if verification was not asked for.
        plan: a decision, with its reason, for every node.
        table: what calibration saw; quantizing again from it runs no data.
    """

    def __init__(
        self,
        onnx: ir.Model,
        *,
        source: str,
        plan: Plan,
        table: CalibrationTable,
        report: Report | None,
        floating: Model | None = None,
        calibrator: str | None = None,
        tensors: Iterable[str] = (),
    ) -> None:
        super().__init__(onnx=onnx, source=source)
        self.plan, self.table, self.report = plan, table, report
        self._floating, self._calibrator, self._tensors = floating, calibrator, tuple(tensors)

    def to_symbol(self) -> Int8Symbol:
        """The same plan and ranges as an int8 symbol in MXNet's words, with its parameters.

        Raises:
            FormatError: the float model did not come from MXNet.
        """
        floating = self._floating
        if floating is None or floating.symbol is None:
            raise FormatError(
                "only a model that came from MXNet files can be written as MXNet files",
                where=self.source,
                next="give a name that ends in .onnx",
            )
        wanted = [t for t in self._tensors if t in self.table]
        found = self.table.ranges(wanted, self._calibrator, scheme=MXNET, threads=usable_cores())
        return to_symbol(floating.symbol, floating.params, self.plan, found, self._tensors)

    def save(self, path: str | os.PathLike[str], epoch: int = 0) -> list[str]:
        """Write QDQ ONNX (``x.onnx``), or with any other name a prefix for MXNet's int8 symbol and parameters.

        Returns:
            The files written.
        Raises:
            FormatError: MXNet files are asked for, and the float model did not come from MXNet.
        """
        name = os.fspath(path)
        if name.endswith(".onnx"):
            return super().save(name)
        made = self.to_symbol()
        int8 = Model.from_symbol(made.symbol, made.params, source=self.source)
        return int8.save(name, epoch)


def quantize(
    model: Model,
    data: Any = None,
    *,
    mode: Mode = "best",
    calibrator: str = "auto",
    options: Mapping[str, float] | None = None,
    engine: str = "openvino",
    exclude: Iterable[str] = (),
    exclude_ops: Iterable[str] = (),
    samples: int | None = None,
    batch: int = 16,
    table: CalibrationTable | str | os.PathLike[str] | None = None,
    held_out: Any = None,
    metric: verify.Metric | None = None,
    max_drop: float | None = None,
    min_speedup: float | None = None,
    min_sqnr: float | None = None,
    policy: Policy = "error",
    batches: Iterable[int] = (1,),
    check: bool = True,
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> QuantizedModel:
    """Turn a float model into an int8 model.

    Args:
        model: the float model, from MXNet files or ONNX.
        data: calibration samples: an array (N, ...), a dict of arrays, batches, or a ``Dataset``. Not needed if
            ``table`` holds what the plan needs.
        mode: ``best`` (what the engine runs faster), ``smart`` (MXNet's rule) or ``full``.
        calibrator: ``auto`` (picks per tensor by measured error), ``naive``, ``entropy``, ``percentile`` or ``mse``.
        options: the calibrator's own settings.
        engine: the engine to quantize for.
        exclude: nodes to leave in float: names before or after fusion, scopes or globs.
        exclude_ops: operator types to leave in float.
        samples: use at most this many samples.
        batch: samples a run, while calibrating and verifying.
        table: a table, or the path of one: it is used if it exists, else written there.
        held_out: samples to verify on; by default the last fifth of ``data`` (at most 64), which then do not calibrate.
        metric: your own figure of accuracy: gets an iterator of (inputs, outputs) per batch, returns a number.
        max_drop, min_speedup, min_sqnr: goals; see ``Goals``. If one is missed, the report says so (``met``).
        policy: ``error`` or ``skip`` for samples that make NaN or Inf.
        batches: batch sizes at which float and int8 are timed.
        check: verify; without it there is no report, and no goal can be set.
        metadata: notes for the file. Preprocessing in it (``Preprocess.to_json`` under ``METADATA_KEY``) is reused by
            the commands, and data that are far from what it makes are warned of.
        progress: called with (samples done, samples in all) while calibrating.
    Returns:
        The int8 model: standard QDQ ONNX with int8 weights, and its report.
    Raises:
        QuantizationError: nothing would be quantized, an exclude matches nothing, a goal cannot be judged.
        CalibrationError: no data, data that does not fit, NaN or Inf (the message names tensor, node and sample).
    """
    goals = Goals(max_drop, min_speedup, min_sqnr)
    if goals and not check:
        raise QuantizationError("goals cannot be judged without verification", next="leave out check=False")
    seconds: dict[str, float] = {}
    source, judged = _data(model, data, samples, held_out, table)
    scheme = engines.get(engine).scheme
    with _timed(seconds, "prepare"):
        shapes = None if source is None else {n: a.shape for n, a in source.samples(0, 1).items()}
        floating = optimize(model.onnx if shapes is None else model.onnx_for(shapes))
        made = plan(floating, mode, scheme, exclude=exclude, exclude_ops=exclude_ops)
    filled, path = _table(table, floating, made)
    if filled is None:
        if source is None:
            raise CalibrationError("there is no calibration data, and no table", next="pass data, or an existing table")
        with _timed(seconds, "calibrate"):
            filled = calibrate(
                floating,
                made,
                source,
                calibrator=calibrator,
                options=options,
                engine=engine,
                batch=batch,
                policy=policy,
                also=() if model.symbol is None else more_tensors(model.symbol, model.params, made, _tensors(floating)),
                progress=progress,
            )
        if path is not None:
            filled.save(path)
            log.info("calibration table written to %s", path)
    notes = []
    if source is not None and (warning := misfit(source, {**_metadata(model), **(metadata or {})})) is not None:
        log.warning("%s", warning)
        notes.append(warning)
    known: dict[str, Any] = {
        "source": model.source,
        "table": filled,
        "floating": model,
        "tensors": _tensors(floating),
    }
    if not check or judged is None:
        with _timed(seconds, "apply"):
            int8 = apply(floating, made, ranges(filled, made, calibrator), means=filled.means())
        _stamp(int8, metadata)
        return QuantizedModel(int8, plan=made, report=None, calibrator=calibrator, **known)
    search = _Search(floating, made, filled, engine, judged, batch, metric, goals, seconds)
    best = search.run(calibrator, (mode, tuple(exclude), tuple(exclude_ops)))
    _stamp(best.model, metadata)
    report = search.report(best, model, filled, tuple(batches), notes)
    log.info("%s", report)
    return QuantizedModel(search.reloaded, plan=best.plan, report=report, calibrator=best.calibrator, **known)


def _tensors(model: ir.Model) -> list[str]:
    """Names of all tensors of a graph that are fed or computed."""
    return [str(v.name) for v in (*model.graph.inputs, *(o for n in model.graph for o in n.outputs))]


class _timed:
    """Adds the seconds of a block to a dict."""

    def __init__(self, into: dict[str, float], name: str) -> None:
        self.into, self.name = into, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *fault: object) -> None:
        self.into[self.name] = self.into.get(self.name, 0.0) + time.perf_counter() - self.start


def _data(
    model: Model, data: Any, samples: int | None, held_out: Any, table: object
) -> tuple[Dataset | None, Dataset | None]:
    """The calibration data and the held-out data."""
    names = model.input_names
    if data is None and table is None:
        raise CalibrationError("there is no calibration data", expected=f"data for {names}", next="pass data=...")
    source = None if data is None else from_program(data, names, samples)
    if source is not None and samples is not None:
        source = source.part(0, samples)
    if held_out is not None:
        return source, from_program(held_out, names)
    if source is None:
        return None, None
    apart = min(64, len(source) // 5)
    if apart == 0:
        log.warning("only %d samples: the int8 model is verified on the data that calibrated it", len(source))
        return source, source
    return source.split(apart)


def _table(
    given: CalibrationTable | str | os.PathLike[str] | None, model: ir.Model, made: Plan
) -> tuple[CalibrationTable | None, str | None]:
    """A table that may be used instead of data, or the path where a new one goes."""
    if given is None:
        return None, None
    path = None
    if not isinstance(given, CalibrationTable):
        path = os.fspath(given)
        if not Path(path).exists():
            return None, path
        given = CalibrationTable.load(path)
    given.check_model(fingerprint(model))
    missing = [t for t in made.observed if t not in given]
    if missing:
        raise CalibrationError(
            "the calibration table lacks tensors that this plan needs",
            where=path or "table",
            got=", ".join(missing[:4]),
            next="calibrate with mode 'full', whose table serves the other modes and every exclude list, or remove it",
        )
    return given, path


def _metadata(model: Model) -> Mapping[str, str]:
    """What an ONNX file says of itself."""
    return model.onnx.metadata_props if model.symbol is None else {}


def _stamp(model: ir.Model, metadata: Mapping[str, str] | None) -> None:
    model.producer_name, model.producer_version = "requant", requant.__version__
    model.metadata_props.update(metadata or {})


class _Search:
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
    ) -> None:
        self.floating, self.first, self.table, self.engine = floating, first, table, engine
        self.judged, self.batch, self.metric, self.goals, self.seconds = judged, batch, metric, goals, seconds
        self.reloaded = floating
        self.float_bytes = self.int8_bytes = 0

    def run(self, calibrator: str, choice: tuple[Mode, tuple[str, ...], tuple[str, ...]]) -> _Attempt:
        best: _Attempt | None = None
        for attempt in self._attempts(calibrator, choice):
            if best is None or attempt.rank > best.rank:
                best = attempt
            if self.goals.accuracy_met(attempt.accuracy):
                return attempt
            log.info("goal missed with %s, %d int8 nodes", attempt.calibrator, attempt.plan.count("int8"))
        assert best is not None
        return best

    def _attempts(self, calibrator: str, choice: tuple[Mode, tuple[str, ...], tuple[str, ...]]) -> Iterator[_Attempt]:
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

    def _weak_nodes(self, attempt: _Attempt) -> list[str]:
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

    def _attempt(self, chosen: Plan, calibrator: str) -> _Attempt:
        with _timed(self.seconds, "apply"):
            int8 = apply(self.floating, chosen, ranges(self.table, chosen, calibrator), means=self.table.means())
        with _timed(self.seconds, "verify"):
            found = verify.accuracy(self._pair(int8), self.judged, self.batch, self.metric)
        return _Attempt(int8, chosen, calibrator, found)

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
        return verify.Pair(self.floating, self.reloaded, self.engine)

    def report(
        self, best: _Attempt, model: Model, table: CalibrationTable, batches: tuple[int, ...], notes: list[str]
    ) -> Report:
        """Measure the chosen model as its file gives it."""
        pair = self._pair(best.model)
        with tempfile.TemporaryDirectory(prefix="requant-") as folder:
            onnx_file.write(self.floating, os.path.join(folder, "float.onnx"))
            self.float_bytes = _bytes_in(folder)
        sample = self.judged.samples(0, 1)
        with _timed(self.seconds, "measure"):
            errors = verify.layers(pair, best.plan.observed, self.judged)
            speeds = tuple(verify.speed(pair, sample, b) for b in batches)
            layers = verify.executed(self.reloaded, self.engine, sample)
        reached, met = self._goals(best, speeds[0].speedup if speeds else None)
        if speeds and min(s.speedup for s in speeds) < 1:
            notes.append("INT8 is slower than float here; keep the float model, or exclude what profile shows as slow")
        if table.skipped:
            notes.append(f"{table.skipped} samples were skipped: they make NaN or Inf")
        decisions = Counter(d.chosen for d in best.plan.decisions)
        return Report(
            source=model.source,
            engine=self.engine,
            mode=best.plan.mode,
            calibrator=best.calibrator,
            samples=table.samples + table.held_out_samples,
            held_out=len(self.judged),
            decisions={str(k): decisions.get(k, 0) for k in ("int8", "through", "fused", "float")},
            reasons=dict(Counter(d.why for d in best.plan.decisions if d.chosen == "float").most_common()),
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
        )

    def _goals(self, best: _Attempt, speedup: float | None) -> tuple[dict[str, str], bool]:
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
