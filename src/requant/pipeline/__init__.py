"""The roads from files to answers: load, compile, run, save; calibrate, quantize, verify.

The only place where the rooms are strung together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requant.pipeline.compiled import Compiled
from requant.pipeline.loading import load, parameters
from requant.pipeline.model import Model

if TYPE_CHECKING:
    from requant.pipeline.live import Live, LiveCompiled
    from requant.pipeline.quantization import QuantizedModel, quantize

__all__ = ["Compiled", "Live", "LiveCompiled", "Model", "QuantizedModel", "load", "parameters", "quantize"]


def __getattr__(name: str) -> Any:
    # Deferred: who runs a float model needs no calibrators and no passes.
    if name in {"QuantizedModel", "quantize"}:
        from requant.pipeline import quantization

        return getattr(quantization, name)
    if name in {"Live", "LiveCompiled"}:
        from requant.pipeline import live

        return getattr(live, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
