"""What tests of TFLite files share: loading one, feeding it, and running it beside what it means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tflite_writer import File

import requant
from requant import spec

IMAGE = [1, 6, 7, 4]
ENGINES = ("openvino", "onnxruntime")


def load(f: File, tmp_path: Path) -> requant.Model:
    path = tmp_path / "net.tflite"
    path.write_bytes(f.bytes())
    return requant.load(path)


def numbers(f: File, batch: int = 1, seed: int = 0) -> list[np.ndarray]:
    """Inputs of all integers, or around zero."""
    random, found = np.random.RandomState(seed), []
    for t in (f.tensors[i] for i in f.inputs):
        shape = (batch, *t.shape[1:])
        if t.dtype == "float32":
            found.append(random.randn(*shape).astype(np.float32))
        else:
            whole = np.iinfo(t.dtype)
            found.append(random.randint(whole.min, whole.max + 1, shape).astype(t.dtype))
    return found


def check(f: File, tmp_path: Path, batch: int = 1, exact: float = 0.97) -> None:
    """Both engines compute what the file means: nowhere more than one integer apart, and hardly anywhere that."""
    model = load(f, tmp_path)
    spec.check(model.onnx)
    feeds = numbers(f, batch)
    wanted = f.run(*feeds)
    for engine in ENGINES:
        for mine, right in zip(model.run(feeds, engine=engine), wanted):
            assert mine.dtype == right.dtype and mine.shape == right.shape
            if right.dtype == np.float32:
                np.testing.assert_allclose(mine, right, rtol=1e-4, atol=1e-5)
                continue
            apart = np.abs(mine.astype(int) - right.astype(int))
            assert apart.max() <= 1, f"{engine}: {apart.max()} apart"
            assert (apart == 0).mean() >= exact, f"{engine}: {(apart == 0).mean():.3f} equal"


def one(
    kind: str,
    shapes: Sequence[Sequence[int]],
    out: Sequence[int],
    dtype: str,
    constants: Sequence[np.ndarray] = (),
    same: bool = False,
    **options: Any,
) -> File:
    """A network of one operator on computed inputs, then constants."""
    f = File()
    shift = 128 if dtype == "uint8" else 0

    def act(name: str, shape: Sequence[int], scale: float, zero: int) -> int:
        return f.tensor(name, shape, dtype, scale=[scale] if dtype != "float32" else (), zero=[zero + shift])

    f.inputs = [
        act(f"x{i}", s, 0.03 + (0 if same else 0.01 * i), 5 if same else 5 - 20 * i) for i, s in enumerate(shapes)
    ]
    others = [f.tensor(f"c{i}", a.shape, a.dtype.name, a) for i, a in enumerate(constants)]
    f.outputs = [
        f.op(kind, [*f.inputs, *others], act("y", out, 0.03 if same else 0.045, 5 if same else -30), **options)
    ]
    return f
