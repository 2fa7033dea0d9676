"""Non-maximum suppression (``box_nms``) of 20,000 boxes on every engine, and in MXNet if a Python that has it is given.

Two kinds of boxes: ``objects`` are what detectors give, many boxes around few objects and low scores elsewhere;
``scattered`` boxes have any place, size and score, so that few suppress each other, which is the worst case.

    python benchmarks/nms.py [--boxes 20000] [--threads N] [--repeats 20] [--mxnet PYTHON]

Prints the median time of a run in milliseconds. With ``--mxnet`` it also checks that all give the same rows.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from requant import eager, engines
from requant.engines import EngineOptions
from requant.ops import registry

#: What is measured: a name, the number of classes, and the attributes.
JOBS: list[tuple[str, int, dict[str, object]]] = [
    ("one class", 1, {"overlap_thresh": 0.45, "valid_thresh": 0.01}),
    ("20 classes", 20, {"overlap_thresh": 0.45, "valid_thresh": 0.01, "id_index": 0}),
    ("80 classes", 80, {"overlap_thresh": 0.45, "valid_thresh": 0.01, "id_index": 0}),
    ("20 classes, best 400", 20, {"overlap_thresh": 0.45, "valid_thresh": 0.01, "id_index": 0, "topk": 400}),
    ("regions, best 6000", 1, {"overlap_thresh": 0.7, "topk": 6000}),
]

#: Runs in MXNet's Python (3.8): reads the boxes and attributes, writes times and results.
PEER = """
import ast, sys, time
import numpy as np, mxnet as mx
data = dict(np.load(sys.argv[1]))
out = {}
for name in [k for k in data if not k.endswith("|attrs")]:
    x, attrs = mx.nd.array(data[name]), ast.literal_eval(str(data[name + "|attrs"]))
    times = []
    for _ in range(int(sys.argv[3])):
        start = time.perf_counter()
        y = mx.nd.contrib.box_nms(x, **attrs).asnumpy()
        times.append(time.perf_counter() - start)
    out[name + "|times"], out[name + "|result"] = np.array(times), y
np.savez(sys.argv[2], **out)
"""


def scattered(rng: np.random.Generator, count: int, classes: int) -> np.ndarray:
    """Rows [class, score, xmin, ymin, xmax, ymax] (1, count, 6) without any order, in an image of 512 x 512."""
    low = rng.uniform(0, 512, (count, 2))
    columns = [
        rng.integers(0, classes, (count, 1)),
        rng.uniform(0, 1, (count, 1)),
        low,
        low + rng.uniform(10, 100, (count, 2)),
    ]
    return np.concatenate(columns, axis=1).astype(np.float32)[None]


def around_objects(rng: np.random.Generator, count: int, classes: int) -> np.ndarray:
    """The same, as a detector gives it: boxes close to 40 objects, and half of them on nothing, with low scores."""
    objects = scattered(rng, 40, classes)[0]
    rows = objects[rng.integers(0, len(objects), count)]
    rows[:, 2:] += rng.normal(0, 4, (count, 4))
    rows[:, 1] = rng.beta(2, 2, count)
    nothing = rng.random(count) < 0.5
    rows[nothing] = scattered(rng, int(nothing.sum()), classes)[0]
    rows[nothing, 1] *= 0.02
    return np.expand_dims(rows, 0)


def median_ms(call: Callable[[], object], repeats: int) -> float:
    """The median time of a call in milliseconds, after one that does not count."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def in_mxnet(python: str, cases: dict[str, np.ndarray], repeats: int) -> dict[str, np.ndarray]:
    """Times and results of MXNet."""
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "given.npz", Path(folder) / "result.npz"
        np.savez(given, **cases)  # type: ignore[arg-type]
        subprocess.run([python, "-c", PEER, str(given), str(result), str(repeats)], check=True)
        with np.load(result) as file:
            return dict(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", type=int, default=20000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--mxnet", metavar="PYTHON", help="a Python that has MXNet 1.9.1")
    args = parser.parse_args()

    cases: dict[str, np.ndarray] = {}
    runs: dict[str, tuple[np.ndarray, dict[str, object]]] = {}
    for kind, make in (("objects", around_objects), ("scattered", scattered)):
        for name, classes, attrs in JOBS:
            data = make(np.random.default_rng(0), args.boxes, classes)
            runs[f"{kind}, {name}"] = data, attrs
            cases[f"{kind}, {name}"], cases[f"{kind}, {name}|attrs"] = data, np.array(repr(attrs))
    peer = in_mxnet(args.mxnet, cases, 3) if args.mxnet else {}

    names = engines.names()
    print(f"{args.boxes} boxes; median of {args.repeats} runs, in ms")
    print(f"{'':34}{'kept':>7}" + "".join(f"{n:>14}" for n in (*names, "mxnet")))
    operator = registry.get("_contrib_box_nms")
    same = True
    for title, (data, attrs) in runs.items():
        model, _ = eager.lower_one(operator, operator.parse(attrs), [(data.dtype, list(data.shape))])
        line, results = "", []
        for engine in names:
            if not engines.get(engine).available().ok:
                line += f"{'-':>14}"
                continue
            with engines.get(engine).load(model, EngineOptions(threads=args.threads), None) as session:
                line += f"{median_ms(lambda run=session.run, x=data: run({'in0': x}), args.repeats):14.2f}"  # type: ignore[misc]
                results.append(session.run({"in0": data})[0])
        if peer:
            line += f"{float(np.median(peer[title + '|times'])) * 1e3:14.2f}"
            results.append(peer[title + "|result"])
        same &= all(np.array_equal(r, results[0]) for r in results)
        print(f"{title:34}{int((results[0][..., 1] > 0).sum()):7d}{line}")
    print("all results are the same" if same else "RESULTS DIFFER")
    sys.exit(not same)


if __name__ == "__main__":
    main()
