"""``mx.nd.contrib``: operators whose registered name starts with ``_contrib_``."""

from __future__ import annotations

import math

from requant.mx.generate import Function, Namespace
from requant.mx.ndarray.call import function
from requant.mx.ndarray.ndarray import NDArray

_functions = Namespace(__name__, "contrib", function)


def isnan(data: NDArray) -> NDArray:
    """1 where an element is not a number, else 0, in the dtype of the data."""
    return data != data


def isinf(data: NDArray) -> NDArray:
    """1 where an element is infinite, else 0, in the dtype of the data."""
    return abs(data) == math.inf


def isfinite(data: NDArray) -> NDArray:
    """1 where an element is a finite number, else 0, in the dtype of the data."""
    return abs(data) < math.inf


def __getattr__(name: str) -> Function:
    return _functions.get(name)


def __dir__() -> list[str]:
    return list(_functions)
