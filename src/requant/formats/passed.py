"""Calibration data as a program passes them: arrays, dicts of arrays, and iterables of batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from requant.errors import CalibrationError, nearest, shown
from requant.formats.dataset import Arrays, Batch, Dataset, Stored, open_files
from requant.formats.images import Preprocess


def from_program(data: Any, names: Sequence[str], limit: int | None = None, where: str = "the data") -> Dataset:
    """The dataset behind what a program passes: an array, a dict of arrays, a ``Dataset``, or an iterable of batches.

    Args:
        data: ``(N, ...)`` array for a model with one input; dict of such arrays by input name; or any iterable of
            batches, each an array, a tuple or list in input order, a dict, or an object with ``.data`` (``DataBatch``).
        limit: read at most this many samples of an iterable.
        where: the call and its argument, for messages.
    Raises:
        CalibrationError: there is no data, or names do not fit; the message says which are wanted.
    """
    if isinstance(data, Dataset):
        return data
    if data is None:
        raise CalibrationError(
            "there is no calibration data", where=where, expected=f"data for {list(names)}", next=_PROGRAM_KINDS
        )
    if isinstance(data, (str, os.PathLike)):
        return open_files(os.fspath(data), names, Preprocess())
    if isinstance(data, np.ndarray) or hasattr(data, "asnumpy"):
        return Arrays(named(data, names, where), where)
    if isinstance(data, Mapping):
        return Arrays(named(data, names, where), where)
    if not isinstance(data, Iterable):
        raise CalibrationError("not data", where=where, got=shown(data), expected="samples", next=_PROGRAM_KINDS)
    batches: list[Batch] = []
    count = 0
    for number, item in enumerate(data):
        batch = named(item, names, f"{where}: batch {number}")
        if not all(a.ndim and len(a) for a in batch.values()):
            raise CalibrationError(
                "a batch without samples",
                where=f"{where}: batch {number}",
                got=", ".join(f"{n}: {a.shape}" for n, a in batch.items()),
                expected="at least one sample in the first dimension of each array",
                next=_PROGRAM_KINDS,
            )
        batches.append(batch)
        count += len(next(iter(batch.values())))
        if limit is not None and count >= limit:
            break
    if not batches:
        raise CalibrationError(
            "the data gave no batch",
            where=where,
            got=shown(data),
            expected="at least one",
            next="a generator can be read once: make a new one, or pass a list",
        )
    return Stored(batches, where)


_NUMBERS = "an array of numbers"
_PROGRAM_KINDS = (
    "pass an array (N, ...), a dict of arrays by input name, an iterable of batches, or the name of a folder or file"
)


def named(item: Any, names: Sequence[str], where: str = "the data") -> Batch:
    """One batch as arrays by input name.

    Raises:
        CalibrationError: wrong names, too few arrays, or no arrays of numbers.
    """
    if hasattr(item, "data") and isinstance(item.data, (list, tuple)):  # a DataBatch: its labels are not inputs
        item = list(item.data)
    if isinstance(item, Mapping):
        for key in item:
            if key not in names:
                raise CalibrationError(
                    "no input of that name", where=where, got=key, expected=list(names), next=nearest(key, names)
                )
        given = {str(n): _array(a, where) for n, a in item.items()}
    elif isinstance(item, (list, tuple)) and not all(isinstance(v, (int, float)) for v in item):
        # (data, label) pairs are what data loaders give; what goes beyond the inputs is dropped.
        given = {n: _array(a, where) for n, a in zip(names, item)}
    else:
        given = {names[0]: _array(item, where)} if names else {}
    missing = [n for n in names if n not in given]
    if missing:
        raise CalibrationError(
            f"no data for input {missing[0]!r}",
            where=where,
            got=list(given) or shown(item),
            expected=list(names),
            next=_PROGRAM_KINDS,
        )
    return given


def _array(value: Any, where: str) -> np.ndarray:
    try:
        found = np.asarray(value.asnumpy() if hasattr(value, "asnumpy") else value)
    except (ValueError, TypeError) as fault:  # rows of several lengths
        got = f"{shown(value)}: {str(fault).split('.')[0]}"
        raise CalibrationError("not an array", where=where, got=got, expected=_NUMBERS, next=_PROGRAM_KINDS) from None
    if found.dtype.kind in "biufcV":  # V: bfloat16
        return found
    got = f"{shown(value)}, dtype {found.dtype}"
    raise CalibrationError("data that are no numbers", where=where, got=got, expected=_NUMBERS, next=_PROGRAM_KINDS)
