"""What the tests of live calibration share: the digits, and feeding a model until it is decided."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import requant
from requant.pipeline import verify
from requant.pipeline.live import Live, LiveCompiled

DIGITS = Path(__file__).resolve().parents[1] / "digits"
ITERS = 8


def digits() -> requant.Model:
    return requant.load(DIGITS / "digits")


def images() -> np.ndarray:
    """Test images (N, 1, 8, 8) as the network was trained."""
    return np.load(DIGITS / "digits.npz")["x"].astype(np.float32) / 16


def quickly() -> Iterator[None]:
    """Less time for measuring speed: no figure of it is looked at in a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "SECONDS", 0.02)
        yield


def live(iters: int = ITERS, **options: object) -> Live:
    """Options for a model so small that INT8 need not be faster."""
    return Live(iters, **{"min_speedup": None, **options})  # type: ignore[arg-type]


def compiled(model: requant.Model, engine: str = "openvino", **options: object) -> LiveCompiled:
    found = model.compile(engine, int8=live(**options))  # type: ignore[arg-type]
    assert isinstance(found, LiveCompiled)
    return found


def feed(served: LiveCompiled, x: np.ndarray, batches: int = ITERS, size: int = 4) -> list[np.ndarray]:
    """Ask for ``batches`` batches; the answers."""
    return [served.run(x[i * size : (i + 1) * size])[0] for i in range(batches)]


def decided(served: LiveCompiled, x: np.ndarray) -> str:
    """Feed until it is decided; the phase then."""
    feed(served, x)
    for _ in range(6000):  # batches that were skipped or missed are made up for
        if served.wait(0.1):
            return served.state.phase
        served.run(x[:4])
    raise AssertionError(f"never decided: {served.state}")
