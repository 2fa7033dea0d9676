"""The calibration table: observing, policies, merging, files, other calibrators without data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from requant.errors import CalibrationError
from requant.formats.calibration_table import TensorRTCache, read_tensorrt_cache, write_tensorrt_cache
from requant.quant.calibrators import calibrators
from requant.quant.nonfinite import NonFiniteActivation, NonFiniteEnds
from requant.quant.table import CalibrationTable
from requant.scheme import ONNXRUNTIME

F32 = np.float32
TENSORS = ("data", "conv0", "fc")


def batch(seed: int, samples: int = 4) -> dict[str, np.ndarray]:
    r = np.random.RandomState(seed)
    return {
        "data": r.randn(samples, 3, 8, 8).astype(F32),
        "conv0": np.maximum(r.randn(samples, 16, 8, 8), 0).astype(F32),
        "fc": (r.randn(samples, 10) * 5).astype(F32),
    }


def filled(seeds: range, calibrator: str = "entropy") -> CalibrationTable:
    table = CalibrationTable(TENSORS, calibrator, model="m1")
    for seed in seeds:
        table.observe(batch(seed))
    return table


def test_observe_counts_samples_and_ignores_other_outputs() -> None:
    table = filled(range(3))
    assert table.samples == 12 and len(table) == 3 and "conv0" in table and list(table) == list(TENSORS)
    table.observe({**batch(3), "other": np.zeros(3)})
    assert table.samples == 16 and "other" not in table
    assert table.entry("fc").statistic.count == 160


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(CalibrationError, match="conv0") as error:
        CalibrationTable(TENSORS).observe({"data": np.zeros((1, 3)), "conv0_output": np.zeros(1), "fc": np.zeros(1)})
    assert "conv0_output" in str(error.value)
    with pytest.raises(CalibrationError, match="did you mean 'conv0'"):
        filled(range(1)).range("conv_0")


def test_workers_and_orders_give_the_same_bytes(tmp_path: Path) -> None:
    whole = filled(range(6))
    a, b, c = filled(range(4, 6)), filled(range(1)), filled(range(1, 4))
    b.merge(a)
    b.merge(c)
    whole.save(tmp_path / "whole.json")
    b.save(tmp_path / "parts.json")
    assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "parts.json").read_bytes()
    assert whole.diff(b) == []


def test_threads_change_nothing(tmp_path: Path) -> None:
    a, b = CalibrationTable(TENSORS), CalibrationTable(TENSORS)
    for seed in range(3):
        a.observe(batch(seed))
        b.observe(batch(seed), threads=3)
    assert a.to_stored().tensors.keys() == b.to_stored().tensors.keys() and a.diff(b) == []
    assert a.ranges() == b.ranges(threads=2)


@pytest.mark.parametrize("name", sorted(calibrators()))
def test_save_and_load(name: str, tmp_path: Path) -> None:
    table = filled(range(2), name)
    table.metadata["std"] = "58.4"
    if name == "auto":
        table.observe(batch(7), held_out=True)
    table.save(tmp_path / "t.json")
    again = CalibrationTable.load(tmp_path / "t.json")
    assert again.diff(table) == [] and again.metadata == {"std": "58.4"} and again.model == "m1"
    assert again.held_out_samples == table.held_out_samples
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "t.json").read_bytes()
    again.observe(batch(9))  # resumed
    table.observe(batch(9))
    assert again.diff(table) == []


def test_another_calibrator_needs_no_data(tmp_path: Path) -> None:
    filled(range(2), "percentile").save(tmp_path / "t.json")
    table = CalibrationTable.load(tmp_path / "t.json")
    x = np.concatenate([batch(s)["conv0"] for s in range(2)])
    assert table.range("conv0", "naive") == (0, x.max())
    for name in calibrators():
        assert 0 < table.range("conv0", name).max <= x.max()
        assert table.range("fc", name, scheme=ONNXRUNTIME).absmax > 0
    assert table.range("data", percentile=50.0).max < table.range("data").max
    minmax = filled(range(2), "naive")
    with pytest.raises(CalibrationError, match="needs a histogram"):
        minmax.range("conv0", "entropy")


def test_options_are_checked_before_any_data() -> None:
    with pytest.raises(CalibrationError, match="no such option"):
        CalibrationTable(TENSORS, "entropy", options={"percentile": 3})
    with pytest.raises(CalibrationError, match="unknown calibrator"):
        CalibrationTable(TENSORS, "entropi")
    table = CalibrationTable(TENSORS, "percentile", options={"percentile": 50.0})
    table.observe(batch(0))
    assert table.range("data").max < 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_policies_for_bad_samples(bad: float) -> None:
    good, broken = batch(0), batch(0)
    broken["fc"][2, 3] = bad
    table = CalibrationTable(TENSORS, model="m1")
    with pytest.raises(NonFiniteActivation, match="tensor 'fc'") as error:
        table.observe(broken)
    assert error.value.sample == 2 and table.samples == 0
    assert all(table.entry(name).statistic.count == 0 for name in table)  # not even the tensors before it
    assert table.observe(broken, policy="skip") == (3, (2,))
    expected = CalibrationTable(TENSORS, model="m1")
    expected.observe({name: np.delete(a, 2, axis=0) for name, a in good.items()})
    expected.skipped = 1
    assert table.diff(expected) == [] and table.skipped == 1
    assert table.to_stored().samples == 3
    with pytest.raises(CalibrationError, match="unknown policy"):
        table.observe(good, policy="ignore")  # type: ignore[arg-type]


def test_all_samples_skipped_is_an_error_at_the_end() -> None:
    table = CalibrationTable(["x"])
    assert table.observe({"x": np.full((2, 3), np.nan)}, policy="skip") == (0, (0, 1))
    with pytest.raises(CalibrationError, match="no value of this tensor"):
        table.range("x")


def test_a_tensor_without_batch_axis_skips_the_whole_batch() -> None:
    table = CalibrationTable(["x", "y"])
    bad = {"x": np.ones((4, 2)), "y": np.array([np.nan, 1, 2])}
    assert table.observe(bad, policy="skip") == (0, (0, 1, 2, 3))


def test_ends_found_in_the_graph_equal_min_and_max_of_the_data() -> None:
    a, b = filled(range(2), "naive"), CalibrationTable(TENSORS, "naive", model="m1")
    for seed in range(2):
        x = batch(seed)
        b.observe_ends(
            {n: (v.min(), v.max()) for n, v in x.items()}, samples=4, values={n: v.size for n, v in x.items()}
        )
    assert a.diff(b) == [] and a.to_stored() == b.to_stored()
    with pytest.raises(NonFiniteEnds, match="'conv0'"):
        b.observe_ends(
            {n: (0, np.nan if n == "conv0" else 1) for n in TENSORS}, samples=1, values=dict.fromkeys(TENSORS, 1)
        )
    assert b.samples == 8
    with pytest.raises(CalibrationError, match="not enough"):
        filled(range(1)).observe_ends({}, samples=1, values={})


def test_a_table_of_another_model_is_refused() -> None:
    table, other = filled(range(1)), CalibrationTable(TENSORS, model="m2")
    other.observe(batch(1))
    with pytest.raises(CalibrationError, match="another model"):
        table.merge(other)
    with pytest.raises(CalibrationError, match="another model"):
        table.check_model("m2")
    table.check_model("m1")
    assert table.samples == 4


def test_kinds_of_statistics_do_not_merge() -> None:
    table, other = filled(range(1)), filled(range(1), "naive")
    with pytest.raises(CalibrationError, match="different kinds"):
        table.merge(other)
    assert table.samples == 4


def test_diff_says_what_changed() -> None:
    a, b = filled(range(1)), filled(range(2))
    lines = "\n".join(a.diff(b))
    assert "samples: 4 -> 8" in lines and "conv0: (0, " in lines
    assert a.diff(b, tolerance=10.0) == ["samples: 4 -> 8"]
    b = CalibrationTable(["data", "new"], model="m1")
    assert {"conv0: only in the first", "new: only in the second"} <= set(a.diff(b))


def test_tensorrt_cache_both_ways(tmp_path: Path) -> None:
    table = filled(range(2))
    write_tensorrt_cache(table.to_tensorrt(), tmp_path / "calib.cache")
    cache = read_tensorrt_cache(tmp_path / "calib.cache")
    assert cache.algorithm == "EntropyCalibration2" and cache.version == 8601
    again = CalibrationTable.from_tensorrt(cache, model="m1")
    for name in TENSORS:
        assert again.range(name).absmax == pytest.approx(table.range(name).absmax, rel=1e-6)
        assert again.range(name).min == -again.range(name).max
    with pytest.raises(CalibrationError, match="only a finished range"):
        again.range("fc", "mse")
    with pytest.raises(CalibrationError, match="finished ranges cannot be merged"):
        table.merge(again)
    again.save(tmp_path / "t.json")
    assert CalibrationTable.load(tmp_path / "t.json").ranges() == again.ranges()
    assert CalibrationTable.from_tensorrt(TensorRTCache({"x": 1.0}, 7000, "MinMaxCalibration")).calibrator == "naive"
