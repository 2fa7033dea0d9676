"""``mx.random``: seeding, and the functions of ``mx.nd.random``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_generator = np.random.default_rng()


def generator() -> np.random.Generator:
    """The generator that all random arrays come from."""
    return _generator


def seed(seed_state: int, ctx: object = "all") -> None:
    """Start the sequence of random numbers anew. It is numpy's sequence, not MXNet's."""
    global _generator
    _generator = np.random.default_rng(int(seed_state) & 0xFFFFFFFF)


def __getattr__(name: str) -> Callable[..., Any]:
    from requant.mx.ndarray import random

    if name.startswith("_") or name not in vars(random):
        raise AttributeError(f"{__name__} has no function {name!r}")
    found: Callable[..., Any] = vars(random)[name]
    return found
