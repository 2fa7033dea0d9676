"""Inception v3 (Szegedy 2015)."""

from __future__ import annotations

from typing import Any

from requant.mx.gluon.contrib.nn import HybridConcurrent
from requant.mx.gluon.model_zoo.vision.building import Classifier, chain, maker
from requant.mx.gluon.nn import (
    Activation,
    AvgPool2D,
    BatchNorm,
    Conv2D,
    Dense,
    Dropout,
    HybridSequential,
    MaxPool2D,
)

#: A convolution (channels, kernel, stride, padding), or ``avg`` or ``max`` pooling.
Step = tuple[Any, ...] | str


def _conv(channels: int, kernel: Any, stride: int = 1, padding: Any = 0) -> Any:
    return chain(
        Conv2D(channels, kernel, stride, padding, use_bias=False), BatchNorm(epsilon=0.001), Activation("relu")
    )


def _branch(*steps: Step) -> Any:
    made = HybridSequential(prefix="")
    for step in steps:
        if step == "avg":
            made.add(AvgPool2D(3, 1, 1))
        elif step == "max":
            made.add(MaxPool2D(3, 2))
        else:
            made.add(_conv(*step))
    return made


def _split() -> Any:
    made = HybridConcurrent(axis=1, prefix="")
    made.add(_branch((384, (1, 3), 1, (0, 1))), _branch((384, (3, 1), 1, (1, 0))))
    return made


def _block(prefix: str, *branches: Any) -> Any:
    """Branches side by side; a branch is its steps, and ``split`` ends one in two."""
    made = HybridConcurrent(axis=1, prefix=prefix)
    with made.name_scope():
        for steps in branches:
            if steps[-1] == "split":
                branch = HybridSequential(prefix="")
                branch.add(_branch(*steps[:-1]), _split())
                made.add(branch)
            else:
                made.add(_branch(*steps))
    return made


def _a(pool: int, prefix: str) -> Any:
    return _block(
        prefix,
        [(64, 1)],
        [(48, 1), (64, 5, 1, 2)],
        [(64, 1), (96, 3, 1, 1), (96, 3, 1, 1)],
        ["avg", (pool, 1)],
    )


def _b(prefix: str) -> Any:
    return _block(prefix, [(384, 3, 2)], [(64, 1), (96, 3, 1, 1), (96, 3, 2)], ["max"])


def _c(n: int, prefix: str) -> Any:
    wide, high = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    return _block(
        prefix,
        [(192, 1)],
        [(n, 1), (n, *wide), (192, *high)],
        [(n, 1), (n, *high), (n, *wide), (n, *high), (192, *wide)],
        ["avg", (192, 1)],
    )


def _d(prefix: str) -> Any:
    return _block(
        prefix,
        [(192, 1), (320, 3, 2)],
        [(192, 1), (192, (1, 7), 1, (0, 3)), (192, (7, 1), 1, (3, 0)), (192, 3, 2)],
        ["max"],
    )


def _e(prefix: str) -> Any:
    return _block(prefix, [(320, 1)], [(384, 1), "split"], [(448, 1), (384, 3, 1, 1), "split"], ["avg", (192, 1)])


class Inception3(Classifier):
    """Inception v3, for pictures of 299 x 299."""

    def __init__(self, classes: int = 1000, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = chain(_conv(32, 3, 2), _conv(32, 3), _conv(64, 3, 1, 1), MaxPool2D(3, 2))
            self.features.add(_conv(80, 1), _conv(192, 3), MaxPool2D(3, 2))
            self.features.add(_a(32, "A1_"), _a(64, "A2_"), _a(64, "A3_"), _b("B_"))
            self.features.add(_c(128, "C1_"), _c(160, "C2_"), _c(160, "C3_"), _c(192, "C4_"), _d("D_"))
            self.features.add(_e("E1_"), _e("E2_"), AvgPool2D(8), Dropout(0.5))
            self.output = Dense(classes)


inception_v3 = maker("inceptionv3", "Inception v3.", Inception3)
