"""What a program passes by mistake: requant's own errors, which say what was wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant
from requant.errors import QuantizationError, RequantError
from requant.pipeline.timing import in_blocks

DIGITS = Path(__file__).resolve().parents[1] / "digits"


@pytest.fixture(scope="module")
def model() -> requant.Model:
    return requant.load(DIGITS / "digits")


X = np.zeros((4, 1, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"batch": 0}, "not a batch size"),
        ({"metric": "top1"}, "not a metric"),
        ({"min_sqnr": float("nan")}, "min_sqnr is not a goal"),
        ({"min_speedup": -1}, "min_speedup is not a goal"),
        ({"max_drop": "2"}, "max_drop is not a goal"),
        ({"table": "."}, "a folder, not a file"),
        ({"exclude": "conv9"}, "'conv0'"),
    ],
)
def test_quantize(model: requant.Model, words: dict[str, Any], said: str) -> None:
    with pytest.raises(RequantError) as fault:
        requant.quantize(model, X, **words)
    assert said in str(fault.value)


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


def test_calls_of_different_libraries_are_measured_in_blocks() -> None:
    order: list[str] = []
    found = in_blocks({n: lambda n=n: order.append(n) for n in ("a", "b")}, 0.01, blocks=2)  # type: ignore[misc]
    assert set(found) == {"a", "b"}
    assert all(len(t) >= 2 for t in found.values())
    turns = [n for i, n in enumerate(order) if i == 0 or order[i - 1] != n]
    assert turns == ["a", "b", "a", "b"]
