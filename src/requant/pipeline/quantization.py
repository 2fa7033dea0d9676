"""Quantize: plan, calibrate, apply, verify, and keep the best model that meets the goals."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import onnx_ir as ir

import requant
from requant import engines
from requant.engines.machine import usable_cores
from requant.engines.memory import check_arrays
from requant.errors import CalibrationError, FormatError, InputError, QuantizationError, counted, shown
from requant.formats.dataset import Dataset, Picked, nonfinite
from requant.formats.passed import from_program
from requant.formats.target import check_model
from requant.passes import optimize
from requant.pipeline import measured, verify
from requant.pipeline.calibrate import Progress, calibrate, misfit, ranges
from requant.pipeline.compiled import Compiled
from requant.pipeline.given import check_count, check_functions, check_notes, check_table, names_of
from requant.pipeline.model import Model
from requant.pipeline.refine import moments
from requant.pipeline.search import Goals, Search, budget_of, timed
from requant.pipeline.tables import kept
from requant.quant.apply import apply, group_params
from requant.quant.calibrator import MXNET
from requant.quant.equalize import equalized
from requant.quant.plan import Mode, Plan
from requant.quant.planner import plan
from requant.quant.table import CalibrationTable, Policy
from requant.report import Report
from requant.rewrite.layers import layers, with_layers
from requant.rewrite.to_symbol import Int8Symbol, as_mxnet_counts, more_tensors, to_symbol

log = logging.getLogger(__name__)


class QuantizedModel(Model):
    """An int8 model, with what is known of it.

    Attributes:
        report: accuracy, speed and size beside the float model; None if verification was not asked for.
        plan: a decision, with its reason, for every node.
        table: what calibration saw; quantizing again from it runs no data.
        precision: arithmetic of the layers in float: what ``compile`` and ``run`` use unless told otherwise.
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
        equalized: bool = False,
        precision: str = "f32",
    ) -> None:
        super().__init__(onnx=onnx, source=source)
        self.plan, self.table, self.report, self.precision = plan, table, report, precision
        self._floating, self._calibrator, self._tensors = floating, calibrator, tuple(tensors)
        self._equalized = equalized

    def compile(self, engine: str = engines.DEFAULT, *, precision: str | None = None, **options: Any) -> Compiled:
        """As ``Model.compile``; float layers compute in the precision that was measured as fastest."""
        return super().compile(engine, precision=precision or self.precision, **options)

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
        if self._equalized:
            raise FormatError(
                "MXNet files cannot hold an equalized model: its ranges are of other weights",
                where=self.source,
                next="give a name that ends in .onnx, or quantize without equalize",
            )
        wanted = [t for t in self._tensors if t in self.table]
        found = self.table.ranges(wanted, self._calibrator, scheme=MXNET, threads=usable_cores())
        given = ranges(self.table, self.plan, self._calibrator)
        found.update(as_mxnet_counts(group_params(self.plan, given)))
        held = layers(self.onnx, optimize(floating.onnx), self.plan)
        symbol, params = with_layers(floating.symbol, floating.params, held)
        return to_symbol(symbol, params, self.plan, found, self._tensors)

    def save(self, path: str | os.PathLike[str], epoch: int = 0) -> list[str]:
        """Write QDQ ONNX (``x.onnx``), or with any other name a prefix for MXNet's int8 symbol and parameters.

        Returns:
            The files written.
        Raises:
            FormatError: MXNet files are asked for, and the float model did not come from MXNet.
            InputError: nothing can be written under that name, or it is that of another kind of file.
        """
        check_model(path)
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
    engine: str = engines.DEFAULT,
    target: str | None = None,
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
    refine: bool = True,
    equalize: bool = False,
    budget: float | None = None,
    measurements: str | os.PathLike[str] | None = None,
    precisions: Iterable[measured.Precision] = (),
    metadata: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> QuantizedModel:
    """Turn a float model into an int8 model.

    Args:
        model: the float model, from MXNet files or ONNX.
        data: calibration samples: an array (N, ...), a dict of arrays, batches, or a ``Dataset``. Not needed if
            ``table`` holds what the plan needs.
        mode: ``best`` (what the engine runs faster as a rule), ``smart`` (MXNet's rule), ``full``, or ``measured``:
            what the engine measures as faster on this machine, at the first of ``batches``. Where that is all in
            float, the result is the float model.
        calibrator: ``auto`` (picks per tensor by measured error), ``naive``, ``entropy``, ``percentile`` or ``mse``.
        options: the calibrator's own settings.
        engine: the engine to quantize for: it runs calibration and verification.
        target: an engine whose int8 forms the file takes in place of ``engine``'s, such as ``tensorrt`` where no NVIDIA
            device is at hand. Accuracy is then that of the file on ``engine``; its speed says nothing of the target.
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
        refine: look at some calibration samples again, and round each weight by what it meets there. It takes about as
            long as 32 to 256 samples do. Without data (from a table alone) weights are rounded to the nearest integer.
        equalize: bring the channels between two layers to one size first (`requant.quant.equalize`); for networks whose
            channels differ by large factors. The table is then of that form of the model.
        budget: seconds that mode ``measured`` searches; calibration and verification are not counted. 60 by default.
        measurements: a JSON file of mode ``measured``: what it holds of this model, machine and engine is not measured
            again, so that a search goes on where the last one ended.
        precisions: arithmetic that the float layers may use in mode ``measured`` beside float32 (``bf16``, ``f16``).
        metadata: notes for the file. Preprocessing in it (``Preprocess.to_json`` under ``METADATA_KEY``) is reused by
            the commands, and data that are far from what it makes are warned of.
        progress: called with (samples done, samples in all) while calibrating.
    Returns:
        The int8 model: standard QDQ ONNX with int8 weights, and its report.
    Raises:
        QuantizationError: nothing could be quantized, an exclude matches nothing, a goal cannot be judged.
        CalibrationError: no data, data that does not fit, NaN or Inf (the message names tensor, node and sample).
    """
    goals = Goals(max_drop, min_speedup, min_sqnr)
    if goals and not check:
        raise QuantizationError("goals cannot be judged without verification", next="leave out check=False")
    search_budget = budget_of(mode, check, budget, measurements, precisions)
    rule: Mode = "best" if mode == "measured" else mode
    seconds: dict[str, float] = {}
    if not isinstance(model, Model):
        raise InputError(
            "not a model", where="quantize", got=shown(model), expected="a Model", next="requant.load(path) gives one"
        )
    exclude, exclude_ops = names_of(exclude, "quantize: exclude"), names_of(exclude_ops, "quantize: exclude_ops")
    batches = (batches,) if isinstance(batches, int) else tuple(batches)
    counts = [("batch", batch), *(("batches", b) for b in batches)]
    for what, count in counts if samples is None else [*counts, ("samples", samples)]:
        check_count(count, f"quantize: {what}")
    check_functions(metric, progress)
    check_notes(metadata)
    if table is not None and not isinstance(table, CalibrationTable):
        check_table(table)
    source, judged = _data(model, data, samples, held_out, table, policy)
    scheme = engines.get(target or engine).scheme
    if mode == "measured" and target not in (None, engine):
        raise QuantizationError(
            "mode 'measured' measures the engine that it quantizes for",
            got=f"target {target!r}, engine {engine!r}",
            next="leave out target, or take mode 'best'",
        )
    with timed(seconds, "prepare"):
        shapes = None if source is None else {n: a.shape for n, a in source.samples(0, 1).items()}
        floating = optimize(model.onnx if shapes is None else model.onnx_for(shapes))
        floating = equalized(floating) if equalize else floating
        made = plan(floating, rule, scheme, exclude=exclude, exclude_ops=exclude_ops)
    if check and shapes is not None:  # what cannot be timed in the end is told now
        check_arrays({n: ((max(batches, default=1), *s[1:]), 4) for n, s in shapes.items()}, "quantize: batches")
    filled, path = kept(table, floating, made)
    if filled is None:
        if source is None:
            raise CalibrationError(
                "there is no calibration data, and no table", next="give data (--data PATH), or an existing table"
            )
        also = [] if model.symbol is None else more_tensors(model.symbol, model.params, made, _tensors(floating))
        if search_budget is not None:  # in a mixture any of them may need a range of its own
            also = [*also, *(t.name for t in made.tensors)]
        with timed(seconds, "calibrate"):
            filled = calibrate(
                floating,
                made,
                source,
                calibrator=calibrator,
                options=options,
                engine=engine,
                batch=batch,
                policy=policy,
                also=also,
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
        "equalized": equalize,
    }
    if search_budget is not None and judged is None:
        raise CalibrationError("mode 'measured' needs data to run and to judge with", next="pass data or held_out")
    weighed = None
    if refine and source is not None:
        with timed(seconds, "refine"):
            weighed = moments(floating, made, source, engine=engine)
    if not check or judged is None:
        with timed(seconds, "apply"):
            found = ranges(filled, made, calibrator)
            int8 = apply(floating, made, found, means=filled.means(), moments=weighed)
        _stamp(int8, metadata)
        return QuantizedModel(int8, plan=made, report=None, calibrator=calibrator, **known)
    search = Search(floating, made, filled, engine, judged, batch, metric, goals, seconds, weighed)
    if target not in (None, engine):
        notes.append(f"the file is for {target}; accuracy and speed are those on {engine}")
    choice = (rule, tuple(exclude), tuple(exclude_ops))
    best = search.run(calibrator, choice)
    if search_budget is not None:
        best = search.measure(best, choice, batches[0] if batches else 1, search_budget, notes)
    _stamp(best.model, metadata)
    report = search.report(best, model, filled, batches, notes)
    log.info("%s", report)
    known["precision"] = search.options.precision
    return QuantizedModel(search.reloaded, plan=best.plan, report=report, calibrator=best.calibrator, **known)


