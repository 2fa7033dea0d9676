"""Plans as data: compared, saved, read again."""

from __future__ import annotations

import dataclasses

import pytest
from small_graphs import residual

from requant.errors import FormatError
from requant.quant.plan import from_json, load
from requant.quant.planner import plan
from requant.scheme import ONNXRUNTIME, OPENVINO, Scheme


def test_a_plan_with_addends_comes_back_from_json() -> None:
    made = plan(residual(), "best", OPENVINO)
    assert from_json(made.to_json()) == made


def test_a_plan_survives_its_file(tmp_path: object) -> None:
    made = plan(residual(), "best", ONNXRUNTIME)
    path = f"{tmp_path}/plan.json"
    made.save(path)
    assert load(path) == made
    assert made.diff(load(path)) == []


def test_plans_are_compared() -> None:
    lines = plan(residual()).diff(plan(residual(), exclude=["c1"]))
    assert any(line.startswith("c1: int8") and "excluded" in line for line in lines)
    assert plan(residual(), "best").diff(plan(residual(), "full"))[0] == "mode: 'best' -> 'full'"
    assert "int8" in str(plan(residual()))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "requant plan", "version": 9}', '{"format": 3}', "\x00"])
def test_what_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        from_json(text)


def test_schemes_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Scheme("a").name = "b"  # type: ignore[misc]
