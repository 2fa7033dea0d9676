"""ONNX models of other tools take the same road: inspected, converted, run, measured and quantized, by the commands.

Small networks of the kinds that PaddleOCR, sentence encoders and Magika are; the real ones are in test_packages.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from exported import branches, bytes_classifier, detector, encoder, foreign, model, recognizer, weight
from onnx import helper

import requant
from requant import cli
from requant.errors import InputError
from requant.pipeline import verify


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Less time for measuring speed: its figure is not looked at here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "SECONDS", 0.02)
        yield


def call(*words: object) -> Result:
    return CliRunner().invoke(cli.group, [str(w) for w in words], catch_exceptions=True)


def ok(*words: object) -> str:
    result = call(*words)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.stdout


def images(*size: int, count: int = 20) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(0).standard_normal((count, *size)).astype(np.float32)}


def tokens(count: int = 20, length: int = 9) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    mask = (np.arange(length) < rng.integers(3, length + 1, (count, 1))).astype(np.int64)
    return {"input_ids": rng.integers(1, 50, (count, length)) * mask, "attention_mask": mask}


def text() -> dict[str, np.ndarray]:
    return {"bytes": np.random.default_rng(0).integers(0, 257, (20, 64)).astype(np.int32)}


# Of the model, its data, an input shape for what the file leaves open, least int8 nodes, least signal to noise.
KINDS = {
    "detector": (detector(), images(3, 32, 48), ["x=1,3,32,48"], 4, 20),
    "recognizer": (recognizer(), images(3, 48, 64), ["x=1,3,48,64"], 5, 20),
    "encoder": (encoder(), tokens(), ["input_ids=1,9", "attention_mask=1,9"], 5, 15),
    "bytes": (bytes_classifier(), text(), [], 2, 20),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    made, data, shapes, least, decibel = KINDS[request.param]
    onnx.save(made, tmp_path / "net.onnx")
    np.savez(tmp_path / "data.npz", **data)
    return tmp_path, data, [w for s in shapes for w in ("--shape", s)], least, decibel


def test_inspect_counts_all_parameters_and_products(kind) -> None:  # type: ignore[no-untyped-def]
    folder, data, shapes, *_ = kind
    found = json.loads(ok("inspect", folder / "net.onnx", *shapes, "--json"))
    assert found["parameters"] > 300
    assert found["macs"] > 1000, "every size follows from the inputs'"
    assert [i["name"] for i in found["inputs"]] == list(data)
    assert all(d is None or not isinstance(d, int) or d > 0 for i in found["inputs"] for d in i["shape"])


def test_convert_finds_sizes_that_the_graph_takes(kind) -> None:  # type: ignore[no-untyped-def]
    folder, *_ = kind
    rows = json.loads(ok("convert", folder / "net.onnx", "-o", folder / "out.onnx", "--json"))["verified"]
    assert {r["batch"] for r in rows} >= {1}
    assert {r["engine"] for r in rows} == {"openvino", "onnxruntime"}


def test_run_and_bench(kind) -> None:  # type: ignore[no-untyped-def]
    folder, _, shapes, *_ = kind
    found = json.loads(ok("run", folder / "net.onnx", "--input", folder / "data.npz", "--json"))
    assert all(o["shape"][0] == 20 for o in found["outputs"].values())
    words = ("--batch", "2", "--seconds", "0.1", "--engine", "onnxruntime", "--json")
    assert json.loads(ok("bench", folder / "net.onnx", *shapes, *words))["rows"][0]["milliseconds"] > 0


def test_quantize(kind) -> None:  # type: ignore[no-untyped-def]
    folder, data, _, least, decibel = kind
    words = ("--data", folder / "data.npz", "-o", folder / "int8.onnx", "--json")
    report = json.loads(ok("quantize", folder / "net.onnx", *words))["report"]
    assert report["decisions"]["int8"] >= least
    assert report["executed"]["int8"] >= 1, "the engine runs integers"
    assert min(v for v in report["outputs"].values() if v is not None) > decibel
    onnx.checker.check_model(str(folder / "int8.onnx"), full_check=True)
    int8 = requant.load(folder / "int8.onnx")
    feeds = {n: a[:3] for n, a in data.items()}
    a, b = (int8.run(feeds, engine=e)[0] for e in ("openvino", "onnxruntime"))
    assert np.abs(a - b).max() <= 0.1 * np.abs(b).max(), "the file is right in any runtime"


def test_lengths_other_than_the_calibrated(tmp_path: Path) -> None:
    """An open length stays open in the int8 file."""
    onnx.save(encoder(), tmp_path / "net.onnx")
    made = requant.quantize(requant.load(tmp_path / "net.onnx"), tokens(length=9), check=False)
    made.save(tmp_path / "int8.onnx")
    for engine in ("openvino", "onnxruntime"):
        assert requant.load(tmp_path / "int8.onnx").run(tokens(4, 13), engine=engine)[0].shape == (4, 32)


# --- old and odd -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [7, 9, 11])
def test_old_operator_sets(tmp_path: Path, opset: int) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("Clip", ["c"], ["r"], min=0.0, max=6.0, name="clip")
        if opset < 11
        else helper.make_node("Relu", ["c"], ["r"], name="clip"),
        helper.make_node("Flatten", ["r"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "w1"], ["y"], name="fc"),
    ]
    weights = [weight("w0", 4, 3, 3, 3), weight("w1", 256, 5)]
    onnx.save(model(nodes, [("x", 1, ["N", 3, 8, 8])], [("y", 1, ["N", 5])], weights, opset), tmp_path / "old.onnx")
    np.savez(tmp_path / "data.npz", **images(3, 8, 8))
    words = ("--data", tmp_path / "data.npz", "-o", tmp_path / "int8.onnx", "--json")
    report = json.loads(ok("quantize", tmp_path / "old.onnx", *words))["report"]
    assert report["decisions"]["int8"] == 2
    assert report["agreement"] >= 0.75


@pytest.mark.parametrize("op", ["If", "Loop"])
def test_control_flow_stays_float_and_says_so(tmp_path: Path, op: str) -> None:
    onnx.save(branches(op), tmp_path / "net.onnx")
    made = requant.quantize(requant.load(tmp_path / "net.onnx"), images(3, 8, 8), engine="onnxruntime", check=False)
    reasons = {d.op_type: d.why for d in made.plan.decisions if d.chosen == "float"}
    assert op in reasons[op]
    assert made.plan.decision("before").chosen == "int8"
    x = images(3, 8, 8, count=2)
    wanted = requant.load(tmp_path / "net.onnx").run(x, engine="onnxruntime")[0]
    got = made.run(x, engine="onnxruntime")[0]
    assert np.abs(got - wanted).max() < 0.1 * np.abs(wanted).max()


def test_operators_of_another_domain_stay_float_and_say_so(tmp_path: Path) -> None:
    onnx.save(foreign(), tmp_path / "net.onnx")
    made = requant.quantize(requant.load(tmp_path / "net.onnx"), images(3, 8, 8), engine="onnxruntime", check=False)
    assert "com.microsoft::Gelu is not an operator of ONNX" in made.plan.decision("gelu").why
    assert made.plan.count("int8") == 2
    assert made.run(images(3, 8, 8), engine="onnxruntime")[0].shape == (20, 4, 8, 8)


# --- shapes of inputs --------------------------------------------------------------------------------------------


def test_a_shape_fixes_what_the_file_leaves_open(tmp_path: Path) -> None:
    onnx.save(detector(), tmp_path / "net.onnx")
    fixed = requant.load(tmp_path / "net.onnx", shapes={"x": (None, 3, 64, 32)})
    assert fixed.inputs[0].shape == (None, 3, 64, 32)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"y": (1, 3, 8, 8)}, "no input of that name"),
        ({"x": (1, 4, 8, 8)}, "declares another shape"),
        ({"x": (1, 3, 8)}, "declares another shape"),
    ],
)
def test_a_shape_that_does_not_fit_the_file(tmp_path: Path, shapes: dict[str, tuple[int, ...]], said: str) -> None:
    onnx.save(detector(), tmp_path / "net.onnx")
    with pytest.raises(InputError, match=said):
        requant.load(tmp_path / "net.onnx", shapes=shapes)
