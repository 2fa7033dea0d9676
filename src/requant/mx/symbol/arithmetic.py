"""Functions of two operands, symbols or numbers: ``sym.pow(2, x)``, ``sym.maximum(x, y)``."""

from __future__ import annotations

import math
from typing import Any

from requant.mx.symbol.symbol import Symbol, operate
from requant.symbol import tree


def _either(two: str, scalar: str, reverse: str, plain: Any, lhs: Any, rhs: Any) -> Any:
    if isinstance(lhs, tree.Symbol):
        return operate(two, scalar, Symbol(lhs.entries), rhs)
    if isinstance(rhs, tree.Symbol):
        return operate("", reverse, Symbol(rhs.entries), lhs)
    return plain(lhs, rhs)


def pow(base: Any, exp: Any) -> Any:
    """base ** exp; a plain number if both are."""
    return _either("_Power", "_PowerScalar", "_RPowerScalar", lambda a, b: a**b, base, exp)


power = pow


def maximum(left: Any, right: Any) -> Any:
    """The larger one, element by element."""
    return _either("_Maximum", "_MaximumScalar", "_MaximumScalar", max, left, right)


def minimum(left: Any, right: Any) -> Any:
    """The smaller one, element by element."""
    return _either("_Minimum", "_MinimumScalar", "_MinimumScalar", min, left, right)


def hypot(left: Any, right: Any) -> Any:
    """sqrt(left² + right²)."""
    return _either("_Hypot", "_HypotScalar", "_HypotScalar", math.hypot, left, right)
