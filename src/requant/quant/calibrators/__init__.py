"""The calibrators, one file each, found by listing this folder: a new file is a new calibrator, tests included."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from typing import Any

from requant.errors import CalibrationError, nearest
from requant.quant.calibrator import Calibrator


@functools.cache
def calibrators() -> dict[str, type[Calibrator]]:
    """All calibrators by name, in the order of their names."""
    found: dict[str, type[Calibrator]] = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        for item in vars(module).values():
            if inspect.isclass(item) and issubclass(item, Calibrator) and item.__module__ == module.__name__:
                found[item.name] = item
    return dict(sorted(found.items()))


def calibrator(name: str) -> type[Calibrator]:
    """The calibrator of a name.

    Raises:
        CalibrationError: there is none; the message names the nearest.
    """
    known = calibrators()
    if name not in known:
        raise CalibrationError(
            "unknown calibrator", got=repr(name), expected=", ".join(known), next=nearest(name, known)
        )
    return known[name]


def make(name: str, tensor: str = "", **given: Any) -> Calibrator:
    """A calibrator by name, with its statistic and options.

    Raises:
        CalibrationError: there is none of that name, or it has no such option.
    """
    kind = calibrator(name)
    try:
        inspect.signature(kind).bind(tensor, **given)
    except TypeError as error:
        known = [p for p in inspect.signature(kind).parameters if p not in ("tensor", "statistic", "held_out")]
        raise CalibrationError(
            f"the calibrator {name!r} has no such option", got=str(error), expected=known or "no options"
        ) from None
    return kind(tensor, **given)
