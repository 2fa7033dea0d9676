"""``requant table``: tables that workers filled, shown, compared, joined and exchanged with TensorRT."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from requant import cli
from requant.quant.table import CalibrationTable


def call(*words: object) -> Result:
    return CliRunner().invoke(cli.group, [str(w) for w in words], catch_exceptions=True)


def ok(*words: object) -> str:
    result = call(*words)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.stdout


def fill(seeds: range, model: str = "m1", calibrator: str = "entropy") -> CalibrationTable:
    table = CalibrationTable(["conv0", "fc"], calibrator, model=model)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        table.observe({n: rng.standard_normal((4, 50)).astype(np.float32) for n in ("conv0", "fc")})
    return table


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    fill(range(2)).save(tmp_path / "a.json")
    fill(range(2, 4)).save(tmp_path / "b.json")
    fill(range(4)).save(tmp_path / "whole.json")
    fill(range(2), model="m2").save(tmp_path / "other.json")
    return tmp_path


def test_show(tables: Path) -> None:
    found = json.loads(ok("table", "show", tables / "a.json", "--json"))
    assert found["samples"] == 8
    assert list(found["tensors"]) == ["conv0", "fc"]
    naive = json.loads(ok("table", "show", tables / "a.json", "--calib", "naive", "--json"))["tensors"]["fc"]
    assert naive["range"][1] == pytest.approx(naive["seen"][1])
    text = ok("table", "show", tables / "a.json")
    assert "8 samples" in text
    assert "conv0" in text


def test_show_what_saw_nothing(tmp_path: Path) -> None:
    CalibrationTable(["x"], "naive").save(tmp_path / "t.json")
    assert "?" in ok("table", "show", tmp_path / "t.json")


def test_merge_equals_whole(tables: Path) -> None:
    ok("table", "merge", tables / "b.json", tables / "a.json", "-o", tables / "ab.json")
    assert (tables / "ab.json").read_bytes() == (tables / "whole.json").read_bytes()
    assert "say the same" in ok("table", "diff", tables / "ab.json", tables / "whole.json")


def test_diff_tells_and_fails(tables: Path) -> None:
    result = call("table", "diff", tables / "a.json", tables / "b.json")
    assert result.exit_code == 1
    assert "conv0: (" in result.stdout
    assert (
        json.loads(call("table", "diff", tables / "a.json", tables / "whole.json", "--json").stdout)["equal"] is False
    )
    assert ok("table", "diff", tables / "a.json", tables / "b.json", "--tolerance", "10")


def test_tensorrt_there_and_back(tables: Path) -> None:
    ok("table", "to-tensorrt", tables / "a.json", "-o", tables / "a.cache")
    assert (tables / "a.cache").read_text().startswith("TRT-")
    ok("table", "from-tensorrt", tables / "a.cache", "-o", tables / "back.json")
    back = json.loads(ok("table", "show", tables / "back.json", "--json"))["tensors"]
    there = json.loads(ok("table", "show", tables / "a.json", "--json"))["tensors"]
    for name, found in there.items():
        assert back[name]["range"][1] == pytest.approx(max(map(abs, found["range"])), rel=1e-6)
        assert back[name]["seen"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "no.json"), "no.json"),
        (("show", "bad.json"), "bad.json"),
        (("merge", "a.json", "-o", "x.json"), "two tables"),
        (("merge", "a.json", "other.json", "-o", "x.json"), "other.json, beside a.json"),
        (("from-tensorrt", "a.json", "-o", "x.json"), "a.json"),
        (("show", "back.json", "--calib", "mse"), "only a finished range"),
    ],
)
def test_faults_teach(tables: Path, monkeypatch, capsys, words: tuple[str, ...], said: str) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tables)
    (tables / "bad.json").write_text("{}")
    ok("table", "to-tensorrt", "a.json", "-o", "a.cache")
    ok("table", "from-tensorrt", "a.cache", "-o", "back.json")
    monkeypatch.setattr("sys.argv", ["requant", "table", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    text = capsys.readouterr().err
    assert text.startswith("requant: ")
    assert said in text
    assert not (tables / "x.json").exists()
