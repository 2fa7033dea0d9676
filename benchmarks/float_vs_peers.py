"""Float speed beside OpenVINO itself, ONNX Runtime and MXNet 1.9.1, by turns in one run; and time to the first result.

python benchmarks/float_vs_peers.py [--rounds 40] [--mxnet PYTHON_THAT_HAS_MXNET]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
from peers import ROOT, MXNet, by_turns, network, report, timed

NETWORKS = {"ResNet-50 v1": "gluoncv-resnet50_v1", "MobileNetV2 1.0": "gluoncv-mobilenetv2_1.0"}

FIRST = """
import sys, time
start = time.perf_counter()
import numpy as np
x = np.zeros((1, 3, 224, 224), np.float32)
{body}
print(time.perf_counter() - start)
"""
OURS = "import requant; requant.load(sys.argv[1], shapes={'data': (None, 3, 224, 224)}).run(x)"
THEIRS = (
    "import openvino as ov; core = ov.Core(); m = core.read_model(sys.argv[1]); m.reshape([1, 3, 224, 224]); "
    "core.compile_model(m, 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})(x)"
)


def latency(title: str, key: str, batch: int, rounds: int, python: str | None, folder: Path) -> None:
    model = network(key)
    shape = (batch, 3, 224, 224)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    onnx = str(folder / f"{key}.onnx")
    model.save(onnx)
    model.save(folder / key)
    compiled = model.compile(shapes={"data": shape})
    core = openvino.Core()
    raw = core.read_model(onnx)
    raw.reshape(list(shape))
    hints = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(raw, "CPU", hints).create_infer_request()
    ort = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    calls = {
        "requant": timed(lambda: compiled.run(x)),
        "OpenVINO, same file": timed(lambda: request.infer([x])[0].copy()),
        "ONNX Runtime, same file": timed(lambda: ort.run(None, {"data": x})),
    }
    mxnet = MXNet(python, folder / key, shape) if python else None
    if mxnet is not None:
        calls["MXNet 1.9.1"] = mxnet
    report(f"{title}, batch {batch}", by_turns(calls, rounds))
    if mxnet is not None:
        mxnet.close()


def first_result(rounds: int, folder: Path) -> None:
    """From the start of a process to the first result of ResNet-50, from files."""
    key = NETWORKS["ResNet-50 v1"]
    model = network(key)
    model.save(folder / key)
    [onnx] = model.save(folder / f"{key}.onnx")

    def process(body: str, path: object) -> float:
        code = FIRST.format(body=body)
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        return float(done.stdout)

    calls = {
        "requant": lambda: process(OURS, folder / key),
        "requant, the ONNX file": lambda: process(OURS.replace(", shapes={'data': (None, 3, 224, 224)}", ""), onnx),
        "OpenVINO read + compile": lambda: process(THEIRS, onnx),
    }
    report("ResNet-50 v1, process start to first result", by_turns(calls, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--mxnet", help="a Python 3.8 with MXNet 1.9.1; left out if not given")
    args = parser.parse_args()
    print(f"{ROOT.name}: OpenVINO {openvino.__version__}, ONNX Runtime {onnxruntime.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for title, key in NETWORKS.items():
            for batch in (1, 16):
                latency(title, key, batch, args.rounds, args.mxnet, Path(folder))
        first_result(max(5, args.rounds // 5), Path(folder))


if __name__ == "__main__":
    main()
