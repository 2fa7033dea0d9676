"""Time the INT8 graphs by turns: ``python clock.py FOLDER MXNET_PYTHON [--seconds 8] [name ...]``.

Ours on both engines, int8 (in exact mode too, on OpenVINO) and float, and MXNet 1.9.1 in a process of its own, each on
all cores. The fastest run of each goes into ``FOLDER/measured.json``, from which ``table.py`` writes the document.
Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))

import graphs
from floats import float_network
from peers import Process
from test_int8_graphs import ENGINES, load, model

from requant.pipeline.timing import SETTLE

HERE = Path(__file__).parent


def ours(name: str, engine: str, kind: str) -> Callable[[], float]:
    """The seconds of one run, as a call."""
    symbol, params = load(name)
    data = graphs.image(name)
    net = float_network(symbol) if kind == "float" else symbol
    compiled = model(net, params, name, exact=kind == "exact").compile(engine, shapes={"data": data.shape})

    def run() -> float:
        start = time.perf_counter()
        compiled.run(data)
        return time.perf_counter() - start

    return run


def clock(name: str, python: str, seconds: float, engines: tuple[str, ...] = ENGINES) -> dict[str, float]:
    """Milliseconds of the fastest run of each, by turns: a settled machine, one run to warm up, one that counts."""
    calls: dict[str, Callable[[], float]] = {}
    for engine in engines:
        calls[engine] = ours(name, engine, "int8")
        if engine == "openvino":
            calls["openvino exact"] = ours(name, engine, "exact")
        calls[f"{engine} float"] = ours(name, engine, "float")
    theirs = calls["mxnet"] = Process([python, str(HERE / "mxnet_clock.py"), name])
    times: dict[str, list[float]] = {n: [] for n in calls}
    for call in calls.values():
        call()
    end = time.perf_counter() + seconds
    while len(times["mxnet"]) < 3 or (time.perf_counter() < end and len(times["mxnet"]) < 30):
        for who, call in calls.items():
            time.sleep(SETTLE)
            call()
            times[who].append(call())
    theirs.close()
    return {who: 1000 * min(t) for who, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("python")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES))
    args = parser.parse_intermixed_args()
    path = args.folder / "measured.json"
    for name in args.names or graphs.names():
        rows = json.loads(path.read_text()) if path.exists() else {}
        ms = clock(name, args.python, args.seconds, tuple(args.engines))
        rows[name] = {**rows.get(name, {}), "ms": ms}
        path.write_text(json.dumps(rows))
        print(name, {k: round(v, 1) for k, v in ms.items()}, flush=True)


if __name__ == "__main__":
    main()
