"""``mx.sym``: symbols, and every operator of requant as a function that composes them."""

from __future__ import annotations

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


def __getattr__(name: str) -> Function:
    return op._functions.get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *op._functions})


__all__ = [
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
