"""Eight threads of requests through the whole life of a model: float, calibrating, building, INT8.

    python benchmarks/live_load.py [--model gluoncv-resnet50_v1b] [--seconds 60] [--threads 8] [--iters 40]

Every answer is kept and compared afterwards: before the swap with the float model, after it with the INT8 model that
``requant.quantize`` makes offline from the table that was saved; both bit for bit. Latencies are those that a thread
sees, with all others at work, by the state in which the request began. The first quarter of the time is float alone.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import threading
import time
from dataclasses import dataclass

import numpy as np
from peers import network

import requant
from requant.pipeline.live import LiveCompiled

SHAPE = (1, 3, 224, 224)
#: Different requests that there are; each thread asks them in an order of its own.
REQUESTS = 24
PHASES = ("float", "calibrating", "building", "int8")


@dataclass
class Answer:
    """One request, as its thread saw it."""

    request: int
    phases: tuple[str, str]  # before and after
    seconds: float
    digest: bytes | None  # None: it failed


def ask(compiled: LiveCompiled, alone: requant.Compiled, requests: list[np.ndarray], who: int, turn: Turn) -> None:
    """One thread's requests, until the time is over."""
    random = np.random.RandomState(who)
    while not turn.over():
        number = int(random.randint(len(requests)))
        served = alone if turn.warming() else compiled
        before = "float" if served is alone else compiled.state.phase
        start = time.perf_counter()
        try:
            digest: bytes | None = served.run(requests[number])[0].tobytes()
        except Exception as fault:
            logging.error("request failed: %s", fault)
            digest = None
        seconds = time.perf_counter() - start
        after = "float" if served is alone else compiled.state.phase
        turn.answers[who].append(Answer(number, (before, after), seconds, digest))
        turn.asked[who] += 1


class Turn:
    """The clock and the book of one run."""

    def __init__(self, threads: int, seconds: float) -> None:
        self.start = time.perf_counter()
        self.end, self.warm = self.start + seconds, self.start + seconds / 4
        self.answers: list[list[Answer]] = [[] for _ in range(threads)]
        self.asked = [0] * threads

    def over(self) -> bool:
        return time.perf_counter() >= self.end

    def warming(self) -> bool:
        return time.perf_counter() < self.warm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="gluoncv-resnet50_v1b")
    parser.add_argument("--engine", default="openvino")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--iters", type=int, default=40)
    parser.add_argument("--calibrator", default="auto")
    parser.add_argument("--json", action="store_true", dest="as_json")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)7.0f ms  %(message)s")
    for quiet in ("onnx_ir", "requant.quant", "requant.passes"):
        logging.getLogger(quiet).setLevel(logging.WARNING)
    model = network(options.model, SHAPE)
    draw = np.random.RandomState(7)
    requests = [draw.normal(0, 1, SHAPE).astype(np.float32) for _ in range(REQUESTS)]
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "live.calib.json")
        live = requant.Live(options.iters, table=table, calibrator=options.calibrator, min_speedup=None, min_sqnr=10)
        alone = model.compile(options.engine, shapes={"data": SHAPE})
        compiled = model.compile(options.engine, shapes={"data": SHAPE}, int8=live)
        assert isinstance(compiled, LiveCompiled)
        turn = Turn(options.threads, options.seconds)
        threads = [
            threading.Thread(target=ask, args=(compiled, alone, requests, i, turn)) for i in range(options.threads)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = judge(model, compiled, alone, requests, turn, table)
    print(json.dumps(found, indent=2) if options.as_json else shown(options, found, compiled))


def judge(
    model: requant.Model,
    compiled: LiveCompiled,
    alone: requant.Compiled,
    requests: list[np.ndarray],
    turn: Turn,
    table: str,
) -> dict[str, object]:
    """Compare all answers, and sum up latencies."""
    answers = [a for some in turn.answers for a in some]
    floats = [alone.run(r)[0].tobytes() for r in requests]
    found: dict[str, object] = {
        "requests": sum(turn.asked),
        "failed": sum(a.digest is None for a in answers),
        "dropped": sum(turn.asked) - len(answers),
        "state": str(compiled.state),
    }
    early = [a for a in answers if a.phases[1] != "int8"]
    found["before the swap"] = len(early)
    found["of these equal to float"] = sum(a.digest == floats[a.request] for a in early)
    if compiled.state.phase == "int8":
        offline = requant.quantize(
            model, table=table, check=False, engine=compiled.engine, calibrator=compiled.live.calibrator
        )
        int8 = offline.compile(compiled.engine, shapes={"data": SHAPE})
        wanted = [int8.run(r)[0].tobytes() for r in requests]
        late = [a for a in answers if a.phases[0] == "int8"]
        between = [a for a in answers if a.phases[0] != "int8" and a.phases[1] == "int8"]
        found["after the swap"] = len(late)
        found["of these equal to offline INT8"] = sum(a.digest == wanted[a.request] for a in late)
        found["under way at the swap"] = len(between)
        found["of these equal to one of both"] = sum(
            a.digest in (floats[a.request], wanted[a.request]) for a in between
        )
    latencies = {p: [1e3 * a.seconds for a in answers if a.phases[0] == p] for p in PHASES}
    found["milliseconds"] = {
        p: {"requests": len(ms), **{f"p{q}": round(float(np.percentile(ms, q)), 1) for q in (50, 99)}}
        for p, ms in latencies.items()
        if ms
    }
    return found


def shown(options: argparse.Namespace, found: dict[str, object], compiled: LiveCompiled) -> str:
    """The figures as text."""
    head = f"{options.model} on {options.engine}: {options.threads} threads, {options.seconds:g} s"
    lines = [head, *(f"  {k}: {v}" for k, v in found.items() if k != "milliseconds")]
    table = found["milliseconds"]
    assert isinstance(table, dict)
    base = table["float"]["p99"]
    for phase, row in table.items():
        lines.append(
            f"  {phase:12s} {row['requests']:6d} requests   p50 {row['p50']:8.1f} ms   p99 {row['p99']:8.1f} ms"
            f"   p99 / float p99 {row['p99'] / base:.2f}"
        )
    if compiled.report is not None:
        lines.append(
            "  seconds in the background: " + ", ".join(f"{k} {v}" for k, v in compiled.report.seconds.items())
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
