"""``mx.gluon.contrib``: further layers."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {"cnn", "data", "estimator", "nn", "rnn"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
