"""What a program passes by mistake: requant's own errors, which say what was wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant
from requant.errors import CalibrationError, InputError, QuantizationError, RequantError
from requant.pipeline.given import check_engine
from requant.pipeline.timing import in_blocks

DIGITS = Path(__file__).resolve().parents[1] / "digits"


@pytest.fixture(scope="module")
def model() -> requant.Model:
    return requant.load(DIGITS / "digits")


X = np.zeros((4, 1, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"batch": 0}, "quantize: batch: not a count"),
        ({"metric": "top1"}, "not a metric"),
        ({"min_sqnr": float("nan")}, "min_sqnr is not a goal"),
        ({"min_speedup": -1}, "min_speedup is not a goal"),
        ({"max_drop": "2"}, "max_drop is not a goal"),
        ({"table": "."}, "a folder, not a file"),
        ({"exclude": "conv9"}, "'conv0'"),
        ({"exclude": 3}, "quantize: exclude"),
        ({"exclude_ops": [None]}, "quantize: exclude_ops"),
        ({"samples": "3"}, "quantize: samples"),
        ({"batches": (1, 0)}, "quantize: batches"),
        ({"batches": (1, 10**9)}, "do not fit into memory"),
        ({"table": 3}, "quantize: table"),
        ({"progress": 3}, "quantize: progress"),
        ({"metadata": {"a": 3}}, "quantize: metadata"),
        ({"mode": "bst"}, "did you mean 'best'"),
        ({"budget": 5}, "--mode measured"),
        ({"mode": "measured", "target": "onnxruntime"}, "leave out target"),
        ({"mode": "measured", "budget": "3"}, "quantize: budget"),
        ({"held_out": []}, "quantize: held_out"),
        ({"metric": lambda results: None}, "returned no number"),
    ],
)
def test_quantize(model: requant.Model, words: dict[str, Any], said: str) -> None:
    with pytest.raises(RequantError) as fault:
        requant.quantize(model, X, **words)
    assert said in str(fault.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((None,), ["load: the model", "None"]),
        ((123,), ["load: the model", "123"]),
        ((b"net",), ["load: the model", "b'net'"]),
        (([str(DIGITS / "digits")],), ["load: the model", "digits"]),
        ((DIGITS / "digits", {"conv0_weight": X}), ["load: params", "conv0_weight"]),
        ((DIGITS / "digits", None, "0"), ["load: epoch", "'0'"]),
    ],
)
def test_load(words: tuple[Any, ...], said: list[str]) -> None:
    with pytest.raises(InputError) as fault:
        path, params, epoch = (*words, None, None)[:3]
        requant.load(path, params, epoch=epoch)
    assert all(part in str(fault.value) for part in [*said, "got:", "expected:", "next:"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"shapes": [1, 1, 8, 8]}, "load: shapes"),
        ({"shapes": {"data": 8}}, "load: shapes"),
        ({"shapes": {"data": (1, 1, -8, 8)}}, "load: shapes"),
        ({"dtypes": "float16"}, "load: dtypes"),
    ],
)
def test_load_options(words: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as fault:
        requant.load(DIGITS / "digits", **words)
    assert all(part in str(fault.value) for part in ["got:", "expected:", "next:"])


def test_sizes_that_stay_open_may_be_given_in_every_spelling() -> None:
    for size in (None, "N", 0, -1):
        loaded = requant.load(DIGITS / "digits", shapes={"data": (size, 1, 8, 8)})
        assert loaded.inputs[0].shape == ("N", 1, 8, 8)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.full((1, 1, 8, 8), "a"), "numpy.array(numbers, 'float32')"),
        (np.full((1, 1, 8, 8), None), "numpy.array(numbers, 'float32')"),
        ([np.full((1, 1, 8, 8), None)], "dtype object"),
        ("cat.jpg", "'cat.jpg', dtype <U7"),
        ([[1], [1, 2]], "too many arrays"),
        ([[[1], [1, 2]]], "not an array"),
        ({"data": {1, 2}}, "{1, 2}, dtype object"),
        ([], "an input is missing"),
        (None, "an input is missing"),
        ([X, X], "too many arrays"),
        (X[:0], "feed at least one sample"),
    ],
)
def test_run(model: requant.Model, data: Any, said: str) -> None:
    with pytest.raises(RequantError) as fault:
        model.run(data)
    assert all(part in str(fault.value) for part in [said, "got:", "next:"])


@pytest.mark.parametrize("batches", [None, 3, "cat.jpg"])
def test_predict(model: requant.Model, batches: Any) -> None:
    with pytest.raises(InputError, match="an iterable of what run"):
        next(model.predict(batches))


def test_a_second_array_is_not_the_name_of_an_engine() -> None:
    with pytest.raises(InputError) as fault:
        check_engine(X, "net: run")
    assert all(p in str(fault.value) for p in ["ndarray of shape (4, 1, 8, 8)", "'openvino'", "run([a, b])"])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (np.full((4, 1, 8, 8), "a"), "dtype <U1"),
        (np.full((4, 1, 8, 8), None), "dtype object"),
        ({"data": [[1], [1, 2]]}, "not an array"),
        ({"data": None}, "no numbers"),
        ({}, "no data for input 'data'"),
        (["cat.jpg", "dog.jpg"], "batch 0: data that are no numbers"),
        ([X, None], "batch 1: data that are no numbers"),
        ([X, X[:0]], "batch 1: a batch without samples"),
        ([1.0, 2.0], "batch 0: a batch without samples"),
        ([[]], "without samples"),
        ([], "gave no batch"),
        (3, "not data"),
    ],
)
def test_data(model: requant.Model, data: Any, said: str) -> None:
    with pytest.raises(CalibrationError) as fault:
        requant.quantize(model, data)
    assert all(part in str(fault.value) for part in [said, "got:", "expected:", "next:"])


def test_a_name_that_is_no_text_is_told_the_true_names(model: requant.Model) -> None:
    with pytest.raises(InputError, match="known names: 'data'"):
        model.run({1: X})


@pytest.mark.parametrize(
    ("words", "said"),
    [({"mode": "bst"}, "did you mean 'best'"), ({"on_ready": 3}, "pass the function itself")],
)
def test_live(words: dict[str, Any], said: str) -> None:
    with pytest.raises(QuantizationError) as fault:
        requant.Live(4, **words)
    assert f"next:     {said}" in str(fault.value)


def test_a_path_is_not_a_model() -> None:
    with pytest.raises(RequantError, match=r"requant.load"):
        requant.quantize(str(DIGITS / "digits"), X)  # type: ignore[arg-type]


def test_one_name_may_be_excluded_without_a_list(model: requant.Model) -> None:
    made = requant.quantize(model, X, exclude="conv0", calibrator="naive", check=False, refine=False)
    assert made.plan.decision("conv0").chosen == "float"
    with pytest.raises(QuantizationError, match="conv9"):
        requant.quantize(model, X, exclude=["conv9"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"shapes": [1, 1, 8, 8]}, "sizes by input name"),
        ({"shapes": {"data": 8}}, "sizes by input name"),
        ({"shapes": {"data": ("N", 1, 8, 8)}}, "sizes by input name"),
        ({"shapes": {"data": (1, 1, -8, 8)}}, "sizes by input name"),
        ({"cache_dir": 3}, "its name"),
        ({"int8": True}, "int8=Live"),
        ({"engine": None}, "openvino"),
        ({"engine": 3}, "openvino"),
    ],
)
def test_compile(model: requant.Model, words: dict[str, Any], said: str) -> None:
    with pytest.raises(RequantError) as fault:
        model.compile(**words)
    assert said in str(fault.value)


@pytest.mark.parametrize("name", ["none/x.onnx", "x.txt", "."])
def test_save(model: requant.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RequantError) as fault:
        model.save(name)
    assert "next:" in str(fault.value)
    assert list(tmp_path.iterdir()) == []


def test_a_second_array_is_no_engine(model: requant.Model) -> None:
    with pytest.raises(RequantError, match=r"run\(\[a, b\]\)"):
        model.run(X, X)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.save(3),
        lambda m: m.save(None),
        lambda m: m.save("x.onnx", epoch="a"),
        lambda m: requant.Model.from_onnx("x.onnx"),
        lambda m: requant.Model.from_symbol("net-symbol.json", {}),
    ],
)
def test_arguments_of_the_wrong_kind(model: requant.Model, call: Any) -> None:
    with pytest.raises(RequantError) as fault:
        call(model)
    assert "next:" in str(fault.value)


def test_calls_of_different_libraries_are_measured_in_blocks() -> None:
    order: list[str] = []
    found = in_blocks({n: lambda n=n: order.append(n) for n in ("a", "b")}, 0.01, blocks=2)  # type: ignore[misc]
    assert set(found) == {"a", "b"}
    assert all(len(t) >= 2 for t in found.values())
    turns = [n for i, n in enumerate(order) if i == 0 or order[i - 1] != n]
    assert turns == ["a", "b", "a", "b"]
