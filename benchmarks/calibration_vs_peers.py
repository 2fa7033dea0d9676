"""What calibration costs: time and memory beside the plain float forward pass and beside other tools, by turns.

    python benchmarks/calibration_vs_peers.py [--rounds 5] [--images 128] [--batch 16] [--peers]

ResNet-50 v1 with seeded weights. Every measurement is a process of its own: peak memory is what it needs beyond the
loaded and compiled float model. The peers (``pip install 'requant[peers]'``) are NNCF and ONNX Runtime's calibrators.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from peers import network, reader

KEY = "gluoncv-resnet50_v1"
OURS = {
    "ours, naive": "naive",
    "ours, entropy": "entropy",
    "ours, percentile": "percentile",
    "ours, mse": "mse",
    "ours, auto": "auto",
}
PEERS = ("NNCF", "ONNX Runtime MinMax", "ONNX Runtime Entropy")


def images(count: int) -> np.ndarray:
    """Images as a network sees them: smooth, so that activations look like those of photos."""
    rng = np.random.default_rng(0)
    coarse = rng.standard_normal((count, 3, 28, 28)).astype(np.float32)
    return np.repeat(np.repeat(coarse, 8, axis=2), 8, axis=3)


def peak() -> int:
    """Peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(what: str, onnx: str, count: int, batch: int) -> dict[str, float]:
    """One measurement, in this process: seconds, and peak memory above the loaded model."""
    data = images(count)
    if what == "float forward":
        import requant

        model = requant.load(onnx).compile(shapes={"data": (batch, 3, 224, 224)})
        model.run(data[:batch])
        before, start = peak(), time.perf_counter()
        for i in range(0, count, batch):
            model.run(data[i : i + batch])
        return {"seconds": time.perf_counter() - start, "memory": peak() - before}
    if what in OURS:
        return _ours(OURS[what], onnx, data, batch)
    return _peer(what, onnx, data, batch)


def _ours(calibrator: str, onnx: str, data: np.ndarray, batch: int) -> dict[str, float]:
    import requant
    from requant import engines
    from requant.formats.dataset import Arrays
    from requant.passes import optimize
    from requant.pipeline.calibrate import calibrate, ranges
    from requant.quant.planner import plan

    model = requant.load(onnx)
    model.compile(shapes={"data": (batch, 3, 224, 224)}).run(data[:batch])
    floating = optimize(model.onnx)
    made = plan(floating, "best", engines.get("openvino").scheme)
    before, start = peak(), time.perf_counter()
    table = calibrate(floating, made, Arrays({"data": data}), calibrator=calibrator, batch=batch)
    ranges(table, made)  # the search is part of it
    return {"seconds": time.perf_counter() - start, "memory": peak() - before, "tensors": len(table)}


def _peer(what: str, onnx: str, data: np.ndarray, batch: int) -> dict[str, float]:
    before = peak()
    if what == "NNCF":
        import nncf
        import openvino

        model = openvino.Core().read_model(onnx)
        batches = [data[i : i + batch] for i in range(0, len(data), batch)]
        before, start = peak(), time.perf_counter()
        nncf.quantize(model, nncf.Dataset(batches), subset_size=len(batches))
        return {"seconds": time.perf_counter() - start, "memory": peak() - before}
    from onnxruntime.quantization import CalibrationMethod, create_calibrator

    feeds = reader([{"data": data[i : i + batch]} for i in range(0, len(data), batch)])
    method = CalibrationMethod.MinMax if what.endswith("MinMax") else CalibrationMethod.Entropy
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        calibrator = create_calibrator(
            onnx, ["Conv", "Gemm", "MatMul"], str(Path(folder) / "augmented.onnx"), calibrate_method=method
        )
        calibrator.collect_data(feeds)
        calibrator.compute_data()
        return {"seconds": time.perf_counter() - start, "memory": peak() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--peers", action="store_true", help="measure NNCF and ONNX Runtime too, once each")
    parser.add_argument("--only", nargs="+", choices=list(OURS.values()), default=list(OURS.values()))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one[0], args.one[1], args.images, args.batch)))
        return
    with tempfile.TemporaryDirectory() as folder:
        [onnx] = network(KEY).save(Path(folder) / "resnet50.onnx")

        def run(what: str) -> dict[str, float]:
            sizes = ["--images", str(args.images), "--batch", str(args.batch)]
            command = [sys.executable, __file__, "--one", what, onnx, *sizes]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                return {"seconds": float("nan"), "memory": float("nan")}
            found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
            return found

        names = ["float forward", *(n for n, c in OURS.items() if c in args.only)]
        rounds = [{n: run(n) for n in names} for _ in range(args.rounds)]
        peers = {n: run(n) for n in PEERS} if args.peers else {}
    base = np.array([r["float forward"]["seconds"] for r in rounds])
    print(f"ResNet-50 v1, {args.images} images, batch {args.batch}; median of {args.rounds} rounds")
    for name in names:
        seconds = np.array([r[name]["seconds"] for r in rounds])
        memory = max(r[name]["memory"] for r in rounds) / 2**20
        print(
            f"  {name:24s} {np.median(seconds):7.2f} s {np.median(seconds / base):5.2f} x float {memory:6.0f} MiB more"
        )
    for name, found in peers.items():
        print(
            f"  {name:24s} {found['seconds']:7.2f} s   {found['seconds'] / np.median(base):5.2f} x float   "
            f"{found['memory'] / 2**20:7.0f} MiB more"
        )


if __name__ == "__main__":
    main()
