"""What users type by mistake, and files that are not what they seem: every message says where, what and what next."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from requant import cli

DIGITS = Path(__file__).resolve().parents[1] / "digits"
Say = Callable[..., tuple[int, str]]


@pytest.fixture
def say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command in a folder with the digits model: (exit status, what it said on stderr and stdout)."""
    for name in ("digits-symbol.json", "digits-0000.params", "seven.png"):
        shutil.copy(DIGITS / name, tmp_path)
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["requant", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        code = stop.value.code
        return (code if isinstance(code, int) else 0), said.err + said.out

    return call


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["inspect"], 2, ["MODEL", "--help"]),
        (["inspect", "digits", "--shape", "data="], 2, ["data=1,3,224,224"]),
        (["inspect", "digits", "--shape", "data=²,3"], 2, ["data=1,3,224,224"]),
        (["inspect", "digits", "--shape", "data=" + "9" * 5000], 2, ["not a shape"]),
        (["inspect", "digits", "--shape", "data=1,1,999999999,999999999"], 1, ["too large", "conv0"]),
        (["inspect", "digits", "--shape", "data=1,3,8,8"], 1, ["conv0_weight", "(16, 1, 3, 3)", "(16, 3, 3, 3)"]),
        (["inspect", "digits", "--shape", "label=1,2"], 1, ["label", "data"]),
        (["inspect", "digits", "--epoch", "7"], 1, ["epoch 7", "epochs 0"]),
        (["inspect", "digits", "--params", "none.params"], 1, ["none.params", "digits-0000.params"]),
        (["inspect", "digits", "--params", "seven.png"], 1, ["seven.png", "0x112"]),
        (["inspect", "digits", "--params", "digits-symbol.json"], 1, ["JSON"]),
        (["inspect", "digits-0000.params"], 1, ["parameters, not a model"]),
        (["inspect", "seven.png"], 1, ["not a model", "PNG"]),
        (["inspect", "digist"], 1, ["did you mean 'digits"]),
        (["run", "digits"], 2, ["--input"]),
        (["run", "digits", "--input", "foo=seven.png", "--size", "8"], 1, ["foo", "data"]),
        (["run", "digits", "--input", "seven.png", "--size", "0"], 2, ["write 224"]),
        (["run", "digits", "--input", "seven.png", "--size", "100000000"], 2, ["at most"]),
        (["run", "digits", "--input", "seven.png", "--size", "8", "--top", "-3"], 2, ["--top"]),
        (["run", "digits", "--input", "seven.png", "--size", "8", "--mean", "1,2"], 1, ["mean", "1"]),
        (["run", "digits", "--input", "seven.png", "--size", "8", "--mean", "a"], 2, ["0.485,0.456,0.406"]),
        (["run", "digits", "--input", "seven.png", "--size", "8", "--std", "0"], 1, ["std"]),
        (["run", "digits", "--input", "seven.png", "--size", "8", "--ratio", "0"], 1, ["ratio"]),
        (["run", "digits", "--input", "seven.png", "--size", "8", "--labels", "seven.png"], 1, ["one name a line"]),
        (["run", "digits", "--input", "seven.png", "--size", "8", "--labels", "."], 1, ["one name a line"]),
        (["run", "digits", "--input", "seven.png", "--size", "8", "-o", "no/x.npz"], 1, ["no/x.npz"]),
        (["run", "digits", "--input", "seven.png", "--engine", "cuda"], 2, ["openvino", "onnxruntime"]),
        (["run", "digits", "--input", "."], 1, ["a folder", ".npz"]),
        (["run", "digits", "--input", "sevn.png"], 1, ["no such file", "did you mean 'seven.png'"]),
        (["run", "digits", "--input", "none/sevn.png"], 1, ["no such file", "there is no folder none"]),
        (["bench", "digits", "--shape", "data=1,1,8,8", "--threads", "100000"], 1, ["'threads' is out of range"]),
        (["table", "merge", "a", "b", "-o", "."], 1, ["a folder, not a file"]),
        (["table", "to-tensorrt", "digits-symbol.json", "-o", "x"], 1, ["not a calibration table", "'nodes'"]),
        (["table", "from-tensorrt", "digits-symbol.json", "-o", "x"], 1, ["not a TensorRT", "to-tensorrt"]),
        (["table", "from-tensorrt", "seven.png", "-o", "x"], 1, ["not a TensorRT", "no text", "next:"]),
        (["table", "show", "."], 1, ["a folder", "a calibration table"]),
        (["table", "shw", "."], 2, ["Commands are: diff, from-tensorrt, merge, show"]),
        (["quantize", "digits-symbol.json", "--shape", "foo", "--data", "x", "-o", "x.onnx"], 2, ["data=1,3,224,224"]),
        (["quantize", "digits", "--data", "seven.rec", "-o", "x.onnx"], 1, ["there is no data"]),
        (["convert", "digits"], 2, ["--output"]),
        (["convert", "digits", "-o", "no/x.onnx"], 1, ["does not exist", "mkdir"]),
        (["convert", "digits", "-o", "."], 1, ["folder"]),
        (["convert", "digits", "-o", ""], 1, ["net.onnx"]),
        (["convert", "digits", "-o", "digits-symbol.json"], 1, ["prefix"]),
        (["convert", "digits", "-o", "x.banana"], 1, ["another kind", ".onnx", "prefix"]),
        (["quantize", "digits", "--data", "none", "-o", "no/x.onnx"], 1, ["does not exist", "mkdir"]),
        (["convert", "digits", "-o", "x.onnx", "--shape", "data=1,1,8"], 1, ["rank 3", "rank 4"]),
        (["bench", "digits", "--batch", "0"], 2, ["--batch"]),
        (["bench", "digits", "--shape", "data=1,1,8,8", "--batch", "999999999999"], 1, ["232.8 TiB", "free here"]),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_misuse(say: Say, words: list[str], status: int, said: list[str]) -> None:
    code, text = say(*words)
    assert code == status
    for part in said:
        assert part in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--live", "--engine", "openvino", "--engine", "onnxruntime"], "give --engine once"),
        (["--live", "--batch", "1", "--batch", "2"], "give --batch once"),
        (["--iters", "3"], "give --live too"),
    ],
)
def test_options_of_bench_that_mean_nothing_together(say: Say, words: list[str], said: str) -> None:
    code, text = say("bench", "digits", "--shape", "data=1,1,8,8", *words)
    assert (code, said in text) == (2, True)