def _tensors(model: ir.Model) -> list[str]:
    """Names of all tensors of a graph that are fed or computed."""
    return [str(v.name) for v in (*model.graph.inputs, *(o for n in model.graph for o in n.outputs))]


def _data(
    model: Model, data: Any, samples: int | None, held_out: Any, table: object, policy: Policy
) -> tuple[Dataset | None, Dataset | None]:
    """The calibration data, and held-out data of which all is finite."""
    names = model.input_names
    if data is None and table is None:
        raise CalibrationError(
            "there is no calibration data", expected=f"data for {names}", next="give data (--data PATH), or a table"
        )
    source = None if data is None else from_program(data, names, samples, "quantize: data")
    if source is not None and policy == "skip":
        source = source.readable()
    if source is not None and samples is not None:
        source = source.part(0, samples)
    if held_out is not None:
        return source, _finite(from_program(held_out, names, where="quantize: held_out"), policy)
    if source is None:
        return None, None
    if len(source) == 0:
        raise CalibrationError(
            "there is no calibration data",
            where=source.what,
            expected="at least one sample",
            next="give data (--data PATH)",
        )
    apart = min(64, len(source) // 5)
    if apart == 0:
        log.warning(
            "only %s: the int8 model is verified on the data that calibrated it", counted(len(source), "sample")
        )
        return source, _finite(source, policy)
    rest, judged = source.split(apart)
    return rest, _finite(judged, policy)


def _finite(data: Dataset, policy: Policy) -> Dataset:
    """Held-out samples without NaN or Inf, which would spoil every figure without a word.

    Raises:
        CalibrationError: there are some, and they are not to be skipped; or there are no others.
    """
    data = data.readable() if policy == "skip" else data
    bad = nonfinite(data)
    if not bad:
        return data
    if policy != "skip" or len(bad) == len(data):
        number, name = bad[0]
        raise CalibrationError(
            "NaN or Inf in the data that the int8 model is verified on",
            where=f"{data.what}: input {name!r}",
            got=f"sample {number} of {len(data)} held out" + (f", and {len(bad) - 1} more" if len(bad) > 1 else ""),
            expected="finite numbers; a figure with NaN in it would say nothing",
            next="look at this sample and its preprocessing; policy 'skip' (--skip-bad) leaves such samples out",
        )
    log.warning("skipped, for holding NaN or Inf: %d of %s", len(bad), counted(len(data), "held-out sample"))
    left_out = {number for number, _ in bad}
    return Picked(data, [i for i in range(len(data)) if i not in left_out])


def _metadata(model: Model) -> Mapping[str, str]:
    """What an ONNX file says of itself."""
    return model.onnx.metadata_props if model.symbol is None else {}


def _stamp(model: ir.Model, metadata: Mapping[str, str] | None) -> None:
    model.producer_name, model.producer_version = "requant", requant.__version__
    model.metadata_props.update(metadata or {})
