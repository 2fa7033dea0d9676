"""The commands, as a user calls them."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from requant import cli

DIGITS = Path(__file__).resolve().parents[1] / "digits"
MODEL = str(DIGITS / "digits")
SHAPE = ("--shape", "data=1,1,8,8")


def call(*words: str) -> Result:
    return CliRunner().invoke(cli.group, words, catch_exceptions=True)


def ok(*words: str) -> str:
    result = call(*words)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.stdout


def test_help_names_every_command() -> None:
    text = ok("--help")
    for name in ("doctor", "inspect", "run", "convert", "bench"):
        assert name in text
        assert "Example" in ok(name, "--help") or name == "doctor"


def test_doctor_as_json() -> None:
    found = json.loads(ok("doctor", "--json"))
    assert found["engines"]["openvino"]["ok"]
    assert found["usable_cores"] >= 1
    assert found["int8"]


def test_inspect() -> None:
    found = json.loads(ok("inspect", MODEL, *SHAPE, "--json"))
    assert found["inputs"] == [{"name": "data", "dtype": "float32", "shape": ["N", 1, 8, 8]}]
    assert found["operators"]["Convolution"] == 5
    assert found["cut"] == ["softmax_label"]
    # conv0 9*16*64, conv1 and conv2 144*16*64 each, depthwise 9*16*16, pointwise 16*32*16, fc 320
    assert found["macs"] == 9 * 16 * 64 + 2 * 144 * 16 * 64 + 9 * 16 * 16 + 16 * 32 * 16 + 320
    assert "Cut: softmax_label" in ok("inspect", MODEL)


def test_inspect_onnx_counts_the_same(tmp_path: Path) -> None:
    ok("convert", MODEL, *SHAPE, "-o", str(tmp_path / "x.onnx"))
    a, b = (json.loads(ok("inspect", m, *SHAPE, "--json")) for m in (MODEL, str(tmp_path / "x.onnx")))
    assert a["macs"] == b["macs"]
    assert b["kind"] == "onnx"


def test_run_on_an_image_and_on_an_array(tmp_path: Path) -> None:
    image = ("--input", str(DIGITS / "seven.png"), "--divide", "16", "--size", "8", "--json")
    found = json.loads(ok("run", MODEL, *image))
    assert found["outputs"]["softmax_output"]["top"][0][0][0] == 7
    assert "center 8x8" in found["preprocess"]
    np.save(tmp_path / "x.npy", np.load(DIGITS / "digits.npz")["x"][:3].astype(np.float32) / 16)
    ok("run", MODEL, "--input", str(tmp_path / "x.npy"), "-o", str(tmp_path / "out.npz"))
    assert np.load(tmp_path / "out.npz")["softmax_output"].shape == (3, 10)


def test_convert_keeps_the_batch_open_and_says_that_it_verified(tmp_path: Path) -> None:
    out = tmp_path / "digits.onnx"
    text = ok("convert", MODEL, *SHAPE, "-o", str(out))
    assert "ONNX checker: clean" in text
    assert "Verified" in text
    found = json.loads(ok("inspect", str(out), "--json"))
    assert found["inputs"][0]["shape"] == ["N", 1, 8, 8]
    assert [p.name for p in tmp_path.iterdir()] == ["digits.onnx"]


def test_convert_without_a_shape_finds_one_to_verify_with(tmp_path: Path) -> None:
    ok("convert", MODEL, "-o", str(tmp_path / "x.onnx"))


def test_bench() -> None:
    rows = json.loads(ok("bench", MODEL, *SHAPE, "--batch", "2", "--seconds", "0.1", "--json"))["rows"]
    assert {r["engine"] for r in rows} == {"openvino", "onnxruntime"}
    assert all(r["milliseconds"] > 0 and r["items_per_second"] > 0 for r in rows)


def test_sagemaker_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        for name in ("digits-symbol.json", "digits-0000.params"):
            archive.add(DIGITS / name, name)
    assert json.loads(ok("inspect", str(tmp_path / "model.tar.gz"), "--json"))["parameters"] > 6000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("inspect", "nothing-here"), "nothing-here"),
        (("run", MODEL, "--input", "no.npy"), "no.npy"),
        (("run", MODEL, "--input", str(DIGITS / "digits-symbol.json")), "not an array"),
        (("inspect", str(DIGITS / "digits.npz")), "digits.npz"),
        (("bench", MODEL), "--shape data="),
        (("convert", MODEL, "--shape", "dta=1,1,8,8", "-o", "x.onnx"), "data"),
    ],
)
def test_errors_teach(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("sys.argv", ["requant", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    text = capsys.readouterr().err
    assert text.startswith("requant: ")
    assert said in text
    assert "Traceback" not in text


def test_unknown_command_lists_those_there_are() -> None:
    result = call("qantize")
    assert result.exit_code == 2
    assert "inspect" in result.output


@pytest.mark.parametrize("shape", ["data=1,x,3", "data=0,3", "data=-1,3,8,8"])
def test_bad_shapes_are_usage_errors(shape: str) -> None:
    assert call("inspect", MODEL, "--shape", shape).exit_code == 2
