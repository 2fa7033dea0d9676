"""Operator attributes as frozen dataclasses, read from the strings that MXNet writes.

An operator declares its attributes once::

    @dataclass(frozen=True)
    class PoolingAttrs(Attrs):
        kernel: Ints = ()
        pool_type: Literal["max", "avg", "sum", "lp"] = "max"

A field without a default is required. The field's type says how a string is read. MXNet wrote the same value in
many ways over the years (``"(1, 1)"``, ``"[1,1]"``, ``"1"``, ``"2L"``, ``"None"``, ``"True"``), and
all of them are read.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union

import numpy as np

from requant.errors import AttributeValueError, nearest

Ints = tuple[int, ...]
Floats = tuple[float, ...]
#: A tuple whose members may be None (``slice(begin=(None, 1))``).
OptInts = tuple[int | None, ...]

A = TypeVar("A", bound="Attrs")

_TRUE, _FALSE = {"true", "1"}, {"false", "0"}
_SPLIT = re.compile(r"[,\s]+")


def _int(value: object) -> int:
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    text = str(value).strip().rstrip("L")
    if text in ("True", "False"):
        return int(text == "True")
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise ValueError(text) from None
        return int(number)


def _bool(value: object) -> bool:
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return bool(value)
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(text)


def items(value: object) -> list[object]:
    """The members of a tuple written as text, or of a Python sequence; a lone value is a tuple of one."""
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in "([" and text[-1:] in ")]" and len(text) >= 2:
            text = text[1:-1]
        return [t for t in _SPLIT.split(text.strip()) if t]
    if isinstance(value, (tuple, list, np.ndarray)):
        return list(value)
    return [value]


def _read(kind: Any, value: object) -> object:
    """Read ``value`` as a field type; ValueError or TypeError if it does not fit."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        if _unset(value):
            return None
        return _read(inner[0], value)
    if origin is Literal:
        text = str(value)
        for option in args:
            if text == str(option):
                return option
        raise ValueError(text)
    if origin is tuple:
        return tuple(_read(args[0], item) for item in items(value))
    if kind is bool:
        return _bool(value)
    if kind is int:
        return _int(value)
    if kind is float:
        return float(typing.cast(Any, value))
    if kind is str:
        return value if isinstance(value, str) else getattr(value, "__name__", None) or str(value)
    raise TypeError(f"no reader for attributes of type {kind!r}")


def _unset(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.strip() == "None")


def _say(kind: Any) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join("None" if a is type(None) else _say(a) for a in args)
    if origin is Literal:
        return "one of " + ", ".join(repr(a) for a in args)
    if origin is tuple:
        return f"a tuple of {_say(args[0])}, such as '(1, 1)'"
    return {int: "an integer", bool: "True or False", float: "a number", str: "text"}.get(kind, str(kind))


@functools.cache
def _types(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


@dataclasses.dataclass(frozen=True)
class Attrs:
    """Base of every operator's attributes. Instances are immutable and hashable: they serve as cache keys."""

    @classmethod
    def parse(cls: type[A], raw: Mapping[str, object], where: object | None = None) -> A:
        """Read attributes from strings (a symbol file) or Python values (a call).

        Keys of the form ``__x__`` are user attributes and are left alone.

        Raises:
            AttributeValueError: an unknown key, a missing required one, or a value that cannot be read.
        """
        kinds = _types(typing.cast(Any, cls))
        names = {f.metadata.get("name", f.name): f for f in dataclasses.fields(cls)}
        found: dict[str, object] = {}
        for key, value in raw.items():
            if key.startswith("__") and key.endswith("__"):
                continue
            if key not in names:
                raise AttributeValueError(
                    "unknown attribute", where=where, got=f"{key}={value!r}", next=nearest(key, names)
                )
            field = names[key]
            if _unset(value) and typing.get_origin(kinds[field.name]) is tuple:
                continue  # a tuple that is None is one that was not given
            try:
                found[field.name] = _read(kinds[field.name], value)
            except (ValueError, TypeError) as fault:
                raise AttributeValueError(
                    f"attribute {key!r} cannot be read", where=where, got=repr(value), expected=_say(kinds[field.name])
                ) from fault
        for key, field in names.items():
            needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if needed and field.name not in found:
                raise AttributeValueError(
                    f"attribute {key!r} is missing", where=where, expected=_say(kinds[field.name])
                )
        return cls(**found)


def to_string(value: object) -> str:
    """The string that MXNet's Python front end writes for an attribute value."""
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(value, tuple):
        value = tuple(int(v) if isinstance(v, np.integer) else v for v in value)
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    return str(value)
