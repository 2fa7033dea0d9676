"""``requant quantize`` as a user calls it: data, goals, tables, faults; and what run and bench remember."""

import io
import json
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import requant
from requant import cli
from requant.formats.images import METADATA_KEY, Preprocess
from requant.formats.recordio import IRHeader, MXRecordIO, pack
from requant.pipeline import verify

Image = pytest.importorskip("PIL.Image", reason="images need Pillow")

DIGITS = Path(__file__).resolve().parents[1] / "digits"
MODEL = str(DIGITS / "digits")
PREPARE = ("--divide", "16", "--size", "8")
QUICK = ("--calib", "naive")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Less time for measuring speed: its figure is not looked at here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "SECONDS", 0.02)
        yield


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    found: np.ndarray = np.load(DIGITS / "digits.npz")["calibration"][:40, 0]
    return found


@pytest.fixture(scope="module")
def files(pixels: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same 40 digits as a folder of images, an .npz, .npy batches and a .rec."""
    root = tmp_path_factory.mktemp("digits")
    (root / "photos").mkdir()
    records = MXRecordIO(str(root / "digits.rec"), "w")
    for i, p in enumerate(pixels):
        Image.fromarray(p).save(root / "photos" / f"{i:03d}.png")
        stream = io.BytesIO()
        Image.fromarray(p).save(stream, "PNG")
        records.write(pack(IRHeader(0, 0.0, i, 0), stream.getvalue()))
    records.close()
    x = pixels[:, None].astype(np.float32) / 16
    np.savez(root / "digits.npz", data=x)
    for i in range(4):
        np.save(root / f"batch{i}.npy", x[10 * i : 10 * i + 10])
    np.save(root / "held.npy", x[:5])
    return root


def call(*words: object) -> Result:
    return CliRunner().invoke(cli.group, [str(w) for w in words], catch_exceptions=True)


def ok(*words: object) -> str:
    result = call(*words)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.stdout


# --- ways to give data ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["photos", "photos/*.png", "digits.rec", "digits.npz", "batch*.npy"])
def test_ways_to_give_data(files: Path, tmp_path: Path, largest: float, data: str) -> None:
    """All of them hold the same samples, and give the same model."""
    is_image = "photos" in data or data.endswith(".rec")
    table = tmp_path / "t.json"
    made = ("quantize", MODEL, "--data", files / data, "--table", table, *QUICK, "-o", tmp_path / "x.onnx", "--json")
    report = json.loads(ok(*made, *(PREPARE if is_image else ())))["report"]
    assert (report["samples"], report["held_out"]) == (32, 8)
    assert report["executed"]["int8"] >= 4
    found = json.loads(ok("table", "show", table, "--json"))
    assert found["samples"] + found["held_out"] == 32
    seen = max(t["seen"][1] for t in found["tensors"].values())
    assert seen == pytest.approx(largest, rel=1e-3)
    metadata = {p.key: p.value for p in onnx.load(tmp_path / "x.onnx").metadata_props}
    assert (METADATA_KEY in metadata) == is_image


@pytest.fixture(scope="module")
def largest(files: Path, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The largest value that the plain array shows calibration."""
    x = np.load(files / "digits.npz")["data"][:32]
    made = requant.quantize(requant.load(MODEL), x, calibrator="naive", held_out=x[:1], check=False)
    return max(made.table.entry(t).statistic.range.max for t in made.table)


def test_held_out_data_judge(files: Path, tmp_path: Path) -> None:
    words = ("quantize", MODEL, "--data", files / "digits.npz", "--held-out", files / "held.npy")
    report = json.loads(ok(*words, *QUICK, "-o", tmp_path / "x.onnx", "--json"))["report"]
    assert (report["samples"], report["held_out"]) == (40, 5)


def test_samples_bounds_what_is_read(files: Path, tmp_path: Path) -> None:
    words = (
        "quantize",
        MODEL,
        "--data",
        files / "digits.npz",
        "--samples",
        "20",
        *QUICK,
        "-o",
        tmp_path / "x.onnx",
        "--json",
    )
    report = json.loads(ok(*words))["report"]
    assert report["samples"] + report["held_out"] == 20


# --- what it says --------------------------------------------------------------------------------------------------


def test_the_closing_tables(files: Path, tmp_path: Path) -> None:
    words = ("quantize", MODEL, "--data", files / "digits.npz", "-o", tmp_path / "x.onnx", "--exclude", "conv1")
    text = ok(*words, "--plan")
    for said in ("samples: calibration, held out", "layers as executed", "signal to noise of", "batch 1: float, int8"):
        assert said in text
    assert "file: float, int8" in text
    assert "Left in float, and why" in text
    assert "float   Conv" in text, "the plan shows the excluded node"
    assert "excluded" in text


def test_progress_with_the_time_left_on_a_terminal_and_a_log(files: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    script = "from requant.pipeline import verify; verify.SECONDS = 0.02; from requant.cli import main; main()"
    words = [
        "-v",
        "quantize",
        MODEL,
        "--data",
        str(files / "digits.npz"),
        "--batch",
        "2",
        "-o",
        str(tmp_path / "x.onnx"),
    ]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    running = subprocess.Popen(
        [sys.executable, "-c", script, *words], stdout=subprocess.DEVNULL, stderr=follower, env=environment
    )
    os.close(follower)
    text = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        text += chunk
    os.close(leader)
    assert running.wait() == 0, text.decode()
    said = text.decode()
    assert "calibrating" in said
    assert "/32" in said, "samples done, of all"
    assert "0:00:0" in said, "the time that is left"
    assert "int8: conv0" in said
    assert "calibrated" in said


# --- goals ---------------------------------------------------------------------------------------------------------


def test_a_missed_goal_leaves_the_best_model_and_status_3(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.onnx"
    result = call("quantize", MODEL, "--data", files / "digits.npz", "--min-sqnr", "200", "-o", out, "--json")
    assert result.exit_code == 3
    assert "a goal was missed (min_sqnr" in result.stderr
    assert str(out) in result.stderr
    report = json.loads(result.stdout)["report"]
    assert not report["met"]
    assert "MISSED" in report["goals"]["min_sqnr"]
    types = {t.data_type for t in onnx.load(out).graph.initializer}
    assert onnx.TensorProto.INT8 in types, "the best model seen is there, and it is int8"


def test_a_goal_that_is_reached(files: Path, tmp_path: Path) -> None:
    words = ("quantize", MODEL, "--data", files / "digits.npz", "--min-sqnr", "5", "--max-drop", "50")
    report = json.loads(ok(*words, "-o", tmp_path / "x.onnx", "--json"))["report"]
    assert report["met"]
    assert "reached" in report["goals"]["max_drop"]


# --- tables --------------------------------------------------------------------------------------------------------


def test_a_table_is_written_and_then_runs_no_data(files: Path, tmp_path: Path) -> None:
    table, out = tmp_path / "t.json", tmp_path / "x.onnx"
    ok("quantize", MODEL, "--data", files / "digits.npz", "--mode", "full", "--table", table, "-o", out)
    before = table.read_bytes()
    text = ok(
        "quantize",
        MODEL,
        "--table",
        table,
        "--calib",
        "naive",
        "--exclude",
        "conv1",
        "--shape",
        "data=1,1,8,8",
        "-o",
        out,
    )
    assert "was not verified" in text
    assert table.read_bytes() == before


# --- faults teach --------------------------------------------------------------------------------------------------


def fault(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: object) -> str:
    """What the command says on stderr as it fails."""
    monkeypatch.setattr("sys.argv", ["requant", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 1
    text = capsys.readouterr().err
    assert text.startswith("requant: ")
    assert "Traceback" not in text
    return text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("nothing-here", ["there is no data", "nothing-here", "folder of images"]),
        ("empty", ["no images", "empty"]),
        ("notes.txt", ["kind that is not known", "notes.txt"]),
        ("nan.npz", ["NaN or Inf", "sample 7"]),
        ("shape.npz", ["shape"]),
        ("dtype.npz", ["float32", "float64"]),
        ("names.npz", ["no array for input 'data'", "dta"]),
        ("broken.npz", ["not an .npz file", "broken.npz"]),
        ("broken.rec", ["broken.rec"]),
        ("none.npz", ["at least one sample"]),
        ("damaged", ["can be decoded", "a.png"]),
        ("sizes", ["differ", "size"]),
    ],
)
def test_data_faults_teach(tmp_path: Path, pixels: np.ndarray, capsys, monkeypatch, data: str, said: list[str]) -> None:  # type: ignore[no-untyped-def]
    x = pixels[:, None].astype(np.float32) / 16
    bad = x.copy()
    bad[7, 0, 2, 2] = np.nan
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("notes")
    np.savez(tmp_path / "nan.npz", data=bad)
    np.savez(tmp_path / "shape.npz", data=x[:, 0])
    np.savez(tmp_path / "dtype.npz", data=x.astype(np.float64))
    np.savez(tmp_path / "names.npz", dta=x, other=x)
    np.savez(tmp_path / "none.npz", data=x[:0])
    (tmp_path / "broken.npz").write_bytes(b"PK\3\4 and no more")
    (tmp_path / "broken.rec").write_bytes(b"\1\2\3\4\5\6\7\10" * 4)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nand no more")
    (tmp_path / "sizes").mkdir()
    for i, size in enumerate([(8, 8), (9, 9)]):
        Image.new("L", size).save(tmp_path / "sizes" / f"{i}.png")
    model = MODEL
    if data == "sizes":  # a network that takes any size does not say which one is meant
        model = _fully_convolutional(tmp_path)
    text = fault(capsys, monkeypatch, "quantize", model, "--data", tmp_path / data, "-o", tmp_path / "x.onnx")
    for word in said:
        assert word in text, text
    assert not (tmp_path / "x.onnx").exists()


def _fully_convolutional(folder: Path) -> str:
    weight = onnx.numpy_helper.from_array(np.ones((4, 1, 3, 3), np.float32), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "any-size",
        [onnx.helper.make_tensor_value_info("x", 1, ["N", 1, "H", "W"])],
        [onnx.helper.make_tensor_value_info("y", 1, ["N", 4, "H", "W"])],
        [weight],
    )
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        folder / "any.onnx",
    )
    return str(folder / "any.onnx")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--exclude", "conv11"), ["conv11", "conv1"]),
        (("--exclude-op", "Convolutoin"), ["Convolutoin", "Conv"]),
        (("--exclude", "*"), ["float"]),
        ((), ["no calibration data"]),
    ],
)
def test_choices_that_cannot_be(files: Path, tmp_path: Path, capsys, monkeypatch, words, said) -> None:  # type: ignore[no-untyped-def]
    data = ("--data", files / "digits.npz") if words else ()
    text = fault(capsys, monkeypatch, "quantize", MODEL, *data, *words, "-o", tmp_path / "x.onnx")
    for word in said:
        assert word in text, text
    assert not (tmp_path / "x.onnx").exists()


