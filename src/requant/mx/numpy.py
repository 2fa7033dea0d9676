"""``mx.np``: MXNet's numpy mode, which requant does not have.

It imports, because scripts and GluonCV import it beside what they use; whoever calls something of it reads why not.
``mx.np.ndarray`` is a class without instances, so that ``isinstance`` answers, and dtypes and constants are numpy's.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as _numpy

from requant.errors import UnsupportedError

_PLAIN = (
    *("float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool_"),
    *("pi", "e", "inf", "nan", "newaxis"),
)


def refuse(name: str) -> NoReturn:
    """Say that a name of numpy mode is not there.

    Raises:
        UnsupportedError: always.
    """
    raise UnsupportedError(
        f"{name} belongs to MXNet's numpy mode, which requant does not have",
        next="use the operators of mx.nd, or numpy itself on x.asnumpy()",
    )


class Refused:
    """A function or namespace of numpy mode: calling it, or what is in it, raises UnsupportedError."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(self._name)

    def __getattr__(self, name: str) -> Refused:
        if name.startswith("__"):
            raise AttributeError(name)
        return Refused(f"{self._name}.{name}")

    def __repr__(self) -> str:
        return f"<{self._name}: not supported>"


class ndarray:
    """The array of numpy mode. There is none: arrays are ``mx.nd.NDArray``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse("mx.np.ndarray")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"{__name__} has no attribute {name!r}")
    return getattr(_numpy, name) if name in _PLAIN else Refused(f"mx.np.{name}")
