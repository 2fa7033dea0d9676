"""``mx.contrib``: quantization, and names of training tools that scripts import."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {"amp", "quant", "quantization"}
_SHORT = {"quant": "quantization"}


def __getattr__(name: str) -> Any:
    if name in ("nd", "ndarray"):
        return importlib.import_module("requant.mx.ndarray.contrib")
    if name in ("sym", "symbol"):
        return importlib.import_module("requant.mx.symbol.contrib")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{_SHORT.get(name, name)}")
