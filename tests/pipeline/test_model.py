"""Loading, compiling, running and saving, on the project's own trained model."""

import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import requant
from requant.errors import EngineError, FormatError, InputError, ParameterError, RequantError
from requant.formats import symbol_file
from requant.formats.params import read_params, write_params

DIGITS = Path(__file__).resolve().parents[1] / "digits"
PREFIX = DIGITS / "digits"


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.load(DIGITS / "digits.npz")["x"].astype(np.float32) / 16


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    return np.load(DIGITS / "digits.npz")["y"]


@pytest.fixture(scope="module")
def model() -> requant.Model:
    return requant.load(PREFIX)


def test_accuracy_is_what_mxnet_reported(model: requant.Model, images: np.ndarray, labels: np.ndarray) -> None:
    assert (model.run(images)[0].argmax(1) == labels).mean() == pytest.approx(0.986, abs=1e-6)


def test_names_and_what_was_cut(model: requant.Model) -> None:
    assert model.input_names == ["data"]
    assert model.output_names == ["softmax_output"]
    assert [(c.variable, c.op) for c in model.cut] == [("softmax_label", "SoftmaxOutput")]


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_any_batch_size_from_one_model(model: requant.Model, images: np.ndarray, engine: str, dynamic: bool) -> None:
    compiled = model.compile(engine, dynamic=dynamic)
    whole = compiled.run(images[:16])[0]
    for batch in (1, 3, 16):
        assert np.allclose(compiled.run(images[:batch])[0], whole[:batch], atol=1e-5)


def test_ways_to_feed(model: requant.Model, images: np.ndarray) -> None:
    x = images[:2]
    wanted = model.run(x)[0]
    for got in (model.run({"data": x}), model.run([x]), model.run(data=x), model(x)):
        assert np.array_equal(got[0], wanted)


def test_wrong_feeds_list_the_true_inputs(model: requant.Model, images: np.ndarray) -> None:
    with pytest.raises(InputError, match="data"):
        model.run({"dta": images[:1]})
    with pytest.raises(InputError, match="missing"):
        model.run({})
    with pytest.raises(InputError, match="too many"):
        model.run([images[:1], images[:1]])
    with pytest.raises(InputError, match="data"):
        model.run(images[0, 0])
    with pytest.raises(InputError, match="float32"):
        model.run(images[:1].astype(np.float64))


def test_a_batch_of_another_size_than_compiled_for(model: requant.Model, images: np.ndarray) -> None:
    compiled = model.compile(shapes={"data": (1, 1, 8, 8)})
    assert compiled.run(images[:5])[0].shape == (5, 10)


def test_stream_keeps_order_over_uneven_batches(model: requant.Model, images: np.ndarray) -> None:
    batches = [images[:4], images[4:8], images[8:9], images[9:13], images[13:14]]
    got = np.concatenate([out[0] for out in model.predict(batches)])
    assert np.allclose(got, model.run(images[:14])[0], atol=1e-5)
    assert list(model.predict([])) == []


def test_one_compiled_model_serves_many_threads(model: requant.Model, images: np.ndarray) -> None:
    compiled = model.compile()
    wanted = [compiled.run(images[i : i + 1])[0] for i in range(8)]
    faults: list[str] = []

    def work(i: int) -> None:
        for _ in range(50):
            if not np.allclose(compiled.run(images[i : i + 1])[0], wanted[i], atol=1e-6):
                faults.append(f"thread {i}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults


def test_a_failure_in_a_thread_is_reported_in_that_thread(tmp_path: Path) -> None:
    caught: list[BaseException] = []

    def work() -> None:
        try:
            requant.load(tmp_path / "nothing")
        except RequantError as fault:
            caught.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(caught) == 1


def test_onnx_round_trip(model: requant.Model, images: np.ndarray, tmp_path: Path) -> None:
    model.save(tmp_path / "digits.onnx")
    again = requant.load(tmp_path / "digits.onnx")
    for engine in ("openvino", "onnxruntime"):
        assert np.allclose(again.run(images[:3], engine=engine)[0], model.run(images[:3])[0], atol=1e-5)
    with pytest.raises(FormatError, match=r"\.onnx"):
        again.save(tmp_path / "prefix")


def test_mxnet_round_trip_is_exact(model: requant.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "copy", epoch=3)
    assert (tmp_path / "copy-0003.params").exists()
    again = requant.load(tmp_path / "copy")
    assert again.symbol is not None
    assert model.symbol is not None
    assert symbol_file.dumps(again.symbol) == symbol_file.dumps(model.symbol)
    assert all(np.array_equal(again.params[n], p) for n, p in model.params.items())


def test_a_missing_parameter_is_named_with_the_closest(tmp_path: Path) -> None:
    params = read_params(DIGITS / "digits-0000.params", copy=True)
    assert isinstance(params, dict)
    params["arg:conv1_wait"] = params.pop("arg:conv1_weight")
    shutil.copy(DIGITS / "digits-symbol.json", tmp_path / "digits-symbol.json")
    write_params(tmp_path / "digits-0000.params", params)
    with pytest.raises(ParameterError, match=r"(?s)conv1_weight.*conv1_wait"):
        requant.load(tmp_path / "digits")


@pytest.mark.parametrize("style", ["arg", "bare"])
def test_key_styles(style: str, images: np.ndarray, tmp_path: Path) -> None:
    params = read_params(DIGITS / "digits-0000.params", copy=True)
    assert isinstance(params, dict)
    if style == "bare":
        params = {n.split(":")[1]: p for n, p in params.items()}
    write_params(tmp_path / "other.params", params)
    got = requant.load(DIGITS / "digits-symbol.json", tmp_path / "other.params").run(images[:2])
    assert np.array_equal(got[0], requant.load(PREFIX).run(images[:2])[0])


def test_structural_names_are_explained(tmp_path: Path) -> None:
    write_params(tmp_path / "block.params", {"features.0.weight": np.zeros((1,), np.float32)})
    with pytest.raises(ParameterError, match=r"(?s)features\.0\.weight.*save_parameters"):
        requant.load(DIGITS / "digits-symbol.json", tmp_path / "block.params")


def test_engines_are_never_switched_silently(model: requant.Model) -> None:
    with pytest.raises(EngineError, match=r"(?s)openvno.*openvino"):
        model.compile("openvno")


def test_import_is_light() -> None:
    """Importing requant loads no engine and no ONNX."""
    import subprocess
    import sys

    code = "import sys, requant; print([m for m in ('openvino', 'onnxruntime', 'onnx', 'onnx_ir') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
