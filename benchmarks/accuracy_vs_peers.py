"""Accuracy of INT8 beside the peers', over several draws of the calibration images.

    python benchmarks/accuracy_vs_peers.py PREFIX ... --train TRAIN.npz --test TEST.npz [--draws 5] [--no-peers]

The files hold ``x``, (N, H, W, 3) uint8, and the labels ``y``. One figure of accuracy on 10,000 images moves by 0.05
points by chance, and with it the order of tools that are equally good. So each draws the same images several times
and calibrates with its defaults, and told are the mean over the draws, the spread, the share of images on which int8
chooses as float does, and the signal to noise of the outputs. Peers: ``pip install 'requant[peers]'``.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
from peers import folded_file, nncf_file, qdq_file

import requant
from requant.qmath import sqnr

#: What CIFAR-10 is normalized by, as in GluonCV.
MEAN, STD = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2023, 0.1994, 0.2010])
BATCH = 100

Forward = Callable[[np.ndarray], np.ndarray]


def images(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Normalized images, (N, 3, H, W) float32, and labels."""
    held = np.load(path)
    x = ((held["x"] / 255.0 - MEAN) / STD).astype(np.float32)
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)), held["y"]


def batched(run: Forward, x: np.ndarray) -> np.ndarray:
    """Outputs of all images; the number of images is a multiple of the batch, or the last batch is filled up."""
    rest = -len(x) % BATCH
    filled = np.concatenate([x, np.repeat(x[:1], rest, axis=0)]) if rest else x
    return np.concatenate([run(filled[i : i + BATCH]) for i in range(0, len(filled), BATCH)])[: len(x)]


def ours(onnx: Path, data: np.ndarray, _: Path) -> Forward:
    """requant by one default call."""
    made = requant.quantize(requant.load(onnx), data, check=False).compile()
    return lambda x: made.run(x)[0]


def nncf(onnx: Path, data: np.ndarray, folder: Path) -> Forward:
    """NNCF with its defaults, on OpenVINO."""
    found = nncf_file(onnx, folder / "nncf.xml", _feeds(data))
    compiled = openvino.Core().compile_model(str(found), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda x: np.array(compiled([x])[0])


def ort(onnx: Path, data: np.ndarray, folder: Path) -> Forward:
    """ONNX Runtime's static quantization: batch norms folded, unsigned activations, weights by channel."""
    found = qdq_file(folded_file(onnx, folder / "folded.onnx"), folder / "ort.onnx", _feeds(data))
    made = onnxruntime.InferenceSession(str(found), providers=["CPUExecutionProvider"])
    return lambda x: np.asarray(made.run(None, {"data": x})[0])


def _feeds(data: np.ndarray) -> list[dict[str, np.ndarray]]:
    return [{"data": x[None]} for x in data]


TOOLS: dict[str, Callable[[Path, np.ndarray, Path], Forward]] = {"requant": ours, "NNCF": nncf, "ONNX Runtime": ort}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefixes", nargs="+", type=Path, help="MXNet prefixes of trained networks")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--images", type=int, default=512, help="calibration images of a draw")
    parser.add_argument("--no-peers", action="store_true")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    train, _ = images(args.train)
    x, labels = images(args.test)
    tools = {"requant": ours} if args.no_peers else TOOLS
    print("| network | tool | float | int8, each draw | mean | as float | dB |\n|---|---|---|---|---|---|---|")
    for prefix in args.prefixes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = requant.load(prefix, shapes={"data": (None, *x.shape[1:])})
            [onnx] = model.save(folder / "float.onnx")
            compiled = model.compile()
            wanted = batched(lambda part, run=compiled.run: run(part)[0], x)  # type: ignore[misc]
            right = 100 * float((wanted.argmax(1) == labels).mean())
            for tool, make in tools.items():
                scores, same, noise = [], [], []
                for draw in range(args.draws):
                    # The first draw is the first images in their order, as one default call on the file has them.
                    order = np.random.default_rng(draw).permutation(len(train)) if draw else np.arange(len(train))
                    got = batched(make(Path(onnx), train[order[: args.images]], folder), x)
                    scores.append(100 * float((got.argmax(1) == labels).mean()))
                    same.append(100 * float((got.argmax(1) == wanted.argmax(1)).mean()))
                    noise.append(sqnr(wanted, got))
                each = ", ".join(f"{s:.2f}" for s in scores)
                print(
                    f"| {prefix.name} | {tool} | {right:.2f} | {each} | {np.mean(scores):.3f} | {np.mean(same):.2f} "
                    f"| {np.mean(noise):.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
