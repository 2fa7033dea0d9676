"""Run networks of GluonCV on requant and compare with what MXNet 1.9.1 gave (``record_gluoncv.py``)."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import requant.mx as mx
from requant.errors import RequantError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import gluoncv_int8  # noqa: E402
import gluoncv_networks  # noqa: E402
import record_gluoncv  # noqa: E402

FACTS: dict[str, Any] = json.loads((HERE / "data" / "networks.json").read_text())
INT8 = gluoncv_int8.graphs.names()
TOLERANCE = 1e-4


@dataclass
class Result:
    """What came of one network.

    Attributes:
        status: ``same``, ``differs``, ``built`` (nothing to compare with), or ``fails``.
        worst: largest difference, relative to the largest magnitude of that output, by mode.
        note: what went wrong, or what MXNet itself said.
    """

    name: str
    status: str
    worst: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    note: str = ""


def digests() -> Any:
    """The recorded outputs."""
    return np.load(HERE / "data" / "digests.npz")


def build(name: str) -> Any:
    """The network with parameters not yet set, named as in the recording."""
    from gluoncv.model_zoo import get_model

    with mx.name.NameManager():
        return gluoncv_networks.build(name, get_model)


def fill(net: Any, name: str) -> None:
    """Give all parameters of the network of this name their seeded values."""
    params = net.collect_params()
    short = gluoncv_networks.short_names(net, params.keys())
    for n, p in params.items():
        if p.shape is not None and all(d > 0 for d in p.shape) and not isinstance(p, mx.gluon.Constant):
            p.set_data(mx.nd.array(gluoncv_networks.value(name, short[n], p.shape, p.dtype), dtype=p.dtype))


def names_digest(net: Any) -> list[Any]:
    """Number of parameters, and a digest of their names and shapes."""
    params = net.collect_params()
    short = gluoncv_networks.short_names(net, params.keys())
    listed = [[short[n], list(p.shape or ())] for n, p in params.items()]
    return [len(listed), hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]]


def compare(name: str, outputs: list[np.ndarray], recorded: Any) -> float:
    """The largest difference of any output, relative to its largest magnitude."""
    facts = FACTS[name]
    assert [list(o.shape) for o in outputs] == facts["outputs"], [o.shape for o in outputs]
    if f"{name}|rows" in recorded:
        return compare_boxes(outputs, recorded[f"{name}|rows"], facts["scale"])
    worst = 0.0
    for i, (out, scale) in enumerate(zip(outputs, facts["scale"])):
        theirs = recorded[f"{name}|{i}"]
        mine = record_gluoncv.digest(out, theirs.size)
        if mine.size:
            worst = max(worst, float(np.abs(mine - theirs).max() / max(scale, 1e-12)))
    return worst


def compare_boxes(outputs: list[np.ndarray], theirs: np.ndarray, scales: list[float]) -> float:
    """The same for detections: as sets, because equal scores come in any order.

    Each detection of theirs must have one of ours of its class, score and box (and mask). A few may be missing: those
    whose scores differ by less than the tolerance from one that was cut off.
    """
    mine = record_gluoncv.box_rows(outputs)
    assert mine is not None
    scale = np.ones(theirs.shape[1], np.float32)
    scale[:6] = [1e-3, scales[1] or 1.0, *[scales[2] or 1.0] * 4]
    ours, wanted = mine / scale, theirs / scale
    nearest = [float(np.abs(ours - w).max(axis=1).min()) for w in wanted]
    nearest += [float(np.abs(wanted - o).max(axis=1).min()) for o in ours]
    allowed = max(1, len(nearest) // 50)
    return sorted(nearest)[-1 - allowed]


def refuses(net: Any, data: list[Any], theirs: str) -> str:
    """What is to be said of a network that MXNet does not hybridize."""
    try:
        net(*data)
    except RequantError as fault:
        return f"hybridized, MXNet fails ({theirs}), and so do we: {type(fault).__name__}"
    return f"hybridized, MXNet fails ({theirs}); this runs"


def helped(name: str) -> str:
    """What both sides were told, or given, so that nothing is downloaded."""
    told = ["its base has first values instead of downloaded ones"] if gluoncv_networks.has_base(name) else []
    told += ["`use_kinetics_pretrain=False`"] if name in gluoncv_networks.KINETICS_FIRST else []
    return "on both sides: " + ", ".join(told) if told else ""


def run_int8(name: str) -> Result:
    """Build an INT8 network, run it, and compare with its graph."""
    values = gluoncv_int8.parameters(name)
    try:
        net = build(name)
        gluoncv_int8.fill(net, values)
        data = mx.nd.array(gluoncv_int8.graphs.image(name))
        started = time.perf_counter()
        outputs = [o.asnumpy() for o in gluoncv_networks.flat(net(data))]
        found = Result(name, "same", seconds={"hybrid": time.perf_counter() - started})
    except Exception as fault:
        return Result(name, "fails", note=f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}")
    found.worst["hybrid"] = gluoncv_int8.far(outputs, gluoncv_int8.native(name, values))
    if found.worst["hybrid"] > TOLERANCE:
        found.status = "differs"
    apart = gluoncv_int8.from_mxnet(name, outputs)
    found.note = f"int8: as its graph; MXNet's kernels, bugs included, are {apart:.1%} off"
    return found


def run(name: str, modes: tuple[str, ...] = ("eager", "hybrid")) -> Result:
    """Build a network, run it in these modes, and compare."""
    if name.endswith("int8"):
        return run_int8(name)
    facts = FACTS.get(name, {"error": "not recorded"})
    shapes = facts.get("input")
    try:
        net = build(name)
        net.initialize(mx.init.Zero(), force_reinit=True)
        if shapes is None:
            return Result(name, "built", note=f"MXNet: {facts['error']}")
        data = [mx.nd.array(x) for x in gluoncv_networks.inputs(name, shapes)]
        found = Result(name, "same", note=helped(name))
        with digests() as recorded:
            for mode in modes:
                net.hybridize(mode == "hybrid")
                if mode == "hybrid" and "hybrid" in facts:
                    found.note = refuses(net, data, facts["hybrid"])
                    continue
                if mode == modes[0]:
                    net(*data)
                    fill(net, name)
                    if names_digest(net) != facts["params"]:
                        raise AssertionError("names of parameters differ")
                started = time.perf_counter()
                outputs = [o.asnumpy() for o in gluoncv_networks.flat(net(*data))]
                found.seconds[mode] = time.perf_counter() - started
                found.worst[mode] = compare(name, outputs, recorded)
    except Exception as fault:
        if shapes is None:
            return Result(name, "fails as MXNet does", note=f"MXNet: {facts['error']}; here: {type(fault).__name__}")
        return Result(name, "fails", note=f"{type(fault).__name__}: {' '.join(str(fault).split())[:300]}")
    if max(found.worst.values()) > TOLERANCE:
        found.status = "differs"
    return found


if __name__ == "__main__":
    mx.install()
    for word in sys.argv[1:]:
        print(run(word), flush=True)
