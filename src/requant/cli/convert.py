"""``requant convert``: a model as ONNX (or MXNet files), verified against the source."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np

from requant import spec
from requant.cli import show
from requant.cli.arguments import any_shapes, json_option, model_options, open_model
from requant.engines import get, names
from requant.errors import RequantError
from requant.facts import random_feeds
from requant.formats.onnx_file import read
from requant.formats.target import check_model
from requant.pipeline import Model

#: Greatest relative difference between the source and the file, on random input, that is called equal.
TOLERANCE = 1e-4


class VerificationError(RequantError, ArithmeticError):
    """The written file does not compute what the source computes."""


@click.command(name="convert", short_help="Write MODEL as ONNX, verified.")
@model_options
@click.option(
    "-o", "--output", required=True, metavar="FILE.onnx", help="The file to write, or a prefix for MXNet files."
)
@json_option
def command(model: str, params: str | None, epoch: int | None, shapes: Any, output: str, as_json: bool) -> None:
    """Write MODEL as an ONNX file, with an open batch, and verify it.

    The file is read back, goes through the ONNX checker, and runs on random input in every engine that is installed,
    at batch 1 and 3; its outputs are compared with the source's. A file that differs is not left behind.

    \b
    Examples:
      requant convert resnet50 -o resnet50.onnx
      requant convert net-symbol.json --params iter_5000.params --shape data=1,3,300,300 -o net.onnx
    """
    check_model(output)
    loaded = open_model(model, params, epoch, shapes)
    if not output.endswith(".onnx"):
        files = loaded.save(output)
        if as_json:
            show.as_json({"written": files})
        else:
            show.console().print(f"Wrote {' and '.join(files)}")
        return
    folder = os.path.dirname(os.path.abspath(output))
    with tempfile.TemporaryDirectory(prefix=".requant-", dir=folder) as scratch:
        [trial] = loaded.save(os.path.join(scratch, Path(output).name))
        report = verify(loaded, Model.from_onnx(read(trial), source=output))
        for file in Path(scratch).iterdir():  # weights of large models lie in a second file
            os.replace(file, Path(folder) / file.name)
    size = os.path.getsize(output)
    if as_json:
        show.as_json({"written": [output], "bytes": size, "checker": "clean", "verified": report})
        return
    out = show.console()
    out.print(f"Wrote {output} ({show.mebibytes(size)}): inputs " + ", ".join(str(s) for s in loaded.inputs))
    out.print("ONNX checker: clean")
    rows = [(r["engine"], r["batch"], f"{r['difference']:.1e}") for r in report]
    show.table("Verified against the source on random input", ["engine", "batch", "greatest relative difference"], rows)


def verify(source: Model, written: Model) -> list[dict[str, Any]]:
    """Compare a written model with its source: ONNX checker, then every engine at batch 1 and 3 on random input.

    Returns:
        One row per engine and batch: ``engine``, ``batch``, ``difference`` (relative to the output's largest value).
    Raises:
        VerificationError: the outputs differ by more than 1e-4.
    """
    spec.check(written.onnx, where=written.source)
    batches = [1, 3] if any(s.shape and isinstance(s.shape[0], str) for s in written.inputs) else [1]
    int8 = any(n.op_type == "QuantizeLinear" for n in written.onnx.graph)
    rows = []
    for batch in batches:
        feeds = random_feeds(source, any_shapes(source, batch))
        wanted = None if int8 else source.compile().run(feeds)
        for engine in (n for n in names() if get(n).available().ok):
            if wanted is None or int8:  # engines round ties of int8 layers differently: each is its own reference
                wanted = source.compile(engine).run(feeds)
            worst = max((difference(a, b) for a, b in zip(written.compile(engine).run(feeds), wanted)), default=0.0)
            if not worst <= TOLERANCE:
                raise VerificationError(
                    "the converted model differs from its source",
                    where=f"{written.source} on {engine} at batch {batch}",
                    got=f"relative difference {worst:.2e}",
                    expected=f"at most {TOLERANCE:.0e}",
                    next="please report this model; nothing was written",
                )
            rows.append({"engine": engine, "batch": batch, "difference": worst})
    return rows


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """Greatest absolute difference over the largest absolute value; infinity where shapes or NaN places differ."""
    if got.shape != wanted.shape:
        return float("inf")
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(a[finite] - b[finite]).max() / max(np.abs(b[finite]).max(), 1e-12))
