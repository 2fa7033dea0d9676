"""The exception tree. Every refusal of requant is one of these, and every message teaches.

A message has up to four parts, always in this order: *where* the fault is (file, node, tensor), what was *got*,
what was *expected*, and what to do *next*. They are kept as attributes, so that a program can read them too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RequantError(Exception):
    """Base of all errors that requant raises on purpose.

    Args:
        what: one sentence that says what went wrong.
        where: file, node or tensor at fault.
        got: what was found there.
        expected: what would have been right.
        next: what the reader can do now.
    """

    def __init__(
        self,
        what: str,
        *,
        where: object | None = None,
        got: object | None = None,
        expected: object | None = None,
        next: object | None = None,
    ) -> None:
        self.what, self.where, self.got, self.expected, self.next = what, where, got, expected, next
        text = f"{where}: {what}" if where is not None else what
        if got is not None:
            text += f"\n  got:      {got}"
        if expected is not None:
            text += f"\n  expected: {expected}"
        if next is not None:
            text += f"\n  next:     {next}"
        super().__init__(text)


class FormatError(RequantError, ValueError):
    """A file is truncated, corrupt, or not of the format it was read as."""


class GraphError(RequantError, ValueError):
    """A graph is malformed: a cycle, a forward reference, an unknown operator."""


class UnknownOperatorError(GraphError):
    """A graph names an operator that requant does not have."""


class AttributeValueError(RequantError, ValueError):
    """An operator attribute is unknown or its value cannot be read."""


class ShapeError(RequantError, ValueError):
    """Shapes do not fit together, or cannot be inferred."""


class DTypeError(RequantError, TypeError):
    """A data type does not fit, or is not supported there."""


class InputError(RequantError, ValueError):
    """The data given to a model does not fit its inputs."""


class ParameterError(RequantError, KeyError):
    """A parameter is missing, surplus, or of the wrong shape."""

    __str__ = RequantError.__str__  # KeyError would show the repr of the message


class EngineError(RequantError, RuntimeError):
    """An engine is missing, refuses a graph, or fails while it runs."""


class CalibrationError(RequantError, ValueError):
    """Calibration data or a calibration table cannot be used."""


class QuantizationError(RequantError, ValueError):
    """A quantization request cannot be met as it was stated."""


class UnsupportedError(RequantError, NotImplementedError):
    """Something that requant does not do, and says so (training, for instance)."""


def counted(number: int, what: str, many: str | None = None) -> str:
    """A number of things in words: ``1 sample``, ``3 samples``; ``many`` where the plural takes more than an s."""
    return f"{number} {what if number == 1 else many or what + 's'}"


def shown(value: object, most: int = 80) -> str:
    """What a program passed, as the *got* part of a message: the shape of an array, or a repr that is cut short."""
    shape = getattr(value, "shape", None)
    text = f"{type(value).__name__} of shape {shape}" if isinstance(shape, tuple) else " ".join(repr(value).split())
    return text if len(text) <= most else text[:most] + "..."


def nearest(name: object, known: Iterable[object], n: int = 3) -> str:
    """Say which of ``known`` names are closest to ``name``, as the *next* part of a message."""
    names = [str(k) for k in known]
    close = difflib.get_close_matches(str(name), names, n=n, cutoff=0.4)
    if close:
        return "did you mean " + ", ".join(repr(c) for c in close) + "?"
    if len(names) <= 12:
        return "known names: " + ", ".join(repr(c) for c in names)
    return f"{len(names)} names are known; none is close"
