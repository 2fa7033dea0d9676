"""``mx.sym``: symbols, and every operator of requant as a function that composes them."""

from __future__ import annotations

from typing import Any

from requant.errors import UnsupportedError
from requant.mx import methods
from requant.mx.generate import Function
from requant.mx.symbol import _internal, contrib, image, linalg, op, random
from requant.mx.symbol.arithmetic import hypot, maximum, minimum, pow, power
from requant.mx.symbol.create import (
    Group,
    Variable,
    arange,
    eye,
    fromjson,
    full,
    linspace,
    load,
    load_json,
    ones,
    split_v2,
    var,
    zeros,
)
from requant.mx.symbol.symbol import Symbol

methods.attach(Symbol, op._functions, split_v2)


def Custom(*data: Symbol, op_type: str, **kwargs: Any) -> Symbol:
    """Raises UnsupportedError: operators written in Python run on arrays, not inside a compiled network."""
    raise UnsupportedError(
        "an operator written in Python cannot be part of a compiled network",
        where=f"Custom(op_type={op_type!r})",
        next="do not hybridize the block that calls it, or write it with operators of F",
    )


def __getattr__(name: str) -> Function:
    return op._functions.get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *op._functions})


__all__ = [
    "Custom",
    "Group",
    "Symbol",
    "Variable",
    "_internal",
    "arange",
    "contrib",
    "eye",
    "fromjson",
    "full",
    "hypot",
    "image",
    "linalg",
    "linspace",
    "load",
    "load_json",
    "maximum",
    "minimum",
    "ones",
    "op",
    "pow",
    "power",
    "random",
    "split_v2",
    "var",
    "zeros",
]
