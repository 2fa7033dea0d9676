"""``requant bench``: latency and throughput, per engine and batch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from requant.cli import show
from requant.cli.arguments import concrete_shapes, json_option, model_options, open_model
from requant.engines import get, names
from requant.errors import EngineError, counted
from requant.facts import facts, random_feeds
from requant.pipeline import Compiled, Model
from requant.pipeline.timing import in_blocks


@click.command(name="bench", short_help="Measure latency and throughput of MODEL.")
@model_options
@click.option(
    "--engine", "engines", type=click.Choice(names()), multiple=True, help="Repeatable; all that are ready by default."
)
@click.option("--batch", "batches", type=click.IntRange(1), multiple=True, default=(1, 16), show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Time spent on each figure."
)
@click.option("--threads", type=click.IntRange(1), help="CPU threads; the engine's choice by default.")
@click.option("--live", is_flag=True, help="Show a serving model's life: float, calibrating, building, INT8.")
@click.option(
    "--iters", type=click.IntRange(1), default=32, show_default=True, help="Batches to calibrate on, with --live."
)
@json_option
def command(
    model: str,
    params: str | None,
    epoch: int | None,
    shapes: Any,
    engines: tuple[str, ...],
    batches: tuple[int, ...],
    seconds: float,
    threads: int | None,
    live: bool,
    iters: int,
    as_json: bool,
) -> None:
    """Measure MODEL on random input: median latency of one request at a time, and throughput of many.

    Engines are measured by turns, call by call, so that a noisy neighbour disturbs them alike. With --live one engine
    serves the model through its life, at the first batch size: float, calibrating on what it is asked, building, INT8.

    \b
    Examples:
      requant bench resnet50
      requant bench net.onnx --engine openvino --batch 1 --batch 32 --seconds 10
      requant bench resnet50 --live --iters 50
    """
    _check_live(live, engines, batches)
    loaded = open_model(model, params, epoch, shapes)
    if live:
        _live(loaded, (engines or names())[0], batches[0], iters, threads, seconds, as_json)
        return
    chosen = tuple(dict.fromkeys(engines)) or tuple(n for n in names() if get(n).available().ok)
    batches = tuple(dict.fromkeys(batches))
    if not chosen:
        raise EngineError("no engine is ready", next="requant doctor says why")
    rows: list[dict[str, Any]] = []
    steps = len(batches) * (1 + len(chosen))
    with show.progress() as bar:
        task = bar.add_task("measuring", total=steps)
        for batch in batches:
            at = concrete_shapes(loaded, batch)
            feeds = random_feeds(loaded, at)
            macs = facts(loaded, at).macs
            ready = {n: loaded.compile(n, threads=threads, shapes=at) for n in chosen}
            times = in_blocks({n: _caller(c, feeds) for n, c in ready.items()}, seconds)
            bar.advance(task)
            for name in chosen:
                many = loaded.compile(name, threads=threads, hint="throughput", shapes=at)
                rate = batch * throughput(many, feeds, seconds)
                bar.advance(task)
                median = float(np.median(times[name]))
                rows.append(
                    {
                        "engine": name,
                        "batch": batch,
                        "milliseconds": 1e3 * median,
                        "p90": 1e3 * float(np.percentile(times[name], 90)),
                        "runs": len(times[name]),
                        "items_per_second": rate,
                        "gmac_per_second": None if macs is None else macs / median / 1e9,
                    }
                )
    if as_json:
        show.as_json({"model": model, "rows": rows})
        return
    show.table(
        f"{model}: random input",
        ["engine", "batch", "median ms", "p90 ms", "runs", "items/s, many requests", "GMAC/s"],
        [
            (
                r["engine"],
                r["batch"],
                f"{r['milliseconds']:.2f}",
                f"{r['p90']:.2f}",
                r["runs"],
                f"{r['items_per_second']:.1f}",
                "?" if r["gmac_per_second"] is None else f"{r['gmac_per_second']:.0f}",
            )
            for r in rows
        ],
    )


def _check_live(live: bool, engines: tuple[str, ...], batches: tuple[int, ...]) -> None:
    """Refuse options that have no meaning together.

    Raises:
        UsageError: --live with several engines or batch sizes, or --iters without it.
    """
    context = click.get_current_context()
    if not live:
        if context.get_parameter_source("iters") not in (None, ParameterSource.DEFAULT):
            raise click.UsageError("--iters counts the batches that --live calibrates on: give --live too, or neither")
        return
    if len(set(engines)) > 1:
        raise click.UsageError(f"--live shows the life of one engine, not {len(engines)}: give --engine once")
    if len(set(batches)) > 1 and context.get_parameter_source("batches") not in (None, ParameterSource.DEFAULT):
        raise click.UsageError(f"--live serves one batch size, not {len(batches)}: give --batch once")


def _live(
    model: Model, engine: str, batch: int, iters: int, threads: int | None, seconds: float, as_json: bool
) -> None:
    """The life of a serving model, as a table."""
    from requant.pipeline.live import Live
    from requant.pipeline.live_timing import lived

    at = concrete_shapes(model, batch)
    feeds = [random_feeds(model, at, seed) for seed in range(8)]
    with show.progress() as bar:
        task = bar.add_task("float", total=None)
        found = lived(
            model,
            feeds,
            # Random input says nothing of the error, and the speed is what is to be seen.
            Live(iters, min_sqnr=None, min_speedup=None),
            engine=engine,
            threads=threads,
            seconds=seconds,
            told=lambda state: bar.update(task, description=state),
        )
    if as_json:
        stages = [dataclasses.asdict(s) for s in found.stages]
        report = None if found.report is None else found.report.as_dict()
        show.as_json({"model": model.source, "engine": engine, "stages": stages, "end": found.end, "report": report})
        return
    show.table(
        f"{model.source} on {engine}, batch {batch}: random input, "
        f"{counted(iters, 'batch', 'batches')} to calibrate on",
        ["state", "since, s", "for, s", "calls", "median ms", "p99 ms"],
        [
            (s.phase, f"{s.since:.1f}", f"{s.seconds:.1f}", s.calls, f"{s.median_ms:.2f}", f"{s.p99_ms:.2f}")
            for s in found.stages
        ],
    )
    show.console().print(f"end: {found.end}")
    if found.report is not None:
        show.console().print(str(found.report))


def _caller(compiled: Compiled, feeds: dict[str, np.ndarray]) -> Callable[[], object]:
    return lambda: compiled.run(feeds)


def throughput(compiled: Compiled, feeds: dict[str, np.ndarray], seconds: float) -> float:
    """Requests a second, with as many under way as the engine likes."""
    compiled.run(feeds)
    end = time.perf_counter() + seconds

    def until_late() -> Any:
        while time.perf_counter() < end:
            yield feeds

    start, count = time.perf_counter(), 0
    for _ in compiled.stream(until_late()):
        count += 1
    return count / (time.perf_counter() - start)
