"""``requant quantize``: a float model as INT8, verified beside its source."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from typing import Any

import click

from requant.cli import EXIT_GOAL_MISSED, show
from requant.cli.arguments import (
    engine_option,
    image_options,
    image_options_given,
    json_option,
    model_options,
    open_model,
    preprocessing,
)
from requant.engines import names as engine_names
from requant.errors import InputError
from requant.formats.dataset import Dataset, open_files
from requant.formats.images import METADATA_KEY
from requant.formats.target import check_apart, check_model
from requant.pipeline import Model
from requant.pipeline.quantization import quantize
from requant.quant.calibrators import calibrators
from requant.quant.plan import MEASURED, MODES

log = logging.getLogger(__name__)


@click.command(name="quantize", short_help="Make MODEL INT8, verified beside the float model.")
@model_options
@click.option(
    "--data",
    required=False,
    metavar="PATH",
    help="Calibration samples: a folder of images, an .npz with an array per input, a .rec, or 'batches/*.npy'.",
)
@image_options
@click.option("--samples", type=click.IntRange(1), help="Use at most this many samples.")
@click.option("--batch", type=click.IntRange(1), default=16, show_default=True, help="Samples a run.")
@click.option("--held-out", metavar="PATH", help="Samples to verify on; the last fifth of --data by default.")
@click.option(
    "--mode", type=click.Choice((*MODES, MEASURED)), default="best", show_default=True, help="Which layers become INT8."
)
@click.option(
    "--calib",
    "calibrator",
    type=click.Choice(list(calibrators())),
    default="auto",
    show_default=True,
    help="How ranges follow from what was seen; auto picks for each tensor.",
)
@engine_option
@click.option(
    "--target",
    type=click.Choice(engine_names()),
    help="Write the int8 forms of this engine, which need not be here, in place of --engine's.",
)
@click.option("--exclude", multiple=True, metavar="NAME", help="Leave in float: a node, scope or glob. Repeatable.")
@click.option("--exclude-op", multiple=True, metavar="TYPE", help="Leave this operator type in float. Repeatable.")
@click.option("--table", metavar="FILE", help="Calibration table: used if it is there (no data is run), else written.")
@click.option("--skip-bad", is_flag=True, help="Leave out samples that make NaN or Inf, instead of stopping.")
@click.option("--max-drop", type=float, metavar="POINTS", help="Percent points of agreement that may be lost.")
@click.option("--min-speedup", type=float, metavar="TIMES", help="How many times faster than float it must be.")
@click.option("--min-sqnr", type=float, metavar="DB", help="Least signal to quantization noise of the outputs.")
@click.option(
    "--time-batch",
    "batches",
    type=click.IntRange(1),
    multiple=True,
    default=(1,),
    show_default=True,
    help="Batch size at which float and INT8 are timed. Repeatable.",
)
@click.option(
    "--budget", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Time that mode measured searches; 60."
)
@click.option(
    "--measurements", metavar="FILE", help="Figures of mode measured: what is in it is not measured again; it grows."
)
@click.option(
    "--allow",
    "precisions",
    type=click.Choice(["bf16", "f16"]),
    multiple=True,
    help="Let mode measured compute the float layers in this. Repeatable.",
)
@click.option("--no-refine", is_flag=True, help="Round weights to the nearest integer, not by what they meet.")
@click.option("--equalize", is_flag=True, help="Bring channels between layers to one size first.")
@click.option("--plan", "show_plan", is_flag=True, help="Print the decision for every node, with its reason.")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE.onnx|PREFIX",
    help="An ONNX file, or a prefix for MXNet's int8 files.",
)
@json_option
def command(
    model: str,
    params: str | None,
    epoch: int | None,
    shapes: Any,
    data: str | None,
    samples: int | None,
    batch: int,
    held_out: str | None,
    mode: Any,
    calibrator: str,
    engine: str,
    target: str | None,
    exclude: tuple[str, ...],
    exclude_op: tuple[str, ...],
    table: str | None,
    skip_bad: bool,
    max_drop: float | None,
    min_speedup: float | None,
    min_sqnr: float | None,
    batches: tuple[int, ...],
    budget: float | None,
    measurements: str | None,
    precisions: tuple[Any, ...],
    no_refine: bool,
    equalize: bool,
    show_plan: bool,
    output: str,
    as_json: bool,
    **image: Any,
) -> None:
    """Quantize MODEL to INT8: plan, calibrate, write QDQ ONNX, and verify it beside the float model.

    Nobody names calibration layers: the tensors that will be quantized are found, and only those are observed. Samples
    that calibration does not see judge the result. Preprocessing is remembered in the file; run and bench use it.

    If a goal (--max-drop, --min-speedup, --min-sqnr) is missed, other calibrators are tried and then the worst layers
    are returned to float; the best model seen is written, and the exit status is 3.

    Mode measured compiles and times mixtures of int8 and float layers, at the first --time-batch, and takes the fastest
    that keeps the error bound: the goals, or without goals the error of mode best. If that is all in float, the file
    is the float model. The file is right on every machine, and fastest on one like this.

    \b
    Examples:
      requant quantize net --data photos/ --size 224 --mean 127 --std 128 -o net-int8.onnx
      requant quantize net --data calib.npz --calib entropy --mode smart --table net.calib.json -o net-int8.onnx
      requant quantize net.onnx --data calib.npz --max-drop 0.5 --min-speedup 1.5 -o net-int8.onnx
      requant quantize net --data calib.npz --target tensorrt -o net-trt.onnx
      requant quantize net --data calib.npz --mode measured --budget 120 --min-sqnr 20 -o net-fast.onnx
      requant quantize net --data calib.npz -o net-int8    (net-int8-symbol.json and net-int8-0000.params, for MXNet)
    """
    check_model(output)
    check_apart(output, model)
    loaded = open_model(model, params, epoch, shapes)
    if not output.endswith(".onnx") and loaded.symbol is None:
        raise InputError(
            "a model that came from ONNX can be written as ONNX alone",
            where="-o",
            got=output,
            expected="a name that ends in .onnx",
            next=f"-o {output}.onnx",
        )
    source, prepared = _dataset(loaded, data, image)
    judged = _dataset(loaded, held_out, image)[0]
    metadata = {METADATA_KEY: prepared} if prepared else None
    with show.progress() as bar:
        task = bar.add_task("calibrating", total=None)
        made = quantize(
            loaded,
            source,
            mode=mode,
            calibrator=calibrator,
            engine=engine,
            target=target,
            exclude=exclude,
            exclude_ops=exclude_op,
            samples=samples,
            batch=batch,
            table=table,
            held_out=judged,
            max_drop=max_drop,
            min_speedup=min_speedup,
            min_sqnr=min_sqnr,
            policy="skip" if skip_bad else "error",
            batches=batches,
            refine=not no_refine,
            equalize=equalize,
            budget=budget,
            measurements=measurements,
            precisions=precisions,
            metadata=metadata,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    files = made.save(output)
    written = ", ".join(files)
    report = made.report
    if report is not None and not output.endswith(".onnx"):
        # MXNet's files keep float weights, which its layers quantize by themselves: they are as large as before.
        report = dataclasses.replace(report, int8_bytes=sum(os.path.getsize(f) for f in files))
    if as_json:
        show.as_json({"written": written, "report": None if report is None else report.as_dict()})
    else:
        if show_plan:
            show.console().print(str(made.plan), markup=False, soft_wrap=True)
        if report is not None:
            show.table(f"{model} as INT8: {written}", ["", ""], report.rows())
            if report.choice is not None:
                times = [
                    (t.node, t.op_type, t.chosen, f"{t.float_us:.1f}", f"{t.int8_us:.1f}") for t in report.choice.layers
                ]
                show.table("Layers as measured, in microseconds", ["layer", "", "chosen", "float", "int8"], times)
            if report.reasons:
                rows = [(n, why) for why, n in report.reasons.items()]
                show.table("Left in float, and why", ["nodes", "reason"], rows)
        else:
            show.console().print(f"Wrote {written}; it was not verified: there was no data to verify it on")
    if report is not None and not report.met:
        missed = "; ".join(f"{name}: {text}" for name, text in report.goals.items() if "MISSED" in text)
        click.echo(f"requant: a goal was missed ({missed}); the best model seen was written to {written}", err=True)
        sys.exit(EXIT_GOAL_MISSED)


def _dataset(model: Model, path: str | None, image: dict[str, Any]) -> tuple[Dataset | None, str | None]:
    """The dataset of a path, and as JSON the preprocessing of its images, or what was said of its arrays."""
    if path is None:
        return None, None
    prepare, kept = preprocessing(model, image)
    found = open_files(path, model.input_names, prepare)
    if found.prepare is not None and kept:
        log.info("%s: preprocessing as remembered in the file: %s", path, prepare.describe())
    declared = {"divide", "mean", "std"} & set(image_options_given(image))
    return found, prepare.to_json() if found.prepare is not None or declared else None
