"""``mx.npx``: beside numpy mode's switches and its devices, nothing of it is there; see ``requant.mx.numpy``."""

from __future__ import annotations

from requant.mx.context import Context, cpu, cpu_pinned, current_context, gpu, num_gpus
from requant.mx.ndarray import waitall
from requant.mx.numpy import Refused
from requant.mx.random import seed
from requant.mx.util import is_np_array, is_np_shape, reset_np, set_np

__all__ = [
    "Context",
    "cpu",
    "cpu_pinned",
    "current_context",
    "gpu",
    "is_np_array",
    "is_np_shape",
    "num_gpus",
    "reset_np",
    "seed",
    "set_np",
    "waitall",
]


def __getattr__(name: str) -> Refused:
    if name.startswith("_"):
        raise AttributeError(f"{__name__} has no attribute {name!r}")
    return Refused(f"mx.npx.{name}")
