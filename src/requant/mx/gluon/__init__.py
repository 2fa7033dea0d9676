"""``mx.gluon``: blocks, layers, data, losses and networks. Inference only."""

from __future__ import annotations

import importlib
from typing import Any

from requant.mx.gluon import nn
from requant.mx.gluon.block import Block, HybridBlock, SymbolBlock
from requant.mx.gluon.parameter import Constant, DeferredInitializationError, Parameter
from requant.mx.gluon.parameter_dict import ParameterDict

_MODULES = {"block", "contrib", "data", "loss", "model_zoo", "parameter", "rnn", "trainer", "utils"}

__all__ = [
    "Block",
    "Constant",
    "DeferredInitializationError",
    "HybridBlock",
    "Parameter",
    "ParameterDict",
    "SymbolBlock",
    "nn",
]


def __getattr__(name: str) -> Any:
    if name == "Trainer":
        return importlib.import_module(f"{__name__}.trainer").Trainer
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "Trainer"})
