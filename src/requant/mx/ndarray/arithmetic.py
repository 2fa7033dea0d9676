"""Functions of two operands, arrays or numbers: ``nd.add(x, 1)``, ``nd.maximum(2, y)``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from requant.mx.ndarray.ndarray import NDArray, binary

Plain = Callable[[Any, Any], Any]


def _make(name: str, op: str, plain: Plain, does: str) -> Callable[[Any, Any], Any]:
    def function(lhs: Any, rhs: Any) -> Any:
        if not isinstance(lhs, NDArray) and not isinstance(rhs, NDArray):
            return plain(lhs, rhs)
        return binary(op, lhs, rhs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{does}, element by element with broadcasting; operands are NDArrays or numbers."
    return function


def _number(compare: Plain) -> Plain:
    """Comparisons of two plain numbers give 0 or 1."""
    return lambda a, b: int(compare(a, b))


add = _make("add", "broadcast_add", operator.add, "lhs + rhs")
subtract = _make("subtract", "broadcast_sub", operator.sub, "lhs - rhs")
multiply = _make("multiply", "broadcast_mul", operator.mul, "lhs * rhs")
divide = _make("divide", "broadcast_div", operator.truediv, "lhs / rhs")
true_divide = divide
modulo = _make("modulo", "broadcast_mod", operator.mod, "lhs % rhs")
power = _make("power", "broadcast_power", operator.pow, "base ** exp")
maximum = _make("maximum", "broadcast_maximum", max, "The larger one")
minimum = _make("minimum", "broadcast_minimum", min, "The smaller one")
hypot = _make("hypot", "broadcast_hypot", math.hypot, "sqrt(lhs² + rhs²)")
equal = _make("equal", "broadcast_equal", _number(operator.eq), "1 where lhs == rhs, else 0")
not_equal = _make("not_equal", "broadcast_not_equal", _number(operator.ne), "1 where lhs != rhs, else 0")
greater = _make("greater", "broadcast_greater", _number(operator.gt), "1 where lhs > rhs, else 0")
greater_equal = _make("greater_equal", "broadcast_greater_equal", _number(operator.ge), "1 where lhs >= rhs, else 0")
lesser = _make("lesser", "broadcast_lesser", _number(operator.lt), "1 where lhs < rhs, else 0")
lesser_equal = _make("lesser_equal", "broadcast_lesser_equal", _number(operator.le), "1 where lhs <= rhs, else 0")
logical_and = _make("logical_and", "broadcast_logical_and", lambda a, b: int(bool(a and b)), "1 where both are not 0")
logical_or = _make("logical_or", "broadcast_logical_or", lambda a, b: int(bool(a or b)), "1 where one is not 0")
logical_xor = _make(
    "logical_xor", "broadcast_logical_xor", lambda a, b: int(bool(a) != bool(b)), "1 where just one is not 0"
)
