"""Trained models from their files: the accuracy that MXNet had, the outputs that MXNet gave, and ONNX that agrees."""

from pathlib import Path

import numpy as np
import pytest

import requant
from requant import spec
from requant.formats import onnx_file

pytestmark = pytest.mark.shared
HERE = Path(__file__).parent
CIFAR = {"cifar_resnet20_v1": 92.88, "cifar_resnet20_v2": 92.68, "cifar_resnet56_v1": 94.19, "cifar_resnet56_v2": 94.64}
SHAPES = {**dict.fromkeys(CIFAR, (3, 32, 32)), "efficientnet_lite0": (3, 224, 224), "mnist-lenet-0": (1, 28, 28)}
MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32)[:, None, None]
STD = np.array([0.2023, 0.1994, 0.2010], np.float32)[:, None, None]


def cifar(x: np.ndarray) -> np.ndarray:
    return ((x.transpose(0, 3, 1, 2).astype(np.float32) / 255 - MEAN) / STD).astype(np.float32)


def inputs(name: str, batch: int) -> np.ndarray:
    """The inputs that record_trained.py gave to MXNet: the first ``batch`` of 16."""
    return np.random.RandomState(7).normal(0, 1, (16, *SHAPES[name])).astype(np.float32)[:batch]


def accuracy(model: requant.Model, x: np.ndarray, y: np.ndarray, batch: int = 200) -> float:
    batches = (x[i : i + batch] for i in range(0, len(x), batch))
    hits = [out[0].argmax(1) for out in model.predict(batches)]
    return 100.0 * float((np.concatenate(hits) == y).mean())


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_accuracy(shared: Path, name: str) -> None:
    """The whole test set. The two deep networks take half a minute each and are among the slow tests too."""
    data = np.load(shared / "data/images/cifar10_test.npz")
    count = len(data["y"]) if "20" in name else 2000
    model = requant.load(shared / "models" / name)
    score = accuracy(model, cifar(data["x"][:count]), data["y"][:count])
    if count == len(data["y"]):
        assert score == pytest.approx(CIFAR[name], abs=0.005)
    else:
        assert score > 90


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CIFAR if "56" in n])
def test_cifar_accuracy_of_the_deep_networks(shared: Path, name: str) -> None:
    data = np.load(shared / "data/images/cifar10_test.npz")
    model = requant.load(shared / "models" / name)
    assert accuracy(model, cifar(data["x"]), data["y"]) == pytest.approx(CIFAR[name], abs=0.005)


def test_lenet_accuracy(shared: Path) -> None:
    data = np.load(shared / "data/images/mnist_test2k.npz")
    model = requant.load(shared / "models" / "mnist-lenet-0")
    assert [c.variable for c in model.cut] == ["softmax_label"]
    assert accuracy(model, (data["x"] / 255).astype(np.float32), data["y"]) == pytest.approx(98.55, abs=0.005)


@pytest.mark.parametrize("name", SHAPES)
def test_outputs_are_those_of_mxnet(shared: Path, name: str) -> None:
    """Recorded from MXNet 1.9.1 by record_trained.py: within 1e-4 of the largest value."""
    with np.load(HERE / "trained.npz") as file:
        wanted = file[name]
    got = requant.load(shared / "models" / name).run(inputs(name, len(wanted)))[0]
    assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("name", SHAPES)
def test_onnx_file_agrees_at_any_batch(shared: Path, tmp_path: Path, name: str) -> None:
    shape = ("N", *SHAPES[name])
    source = requant.load(shared / "models" / name, shapes={"data": shape})
    [written] = source.save(tmp_path / "x.onnx")
    model = onnx_file.read(written)
    spec.check(model)
    assert model.graph.inputs[0].shape is not None
    assert str(model.graph.inputs[0].shape[0]) == "N"
    again = requant.load(written)
    for batch in (1, 3, 16):
        x = inputs(name, batch)
        wanted = source.run(x)[0]
        for engine in ("onnxruntime", "openvino"):
            got = again.run(x, engine=engine)[0]
            assert np.abs(got - wanted).max() <= 1e-4 * np.abs(wanted).max(), (engine, batch)
