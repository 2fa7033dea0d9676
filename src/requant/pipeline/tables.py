"""A calibration table that a caller names: whether it is there, and of this model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from requant.errors import CalibrationError, counted
from requant.quant.derived import derived
from requant.quant.fingerprint import fingerprint
from requant.quant.plan import Plan
from requant.quant.table import CalibrationTable

#: Tensors that a message names.
_NAMED = 3


def kept(
    given: CalibrationTable | str | os.PathLike[str] | None, model: ir.Model, made: Plan
) -> tuple[CalibrationTable | None, str | None]:
    """A table that may be used instead of data, or the path where a new one goes.

    Args:
        given: a table, or the name of a file that is there or will be.
        model: the optimized float model.
        made: its plan, which says what tensors must be there.
    Raises:
        CalibrationError: the table is of another model, or lacks tensors; the message names file and tensors.
        FormatError: the file is no table.
    """
    if given is None:
        return None, None
    path = None
    if not isinstance(given, CalibrationTable):
        path = os.fspath(given)
        if not Path(path).exists():
            return None, path
        given = CalibrationTable.load(path)
    _check_model(given, path or "table", model)
    return complete(given, model, made, path or "table"), path


def complete(table: CalibrationTable, model: ir.Model, made: Plan, where: str) -> CalibrationTable:
    """The table with all tensors that a plan needs: those that follow from others are added in a copy.

    Args:
        where: what the table is called.
    Raises:
        CalibrationError: it lacks tensors; the message names them.
    """
    table = derived(table, model.graph, made.observed)
    missing = [t for t in made.observed if t not in table]
    if missing:
        raise CalibrationError(
            "the calibration table lacks tensors that this plan needs",
            where=where,
            got=f"{counted(len(table), 'tensor')}, without {_some(missing)}",
            expected=f"the {counted(len(made.observed), 'tensor')} of this plan",
            next="calibrate with mode 'full', whose table serves the other modes and every exclude list, or remove it",
        )
    return table


def _check_model(table: CalibrationTable, where: str, model: ir.Model) -> None:
    """Refuse the table of another model, and tell the two apart by what their tensors are called."""
    mine = fingerprint(model)
    if not table.model or table.model == mine:
        return
    names = [str(v.name) for v in (*model.graph.inputs, *(o for n in model.graph for o in n.outputs))]
    foreign = [t for t in table if t not in names]
    todo = "name another file, or remove this one, and calibrate this model with data"
    if foreign:
        got = f"a table of model {table.model[:16]}, with tensors that are not here: {_some(foreign)}"
        expected = f"one of model {mine[:16]}, with tensors such as {_some(names, more=False)}"
    else:
        got = f"a table of model {table.model[:16]}, whose tensors are named as here"
        expected = f"one of model {mine[:16]}: the same structure and the same weights"
        todo += "; if it is of this model equalized, quantize with equalize (--equalize) again"
    raise CalibrationError(
        "the calibration table belongs to another model",
        where=where,
        got=got,
        expected=expected,
        next=todo,
    )


def _some(names: Sequence[str], more: bool = True) -> str:
    rest = len(names) - _NAMED
    return ", ".join(map(repr, names[:_NAMED])) + (f" and {rest} more" if more and rest > 0 else "")
