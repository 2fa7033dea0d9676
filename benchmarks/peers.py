"""What benchmarks share: networks with seeded weights, peers, and measuring by turns."""

from __future__ import annotations

import gzip
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import requant
from requant.formats import symbol_file
from requant.pipeline.timing import SETTLE
from requant.symbol.infer import infer_shape

ROOT = Path(__file__).resolve().parents[1]
ZOO = ROOT / "tests" / "zoo"
sys.path.insert(0, str(ZOO))

import seeded  # noqa: E402

#: Seconds of one run.
Timed = Callable[[], float]


def network(key: str, shape: tuple[int, ...] = (1, 3, 224, 224)) -> requant.Model:
    """A network of tests/zoo with seeded weights, input ``data`` of that shape with an open batch."""
    symbol = symbol_file.loads(gzip.decompress((ZOO / "data" / f"{key}.json.gz").read_bytes()), key)
    shapes, _, states = infer_shape(symbol, {"data": shape})
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    params = {n: seeded.parameter(n, s) for n, s in zip(names, [*shapes, *states]) if n != "data" and s is not None}
    return requant.Model.from_symbol(symbol, params, shapes={"data": (None, *shape[1:])}, source=key)


Feeds = Mapping[str, np.ndarray]


def reader(feeds: Iterable[Feeds]) -> Any:
    """ONNX Runtime's reader of calibration data over feeds of the model."""
    from onnxruntime.quantization import CalibrationDataReader

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.feeds = iter(feeds)

        def get_next(self) -> Feeds | None:
            return next(self.feeds, None)

    return Reader()


def nncf_file(source: Path, to: Path, feeds: Sequence[Feeds], **more: Any) -> Path:
    """NNCF's int8 form of an ONNX file for OpenVINO, with its defaults and ``more``."""
    import nncf
    import openvino

    logging.getLogger("nncf").setLevel(logging.ERROR)
    model = openvino.Core().read_model(str(source))
    made = nncf.quantize(model, nncf.Dataset([dict(f) for f in feeds]), subset_size=len(feeds), **more)
    openvino.save_model(made, str(to), compress_to_fp16=False)
    return to


def folded_file(source: Path, to: Path) -> Path:
    """An ONNX file with batch norms folded, as ONNX Runtime does it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(to)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return to


def qdq_file(source: Path, to: Path, feeds: Iterable[Feeds], per_channel: bool = True) -> Path:
    """ONNX Runtime's static QDQ form of an ONNX file: unsigned activations, signed weights."""
    from onnxruntime import quantization as q

    q.quantize_static(
        str(source),
        str(to),
        reader(feeds),
        quant_format=q.QuantFormat.QDQ,
        activation_type=q.QuantType.QUInt8,
        weight_type=q.QuantType.QInt8,
        per_channel=per_channel,
    )
    return to


def timed(call: Callable[[], object]) -> Timed:
    """The seconds that a call takes, as a call."""

    def run() -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return run


class Process:
    """A program that says ``ready``, then answers each line with the seconds of one run, and waits in between."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        lines = [self._line()]
        while lines[-1] != "ready" and self.process.poll() is None and len(lines) < 1000:
            lines.append(self._line())
        assert lines[-1] == "ready", f"it did not start: {lines[-3:]}"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def __call__(self) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class MXNet(Process):
    """MXNet 1.9.1 in a process of its own."""

    def __init__(self, python: str, prefix: Path, shape: tuple[int, ...], form: str = "float") -> None:
        script = Path(__file__).with_name("mxnet_peer.py")
        super().__init__([python, str(script), form, str(prefix), *map(str, shape)])


def by_turns(calls: Mapping[str, Timed], rounds: int) -> dict[str, np.ndarray]:
    """Seconds of each call, ``rounds`` times, all by turns.

    The order is random, so that nobody always follows the same one. Threads of one peer go on spinning after
    its run (OpenMP's for 0.2 s), on the cores that the next in turn needs. So each turn waits until they sleep, runs
    once unmeasured, which brings its own threads and memory back, then measured.
    """
    for call in calls.values():
        call()
        call()
    times: dict[str, list[float]] = {n: [] for n in calls}
    names = list(calls)
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        for name in map(str, rng.permutation(names)):
            time.sleep(SETTLE)
            calls[name]()
            times[name].append(calls[name]())
    return {n: np.array(t) for n, t in times.items()}


def report(title: str, times: Mapping[str, np.ndarray], ours: str = "requant") -> dict[str, float]:
    """Print medians in milliseconds and our ratio to each peer: the median of the ratios of each round."""
    print(f"\n{title}")
    ratios: dict[str, float] = {}
    for name, seconds in times.items():
        ratio = float(np.median(times[ours] / seconds))
        ratios[name] = ratio
        shown = "" if name == ours else f"   ours / it {ratio:.3f}"
        print(f"  {name:28s} {1e3 * np.median(seconds):9.3f} ms  (min {1e3 * seconds.min():.3f}){shown}")
    return ratios
