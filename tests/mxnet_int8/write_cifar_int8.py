"""Quantize the CIFAR networks beside a development checkout, write them as MXNet's int8 files, and score our own int8.

``python tests/mxnet_int8/write_cifar_int8.py FOLDER [network ...]``, then, with the Python that has MXNet 1.9.1,
``record_cifar_scores.py FOLDER``: it loads the files in MXNet, scores them on the same 10,000 images, and keeps all
figures in data/cifar-scores.json. They stand in docs/mxnet-int8.md as well.

Three figures are ours: the int8 model as it was quantized, the same files read back, and the files in exact mode.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import requant

SHARED = Path(__file__).resolve().parents[3] / "shared"
MEAN, STD = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2023, 0.1994, 0.2010])
NETWORKS = ("cifar_resnet20_v1", "cifar_resnet20_v2", "cifar_resnet56_v1", "cifar_resnet56_v2")
CALIBRATION, BATCH = 512, 200


def images(file: str) -> tuple[np.ndarray, np.ndarray]:
    stored = np.load(SHARED / "data" / "images" / file)
    x = ((stored["x"] / 255.0 - MEAN) / STD).astype(np.float32)
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), stored["y"]


def classes(model: requant.Model, x: np.ndarray) -> np.ndarray:
    """The class that a model finds in each image."""
    compiled = model.compile("openvino", shapes={"data": (BATCH, *x.shape[1:])})
    return np.concatenate([compiled.run(x[i : i + BATCH])[0].argmax(1) for i in range(0, len(x), BATCH)])


def written(name: str, folder: Path) -> dict[str, requant.Model]:
    """The int8 model of a network, and its files in the two ways to read them."""
    calibration, _ = images("cifar10_train1k.npz")
    model = requant.load(str(SHARED / "models" / name))
    int8 = requant.quantize(model, calibration[:CALIBRATION], check=False)
    int8.save(str(folder / name))
    files = {"read": requant.load(str(folder / name)), "exact": requant.load(str(folder / name), exact=True)}
    return {"int8": int8, **files}


def main(folder: Path, networks: list[str]) -> None:
    test, labels = images("cifar10_test.npz")
    path = folder / "scores.json"
    scores = json.loads(path.read_text()) if path.exists() else {}
    for name in networks or NETWORKS:
        found = {kind: classes(model, test) for kind, model in written(name, folder).items()}
        scores[name] = {kind: round(100 * float((c == labels).mean()), 2) for kind, c in found.items()}
        np.savez_compressed(folder / f"{name}-classes.npz", **{k: c.astype(np.uint8) for k, c in found.items()})
        path.write_text(json.dumps(scores))
        print(name, scores[name], flush=True)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    main(target, sys.argv[2:])