RUN = ("run", "digits", "--input", "seven.png", "--divide", "16", "--size", "8", "--labels", "labels.txt")


@pytest.mark.parametrize(("count", "said"), [(1, "1 name\n"), (9, "9 names"), (11, "11 names"), (0, "0 names")])
def test_labels_of_another_network(say: Say, tmp_path: Path, count: int, said: str) -> None:
    (tmp_path / "labels.txt").write_text("".join(f"digit {i}\n" for i in range(count)))
    for more in ((), ("--json",)):
        code, text = say(*RUN, *more)
        assert code == 1
        assert all(part in text for part in ["labels.txt", said, "10 in softmax_output", "background"])


def test_labels_where_no_output_has_classes(say: Say, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nb\n")
    code, text = say("run", "grow.onnx", "--input", "x.npy", "--labels", "labels.txt")
    assert code == 1 and "grow.onnx" in text  # no such model: said before anything else
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[N, 3, 4] x) => (float[N, 3, 4] y) { y = Relu(x) }'
    )
    onnx.save(proto, tmp_path / "grow.onnx")
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 4), np.float32))
    code, text = say("run", "grow.onnx", "--input", "x.npy", "--labels", "labels.txt")
    assert code == 1
    assert all(part in text for part in ["2 names", "y (1, 3, 4)", "leave out --labels"])