def test_an_onnx_model_is_not_written_as_mxnet_files(files: Path, tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    model = _fully_convolutional(tmp_path)
    text = fault(capsys, monkeypatch, "quantize", model, "--data", files / "digits.npz", "-o", tmp_path / "x")
    assert ".onnx" in text


def test_bad_samples_can_be_left_out(tmp_path: Path, pixels: np.ndarray) -> None:
    x = pixels[:, None].astype(np.float32) / 16
    x[3] = np.inf
    np.savez(tmp_path / "x.npz", data=x)
    words = ("quantize", MODEL, "--data", tmp_path / "x.npz", "--skip-bad", *QUICK, "-o", tmp_path / "x.onnx", "--json")
    assert any(n == "skipped, for making NaN or Inf: 1 sample" for n in json.loads(ok(*words))["report"]["notes"])


def test_nan_in_held_out_samples_is_named_or_skipped(tmp_path: Path, pixels: np.ndarray) -> None:
    x = pixels[:, None].astype(np.float32) / 16
    x[-1] = np.nan
    np.savez(tmp_path / "x.npz", data=x)
    words = ("quantize", MODEL, "--data", tmp_path / "x.npz", *QUICK, "-o", tmp_path / "x.onnx")
    text = str(call(*words).exception)
    assert "NaN or Inf in the data that the int8 model is verified on" in text
    assert "sample 7 of 8 held out" in text
    assert not (tmp_path / "x.onnx").exists()
    report = json.loads(ok(*words, "--skip-bad", "--json"))["report"]
    assert report["agreement"] == 1


def test_a_corrupt_image_is_named_or_left_out(files: Path, tmp_path: Path) -> None:
    shutil.copytree(files / "photos", tmp_path / "photos")
    whole = (tmp_path / "photos" / "003.png").read_bytes()
    (tmp_path / "photos" / "003.png").write_bytes(whole[: len(whole) // 2])
    words = ("quantize", MODEL, "--data", tmp_path / "photos", *PREPARE, *QUICK, "-o", tmp_path / "x.onnx")
    text = str(call(*words).exception)
    assert "003.png" in text and "--skip-bad" in text
    assert json.loads(ok(*words, "--skip-bad", "--json"))["report"]["agreement"] == 1


def test_images_of_several_sizes_need_a_size(files: Path, tmp_path: Path) -> None:
    shutil.copytree(files / "photos", tmp_path / "photos")
    Image.new("L", (9, 12)).save(tmp_path / "photos" / "other.png")
    text = str(call("quantize", MODEL, "--data", tmp_path / "photos", *QUICK, "-o", tmp_path / "x.onnx").exception)
    assert "other.png" in text and "--size" in text


@pytest.mark.parametrize("words", [("--table", "none/t.json"), ("--min-sqnr", "nan"), ("--max-drop", "-5")])
def test_what_cannot_work_is_refused_before_calibration(files: Path, tmp_path: Path, words: tuple[str, str]) -> None:
    log: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("requant.pipeline.quantization.calibrate", lambda *a, **k: log.append(a))
        out = ("-o", tmp_path / "x.onnx")
        result = call("quantize", MODEL, "--data", files / "digits.npz", *QUICK, *words, *out)
    assert isinstance(result.exception, requant.errors.RequantError)
    assert "next:" in str(result.exception)
    assert log == []


# --- preprocessing -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remembering(files: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An int8 file that was quantized on images."""
    out = tmp_path_factory.mktemp("int8") / "x.onnx"
    ok("quantize", MODEL, "--data", files / "photos", *PREPARE, *QUICK, "-o", out)
    return str(out)


def test_preprocessing_is_remembered_and_used_by_run(remembering: str) -> None:
    image = ("--input", DIGITS / "seven.png", "--json")
    kept = json.loads(ok("run", remembering, *image))
    given = json.loads(ok("run", remembering, *image, *PREPARE))
    assert "as remembered in the file" in kept["preprocess"]
    assert "16" in kept["preprocess"]
    assert "but for --divide, --size" in given["preprocess"]
    assert kept["outputs"]["softmax_output"]["top"] == given["outputs"]["softmax_output"]["top"]
    assert kept["outputs"]["softmax_output"]["top"][0][0][0] == 7
    assert "as remembered in the file" in ok("run", remembering, "--input", DIGITS / "seven.png")


def test_options_replace_parts_of_the_remembered_preprocessing(remembering: str) -> None:
    found = json.loads(ok("run", remembering, "--input", DIGITS / "seven.png", "--mean", "1", "--json"))
    assert "(x / 16 - 1) / 1" in found["preprocess"]
    assert "8x8" in found["preprocess"]
    assert "as remembered in the file, but for --mean" in found["preprocess"]


def test_quantize_uses_what_a_float_file_remembers(files: Path, tmp_path: Path, remembering: str) -> None:
    ok("convert", MODEL, "--shape", "data=1,1,8,8", "-o", tmp_path / "float.onnx")
    model = onnx.load(tmp_path / "float.onnx")
    onnx.helper.set_model_props(model, {METADATA_KEY: Preprocess((8, 8), divide=16.0, color="gray").to_json()})
    onnx.save(model, tmp_path / "float.onnx")
    data = ("--data", files / "photos", "--held-out", files / "photos")
    ok("quantize", tmp_path / "float.onnx", *data, *QUICK, "-o", tmp_path / "int8.onnx")
    props = {p.key: p.value for p in onnx.load(tmp_path / "int8.onnx").metadata_props}
    assert Preprocess.from_json(props[METADATA_KEY]).divide == 16


def test_bench_takes_the_remembered_size(tmp_path: Path) -> None:
    path = _fully_convolutional(tmp_path)
    assert call("bench", path, "--batch", "1", "--seconds", "0.1").exit_code == 1, "the size is not known"
    model = onnx.load(path)
    onnx.helper.set_model_props(model, {METADATA_KEY: Preprocess((12, 16), color="gray").to_json()})
    onnx.save(model, path)
    ok("bench", path, "--batch", "1", "--seconds", "0.1", "--engine", "onnxruntime")


def test_preprocessing_that_cannot_be_read_is_an_error(remembering: str, tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    model = onnx.load(remembering)
    onnx.helper.set_model_props(model, {METADATA_KEY: '{"size": 3}'})
    onnx.save(model, tmp_path / "x.onnx")
    text = fault(capsys, monkeypatch, "run", tmp_path / "x.onnx", "--input", DIGITS / "seven.png")
    assert "preprocessing in the model's metadata" in text


@pytest.mark.parametrize(
    ("factor", "options", "said"),
    [
        (16.0, ("--divide", "16", "--mean", "0.5", "--std", "0.5"), None),
        (255.0, ("--divide", "255"), "were the values scaled at all?"),
        (1 / 255, ("--divide", "255"), "were the values scaled twice?"),
        (1.0, ("--divide", "255", "--mean", "0.5", "--std", "1"), "was the mean not subtracted?"),
        (255.0, (), None),
    ],
)
def test_arrays_far_from_what_was_declared(tmp_path: Path, pixels, factor: float, options, said: str | None) -> None:  # type: ignore[no-untyped-def]
    """Arrays go in as they are; the options say what they went through."""
    np.savez(tmp_path / "x.npz", data=(pixels[:, None] / 16 * factor).astype(np.float32))
    words = ("quantize", MODEL, "--data", tmp_path / "x.npz", *options, *QUICK, "-o", tmp_path / "x.onnx", "--json")
    notes = " ".join(n for n in json.loads(ok(*words))["report"]["notes"] if "declared" in n)
    assert (said in notes) if said else not notes


def test_the_size_of_mxnet_files_is_theirs(files: Path, tmp_path: Path) -> None:
    """They keep float weights."""
    out = tmp_path / "int8"
    found = json.loads(ok("quantize", MODEL, "--data", files / "digits.npz", *QUICK, "-o", out, "--json"))
    written = [tmp_path / "int8-symbol.json", tmp_path / "int8-0000.params"]
    assert found["report"]["int8_bytes"] == sum(p.stat().st_size for p in written)
