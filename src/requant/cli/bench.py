"""``requant bench``: latency and throughput, per engine and batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from requant.cli import show
from requant.cli.arguments import concrete_shapes, json_option, model_options, open_model
from requant.engines import get, names
from requant.errors import EngineError
from requant.facts import facts, random_feeds
from requant.pipeline import Compiled
from requant.pipeline.timing import by_turns


@click.command(name="bench")
@model_options
@click.option(
    "--engine", "engines", type=click.Choice(names()), multiple=True, help="Repeatable; all that are ready by default."
)
@click.option("--batch", "batches", type=click.IntRange(1), multiple=True, default=(1, 16), show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(0.1), default=3.0, show_default=True, help="Time spent on each figure."
)
@click.option("--threads", type=click.IntRange(1), help="CPU threads; the engine's choice by default.")
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
    as_json: bool,
) -> None:
    """Measure MODEL on random input: median latency of one request at a time, and throughput of many.

    Engines are measured by turns, call by call, so that a noisy neighbour disturbs them alike.

    \b
    Examples:
      requant bench resnet50
      requant bench net.onnx --engine openvino --batch 1 --batch 32 --seconds 10
    """
    loaded = open_model(model, params, epoch, shapes)
    chosen = engines or tuple(n for n in names() if get(n).available().ok)
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
            times = by_turns({n: _caller(c, feeds) for n, c in ready.items()}, seconds * len(chosen))
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
