"""Nested arguments of a block as a flat list, and back: arrays, symbols, None, and tuples and lists of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from requant.errors import InputError
from requant.mx.ndarray.ndarray import NDArray
from requant.symbol import tree

#: What a flat list was: 0 an array, -1 None, a number of outputs of a symbol, or a tuple of forms.
Form = Any


def flatten(args: Any, where: str) -> tuple[list[Any], Form]:
    """All arrays or symbols of nested arguments, and their form.

    Raises:
        InputError: something else is among them.
    """
    if isinstance(args, NDArray):
        return [args], 0
    if isinstance(args, tree.Symbol):
        return [args], len(args) if len(args) > 1 else 0
    if args is None:
        return [None], -1
    if not isinstance(args, (list, tuple)):
        raise InputError(
            "an argument must be an NDArray, or a list of them",
            where=where,
            got=type(args).__name__,
            next="mx.nd.array(x) makes one",
        )
    flat: list[Any] = []
    forms: list[Form] = []
    for value in args:
        part, form = flatten(value, where)
        flat += part
        forms.append(form)
    return flat, tuple(forms)


def regroup(flat: Sequence[Any], form: Form) -> Any:
    """The nested structure of that form; tuples come back as lists, as in MXNet."""
    made, rest = _regroup(list(flat), form)
    if rest:
        raise InputError("more values than the structure holds", got=len(rest))
    return made


def _regroup(flat: list[Any], form: Form) -> tuple[Any, list[Any]]:
    if isinstance(form, int):
        if form in (0, -1):
            return (None if form == -1 else flat[0]), flat[1:]
        return flat[:form], flat[form:]
    made = []
    for part in form:
        value, flat = _regroup(flat, part)
        made.append(value)
    return made, flat
