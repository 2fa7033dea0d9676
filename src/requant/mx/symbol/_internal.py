"""``mx.sym._internal``: operators whose registered name starts with an underscore."""

from __future__ import annotations

from requant.mx.generate import Function, Namespace
from requant.mx.symbol.call import function

_functions = Namespace(__name__, "_internal", function)


def __getattr__(name: str) -> Function:
    return _functions.get(name)


def __dir__() -> list[str]:
    return list(_functions)
