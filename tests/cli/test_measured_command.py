"""``requant quantize --mode measured``: its tables, its files, its misuse."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import requant
from requant import cli
from requant.pipeline import measured, verify

DIGITS = Path(__file__).resolve().parents[1] / "digits"


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "SECONDS", 0.02)
        patch.setattr(measured, "SECONDS", 0.02)
        yield


def quantize(*words: object) -> Result:
    fixed = ("quantize", DIGITS / "digits", "--data", DIGITS / "calibration.npz", "--calib", "naive", "--samples", "40")
    return CliRunner().invoke(cli.group, [*map(str, fixed), *map(str, words)])


def test_every_layer_has_its_times_in_the_table(tmp_path: Path) -> None:
    out, figures = tmp_path / "fast.onnx", tmp_path / "figures.json"
    result = quantize("--mode", "measured", "--budget", "2", "--measurements", figures, "-o", out)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    assert "Layers as measured, in microseconds" in result.output
    for word in ("conv0/Conv", "fc/Gemm", "all in float", "all in int8", "chosen"):
        assert word in result.output
    data = np.load(DIGITS / "calibration.npz")["data"]
    assert requant.load(out).run(data)[0].shape == (len(data), 10)
    assert json.loads(figures.read_text())["entries"]


def test_the_choice_as_json(tmp_path: Path) -> None:
    result = quantize("--mode", "measured", "--budget", "1", "-o", tmp_path / "fast.onnx", "--json")
    assert result.exit_code == 0, result.output
    choice = json.loads(result.stdout)["report"]["choice"]
    assert sum(c["chosen"] for c in choice["candidates"]) == 1
    assert {"node", "chosen", "float_us", "int8_us", "block"} <= set(choice["layers"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--budget", "5"), "belongs to mode 'measured'"),
        (("--mode", "measured", "--budget", "0"), "--budget"),
        (("--allow", "bf16"), "belongs to mode 'measured'"),
        (("--mode", "measured", "--allow", "f8"), "--allow"),
    ],
)
def test_misuse(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    out = tmp_path / "x.onnx"
    result = quantize(*words, "-o", out)
    assert result.exit_code != 0
    assert message in f"{result.output}{result.exception}"
    assert not out.exists()


def test_a_damaged_file_of_measurements_is_named(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    figures.write_text("{")
    result = quantize("--mode", "measured", "--measurements", figures, "-o", tmp_path / "x.onnx")
    assert result.exit_code != 0
    assert str(figures) in f"{result.output}{result.exception}"


def test_a_file_for_an_engine_that_need_not_be_here(tmp_path: Path) -> None:
    out = tmp_path / "trt.onnx"
    result = quantize("--target", "tensorrt", "-o", out, "--json")
    assert result.exit_code == 0, result.output
    assert any("the file is for tensorrt" in note for note in json.loads(result.stdout)["report"]["notes"])
    graph = onnx.load(out).graph
    assert not [t.name for t in graph.initializer if t.data_type in (onnx.TensorProto.UINT8, onnx.TensorProto.INT32)]
    assert sum(n.op_type == "DequantizeLinear" for n in graph.node) > 8


def test_only_the_engine_itself_can_be_measured(tmp_path: Path) -> None:
    result = quantize("--mode", "measured", "--target", "tensorrt", "-o", tmp_path / "x.onnx")
    assert result.exit_code != 0
    assert "measures the engine that it quantizes for" in f"{result.output}{result.exception}"
