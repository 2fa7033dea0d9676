"""``requant table``: look into calibration tables, compare, join and exchange them."""

from __future__ import annotations

import sys
from typing import Any

import click

from requant.cli import Named, show
from requant.cli.arguments import existing, json_option
from requant.errors import CalibrationError, InputError, counted
from requant.formats.calibration_table import read_tensorrt_cache, write_tensorrt_cache
from requant.formats.target import check_file
from requant.qmath import Range
from requant.quant.calibrators import calibrators
from requant.quant.table import CalibrationTable

_output = click.option("-o", "--output", required=True, metavar="FILE", help="The file to write.")


@click.group(name="table", cls=Named)
def command() -> None:
    """Show, compare, merge and exchange calibration tables.

    They are what requant quantize --table writes.

    A table holds statistics of the float model's tensors: another calibrator, mode or exclude list reads the same one
    and runs no data.

    \b
    Examples:
      requant table show net.calib.json
      requant table diff monday.json tuesday.json
      requant table merge worker1.json worker2.json -o whole.json
      requant table to-tensorrt net.calib.json -o net.cache
    """


@command.command(name="show")
@click.argument("file")
@click.option("--calib", "calibrator", type=click.Choice(list(calibrators())), help="The table's own by default.")
@json_option
def show_(file: str, calibrator: str | None, as_json: bool) -> None:
    """Show the range of every tensor of FILE.

    As it was seen, and as the calibrator sets it.
    """
    table = _load(file)
    chosen = {n: _range(table, n, calibrator) for n in table}
    seen = {n: _seen(table, n) for n in table}
    if as_json:
        show.as_json(
            {
                "file": file,
                "model": table.model,
                "calibrator": calibrator or table.calibrator,
                "options": table.options,
                "samples": table.samples,
                "held_out": table.held_out_samples,
                "skipped": table.skipped,
                "tensors": {n: {"seen": seen[n], "range": chosen[n]} for n in table},
            }
        )
        return
    out = show.console()
    out.print(
        f"Model {table.model[:16] or 'unknown'}; {counted(table.samples, 'sample')}, "
        f"{table.held_out_samples} held out, {table.skipped} skipped"
    )
    rows = [(n, _words(seen[n]), _words(chosen[n])) for n in table]
    show.table(f"{file}: {calibrator or table.calibrator}", ["tensor", "seen", "range"], rows)


@command.command()
@click.argument("first")
@click.argument("second")
@click.option("--tolerance", type=click.FloatRange(0), default=0.0, show_default=True, help="Relative change allowed.")
@json_option
def diff(first: str, second: str, tolerance: float, as_json: bool) -> None:
    """Compare the tables FIRST and SECOND. The exit status is 1 if they differ."""
    lines = _load(first).diff(_load(second), tolerance=tolerance)
    if as_json:
        show.as_json({"equal": not lines, "differences": lines})
    else:
        for line in lines or ["The tables say the same"]:
            show.console().print(line, markup=False, soft_wrap=True)
    if lines:
        sys.exit(1)


@command.command()
@click.argument("files", nargs=-1, required=True)
@_output
def merge(files: tuple[str, ...], output: str) -> None:
    """Join tables that parts of the data filled.

    As if one run had seen all of it; the order does not matter.
    """
    check_file(output)
    if len(files) < 2:
        raise InputError("one table needs no merging", where=files[0], expected="two tables or more")
    whole = _load(files[0])
    for file in files[1:]:
        part = _load(file)
        try:
            whole.merge(part)
        except CalibrationError as fault:
            where = f"{file}, beside {files[0]}"
            raise CalibrationError(
                fault.what, where=where, got=fault.got, expected=fault.expected, next=fault.next
            ) from fault
    whole.save(output)
    show.console().print(
        f"Wrote {output}: {counted(len(whole), 'tensor')}, {counted(whole.samples, 'sample')}", markup=False
    )


@command.command(name="to-tensorrt")
@click.argument("file")
@_output
def to_tensorrt(file: str, output: str) -> None:
    """Write the ranges of FILE as a TensorRT cache."""
    check_file(output)
    cache = _load(file).to_tensorrt()
    write_tensorrt_cache(cache, output)
    show.console().print(f"Wrote {output}: {counted(len(cache.scales), 'scale')}, {cache.algorithm}", markup=False)


@command.command(name="from-tensorrt")
@click.argument("file")
@_output
def from_tensorrt(file: str, output: str) -> None:
    """Write a TensorRT cache as a table of finished ranges."""
    check_file(output)
    table = CalibrationTable.from_tensorrt(read_tensorrt_cache(existing(file)))
    table.save(output)
    show.console().print(
        f"Wrote {output}: {counted(len(table), 'finished range')}; no other calibrator can read them", markup=False
    )


def _load(file: str) -> CalibrationTable:
    return CalibrationTable.load(existing(file, "a calibration table"))


def _range(table: CalibrationTable, tensor: str, calibrator: str | None) -> Range | None:
    """The range of a tensor; None if nothing was seen of it."""
    entry = table.entry(tensor)
    if entry.fixed is None and not entry.statistic.count:
        return None
    return table.range(tensor, calibrator)


def _seen(table: CalibrationTable, tensor: str) -> Range | None:
    """The smallest and largest value seen; None where only a finished range is known."""
    entry = table.entry(tensor)
    if entry.fixed is not None or not entry.statistic.count:
        return None
    return entry.statistic.range


def _words(found: Any) -> str:
    return "?" if found is None else f"{found.min:.5g} .. {found.max:.5g}"
