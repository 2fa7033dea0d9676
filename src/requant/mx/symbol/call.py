"""What a ``sym`` function does: put its arguments in order and compose a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from requant.attrs import to_string
from requant.errors import AttributeValueError, InputError, nearest
from requant.mx.generate import HIDDEN_KEYS, Function, Spelling
from requant.mx.symbol.symbol import Symbol
from requant.symbol import tree


def _text(value: object) -> str:
    """An attribute as MXNet's front end writes it: dtypes by name, all else by ``str``."""
    if isinstance(value, np.dtype):
        return str(value.name)
    if isinstance(value, (list, tuple)):  # numpy numbers would show their type
        plain = [v.item() if isinstance(v, np.generic) else v for v in value]
        return str(plain if isinstance(value, list) else tuple(plain))
    return to_string(value)


def function(spelling: Spelling) -> Function:
    """The function that applies an operator to symbols and returns a symbol."""
    op, where = spelling.op, spelling.name
    known = {*spelling.inputs, *spelling.attributes}

    def call(*args: Any, name: str | None = None, attr: Mapping[str, Any] | None = None, **kwargs: Any) -> Symbol:
        kwargs.pop("out", None)
        if spelling.variadic:
            symbols: tuple[Any, ...] = args
            bound = kwargs
        else:
            symbols = ()
            bound = spelling.bind(args, kwargs)
        for value in symbols:
            _must_be_symbol(value, where, "input")
        user: dict[str, str] = {k: v.dumps() if hasattr(v, "dumps") else _text(v) for k, v in (attr or {}).items()}
        given: dict[str, Any] = {}
        for key, value in bound.items():
            if key in HIDDEN_KEYS or (key.startswith("__") and key.endswith("__")):
                user[key if key.startswith("__") else f"__{key}__"] = _text(value)
            elif isinstance(value, tree.Symbol):
                given[key] = value
            elif key in spelling.inputs:
                _must_be_symbol(value, where, key)
            else:
                given[key] = _text(value)  # None too: MXNet writes it, and it may be the value of a required one
        for key in user:
            if not (key.startswith("__") and key.endswith("__")) and key not in known:
                raise AttributeValueError(
                    "unknown attribute",
                    where=where,
                    got=f"{key}={user[key]!r}",
                    expected="an attribute of the operator, or your own as __name__",
                    next=nearest(key, known),
                )
        if spelling.variadic:  # symbols by keyword are inputs, in the order given
            symbols += tuple(given.pop(k) for k in [k for k, v in given.items() if isinstance(v, tree.Symbol)])
        made = tree.compose(op, symbols, given, name=name, hint=spelling.name, user_attrs=user)
        return Symbol(made.entries)

    return call


def _must_be_symbol(value: object, where: str, name: str) -> None:
    if not isinstance(value, tree.Symbol):
        raise InputError(
            f"{name} must be a Symbol", where=where, got=f"{type(value).__name__} {value!r}", next="mx.sym.var(name)"
        )
