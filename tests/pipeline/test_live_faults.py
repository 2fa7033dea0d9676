"""What can go wrong in the background: requests are answered in float, and the log says what it was."""

from __future__ import annotations

import errno
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from living import DIGITS, ITERS, compiled, decided, digits, feed, images, quickly

import requant
from requant import engines
from requant.engines.base import Engine, EngineOptions
from requant.engines.session import Session
from requant.engines.tensors import Shapes
from requant.errors import EngineError, RequantError
from requant.formats import calibration_table as stored
from requant.pipeline import live_build
from requant.pipeline.live import LiveCompiled
from requant.quant.table import CalibrationTable

quick = pytest.fixture(scope="module", autouse=True)(quickly)


@pytest.fixture(scope="module")
def model() -> requant.Model:
    return digits()


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return images()


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "requant")
    return caplog


def still_float(served: LiveCompiled, model: requant.Model, x: np.ndarray) -> None:
    floating = model.compile(served.engine)
    for size in (1, 4, 7):
        assert np.array_equal(served.run(x[:size])[0], floating.run(x[:size])[0])


def test_nan_batches_are_skipped(model: requant.Model, x: np.ndarray, told: pytest.LogCaptureFixture) -> None:
    served, floating = compiled(model), model.compile()
    bad = x[:4].copy()
    bad[2, 0, 3, 3] = np.nan
    for i in range(ITERS):
        assert np.array_equal(served.run(bad)[0], floating.run(bad)[0], equal_nan=True)
        served.run(x[4 * i : 4 * i + 4])
    assert decided(served, x) == "int8"
    quantized = served.quantized
    assert quantized is not None and quantized.table.samples + quantized.table.held_out_samples == 4 * ITERS
    skips = [m for m in told.messages if "skips a batch" in m]
    assert skips and "'data'" in skips[0] and len(skips) < ITERS  # the tensor is named, and the log is not flooded
    assert served.report is not None and any("skipped" in n for n in served.report.notes)


def test_nan_batches_with_ends_alone(model: requant.Model, x: np.ndarray) -> None:
    served = compiled(model, calibrator="naive")
    bad = np.full_like(x[:4], np.inf)
    for i in range(ITERS):
        served.run(bad)
        served.run(x[4 * i : 4 * i + 4])
    assert decided(served, x) == "int8"
    assert served.quantized is not None and served.quantized.table.range("data").max <= 1


