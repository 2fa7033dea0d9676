"""A second look at the data: weights rounded by it, with and without a table, and the equalized form."""

from pathlib import Path

import numpy as np
import pytest

import requant
from requant.errors import CalibrationError, FormatError
from requant.formats.passed import from_program
from requant.passes import optimize
from requant.pipeline.refine import moments
from requant.quant.planner import plan
from requant.scheme import OPENVINO

DIGITS = Path(__file__).parents[1] / "digits"


@pytest.fixture(scope="module")
def model() -> requant.Model:
    return requant.load(str(DIGITS / "digits"))


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    found: np.ndarray = np.load(DIGITS / "calibration.npz")["data"]
    return found


@pytest.fixture(scope="module")
def unseen() -> np.ndarray:
    stored = np.load(DIGITS / "digits.npz")
    found: np.ndarray = stored[next(n for n in stored.files if stored[n].ndim == 4)]
    return found.astype(np.float32) / 16  # as the network was trained


def integers(made: requant.QuantizedModel) -> list[np.ndarray]:
    values = [v.const_value.numpy() for v in made.onnx.graph.initializers.values() if v.const_value is not None]
    return [a for a in values if a.dtype == np.int8 and a.size > 8]


def test_weights_are_rounded_otherwise_by_one_step_mostly(model: requant.Model, data: np.ndarray) -> None:
    plain = requant.quantize(model, data, mode="full", check=False, refine=False)
    made = requant.quantize(model, data, mode="full", check=False)
    pairs = list(zip(integers(plain), integers(made)))
    assert pairs
    assert any(not np.array_equal(a, b) for a, b in pairs)
    off = np.concatenate([np.abs(a.astype(int) - b).ravel() for a, b in pairs])
    assert (off <= 1).mean() > 0.9


def test_the_same_data_give_the_same_model(model: requant.Model, data: np.ndarray) -> None:
    first, second = (requant.quantize(model, data, mode="full", check=False) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(integers(first), integers(second)))


def test_a_table_with_data_is_refined_and_alone_is_not(model: requant.Model, data: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "calib.json"
    first = requant.quantize(model, data, mode="full", table=path, check=False)
    again = requant.quantize(model, data, mode="full", table=path, check=False)
    alone = requant.quantize(model, mode="full", table=path, check=False)
    plain = requant.quantize(model, data, mode="full", table=path, check=False, refine=False)
    assert all(np.array_equal(a, b) for a, b in zip(integers(first), integers(again)))
    assert all(np.array_equal(a, b) for a, b in zip(integers(plain), integers(alone)))


def test_every_weighted_node_is_looked_at(model: requant.Model, data: np.ndarray) -> None:
    floating = optimize(model.onnx_for({"data": data[:1].shape}))
    made = plan(floating, "full", OPENVINO)
    found = moments(floating, made, from_program(data, ["data"], None))
    assert set(found) == {d.node for d in made.decisions if d.chosen == "int8" and d.weight == 1}
    assert all(m.count >= 100 and np.isfinite(m.covariance).all() for m in found.values())


def test_samples_that_make_nan_are_left_out(model: requant.Model, data: np.ndarray) -> None:
    bad = data.copy()
    bad[3, 0, 2, 2] = np.nan
    made = requant.quantize(model, bad, mode="full", policy="skip", check=False)
    assert np.isfinite(made.run(data[:4])[0]).all()


def test_an_equalized_model_computes_the_same(
    model: requant.Model, data: np.ndarray, unseen: np.ndarray, tmp_path: Path
) -> None:
    made = requant.quantize(model, data, equalize=True, check=False)
    wanted, got = model.run(unseen[:64])[0], made.run(unseen[:64])[0]
    assert (wanted.argmax(1) == got.argmax(1)).mean() > 0.95
    with pytest.raises(FormatError, match="equalize"):
        made.save(tmp_path / "mxnet")
    made.table.save(tmp_path / "calib.json")
    with pytest.raises(CalibrationError, match="another model"):
        requant.quantize(model, table=tmp_path / "calib.json", check=False)
    again = requant.quantize(model, table=tmp_path / "calib.json", equalize=True, check=False)
    assert again.plan == made.plan
