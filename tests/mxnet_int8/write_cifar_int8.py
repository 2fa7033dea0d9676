"""Quantize the CIFAR networks beside a development checkout and write them as MXNet's int8 files; score our own int8.

``python tests/mxnet_int8/write_cifar_int8.py FOLDER [network ...]``, then, with the Python that has MXNet 1.9.1,
``record_cifar_scores.py FOLDER``: it loads the files in MXNet and scores them. The figures stand in docs/mxnet-int8.md.
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


def images(file: str) -> tuple[np.ndarray, np.ndarray]:
    stored = np.load(SHARED / "data" / "images" / file)
    x = ((stored["x"] / 255.0 - MEAN) / STD).astype(np.float32)
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), stored["y"]


def main(folder: Path, networks: list[str]) -> None:
    calibration, _ = images("cifar10_train1k.npz")
    test, labels = images("cifar10_test.npz")
    scores = {}
    for name in networks or NETWORKS:
        model = requant.load(str(SHARED / "models" / name))
        int8 = requant.quantize(model, calibration[:512], check=False)
        files = int8.save(str(folder / name))
        right = sum(
            int((int8.run(test[i : i + 200])[0].argmax(1) == labels[i : i + 200]).sum())
            for i in range(0, len(test), 200)
        )
        scores[name] = 100 * right / len(test)
        print(f"{name}: {scores[name]:.2f} % here; wrote {', '.join(files)}", flush=True)
    (folder / "scores.json").write_text(json.dumps(scores))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    main(target, sys.argv[2:])