def test_engine_refuses_the_int8_model(
    model: requant.Model, x: np.ndarray, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    engine = type(engines.get("openvino"))
    load = engine.load

    def refuse(self: Engine, graph: ir.Model, options: EngineOptions, shapes: Shapes | None = None) -> Session:
        if any(n.op_type == "QuantizeLinear" for n in graph.graph):
            raise EngineError("the engine refuses the graph", where="openvino", got="no int8 today")
        return load(self, graph, options, shapes)

    monkeypatch.setattr(engine, "load", refuse)
    served = compiled(model)
    assert decided(served, x) == "kept float"
    assert "no int8 today" in served.state.why and "no INT8 for openvino" in told.text
    still_float(served, model, x)


def test_a_fault_of_our_own(
    model: requant.Model, x: np.ndarray, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object, **named: object) -> ir.Model:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(live_build, "apply", broken)
    served = compiled(model)
    assert decided(served, x) == "kept float"
    assert "ZeroDivisionError: ours" in served.state.why and "Traceback" in told.text
    still_float(served, model, x)


def test_no_thread_to_be_had(model: requant.Model, x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        served = compiled(model)
        feed(served, x)
    assert served.state.phase == "kept float" and "new thread" in served.state.why
    still_float(served, model, x)


def test_disk_full(
    model: requant.Model,
    x: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: pytest.LogCaptureFixture,
) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(stored, "atomic_write", full)
    path = tmp_path / "t.calib.json"
    served = compiled(model, table=path)
    assert decided(served, x) == "int8"
    assert "No space left on device" in told.text and str(path) in told.text
    assert not path.exists()
    assert served.quantized is not None
    assert np.array_equal(served.run(x[:4])[0], served.quantized.run(x[:4])[0])


def test_no_such_folder(model: requant.Model, x: np.ndarray, tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    served = compiled(model, table=tmp_path / "none" / "t.calib.json")
    served.run(x[:4])
    assert "there is no folder" in told.text  # at the first call, not after an hour of calibration
    assert decided(served, x) == "int8"


@pytest.mark.parametrize("content", [b"", b"{", b"\x00\xff" * 50, b'{"format": "something"}', None])
def test_corrupt_table(
    model: requant.Model, x: np.ndarray, tmp_path: Path, content: bytes | None, told: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.calib.json"
    if content is None:  # a good one, cut off
        requant.quantize(model, x[:32], check=False, table=path)
        content = path.read_bytes()[:-200]
    path.write_bytes(content)
    served = compiled(model, table=path)
    feed(served, x, 1)
    assert served.state.phase != "int8" and "cannot be read" in told.text
    assert decided(served, x) == "int8"
    assert CalibrationTable.load(path).samples > 0  # written anew
    again = compiled(model, table=path)
    again.run(x[:4])
    assert again.state.phase == "int8"


def test_table_that_is_a_folder(
    model: requant.Model, x: np.ndarray, tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    served = compiled(model, table=tmp_path)
    assert decided(served, x) == "int8" and "cannot be written" in told.text


def test_table_of_another_model(
    model: requant.Model, x: np.ndarray, tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.calib.json"
    other = requant.Model.from_symbol(
        model.symbol,  # type: ignore[arg-type]
        {n: p * np.float32(0.5) if n == "fc_weight" else p for n, p in model.params.items()},
    )
    requant.quantize(other, x[:32], check=False, table=path)
    before = path.read_bytes()
    served = compiled(model, table=path)
    feed(served, x, 1)
    assert served.state.phase != "int8" and "belongs to another model" in told.text
    assert decided(served, x) == "int8"
    assert path.read_bytes() == before


def test_table_that_lacks_tensors(
    model: requant.Model, x: np.ndarray, tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.calib.json"
    requant.quantize(model, x[:32], check=False, table=path)
    table = CalibrationTable.load(path)
    few = json.loads(path.read_text())
    few["tensors"] = {n: few["tensors"][n] for n in list(table)[:2]}
    path.write_text(json.dumps(few))
    served = compiled(model, table=path)
    served.run(x[:4])
    assert served.state.phase != "int8" and "lacks tensors" in told.text
    assert decided(served, x) == "int8"
    assert len(CalibrationTable.load(path)) > 2


def test_table_without_histograms(model: requant.Model, x: np.ndarray, tmp_path: Path) -> None:
    """A table of minima and maxima does not serve a calibrator that needs more; the model calibrates again."""
    path = tmp_path / "t.calib.json"
    requant.quantize(model, x[:32], calibrator="naive", check=False, table=path)
    served = compiled(model, table=path, calibrator="entropy")
    served.run(x[:4])
    assert served.state.phase != "int8"
    assert decided(served, x) == "int8"


def test_a_first_request_that_does_not_fit(model: requant.Model, x: np.ndarray, tmp_path: Path) -> None:
    """It is refused as by any model, and the next one is answered in INT8."""
    path = tmp_path / "t.calib.json"
    requant.quantize(model, x[:32], check=False, table=path)
    served = compiled(digits(), table=path)
    with pytest.raises(RequantError):
        served.run(x[:4].reshape(4, 64))
    served.run(x[:4])
    assert served.state.phase == "int8"


def test_graph_of_one_batch_size(model: requant.Model, x: np.ndarray, tmp_path: Path) -> None:
    """An ONNX file whose batch is fixed is observed as a whole."""
    fixed = requant.Model.from_symbol(model.symbol, model.params, shapes={"data": (4, 1, 8, 8)})  # type: ignore[arg-type]
    fixed.save(tmp_path / "fixed.onnx")
    loaded = requant.load(tmp_path / "fixed.onnx")
    assert loaded.inputs[0].shape == (4, 1, 8, 8)
    served = compiled(loaded)
    assert decided(served, x) == "int8" and len(served.run(x[:4])[0]) == 4


def test_threads_through_the_swap(model: requant.Model, x: np.ndarray) -> None:
    """Eight threads ask all the time; every answer is that of the float or of the INT8 model, to the bit."""
    served, floating = compiled(model, iters=12), model.compile()
    answers: list[list[tuple[str, int, np.ndarray, str]]] = [[] for _ in range(8)]
    faults: list[BaseException] = []
    swapped = threading.Event()

    def ask(who: int) -> None:
        random, more = np.random.RandomState(who), 0
        try:
            while more < 20 and len(answers[who]) < 200_000:
                size = int(random.choice([1, 2, 4]))
                before = served.state.phase
                [scores] = served.run(x[:size])
                answers[who].append((before, size, scores, served.state.phase))
                if swapped.is_set():
                    more += 1
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    assert served.wait(600)
    swapped.set()
    for thread in threads:
        thread.join()
    assert faults == [] and served.state.phase == "int8" and served.quantized is not None
    int8 = served.quantized.compile()
    wanted = {n: (floating.run(x[:n])[0], int8.run(x[:n])[0]) for n in (1, 2, 4)}
    seen = set()
    for some in answers:
        for before, size, scores, after in some:
            as_float, as_int8 = (np.array_equal(scores, w) for w in wanted[size])
            assert as_float if after != "int8" else as_int8 if before == "int8" else as_float or as_int8
            seen.add((before, after))
    assert {("calibrating", "calibrating"), ("building", "building"), ("int8", "int8")} <= seen


def test_a_second_process_starts_in_int8(model: requant.Model, x: np.ndarray, tmp_path: Path) -> None:
    path, batch, answer = tmp_path / "t.calib.json", tmp_path / "batch.npy", tmp_path / "answer.npy"
    served = compiled(model, table=path)
    assert decided(served, x) == "int8"
    np.save(batch, x[:4])
    script = (
        "import sys, threading, numpy as np, requant\n"
        "model = requant.load(sys.argv[1])\n"
        "served = model.compile(int8=requant.Live(8, table=sys.argv[2], min_speedup=None))\n"
        "[scores] = served.run(np.load(sys.argv[3]))\n"
        "np.save(sys.argv[4], scores)\n"
        "print(served.state, served.state.seen, any(t.name == 'requant-live' for t in threading.enumerate()))\n"
        "print(served.report.sqnr)\n"
    )
    arguments: list[Any] = [sys.executable, "-c", script, DIGITS / "digits", path, batch, answer]
    out = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split("\n")
    assert out[0] == "int8 0 False"  # its first answer, no batch observed, and nothing in the background
    assert np.array_equal(np.load(answer), served.run(x[:4])[0])
    assert served.report is not None and float(out[1]) == pytest.approx(served.report.sqnr)


def test_a_process_that_ends_while_calibrating(tmp_path: Path) -> None:
    """The background does not keep a process alive, and does not bring it down."""
    script = (
        "import sys, numpy as np, requant\n"
        "served = requant.load(sys.argv[1]).compile(int8=requant.Live(int(sys.argv[2])))\n"
        "for _ in range(12):\n"
        "    served.run(np.zeros((4, 1, 8, 8), np.float32))\n"
        "print('done', flush=True)\n"
    )
    for iters in ("1000", "12"):  # waiting for batches; building
        made = subprocess.run(
            [sys.executable, "-c", script, str(DIGITS / "digits"), iters], capture_output=True, text=True, timeout=300
        )
        assert (made.returncode, made.stdout, made.stderr) == (0, "done\n", "")
