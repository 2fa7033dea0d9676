"""``mx.sym.op``: all operators without a prefix, generated from the registry."""

from __future__ import annotations

from requant.mx.generate import Function, Namespace
from requant.mx.symbol.call import function

_functions = Namespace(__name__, "", function)


def __getattr__(name: str) -> Function:
    return _functions.get(name)


def __dir__() -> list[str]:
    return list(_functions)
