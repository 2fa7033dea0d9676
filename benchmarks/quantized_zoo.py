"""Networks of GluonCV quantized as MXNet's users do it: int8 beside float by turns, and how much noise int8 adds.

    pip install requant gluoncv==0.10.5.post0
    python benchmarks/quantized_zoo.py [name ...] [--store DIR] [--write docs/quantized-zoo.md]
    python benchmarks/quantized_zoo.py --store DIR --times --stat median --write docs/quantized-zoo.md

The first form measures networks, or those without a result, and keeps the int8 ones in ``--store``; the second one
takes all times again, on a quiet machine, without calibrating anything. Results are kept in
``benchmarks/quantized-zoo.json``.

Each network is built by GluonCV's ``get_model`` with seeded weights, hybridized, and quantized by ``quantize_net_v2``:
mode smart, calibrated by naive and by entropy on seeded pictures. The three then answer a picture by turns at batch 1,
each called in the Gluon way; the least times are kept, which neighbours on the machine disturb least, or the medians.
Signal to noise
is measured on another picture: at the outputs, or, of detectors, whose outputs are sorted boxes, at the layers that
predict classes and boxes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import requant.mx as mx

mx.install()

from requant.errors import RequantError  # noqa: E402
from requant.mx.contrib.quantization import quantize_net_v2  # noqa: E402
from requant.mx.symbol.symbol import Symbol  # noqa: E402
from requant.pipeline import Model  # noqa: E402
from requant.qmath import sqnr  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "gluoncv"), str(ROOT / "tests" / "zoo")]

#: Network -> shape of its input.
NETWORKS: dict[str, tuple[int, ...]] = {
    "resnet50_v1b": (3, 224, 224),
    "mobilenetv2_1.0": (3, 224, 224),
    "mobilenetv3_large": (3, 224, 224),
    "densenet121": (3, 224, 224),
    "inceptionv3": (3, 299, 299),
    "ssd_512_resnet50_v1_voc": (3, 512, 512),
    "ssd_300_vgg16_atrous_voc": (3, 300, 300),
    "yolo3_darknet53_coco": (3, 416, 416),
    "yolo3_mobilenet1.0_coco": (3, 416, 416),
    "center_net_resnet18_v1b_coco": (3, 512, 512),
    "faster_rcnn_resnet50_v1b_voc": (3, 600, 800),
    "fcn_resnet101_voc": (3, 480, 480),
    "deeplab_resnet50_ade": (3, 480, 480),
    "simple_pose_resnet18_v1b": (3, 256, 192),
    "i3d_resnet50_v1_kinetics400": (3, 32, 224, 224),
    "slowfast_4x16_resnet50_kinetics400": (3, 36, 224, 224),
}
MODES = ("naive", "entropy")
#: What stays float in detectors: the layers that predict classes and boxes, as GluonCV's users exclude them.
HEADS = {"ssd": ["convpredictor"], "yolo3": ["yolooutput"], "center_net": ["centernet"], "faster_rcnn": ["rpn"]}


def build(name: str) -> Any:
    """The network with seeded weights, hybridized."""
    import gluoncv_compare
    from gluoncv.model_zoo import get_model

    shape = NETWORKS[name]
    more = {"crop_size": shape[1]} if name.startswith(("fcn", "deeplab")) else {}
    with mx.name.NameManager():
        try:
            net = get_model(name, pretrained=False, pretrained_base=False, **more)
        except (TypeError, Warning):
            net = get_model(name, pretrained=False)
    net.initialize(mx.init.Zero(), force_reinit=True)
    net.hybridize()
    net(pictures(name, 1, seed=0)[0])  # parameters learn their shapes
    gluoncv_compare.fill(net, name)
    return net


def pictures(name: str, count: int, seed: int) -> list[mx.nd.NDArray]:
    """Smooth seeded pictures or clips, each (1, ...) of mean 0 and deviation 1."""
    shape = NETWORKS[name]
    made = []
    for i in range(count):
        coarse_shape = (*shape[:-2], -(-shape[-2] // 8), -(-shape[-1] // 8))
        coarse = np.random.default_rng(100 * seed + i).standard_normal(coarse_shape).astype(np.float32)
        fine = coarse.repeat(8, axis=-2).repeat(8, axis=-1)[..., : shape[-2], : shape[-1]]
        made.append(mx.nd.array(fine[None]))
    return made


class Batches(mx.io.DataIter):
    """Pictures or clips as a DataIter; ``quantize_net`` merges the first dimensions of clips in plain lists."""

    def __init__(self, arrays: list[mx.nd.NDArray]) -> None:
        super().__init__(arrays[0].shape[0])
        self.arrays = arrays
        self.reset()

    @property
    def provide_data(self) -> list[mx.io.DataDesc]:
        return [mx.io.DataDesc("data", self.arrays[0].shape)]

    def reset(self) -> None:
        self._left = iter(self.arrays)

    def next(self) -> mx.io.DataBatch:
        return mx.io.DataBatch([next(self._left)])


def heads_of(name: str) -> list[str]:
    """Parts of the names of the layers that stay float."""
    return [part for kind, parts in HEADS.items() if name.startswith(kind) for part in parts]


def quantize(name: str, net: Any, mode: str, count: int) -> Any:
    """The network in int8."""
    return quantize_net_v2(
        net,
        quantized_dtype="auto",
        quantize_mode="smart",
        exclude_layers_match=heads_of(name),
        calib_data=Batches(pictures(name, count, seed=1)),
        calib_mode=mode,
        ctx=mx.cpu(),
    )


def symbol_of(net: Any) -> tuple[Symbol, dict[str, np.ndarray]]:
    """Symbol and parameters of a network that has run."""
    graph = next(iter(net._graphs.values()))
    return graph.symbol, {n: p.data().asnumpy() for n, p in graph.parameters.items()}


def compared(floating: Symbol, int8: Symbol, heads: list[str]) -> list[str]:
    """Names of the tensors to compare, which both networks have: what the layers that stay float predict.

    Those layers are fused in the int8 network, under other names; what reads them is not.
    """
    kept = {n.name for n in int8.nodes if n.op is not None}
    convs = [n for n in floating.nodes if n.op is not None and any(part in n.name for part in heads)]
    reach = {id(n) for n in convs if n.op is not None and n.op.name == "Convolution"}
    found = []
    for node in floating.nodes:
        if node.op is not None and any(id(n) in reach for n, _ in node.inputs) and id(node) not in reach:
            if node.name in kept:
                found.append(node.name)
            else:  # an activation that is fused, too
                reach.add(id(node))
    return found


def outputs(symbol: Symbol, params: dict[str, np.ndarray], names: list[str], x: np.ndarray) -> dict[str, np.ndarray]:
    """Values of named nodes (their first output), or of the outputs if there are no names."""
    nodes = {n.name: n for n in symbol.nodes}
    entries = [(nodes[n], 0) for n in names] or list(symbol.entries)
    watched = Symbol(entries)
    needed = {n.name for n in watched.nodes if n.op is None}
    model = Model.from_symbol(watched, {n: v for n, v in params.items() if n in needed}, source="watched")
    found = model.run(dict.fromkeys(model.input_names, x))
    return dict(zip(names or [str(i) for i in range(len(found))], found))


def noise(net: Any, int8: Any, x: np.ndarray, heads: list[str]) -> dict[str, float]:
    """Decibel of signal to noise, by tensor."""
    floating, quantized = symbol_of(net), symbol_of(int8)
    names = compared(floating[0], quantized[0], heads)
    wanted, got = outputs(*floating, names, x), outputs(*quantized, names, x)
    return {n: round(sqnr(wanted[n], got[n]), 1) for n in wanted if wanted[n].dtype.kind == "f"}


def by_turns(calls: dict[str, Callable[[], Any]], rounds: int, settle: float, stat: str) -> dict[str, float]:
    """Least or median milliseconds of each call, all by turns, with a pause before each turn until others' threads
    sleep. On a busy machine the least is nearer the truth, because neighbours only ever add."""
    times: dict[str, list[float]] = {n: [] for n in calls}
    for turn in range(rounds):
        order = list(calls)[turn % len(calls) :] + list(calls)[: turn % len(calls)]
        for name in order:
            time.sleep(settle)
            calls[name]()  # threads and caches are this one's again
            start = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - start)
    of = {"least": min, "median": statistics.median}[stat]
    return {n: round(1e3 * of(t), 2) for n, t in times.items()}


def flat(value: Any) -> list[Any]:
    """Arrays of nested outputs."""
    return [a for v in value for a in flat(v)] if isinstance(value, (list, tuple)) else [value]


def called(net: Any, x: mx.nd.NDArray) -> Callable[[], Any]:
    """A call of a network in the Gluon way, until its outputs are numpy's."""
    return lambda: [o.asnumpy() for o in flat(net(x))]


