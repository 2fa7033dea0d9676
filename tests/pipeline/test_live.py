"""A model that calibrates while it serves: its states, its answers, its statistics."""

from __future__ import annotations

import gc
import logging
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from living import ITERS, compiled, decided, digits, feed, images, live, quickly

import requant
from requant.errors import CalibrationError, InputError, QuantizationError
from requant.formats.passed import from_program
from requant.passes import optimize
from requant.pipeline.calibrate import calibrate
from requant.pipeline.live import Live
from requant.pipeline.live_build import Builder
from requant.quant.planner import plan
from requant.quant.table import CalibrationTable
from requant.report import Report

quick = pytest.fixture(scope="module", autouse=True)(quickly)


@pytest.fixture(scope="module")
def model() -> requant.Model:
    return digits()


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return images()


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_life(
    model: requant.Model, x: np.ndarray, engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "requant")
    table = tmp_path / "digits.calib.json"
    served = compiled(model, engine, table=table, backend="Some")
    floating = model.compile(engine)
    assert str(served.state) == "float" and served.report is None and served.quantized is None
    states = []
    for i in range(ITERS):
        [scores] = served.run(x[4 * i : 4 * i + 4])
        assert np.array_equal(scores, floating.run(x[4 * i : 4 * i + 4])[0])  # to the bit
        states.append(str(served.state))
    assert served.wait(300)
    assert served.state.phase == "int8" and served.state.wanted == ITERS
    assert [r.getMessage() for r in caplog.records if "engines" in r.getMessage()] == [
        "The executor with Some INT8 engines is ready!"
    ]
    order = ["float", *(f"calibrating {k} of {ITERS}" for k in range(1, ITERS + 1)), "building", "int8"]
    assert [order.index(s) for s in states] == sorted(order.index(s) for s in states)
    # What serves now is what quantizing offline makes of the same table.
    offline = requant.quantize(model, table=table, engine=engine, check=False)
    [scores], [wanted] = served.run(x[:4]), offline.compile(engine).run(x[:4])
    assert np.array_equal(scores, wanted)
    assert not np.array_equal(scores, floating.run(x[:4])[0])
    report = served.report
    assert report is not None and report.executed.get("int8", 0) > 0 and report.sqnr > 20
    assert report.samples == 4 * ITERS and report.speed[0].batch == 4 and report.agreement == 1.0


def test_statistics_are_those_of_the_batches(model: requant.Model, x: np.ndarray) -> None:
    served = compiled(model, calibrator="naive")
    assert decided(served, x) == "int8"
    graph = optimize(model.onnx)
    made = plan(graph, "best", requant.engines.get("openvino").scheme)
    offline = calibrate(graph, made, from_program(x[: 4 * ITERS], ["data"]), calibrator="naive")
    assert served.quantized is not None
    assert served.quantized.table.diff(offline) == []
    assert served.quantized.table.samples == 4 * ITERS


def test_any_batch_size(model: requant.Model, x: np.ndarray) -> None:
    served, floating = compiled(model, iters=5), model.compile()
    for size in (1, 3, 40, 2, 17):
        assert np.array_equal(served.run(x[:size])[0], floating.run(x[:size])[0])
    assert served.wait(300) and served.state.phase == "int8"
    quantized = served.quantized
    assert quantized is not None and quantized.table.samples + quantized.table.held_out_samples == 63
    assert len(served._life._int8._cache) == 5  # type: ignore[union-attr]  # a session for each, before the swap
    int8 = quantized.compile()
    for size in (1, 40, 6):  # the last one never came before
        assert np.array_equal(served.run(x[:size])[0], int8.run(x[:size])[0])


def test_submit_and_stream_feed_it(model: requant.Model, x: np.ndarray) -> None:
    served, floating = compiled(model, iters=8), model.compile()
    futures = [served.submit(x[i : i + 2]) for i in range(4)]
    assert all(np.array_equal(f.result()[0], floating.run(x[i : i + 2])[0]) for i, f in enumerate(futures))
    streamed = list(served.stream(x[i : i + 2] for i in range(4)))
    assert all(np.array_equal(s[0], floating.run(x[i : i + 2])[0]) for i, s in enumerate(streamed))
    assert served.wait(300) and served.state.phase == "int8"
    assert len(list(served.stream(x[i : i + 2] for i in range(4)))) == 4


def test_the_memory_of_a_batch_is_the_callers(model: requant.Model, x: np.ndarray) -> None:
    """What a caller writes into its array after the answer is not seen by calibration."""
    served = compiled(model, calibrator="naive")
    batch = x[:4].copy()
    for _ in range(ITERS):
        served.run(batch)
        batch[:] = 1e9
        batch[:] = x[:4]
    assert served.wait(300) and served.quantized is not None
    assert served.quantized.table.range("data").max <= 1.0