def test_labels_may_end_in_empty_lines(say: Say, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("".join(f"digit {i}\n" for i in range(10)) + "\n\n")
    code, text = say(*RUN)
    assert (code, "digit 7 0.99" in text) == (0, True)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.json", b"", "not a symbol JSON"),
        ("a.json", b'{"a": 1}', "unknown key"),
        ("a.json", b"[1, 2]", "not a symbol JSON"),
        ("a.json", b"<html>", "download"),
        ("a.json", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ("a.json", b"\xff\xfe{\x00", "not a symbol JSON"),
        ("a.onnx", b"", "a.onnx"),
        ("a.onnx", b"hello", "a.onnx"),
        ("a.onnx", b'{"nodes": []}', "a.onnx"),
        ("a.tar.gz", b"\x1f\x8b\x08\x00", "a.tar.gz"),
        ("a.tar.gz", b"no archive", "a.tar.gz"),
        ("a.bin", b"\x00" * 100, "not a model"),
        ("b.onnx", b"\x89PNG\r\n\x1a\n", "not an ONNX model but a PNG image"),
        ("c.onnx", b"", "not an ONNX model but an empty file"),
        ("a.tflite", b"", "not a TFLite file but an empty file"),
        ("a.tflite", b"\x08\n\x12\x07requ", "copy or export it again"),
        ("a", b"", "not a model"),
    ],
)
def test_files_that_are_no_models(say: Say, tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    code, text = say("inspect", name)
    assert code == 1
    assert said in text
    assert name in text


@pytest.mark.parametrize("content", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0" + b"\0" * 50, b"GIF89a"])
def test_images_that_are_none(say: Say, tmp_path: Path, content: bytes) -> None:
    whole = (DIGITS / "seven.png").read_bytes()
    for bad in (content, whole[: len(whole) // 2], whole[:20] + b"\xff" * 8 + whole[28:]):
        (tmp_path / "x.png").write_bytes(bad)
        code, text = say("run", "digits", "--input", "x.png", "--size", "8")
        assert code == 1
        assert "x.png" in text


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((1, 1, 8, 8)), "float32"),
        (np.zeros((1, 1, 8, 8), np.uint8), "float32"),
        (np.zeros((8, 8), np.float32), "data"),
        (np.zeros((1, 3, 8, 8), np.float32), "conv0"),
        (np.array("text"), "no numbers"),
        (np.zeros((0, 1, 8, 8), np.float32), "the array is empty"),
    ],
)
def test_arrays_that_do_not_fit(say: Say, tmp_path: Path, array: np.ndarray, said: str) -> None:
    np.save(tmp_path / "x.npy", array)
    code, text = say("run", "digits", "--input", "x.npy")
    assert code == 1
    assert said in text


def test_an_array_file_that_would_run_code_is_refused(say: Say, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    code, text = say("run", "digits", "--input", "x.npy")
    assert (code, "which could run code" in text) == (1, True)


def test_nan_is_told(say: Say, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((1, 1, 8, 8), np.nan, np.float32))
    code, text = say("run", "digits", "--input", "x.npy")
    assert code == 0
    assert "data holds NaN" in text


@pytest.mark.parametrize("folder", ["sp ace=1", "größe", "data=x", "[a]"])
def test_file_names_of_every_kind(say: Say, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    image, out = f"{folder}/a=b é.png", f"{folder}/x y.onnx"
    shutil.copy(DIGITS / "seven.png", tmp_path / image)
    for given in (image, f"data={image}"):
        code, text = say("run", "digits", "--input", given, "--size", "8", "--divide", "16", "--json")
        assert code == 0, text
    assert say("convert", "digits", "--shape", "data=1,1,8,8", "-o", out)[0] == 0
    assert say("inspect", out)[0] == 0


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="the administrator may read everything")
def test_a_file_that_may_not_be_read(say: Say, tmp_path: Path) -> None:
    (tmp_path / "digits-0000.params").chmod(0)
    code, text = say("inspect", "digits")
    (tmp_path / "digits-0000.params").chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert code == 1
    assert "digits-0000.params" in text


def test_what_was_cut_is_shown(say: Say) -> None:
    code, text = say("inspect", "digits")
    assert (code, "Cut: softmax_label" in text) == (0, True)


def test_verbose_says_what_was_cut() -> None:
    """In a process of its own: the log is set up once."""
    words = [sys.executable, "-c", "from requant.cli import main; main()", "-v", "inspect", str(DIGITS / "digits")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0
    assert "cut softmax_label: softmax (SoftmaxOutput)" in done.stderr


@pytest.mark.parametrize("command", ["run", "quantize"])
@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"foo": np.zeros((4, 1, 8, 8), np.float32), "bar": np.zeros(4)}, ["no array for input 'data'", "foo", "bar"]),
        ({"data": np.array(["a", "b"])}, ["no numbers", "numpy.savez"]),
        ({"data": np.array([{}, 1], object)}, ["run code", "numpy.savez"]),
        ({"data": np.zeros((4, 1, 8, 8), np.int64)}, ["int64", "float32"]),
    ],
)
def test_archives_that_do_not_fit(
    say: Say, tmp_path: Path, command: str, arrays: dict[str, np.ndarray], said: list[str]
) -> None:
    np.savez(tmp_path / "x.npz", **arrays)  # type: ignore[arg-type]
    words = ["--input", "x.npz"] if command == "run" else ["--data", "x.npz", "-o", "q.onnx"]
    code, text = say(command, "digits", *words)
    assert code == 1
    assert all(part in text for part in said)
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize("command", ["run", "quantize"])
def test_an_archive_that_is_cut_short(say: Say, tmp_path: Path, command: str) -> None:
    np.savez(tmp_path / "x.npz", data=np.zeros((4, 1, 8, 8), np.float32))
    whole = (tmp_path / "x.npz").read_bytes()
    (tmp_path / "x.npz").write_bytes(whole[: len(whole) // 2])
    words = ["--input", "x.npz"] if command == "run" else ["--data", "x.npz", "-o", "q.onnx"]
    code, text = say(command, "digits", *words)
    assert code == 1
    assert "not an .npz file" in text
    assert "next:" in text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.npz", b"", "got:      an empty file"),
        ("x.npz", b"\x89PNG\r\n\x1a\n", "got:      a PNG image"),
        ("x.npz", b"PK\x03\x04 and no end", "not fully written"),
        ("x.npy", b"", "got:      an empty file"),
        ("x.npy", b'{"nodes": []}', "got:      JSON text"),
        ("x.npy", b"words", "begins with b'words'"),
    ],
)
def test_files_of_another_kind_in_place_of_arrays(
    say: Say, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    code, text = say("run", "digits", "--input", name)
    assert (code, said in text, "run code" in text) == (1, True, False), text


def test_a_record_file_without_records(say: Say, tmp_path: Path) -> None:
    (tmp_path / "x.rec").write_bytes(b"")
    code, text = say("quantize", "digits", "--data", "x.rec", "--size", "8", "-o", "q.onnx")
    assert code == 1
    assert "x.rec: the file holds no records" in text and "0 samples" not in text


def test_short_helps_are_whole(say: Say) -> None:
    for words in (["--help"], ["table", "--help"]):
        code, text = say(*words)
        assert code == 0
        assert not [line for line in text.splitlines() if line.startswith("  ") and line.endswith("...")]


@pytest.mark.parametrize("name", ["data", "arr_0"])
def test_the_only_array_goes_to_the_only_input_however_it_is_named(say: Say, tmp_path: Path, name: str) -> None:
    arrays = {name: np.zeros((4, 1, 8, 8), np.float32)}
    np.savez(tmp_path / "x.npz", **arrays)  # type: ignore[arg-type]
    code, text = say("run", "digits", "--input", "x.npz", "--json")
    assert code == 0, text


def test_an_interruption_has_the_status_that_shells_give_it(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("requant.cli.inspect.open_model", interrupted)
    code, text = say("inspect", "digits")
    assert code == 130
    assert "interrupted" in text


def test_an_interruption_while_help_is_made_has_it_too(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli._Commands, "get_command", interrupted)
    code, text = say("--help")
    assert (code, "interrupted" in text) == (130, True)


def test_an_interruption_of_the_first_import_has_it_too() -> None:
    """In a process of its own, where nothing is imported yet."""
    program = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "requant.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from requant.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 130
    assert done.stderr.strip() == "requant: interrupted; nothing was done"


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "requant", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[0]) == (0, "requant,")


def test_outputs_are_saved_under_the_name_that_was_said(say: Say, tmp_path: Path) -> None:
    words = ("run", "digits", "--input", "seven.png", "--divide", "16", "--size", "8")
    (tmp_path / "folder").mkdir()
    code, text = say(*words, "-o", "folder")
    assert (code, "folder" in text) == (1, True)
    code, text = say(*words, "-o", "outputs")
    assert code == 0
    with np.load(tmp_path / "outputs") as found:
        assert found.files == ["softmax_output"]


def test_a_model_is_not_written_over_itself(say: Say, tmp_path: Path) -> None:
    """Its float weights would be gone."""
    assert say("convert", "digits", "-o", "digits.onnx")[0] == 0
    before = (tmp_path / "digits.onnx").read_bytes()
    for words in (
        ("digits.onnx", "-o", "digits.onnx"),
        ("digits", "-o", "digits"),
        ("digits.onnx", "-o", "./digits.onnx"),
    ):
        code, text = say("quantize", words[0], "--data", "calibration.npz", *words[1:])
        assert code == 1, text
        assert "write over the model" in text
    assert (tmp_path / "digits.onnx").read_bytes() == before
