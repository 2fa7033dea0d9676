"""Engines that run ONNX models. They are found by listing this folder: one file each, no list to keep."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil

from requant.engines.base import Availability, Engine, EngineOptions
from requant.engines.cache import SessionCache
from requant.engines.session import LayerProfile, Session
from requant.engines.tensors import TensorSpec
from requant.errors import EngineError, nearest

__all__ = [
    "Availability",
    "Engine",
    "EngineOptions",
    "LayerProfile",
    "Session",
    "SessionCache",
    "TensorSpec",
    "get",
    "names",
]

#: What runs a graph when the user names nothing.
DEFAULT = "openvino"


@functools.cache
def _found() -> dict[str, Engine]:
    """An instance of every engine class in this folder, the default first. Their libraries are not imported."""
    engines = []
    for file in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{file.name}")
        for item in vars(module).values():
            # Where it is from comes first: on Python 3.10 an alias such as tuple[int] passes for a class.
            ours = getattr(item, "__module__", None) == module.__name__ and isinstance(item, type)
            if ours and issubclass(item, Engine) and not inspect.isabstract(item):
                engines.append(item())
    return {e.name: e for e in sorted(engines, key=lambda e: (e.name != DEFAULT, e.name))}


def names() -> tuple[str, ...]:
    """Names of all engines, the default one first, whether or not their libraries are installed."""
    return tuple(_found())


def get(name: str = DEFAULT) -> Engine:
    """An engine by name, in any case.

    Raises:
        EngineError: there is none of that name; the message lists those there are and which can be used here.
    """
    engines = _found()
    wanted = str(name).lower()
    if wanted not in engines:
        states = []
        for engine in engines.values():
            found = engine.available()
            states.append(
                f"{engine.name} ({found.version})" if found.ok else f"{engine.name} (not available: {found.why})"
            )
        raise EngineError("unknown engine", got=repr(name), expected=", ".join(states), next=nearest(wanted, engines))
    return engines[wanted]
