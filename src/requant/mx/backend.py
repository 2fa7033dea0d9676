"""Graph backends by MXNet's words: what ``optimize_for`` and ``hybridize`` take, as options of requant's engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from requant import engines
from requant.errors import InputError, nearest
from requant.pipeline import Compiled, Live, Model
from requant.quant.plan import MEASURED, MODES

#: Backends, and the engine behind each. oneDNN's names mean the engine that is the default.
BACKENDS: dict[str, str] = {
    "OpenVINO": "openvino",
    "ONNXRuntime": "onnxruntime",
    "TensorRT": "tensorrt",
    "MKLDNN": engines.DEFAULT,
    "ONEDNN": engines.DEFAULT,
}
#: Words of ``precision``, joined by ``_`` as in MXNet (``fp16_int8``), and the arithmetic of float layers they ask for.
PRECISIONS: dict[str, str | None] = {"fp32": "f32", "fp16": "f16", "bf16": "bf16", "int8": None, "best": None}
#: Batches to calibrate on where a table was given and found, so that none was named, and it turns out not to fit.
ITERS = 100
#: MXNet's own options of ``optimize_for`` and ``hybridize``: a compiled network is static anyway.
FLAGS = frozenset(
    {"static_alloc", "static_shape", "inline_limit", "forward_bulk_size", "backward_bulk_size", "partition_if_dynamic"}
)


@dataclass(frozen=True)
class Backend:
    """How a network runs that was optimized for a backend.

    Attributes:
        name: as MXNet scripts spell it. engine: requant's engine behind it.
        precision: arithmetic of float layers: ``f32``, ``f16`` or ``bf16``.
        int8: how it becomes INT8; None if it stays in float.
    """

    name: str
    engine: str
    precision: str = "f32"
    int8: Live | None = None

    def compile(self, model: Model) -> Compiled:
        """Bind a model to the engine."""
        return model.compile(self.engine, precision=self.precision, int8=self.int8)


def backend(name: str, options: Mapping[str, Any]) -> Backend:
    """The backend of that name (in any case) with these options.

    Args:
        name: one of ``BACKENDS``.
        options: ``int8_mode`` (True: become INT8 after calibration on live batches), ``calibration_iters`` (how many),
            ``precision`` (``fp32``, ``fp16``, ``bf16``, ``int8``, or ``best``: whatever is measured as faster, layer by
            layer; ``fp16_int8`` and the like say what is beside INT8), ``calibration_table`` (a path: used if it is
            there and fits, else written when ready), ``calibrator``, ``quantize_mode``, ``excluded_sym_names``,
            ``excluded_op_names``, ``min_sqnr``, ``min_speedup``, ``on_ready``; also all of them in a dict as
            ``backend_opts``. ``int8_mode`` and ``precision='int8'`` are orders, so INT8 need not be faster unless
            ``min_speedup`` says so; with ``precision='best'`` it must be.
    Raises:
        InputError: an unknown backend, option or word; the message lists those that exist.
        EngineError: the engine is not installed, or does not exist; the message says what is missing.
    """
    spelled = next((b for b in BACKENDS if b.lower() == str(name).lower()), None)
    if spelled is None:
        raise InputError(
            "unknown backend", where="optimize_for", got=name, expected=", ".join(BACKENDS), next=_near(name, BACKENDS)
        )
    options = {k: v for k, v in options.items() if k not in FLAGS}
    more = options.pop("backend_opts", None) or {}
    if not isinstance(more, Mapping):
        raise InputError("not a dict of options", where="backend_opts", got=type(more).__name__, expected=list(_READ))
    options.update(more)
    for key in options:
        if key not in _READ:
            raise InputError(
                "unknown option of a backend", where=spelled, got=key, expected=", ".join(_READ), next=_near(key, _READ)
            )
    given = {k: _READ[k](k, v) for k, v in options.items() if v is not None}
    engines.get(BACKENDS[spelled]).demand()
    words = given.get("precision", ())
    return Backend(spelled, BACKENDS[spelled], _floats(words), _live(spelled, given, words))


def _floats(words: Sequence[str]) -> str:
    """The arithmetic of float layers."""
    found = sorted({p for w in words if (p := PRECISIONS[w]) is not None and p != "f32"})
    if len(found) > 1:
        raise InputError("float layers have one precision", where="precision", got="_".join(words))
    return found[0] if found else "f32"


def _live(spelled: str, given: Mapping[str, Any], words: Sequence[str]) -> Live | None:
    wanted = given.get("int8_mode", False) or "int8" in words or "best" in words
    if given.get("int8_mode") is False and ("int8" in words or "best" in words):
        raise InputError("int8_mode=False contradicts the precision", where=spelled, got="_".join(words))
    rest = [k for k in given if k not in ("int8_mode", "precision")]
    if not wanted:
        if rest:
            raise InputError(
                "an option of INT8, and INT8 is not asked for",
                where=spelled,
                got=", ".join(rest),
                next="add int8_mode=True, or precision='int8' or 'best'",
            )
        return None
    table = given.get("calibration_table")
    iters = given.get("calibration_iters")
    if iters is None:
        if table is None or not os.path.exists(table):
            raise InputError(
                "`calibration_iters` has to be set when using `int8_mode`",
                where=spelled,
                got="no calibration_iters" if table is None else f"a calibration_table that is not there: {table}",
                next="calibration_iters=N calibrates on the first N batches",
            )
        iters = ITERS
    # An order to become INT8 asks for no speed; the word "best" does.
    others: dict[str, Any] = {"mode": MEASURED} if "best" in words else {"min_speedup": None}
    names = {
        "min_sqnr": "min_sqnr",
        "min_speedup": "min_speedup",
        "calibrator": "calibrator",
        "quantize_mode": "mode",
        "excluded_sym_names": "exclude",
        "excluded_op_names": "exclude_ops",
        "on_ready": "on_ready",
    }
    others.update({mine: given[theirs] for theirs, mine in names.items() if theirs in given})
    return Live(iters, table=table, backend=spelled, **others)


# -- values, which MXNet's scripts may give as strings -----------------------------------------------------------------


def _flag(name: str, value: Any) -> bool:
    found = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
    if found is None:
        raise InputError("not a truth value", where=name, got=repr(value), expected="True or False")
    return found


def _count(name: str, value: Any) -> int:
    try:
        found = int(str(value))
    except ValueError:
        found = 0
    if found < 1 or isinstance(value, bool):
        raise InputError("not a number of batches", where=name, got=repr(value), expected="a whole number, 1 or more")
    return found


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError("not a number", where=name, got=repr(value)) from None


def _words(name: str, value: Any) -> tuple[str, ...]:
    words = tuple(str(value).lower().split("_"))
    for word in words:
        if word not in PRECISIONS:
            raise InputError(
                "unknown precision",
                where=name,
                got=value,
                expected=", ".join(PRECISIONS) + ", or several joined by _",
                next=_near(word, PRECISIONS),
            )
    return words


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError("not a string", where=name, got=repr(value))
    return value


def _path(name: str, value: Any) -> str:
    try:
        return str(os.fspath(value))
    except TypeError:
        raise InputError("not a path", where=name, got=repr(value)) from None


def _mode(name: str, value: Any) -> str:
    known = (*MODES, MEASURED)
    if value not in known:
        raise InputError("unknown mode", where=name, got=value, expected=", ".join(known), next=_near(value, known))
    return str(value)


def _names(name: str, value: Any) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(v, str) for v in found):
        raise InputError("not a list of names", where=name, got=repr(value))
    return found


def _function(name: str, value: Any) -> Callable[..., object]:
    if not callable(value):
        raise InputError("not a function", where=name, got=repr(value))
    return value  # type: ignore[no-any-return]


def _near(name: object, known: Any) -> str:
    return nearest(str(name), known)


_READ: dict[str, Callable[[str, Any], Any]] = {
    "int8_mode": _flag,
    "calibration_iters": _count,
    "precision": _words,
    "calibration_table": _path,
    "calibrator": _text,
    "quantize_mode": _mode,
    "excluded_sym_names": _names,
    "excluded_op_names": _names,
    "min_sqnr": _number,
    "min_speedup": _number,
    "on_ready": _function,
}
