"""Live calibration on trained CIFAR networks, in MXNet's words: as accurate as quantizing offline with their batches.

All 10,000 test images are judged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant
import requant.mx as mx

pytestmark = pytest.mark.shared
MEAN, STD = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2023, 0.1994, 0.2010])
ITERS, SIZE = 8, 64
#: Percent points that live and offline may differ by.
APART = 0.2


def cifar(shared: Path) -> tuple[np.ndarray, np.ndarray]:
    stored = np.load(shared / "data/images/cifar10_test.npz")
    x = ((stored["x"] / 255.0 - MEAN) / STD).astype(np.float32).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x), stored["y"]


def score(run: Any, x: np.ndarray, y: np.ndarray) -> float:
    """Percent of right answers."""
    right = sum(int((run(x[i : i + 200]).argmax(1) == y[i : i + 200]).sum()) for i in range(0, len(x), 200))
    return 100.0 * right / len(x)


def compared(shared: Path, name: str, gluon: bool) -> None:
    x, y = cifar(shared)
    assert len(x) == 10_000
    prefix = str(shared / "models" / name)
    symbol, args, aux = mx.model.load_checkpoint(prefix, 0)
    if gluon:
        net = mx.gluon.SymbolBlock.imports(f"{prefix}-symbol.json", ["data"], f"{prefix}-0000.params")
        first = mx.nd.array(x[:SIZE])
        net.optimize_for(first, backend="OpenVINO", backend_opts={"int8_mode": True, "calibration_iters": ITERS})

        def run(batch: np.ndarray) -> np.ndarray:
            return net(mx.nd.array(batch)).asnumpy()  # type: ignore[no-any-return]

        holder: Any = net
    else:
        fast = symbol.optimize_for("OpenVINO", args=args, aux=aux, int8_mode=True, calibration_iters=ITERS)
        module = mx.mod.Module(fast, label_names=None)
        module.bind(for_training=False, data_shapes=[("data", (SIZE, 3, 32, 32))])
        module.set_params(args, aux)

        def run(batch: np.ndarray) -> np.ndarray:
            module.forward(mx.io.DataBatch([mx.nd.array(batch)]), is_train=False)
            return module.get_outputs()[0].asnumpy()  # type: ignore[no-any-return]

        holder = module
    for i in range(ITERS):
        run(x[SIZE * i : SIZE * (i + 1)])
    assert holder.live_model.wait(300) and str(holder.live_model.state) == "int8"
    assert holder.live_model.report.executed["int8"] > 15
    model = requant.load(prefix)
    offline = requant.quantize(model, x[: ITERS * SIZE], held_out=x[-SIZE:], check=False).compile()
    live_score, offline_score = score(run, x, y), score(lambda batch: offline.run(batch)[0], x, y)
    assert abs(live_score - offline_score) <= APART, (live_score, offline_score)


@pytest.mark.parametrize("name", ["cifar_resnet20_v1", "cifar_resnet20_v2"])
@pytest.mark.slow
def test_small_networks(shared: Path, name: str) -> None:
    compared(shared, name, gluon=name.endswith("v2"))


@pytest.mark.parametrize("name", ["cifar_resnet56_v1", "cifar_resnet56_v2"])
@pytest.mark.slow
def test_deep_networks(shared: Path, name: str) -> None:
    compared(shared, name, gluon=name.endswith("v1"))