def test_a_full_queue_leaves_batches_out_and_requests_alone(
    model: requant.Model, x: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, observe = threading.Event(), Builder.observe

    def later(self: Builder, batch: dict[str, np.ndarray], number: int) -> CalibrationError | None:
        gate.wait(300)
        return observe(self, batch, number)

    monkeypatch.setattr(Builder, "observe", later)
    served = compiled(model, iters=6, memory=2 * x[:4].nbytes)
    feed(served, x, 30)  # nothing is observed yet, and every call returns
    assert served.state.phase == "float" and served._life.missed >= 20
    gate.set()
    assert decided(served, x) == "int8"
    assert served.report is not None and any("queue was full" in n for n in served.report.notes)


def test_bounds_keep_it_in_float(model: requant.Model, x: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    served = compiled(model, min_sqnr=150.0)
    assert decided(served, x) == "kept float"
    assert "dB of signal to noise" in served.state.why and "150" in served.state.why
    assert served.report is not None and 20 < served.report.sqnr < 150 and served.quantized is None
    assert "no INT8" in caplog.text
    slow = compiled(model, min_speedup=1000.0)
    assert decided(slow, x) == "kept float" and "times as fast as float" in slow.state.why
    floating = model.compile()
    assert np.array_equal(served.run(x[:4])[0], floating.run(x[:4])[0])


def test_nothing_to_quantize_keeps_it_in_float(model: requant.Model, x: np.ndarray) -> None:
    served = compiled(model, exclude="*")
    assert decided(served, x) == "kept float" and str(served.state).startswith("kept float: ")


def test_ready_is_told(model: requant.Model, x: np.ndarray, caplog: pytest.LogCaptureFixture) -> None:
    told: list[Report] = []
    served = compiled(model, on_ready=told.append)
    assert decided(served, x) == "int8"
    until(lambda: bool(told))
    assert told == [served.report]

    def broken(report: Report) -> None:
        raise ValueError("mine")

    served = compiled(model, on_ready=broken)
    assert decided(served, x) == "int8"
    until(lambda: "on_ready failed" in caplog.text)
    assert served.state.phase == "int8"


def test_closing_ends_the_background(model: requant.Model, x: np.ndarray) -> None:
    served = compiled(model, iters=1000)
    feed(served, x, 3)
    thread = served._life._thread
    assert thread is not None and thread.is_alive()
    served.close()
    thread.join(300)
    assert not thread.is_alive() and served.wait(0)


def test_a_model_that_nobody_holds_ends_its_background(model: requant.Model, x: np.ndarray) -> None:
    served = compiled(model, iters=1000)
    feed(served, x, 3)
    thread = served._life._thread
    assert thread is not None
    del served
    gc.collect()
    thread.join(300)
    assert not thread.is_alive()


def test_wrong_input_is_refused_and_not_counted(model: requant.Model, x: np.ndarray) -> None:
    served = compiled(model)
    with pytest.raises(InputError):
        served.run(x[:4].astype(np.float64))
    with pytest.raises(InputError):
        served.run(x[:4], more=x[:4])
    assert served._life._taken == 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"iters": 0}, "iters"),
        ({"iters": 2.5}, "iters"),
        ({"iters": True}, "iters"),
        ({"keep": 0}, "keep"),
        ({"threads": 0}, "threads"),
        ({"mode": "fast"}, "smart"),
        ({"on_ready": 3}, "on_ready"),
    ],
)
def test_options_out_of_range(options: dict[str, object], word: str) -> None:
    with pytest.raises(QuantizationError, match=word):
        Live(**{"iters": 4, **options})  # type: ignore[arg-type]


def test_unknown_calibrator() -> None:
    with pytest.raises(CalibrationError, match="entropy"):
        Live(4, calibrator="entropie")


def test_prepared_at_once(model: requant.Model, x: np.ndarray) -> None:
    served = model.compile(shapes={"data": (4, 1, 8, 8)}, int8=live())
    assert served.run(x[:4])[0].shape == (4, 10)
    dynamic = model.compile(dynamic=True, int8=live(iters=3))
    for size in (1, 2, 3):
        assert len(dynamic.run(x[:size])[0]) == size
    assert dynamic.wait(300) and dynamic.state.phase == "int8"  # type: ignore[attr-defined]
    assert len(dynamic.run(x[:9])[0]) == 9


def test_measured_mixture(model: requant.Model, x: np.ndarray, tmp_path: Path) -> None:
    """Which layers become INT8 is measured in the background; the table remembers it. All in float is an outcome."""
    table = tmp_path / "t.calib.json"
    served = compiled(model, mode="measured", budget=1.0, table=table)
    end = decided(served, x)
    if end == "kept float":
        assert "measured as fastest" in served.state.why
        return
    assert served.quantized is not None and served.quantized.plan.mode == "measured"
    again = compiled(model, mode="measured", table=table)
    assert np.array_equal(again.run(x[:4])[0], served.run(x[:4])[0])
    assert again.state.phase == "int8" and again.state.seen == 0
    assert again.quantized is not None and again.quantized.plan == served.quantized.plan


def test_table_of_another_tool_is_taken(model: requant.Model, x: np.ndarray, tmp_path: Path) -> None:
    """A table that ``quantize`` wrote serves a live model as well, and the other way round."""
    path = tmp_path / "offline.calib.json"
    requant.quantize(model, x[:64], mode="full", check=False, table=path)
    offline = requant.quantize(model, mode="full", check=False, table=path)  # weights rounded as without data
    served = compiled(model, mode="full", table=path)
    [scores] = served.run(x[:4])
    assert served.state.phase == "int8" and served.state.seen == 0
    assert np.array_equal(scores, offline.compile().run(x[:4])[0])
    assert isinstance(CalibrationTable.load(path), CalibrationTable)


def until(holds: object, seconds: float = 300.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)