def measure(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Everything about one network."""
    net = build(name)
    x = pictures(name, 1, seed=2)[0]
    start = time.perf_counter()
    nets = {"float": net, **{mode: quantize(name, net, mode, asked.calib) for mode in MODES}}
    seconds = time.perf_counter() - start
    for each in nets.values():
        called(each, x)()
    result: dict[str, Any] = {"input": list(x.shape), "quantize_s": round(seconds, 1)}
    for mode in MODES:
        result[f"sqnr_{mode}"] = noise(net, nets[mode], x.asnumpy(), heads_of(name))
        if asked.store:
            asked.store.mkdir(parents=True, exist_ok=True)
            nets[mode].export(str(asked.store / f"{name}-{mode}"))
    return {**result, **timed(nets, x, asked)}


def timed(nets: dict[str, Any], x: mx.nd.NDArray, asked: argparse.Namespace) -> dict[str, Any]:
    """Times of networks that have run."""
    calls = {n: called(f, x) for n, f in nets.items()}
    times = by_turns(calls, asked.rounds, asked.settle, asked.stat)
    return {"ms": times, "how": f"{asked.stat} of {asked.rounds}"}


def time_again(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Times of a network whose int8 versions are in the store."""
    x = pictures(name, 1, seed=2)[0]
    nets = {"float": build(name)}
    for mode in MODES:
        path = str(asked.store / f"{name}-{mode}")
        nets[mode] = mx.gluon.SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params")
        nets[mode].hybridize()
    for net in nets.values():
        called(net, x)()
    return timed(nets, x, asked)


HEAD = """# GluonCV networks in int8

Sixteen networks of GluonCV 0.10.5.post0, its package unmodified, quantized by `mx.contrib.quantization.quantize_net_v2`
(mode smart; detectors exclude the layers that predict classes and boxes), and called in the Gluon way: float hybridized
and int8, by turns, batch 1, on OpenVINO, two cores with AVX512-VNNI. Medians stem from a quiet machine, least times
from a loaded one. "Times faster" is that of the slower of the two int8 networks. Weights are seeded: speed does not
depend on them, signal to noise does. Signal to noise is the least over the outputs; of detectors, over what the layers
that predict classes and boxes say. This file is written by `benchmarks/quantized_zoo.py`; with `--times`, it takes the
times of networks again that it has kept.

"""


def document(results: dict[str, Any]) -> str:
    """The table."""
    lines = [
        "| network | input | float ms | int8 ms, naive | entropy | times faster | dB, naive | dB, entropy | times |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name, shape in NETWORKS.items():
        size, found = "x".join(map(str, shape)), results.get(name)
        if found is None:
            lines.append(f"| {name} | {size} | | | | | | | not measured |")
            continue
        ms = found["ms"]
        noise = [f"{min(found[key].values()):.1f}" if found.get(key) else "" for key in ("sqnr_naive", "sqnr_entropy")]
        lines.append(
            f"| {name} | {size} | {ms['float']:.1f} | {ms['naive']:.1f} | {ms['entropy']:.1f} | "
            f"{ms['float'] / max(ms['naive'], ms['entropy']):.2f} | {noise[0]} | {noise[1]} | {found.get('how', '')} |"
        )
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="networks; by default those without a result, or all to be timed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--stat", choices=("least", "median"), default="least", help="median: on a quiet machine")
    parser.add_argument("--settle", type=float, default=0.25, help="seconds of pause before each turn")
    parser.add_argument("--calib", type=int, default=4, help="pictures to calibrate on")
    parser.add_argument("--store", type=Path, help="folder that keeps the int8 networks")
    parser.add_argument("--times", action="store_true", help="take the times of networks in the store again")
    parser.add_argument("--results", type=Path, default=Path(__file__).with_name("quantized-zoo.json"))
    parser.add_argument("--write", type=Path, help="write the table of all kept results there")
    asked = parser.parse_args()
    if asked.times and not asked.store:
        parser.error("--times needs --store")
    warnings.simplefilter("ignore")
    known = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    failed: list[str] = []
    for name in asked.names or [n for n in NETWORKS if (n in known) == asked.times]:
        try:
            known[name] = {**known.get(name, {}), **(time_again if asked.times else measure)(name, asked)}
        except (RequantError, FileNotFoundError) as fault:
            failed.append(name)
            print(name, "FAILS:", fault, flush=True)
            continue
        print(name, json.dumps(known[name]), flush=True)
        lines = [f'"{n}": {json.dumps(known[n])}' for n in NETWORKS if n in known]
        asked.results.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    if asked.write:
        asked.write.write_text(document(known))
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
