"""``requant inspect``: what is in a model."""

from __future__ import annotations

from typing import Any

import click

from requant.cli import show
from requant.cli.arguments import json_option, model_options, open_model
from requant.facts import facts


@click.command(name="inspect", short_help="Show what is in MODEL.")
@model_options
@json_option
def command(model: str, params: str | None, epoch: int | None, shapes: Any, as_json: bool) -> None:
    """Show inputs, outputs, operators, parameters, size and multiply-accumulates of MODEL, and what was cut.

    \b
    Examples:
      requant inspect resnet50-symbol.json
      requant inspect resnet50 --shape data=1,3,224,224
      requant inspect model.tar.gz --json
    """
    loaded = open_model(model, params, epoch, shapes)
    found = facts(loaded)
    if as_json:
        show.as_json(
            {
                "model": model,
                "kind": "mxnet" if loaded.symbol is not None else "onnx",
                "inputs": [{"name": s.name, "dtype": s.dtype.name, "shape": s.shape} for s in loaded.inputs],
                "outputs": [{"name": s.name, "dtype": s.dtype.name, "shape": s.shape} for s in loaded.outputs],
                "operators": dict(found.ops),
                "parameters": found.parameters,
                "bytes": found.bytes,
                "bytes_by_dtype": dict(found.dtypes),
                "macs": found.macs,
                "macs_at": {n: list(s) for n, s in found.shapes.items()},
                "cut": [c.variable for c in loaded.cut],
                "cut_outputs": list(loaded.cut_outputs),
            }
        )
        return
    rows = [("input", s.name, s.dtype.name, show.dims(s.shape)) for s in loaded.inputs]
    rows += [("output", s.name, s.dtype.name, show.dims(s.shape)) for s in loaded.outputs]
    show.table(
        f"{model}: {'MXNet' if loaded.symbol is not None else 'ONNX'} model", ["", "name", "dtype", "shape"], rows
    )
    show.table("Operators", ["operator", "count"], list(found.ops.items()))
    out = show.console()
    by_type = ", ".join(f"{show.mebibytes(b)} {t}" for t, b in found.dtypes.items())
    out.print(f"Parameters: {found.parameters:,} numbers, {show.mebibytes(found.bytes)} ({by_type or 'none'})")
    unknown = [n for n, s in found.shapes.items() if not all(s)]
    if unknown:
        names = " ".join(f"--shape {n}=..." for n in unknown)
        out.print(f"Multiply-accumulates: not known without the input size; give {names}")
    elif found.macs is None:
        out.print("Multiply-accumulates: not known; shapes inside depend on values that only a run computes")
    else:
        at = ", ".join(f"{n} {show.dims(s)}" for n, s in found.shapes.items())
        out.print(f"Multiply-accumulates: {found.macs / 1e6:,.1f} million for {at}")
    for cut in loaded.cut:
        out.print(f"Cut: {cut.variable}, which {cut.node} ({cut.op}) needs in training alone")
    for name in loaded.cut_outputs:
        out.print(f"Cut: output {name}, which cannot be computed without labels")
