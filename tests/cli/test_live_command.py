"""``requant bench --live``: the life of a serving model, as a table and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from requant.cli import group

MODEL = str(Path(__file__).resolve().parents[1] / "digits" / "digits")
ARGUMENTS = ["bench", MODEL, "--shape", "data=1,1,8,8", "--live", "--iters", "6", "--seconds", "0.1", "--batch", "2"]


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_stages(engine: str) -> None:
    result = CliRunner().invoke(group, [*ARGUMENTS, "--engine", engine, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    phases = [s["phase"] for s in found["stages"]]
    assert phases[0] == "float" and phases[-1] == "int8" and set(phases) <= {"float", "calibrating", "building", "int8"}
    assert found["end"] == "int8" and found["engine"] == engine
    begun = [s["since"] for s in found["stages"]]
    assert begun == sorted(begun) and all(s["calls"] > 0 and s["median_ms"] > 0 for s in found["stages"])
    assert found["report"]["executed"].get("int8", 0) > 0 and found["report"]["speed"][0]["batch"] == 2


def test_table() -> None:
    result = CliRunner().invoke(group, ARGUMENTS, catch_exceptions=False)
    assert result.exit_code == 0
    assert "end: int8" in result.stdout and "layers as executed" in result.stdout
