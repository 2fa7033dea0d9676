"""From a float model to a verified int8 file, on the project's own trained model; and what users reported."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import requant
from requant.errors import CalibrationError, QuantizationError
from requant.formats.dataset import Arrays
from requant.passes import optimize
from requant.pipeline import verify
from requant.pipeline.calibrate import calibrate
from requant.quant.planner import plan
from requant.quant.table import CalibrationTable
from requant.scheme import OPENVINO


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Less time for measuring speed: its figure is not looked at here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "SECONDS", 0.05)
        yield


DIGITS = Path(__file__).resolve().parents[1] / "digits"


@pytest.fixture(scope="module")
def model() -> requant.Model:
    return requant.load(DIGITS / "digits")


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    return np.load(DIGITS / "digits.npz")["calibration"].astype(np.float32) / 16


@pytest.fixture(scope="module")
def test_set() -> tuple[np.ndarray, np.ndarray]:
    file = np.load(DIGITS / "digits.npz")
    return file["x"].astype(np.float32) / 16, file["y"]


@pytest.fixture(scope="module")
def int8(model: requant.Model, data: np.ndarray) -> requant.QuantizedModel:
    return requant.quantize(model, data)


def accuracy(model: requant.Model, test_set: tuple[np.ndarray, np.ndarray], engine: str = "openvino") -> float:
    x, y = test_set
    return float((model.run(x, engine=engine)[0].argmax(1) == y).mean())


# --- the whole road ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_accuracy_is_kept_in_every_runtime(model, int8, test_set, engine) -> None:  # type: ignore[no-untyped-def]
    assert accuracy(int8, test_set, engine) >= accuracy(model, test_set) - 0.005


@pytest.mark.parametrize("calibrator", ["naive", "entropy", "percentile", "mse", "auto"])
@pytest.mark.parametrize("mode", ["full", "smart", "best"])
def test_every_mode_and_calibrator(model, data, test_set, mode, calibrator) -> None:  # type: ignore[no-untyped-def]
    made = requant.quantize(model, data, mode=mode, calibrator=calibrator, check=False)
    assert accuracy(made, test_set) >= accuracy(model, test_set) - 0.02


def test_the_file_holds_int8_weights_and_reloads_exactly(int8, data, tmp_path) -> None:  # type: ignore[no-untyped-def]
    int8.save(tmp_path / "x.onnx")
    onnx.checker.check_model(str(tmp_path / "x.onnx"), full_check=True)
    types = [t.data_type for t in onnx.load(tmp_path / "x.onnx").graph.initializer if np.prod(t.dims) >= 100]
    assert types
    assert set(types) == {onnx.TensorProto.INT8}
    again = requant.load(tmp_path / "x.onnx")
    assert np.array_equal(again.run(data[:8])[0], int8.run(data[:8])[0])


def test_the_report_is_whole(int8) -> None:  # type: ignore[no-untyped-def]
    report = int8.report
    assert report is not None
    assert report.executed.get("int8", 0) >= 4, "the engine must really run int8 layers"
    assert report.sqnr > 20
    assert report.agreement is not None
    assert report.agreement > 0.95
    assert report.layers[0].sqnr == min(e.sqnr for e in report.layers)
    assert report.speed[0].float_ms > 0
    assert report.held_out == 40
    assert report.samples == 160
    assert sum(report.decisions.values()) == len(int8.plan.decisions)
    assert "batch 1" in str(report)
    assert report.as_dict()["met"]


def test_every_node_has_a_decision_with_a_reason(int8) -> None:  # type: ignore[no-untyped-def]
    assert all(d.why for d in int8.plan.decisions)


def test_the_log_says_what_was_done(model, data, caplog) -> None:  # type: ignore[no-untyped-def]
    with caplog.at_level(logging.INFO, "requant"):
        requant.quantize(model, data, check=False, exclude=["fc"])
    text = caplog.text
    assert "int8: conv0 (Conv), with conv0_bn\n" in text
    assert "fused: conv0_relu (Relu): computed inside conv0\n" in text
    assert "float: fc (Gemm): " in text
    assert "calibrated" in text
    decisions = [r.getMessage() for r in caplog.records if r.name == "requant.quant.planner"][1:]
    users = {n.name for n in model.symbol.nodes}
    assert decisions and all(line.split()[1] in users for line in decisions)


def test_files_for_mxnet_are_logged_with_the_users_names(model, data, tmp_path, caplog) -> None:  # type: ignore[no-untyped-def]
    made = requant.quantize(model, data, check=False, refine=False)
    with caplog.at_level(logging.INFO, "requant.rewrite"):
        made.save(tmp_path / "digits-int8")
    assert "sg_mkldnn_conv_add_act_2 (conv2, add0, relu0) is quantized." in caplog.text
    assert "pool0 is quantized." in caplog.text


# --- tables --------------------------------------------------------------------------------------------------------


def test_a_table_serves_other_choices_without_data(model, data, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "digits.calib.json"
    first = requant.quantize(model, data, mode="full", table=path, check=False, refine=False)
    assert path.exists()
    again = requant.quantize(model, table=path, mode="full", check=False)
    assert np.array_equal(first.run(data[:4])[0], again.run(data[:4])[0])
    for choice in ({"calibrator": "naive"}, {"mode": "smart"}, {"exclude": ["conv1"]}, {"calibrator": "entropy"}):
        requant.quantize(model, table=path, check=False, **choice)


def test_the_table_of_another_model_is_refused(model, data, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "t.json"
    requant.quantize(model, data, table=path, check=False)
    changed = {n: p * 1.5 if n == "conv1_weight" else p for n, p in model.params.items()}
    other = requant.Model.from_symbol(model.symbol, changed)
    with pytest.raises(CalibrationError, match="another model") as fault:
        requant.quantize(other, data, table=path, check=False)
    assert str(fault.value).startswith(f"{path}: ") and "--equalize" in str(fault.value)


def test_the_table_of_a_model_with_other_names_is_told_by_them(model, data, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "t.json"
    table = CalibrationTable(["stage1_conv0", "data", "stage1_fc"], "naive", model="f" * 64)
    table.save(path)
    with pytest.raises(CalibrationError) as fault:
        requant.quantize(model, data, table=path)
    said = str(fault.value)
    assert said.startswith(f"{path}: the calibration table belongs to another model")
    assert "not here: 'stage1_conv0', 'stage1_fc'" in said and "such as 'data', 'conv0_output'" in said


def states(table: CalibrationTable) -> list[Any]:
    return [table.entry(t).statistic.state() for t in table]


@pytest.mark.parametrize("calibrator", ["naive", "entropy"])
def test_batch_sizes_do_not_matter(model, data, calibrator) -> None:  # type: ignore[no-untyped-def]
    """4, 4, 1 gives the same table as nine of one and as one of nine, up to the float sums of the engine itself."""
    floating = optimize(model.onnx)
    made = plan(floating, "best", OPENVINO)
    tables = [
        calibrate(floating, made, Arrays({"data": data[:9]}), calibrator=calibrator, batch=size) for size in (4, 1, 9)
    ]
    assert [t.samples for t in tables] == [9, 9, 9]
    for table in tables[1:]:
        for tensor in tables[0]:
            a, b = tables[0].range(tensor), table.range(tensor)
            assert a.max == pytest.approx(b.max, rel=1e-2), tensor


# --- data faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calibrator", ["naive", "entropy"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_sample_is_named(model, data, calibrator, bad) -> None:  # type: ignore[no-untyped-def]
    x = data[:24].copy()
    x[17, 0, 3, 3] = bad
    with pytest.raises(CalibrationError, match=r"(?s)tensor.*sample 17"):
        requant.quantize(model, x, calibrator=calibrator, held_out=data[:4])


def test_bad_samples_can_be_skipped(model, data, test_set) -> None:  # type: ignore[no-untyped-def]
    x = data[:64].copy()
    x[3] = np.nan
    made = requant.quantize(model, x, policy="skip", held_out=data[64:80])
    assert made.table.skipped == 1
    assert any("skipped" in n for n in made.report.notes)
    assert accuracy(made, test_set) > 0.95


def once(data: np.ndarray) -> Iterator[np.ndarray]:
    yield from (data[i : i + 10] for i in range(0, 40, 10))


@pytest.mark.parametrize(
    "give",
    [
        lambda d: d[:40],
        lambda d: {"data": d[:40]},
        lambda d: [d[:20], d[20:40]],
        lambda d: (d[:20], d[20:40]),
        lambda d: [(d[:20], np.zeros(20)), (d[20:40], np.zeros(20))],
        lambda d: [{"data": d[:20]}, {"data": d[20:33]}],
        once,
    ],
    ids=["array", "dict", "list", "tuple", "pairs with labels", "dicts", "one-shot generator"],
)
def test_ways_to_give_data(model, data, give) -> None:  # type: ignore[no-untyped-def]
    assert requant.quantize(model, give(data), check=False).run(data[:2])[0].shape == (2, 10)


@pytest.mark.parametrize(
    ("give", "said"),
    [
        (lambda d: None, "no calibration data"),
        (lambda d: [], "no batch"),
        (lambda d: iter(()), "no batch"),
        (lambda d: {"dta": d}, "dta"),
        (lambda d: np.zeros((0, 1, 8, 8), np.float32), "sample"),
        (lambda d: d[:, 0], "shape"),
        (lambda d: d.astype(np.float64), "float32"),
        (lambda d: 3, "not data"),
        (lambda d: "no-such-folder", "no-such-folder"),
    ],
)
def test_wrong_data_is_explained_at_once(model, data, give, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(requant.errors.RequantError, match=said):
        requant.quantize(model, give(data), check=False)


def test_zeros_first_and_then_data(model, data, test_set) -> None:  # type: ignore[no-untyped-def]
    x = [np.zeros((10, 1, 8, 8), np.float32), data[:60]]
    for calibrator in ("naive", "entropy", "auto"):
        assert accuracy(requant.quantize(model, x, calibrator=calibrator, check=False), test_set) > 0.95


def test_a_constant_input_still_gives_a_model(model, caplog) -> None:  # type: ignore[no-untyped-def]
    made = requant.quantize(model, np.zeros((8, 1, 8, 8), np.float32), check=False)
    assert "all values are 0 in the 7 samples looked at; ranges" in caplog.text
    assert np.isfinite(made.run(np.zeros((1, 1, 8, 8), np.float32))[0]).all()


# --- choices -------------------------------------------------------------------------------------------------------


def test_excludes_by_name_scope_glob_and_type(model, data) -> None:  # type: ignore[no-untyped-def]
    for choice in (
        {"exclude": ["conv1"]},
        {"exclude": ["conv*"]},
        {"exclude": ["conv1_bn"]},
        {"exclude_ops": ["Gemm"]},
    ):
        made = requant.quantize(model, data, check=False, **choice)
        assert made.plan.count("int8") < 9


def test_an_exclude_that_matches_nothing_names_the_nearest(model, data) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(QuantizationError, match=r"(?s)conv_1.*conv1"):
        requant.quantize(model, data, exclude=["conv_1"])


def test_nothing_quantized_is_an_error(model, data) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(QuantizationError, match="nothing"):
        requant.quantize(model, data, exclude=["*"])


# --- goals ---------------------------------------------------------------------------------------------------------


def test_a_goal_that_cannot_be_met_returns_the_best_seen(model, data) -> None:  # type: ignore[no-untyped-def]
    made = requant.quantize(model, data, min_sqnr=500, min_speedup=1e6)
    assert not made.report.met
    assert "MISSED" in made.report.goals["min_sqnr"]
    assert "MISSED" in made.report.goals["min_speedup"]
    assert made.report.sqnr >= requant.quantize(model, data).report.sqnr - 1e-6


def test_the_users_metric_is_reported(model, data, test_set) -> None:  # type: ignore[no-untyped-def]
    x, y = test_set

    def top1(results: Any) -> float:
        return float(np.mean(np.concatenate([out[0].argmax(1) for _, out in results]) == y[:100]))

    made = requant.quantize(model, data, held_out=x[:100], metric=top1, max_drop=1.0)
    assert made.report.met
    assert made.report.metric[0] == pytest.approx(0.99, abs=0.03)


def test_goals_need_verification(model, data) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(QuantizationError, match="verification"):
        requant.quantize(model, data, check=False, max_drop=1)


def test_an_onnx_model_takes_the_same_road(model, data, tmp_path) -> None:  # type: ignore[no-untyped-def]
    model.save(tmp_path / "float.onnx")
    made = requant.quantize(requant.load(tmp_path / "float.onnx"), data)
    assert made.report.sqnr > 20


def test_the_float_model_is_not_changed(model, data) -> None:  # type: ignore[no-untyped-def]
    before = ir.to_proto(model.onnx).SerializeToString()
    requant.quantize(model, data, check=False)
    assert ir.to_proto(model.onnx).SerializeToString() == before
