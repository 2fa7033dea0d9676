"""``requant doctor``: what this machine can do, and what limits INT8 on it."""

from __future__ import annotations

import platform
from importlib import metadata

import click
import numpy as np

import requant
from requant.cli import show
from requant.cli.arguments import json_option
from requant.engines import machine

_LIBRARIES = ["numpy", "onnx", "onnx-ir", "openvino", "onnxruntime", "click", "rich", "pillow"]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


@click.command(name="doctor", short_help="Show this machine and its engines.")
@json_option
def command(as_json: bool) -> None:
    """Show this machine: cores, instruction sets, engines and versions, and what limits INT8 here."""
    m = machine.facts()
    versions = {"requant": requant.__version__, "python": platform.python_version(), "numpy": np.__version__}
    versions.update({n: _version(n) for n in _LIBRARIES if n != "numpy"})
    limit = machine.int8_limit(m.architecture, m.instruction_sets, m.unknown)
    if as_json:
        show.as_json(
            {
                "cpu": m.cpu,
                "architecture": m.architecture,
                "instruction_sets": m.instruction_sets,
                "unknown_instruction_sets": m.unknown,
                "logical_cores": m.logical_cores,
                "physical_cores": m.physical_cores,
                "usable_cores": m.usable_cores,
                "quota": m.quota,
                "memory": m.memory,
                "usable_memory": m.usable_memory,
                "versions": versions,
                "engines": {n: {"ok": a.ok, "version": a.version, "why": a.why} for n, a in m.engines.items()},
                "int8": limit,
            }
        )
        return
    rows = [
        ("CPU", f"{m.cpu} ({m.architecture})"),
        ("Cores", f"{m.usable_cores} usable of {m.logical_cores} logical, {m.physical_cores or '?'} physical"),
        ("CPU quota", "none" if m.quota is None else f"{m.quota:g} {'core' if m.quota == 1 else 'cores'}"),
        ("Memory", " of ".join(show.mebibytes(b) for b in (m.usable_memory, m.memory) if b) or "unknown"),
        ("Instruction sets", ", ".join(m.instruction_sets) or "none of those that matter to INT8"),
    ]
    if m.unknown:
        rows.append(("Not told by this system", ", ".join(m.unknown)))
    rows += list(versions.items())
    rows += [(f"Engine {n}", f"{a.version}: ready" if a.ok else f"no: {a.why}") for n, a in m.engines.items()]
    show.table("This machine", ["", ""], rows)
    show.console().print(f"[bold]INT8 here:[/] {limit}")
