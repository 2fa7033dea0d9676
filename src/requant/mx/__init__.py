"""MXNet's spelling of requant: ``import requant.mx as mx``. Inference only; nothing here contains an algorithm.

Submodules are imported when first used, so that ``import requant.mx`` is cheap.
"""

from __future__ import annotations

import importlib
from typing import Any

from requant.mx.base import MXNetError
from requant.mx.context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus

#: The version of MXNet whose behaviour this spelling follows; scripts compare it.
__version__ = "1.9.1"

#: Short names of modules.
SHORT = {
    "init": "initializer",
    "nd": "ndarray",
    "sym": "symbol",
    "mod": "module",
    "rnd": "random",
    "img": "image",
    "viz": "visualization",
    "kv": "kvstore",
    "mon": "monitor",
    "opt": "optimizer",
    "np": "numpy",
    "npx": "numpy_extension",
}
_MODULES = {
    "alias",
    "callback",
    "contrib",
    "image",
    "kvstore",
    "lr_scheduler",
    "operator",
    "optimizer",
    "visualization",
    "attribute",
    "autograd",
    "base",
    "context",
    "executor",
    "generate",
    "gluon",
    "initializer",
    "io",
    "metric",
    "model",
    "module",
    "monitor",
    "name",
    "ndarray",
    "numpy",
    "numpy_extension",
    "random",
    "recordio",
    "runtime",
    "symbol",
    "test_utils",
    "util",
}
_NAMES = {
    "AttrScope": "attribute",
    "NDArray": "ndarray",
    "Monitor": "monitor",
    "gpu_memory_info": "context",
    "install": "alias",
    "is_np_array": "util",
    "is_np_shape": "util",
    "np_array": "util",
    "np_shape": "util",
    "set_np_shape": "util",
    "use_np": "util",
    "use_np_array": "util",
    "use_np_shape": "util",
    "uninstall": "alias",
    "waitall": "ndarray",
}

__all__ = ["Context", "MXNetError", "__version__", "cpu", "cpu_pinned", "current_context", "gpu", "num_gpus"]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"{__name__}.{_NAMES[name]}"), name)
    module = SHORT.get(name, name)
    if module not in _MODULES:
        raise AttributeError(f"requant.mx has no attribute {name!r}")
    found = importlib.import_module(f"{__name__}.{module}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *SHORT, *_MODULES, *_NAMES})
