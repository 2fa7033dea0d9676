"""requant: run trained MXNet, Gluon and ONNX models today, as INT8, with no MXNet installed.

>>> import requant
>>> model = requant.load("net-symbol.json")          # doctest: +SKIP
>>> [scores] = model.run(images)                     # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from requant.pipeline.compiled import Compiled
    from requant.pipeline.live import Live, LiveCompiled
    from requant.pipeline.loading import load
    from requant.pipeline.model import Model
    from requant.pipeline.quantization import QuantizedModel, quantize

__all__ = ["Compiled", "Live", "LiveCompiled", "Model", "QuantizedModel", "__version__", "load", "quantize"]


def __getattr__(name: str) -> Any:
    # Deferred so that ``import requant`` costs no engine and no ONNX.
    if name in __all__:
        from requant import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module 'requant' has no attribute {name!r}")
