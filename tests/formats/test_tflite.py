"""TFLite files: written byte by byte, read, built in ONNX, and run beside what they mean; damaged ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tflite_checks import ENGINES, IMAGE, check, load, numbers, one
from tflite_writer import File, small

import requant
from requant.cli import group
from requant.errors import FormatError
from requant.formats import tflite

# --- reading ----------------------------------------------------------------------------------------------------------


def test_reads_what_was_written() -> None:
    f = small()
    model = tflite.read_bytes(f.bytes(), "small")
    assert [t.name for t in model.tensors] == [t.name for t in f.tensors]
    for mine, right in zip(model.tensors, f.tensors):
        assert (mine.shape, mine.dtype, mine.axis) == (right.shape, right.dtype, right.axis)
        np.testing.assert_array_equal(mine.scale, right.scale)
        np.testing.assert_array_equal(mine.zero_point, right.zero)
        assert (mine.data is None) == (right.data is None)
        if right.data is not None:
            np.testing.assert_array_equal(mine.data, right.data)
    assert [(o.kind, list(o.inputs), list(o.outputs)) for o in model.operators] == [o[:3] for o in f.operators]
    first = model.operators[0].options
    assert first["padding"] == "SAME" and first["activation"] == "RELU6"
    assert (first["stride_h"], first["dilation_w"]) == (2, 1)  # the second is a default
    assert model.inputs == tuple(f.inputs) and model.outputs == tuple(f.outputs)


# --- whole networks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_network_computes_what_it_means(dtype: str, batch: int, tmp_path: Path) -> None:
    """Zero points of all kinds, scales per channel and per tensor, and an open batch."""
    f = small(dtype)
    model = load(f, tmp_path)
    assert [s.shape for s in model.inputs] == [("N", 9, 8, 3)] and model.inputs[0].dtype == np.dtype(dtype)
    check(f, tmp_path, batch, exact=0.9)


def test_a_fixed_batch_stays_fixed(tmp_path: Path) -> None:
    f = small(batch=2)
    assert load(f, tmp_path).inputs[0].shape == (2, 9, 8, 3)
    check(f, tmp_path, batch=2, exact=0.9)


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_run_as_integers(engine: str, tmp_path: Path) -> None:
    compiled = load(small(), tmp_path).compile(engine, profile=True)
    compiled.run(numbers(small()))
    heavy = [p for p in compiled.profile() if p.op in ("Convolution", "GroupConvolution", "Conv", "QLinearConv")]
    assert len(heavy) == 3
    assert all(p.op == "QLinearConv" or p.kernel.lower().endswith("_i8") for p in heavy), heavy


def test_the_sum_takes_integers_that_were_rounded(tmp_path: Path) -> None:
    """OpenVINO merges convolution, quantizer and sum, and would leave out the rounding in between."""
    f, random = File(), np.random.RandomState(1)
    x = f.tensor("x", [1, 8, 8, 4], scale=[0.05], zero=[3])
    f.inputs = [x]
    w = f.tensor("w", [4, 1, 1, 4], "int8", random.randint(-127, 128, (4, 1, 1, 4)).astype(np.int8), [0.004])
    y = f.tensor("y", [1, 8, 8, 4], scale=[0.11], zero=[-7])
    f.op("CONV_2D", [x, w], y, padding="SAME", stride_h=1, stride_w=1)
    f.outputs = [f.op("ADD", [y, x], f.tensor("z", [1, 8, 8, 4], scale=[0.05], zero=[1]))]
    check(f, tmp_path, exact=0.98)


# --- operator by operator ---------------------------------------------------------------------------------------------


INT = np.int32
CASES: dict[str, tuple[Any, ...]] = {
    "add": ("ADD", [IMAGE, IMAGE], IMAGE, (), False, {"activation": "RELU"}),
    "sub": ("SUB", [IMAGE, IMAGE], IMAGE, (), False, {}),
    "mul": ("MUL", [IMAGE, IMAGE], IMAGE, (), False, {"activation": "RELU6"}),
    "mul of a gate": ("MUL", [IMAGE, [1, 1, 1, 4]], IMAGE, (), False, {}),
    "add of rows": ("ADD", [[1, 12], [1, 12]], [1, 12], (), False, {}),
    "concat channels": ("CONCATENATION", [IMAGE, IMAGE], [1, 6, 7, 8], (), True, {"axis": 3}),
    "concat width": ("CONCATENATION", [IMAGE, IMAGE], [1, 6, 14, 4], (), True, {"axis": -2}),
    "mean": ("MEAN", [IMAGE], [1, 4], (np.array([1, 2], INT),), False, {"keep_dims": False}),
    "mean kept": ("MEAN", [IMAGE], [1, 1, 1, 4], (np.array([1, 2], INT),), False, {"keep_dims": True}),
    "mean of channels": ("MEAN", [IMAGE], [1, 6, 7], (np.array([3], INT),), False, {}),
    "mean of a row": ("MEAN", [IMAGE], [1, 6, 1, 4], (np.array([2], INT),), False, {"keep_dims": True}),
    "pad": ("PAD", [IMAGE], [1, 8, 10, 5], (np.array([[0, 0], [1, 1], [2, 1], [0, 1]], INT),), True, {}),
    "transpose": ("TRANSPOSE", [IMAGE], [1, 7, 4, 6], (np.array([0, 2, 3, 1], INT),), True, {}),
    "reshape": ("RESHAPE", [IMAGE], [1, 7, 24], (), True, {}),
    "reshape up": ("RESHAPE", [[1, 24]], [1, 2, 3, 4], (), True, {}),
    "softmax of an image": ("SOFTMAX", [IMAGE], IMAGE, (), False, {"beta": 0.5}),
    "logistic": ("LOGISTIC", [IMAGE], IMAGE, (), False, {}),
    "tanh": ("TANH", [IMAGE], IMAGE, (), False, {}),
    "relu": ("RELU", [IMAGE], IMAGE, (), False, {}),
    "relu6": ("RELU6", [[1, 9]], [1, 9], (), False, {}),
    "leaky": ("LEAKY_RELU", [IMAGE], IMAGE, (), False, {"alpha": 0.2}),
    "hard swish": ("HARD_SWISH", [IMAGE], IMAGE, (), False, {}),
    "max pool": (
        "MAX_POOL_2D",
        [IMAGE],
        [1, 3, 4, 4],
        (),
        True,
        {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_h": 3, "filter_w": 2},
    ),
    "mean pool": (
        "AVERAGE_POOL_2D",
        [IMAGE],
        [1, 4, 5, 4],
        (),
        True,
        {"padding": "VALID", "stride_h": 1, "stride_w": 1, "filter_h": 3, "filter_w": 3},
    ),
    "mean pool over the edge": (
        "AVERAGE_POOL_2D",
        [IMAGE],
        [1, 3, 4, 4],
        (),
        True,
        {"padding": "SAME", "stride_h": 2, "stride_w": 2, "filter_h": 2, "filter_w": 2},
    ),
}
#: Means of two and four numbers are ties often, which TFLite rounds away from zero, and engines to even.
TIES = {"mean pool over the edge": 0.75, "mean of a row": 0.9}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_operators(case: str, dtype: str, tmp_path: Path) -> None:
    kind, shapes, out, constants, same, options = CASES[case]
    check(one(kind, shapes, out, dtype, constants, same, **options), tmp_path, exact=TIES.get(case, 0.95))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_convolutions(padding: str, stride: int, dilation: int, depthwise: bool, dtype: str, tmp_path: Path) -> None:
    """Windows over the edge, a multiplier of depthwise filters, a bias, zero points within the range."""
    f, random = File(), np.random.RandomState(2)
    plain = dtype == "float32"
    x = f.tensor("x", [1, 10, 9, 4], dtype, scale=() if plain else [0.04], zero=[17])
    f.inputs = [x]
    shape = [1, 3, 2, 8] if depthwise else [6, 3, 2, 4]
    axis = 3 if depthwise else 0
    w, step = random.randint(-127, 128, shape), (random.rand(shape[axis]) + 1) * 0.003
    b = random.randint(-500, 500, shape[axis])
    if plain:
        weight = f.tensor("w", shape, dtype, (w * 0.003).astype(np.float32))
        bias = f.tensor("b", [shape[axis]], dtype, (b * 0.003).astype(np.float32))
    else:
        weight = f.tensor("w", shape, "int8", w.astype(np.int8), step, axis=axis)
        bias = f.tensor("b", [shape[axis]], "int32", b.astype(np.int32), step * 0.04)
    o = {"padding": padding, "stride_h": stride, "stride_w": stride, "dilation_h": dilation, "dilation_w": dilation}
    high, wide = 2 * dilation + 1, dilation + 1
    rows, columns = (
        -(-n // stride) if padding == "SAME" else (n - k) // stride + 1 for n, k in ((10, high), (9, wide))
    )
    y = f.tensor("y", [1, rows, columns, shape[axis]], dtype, scale=() if plain else [0.09], zero=[-6])
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    f.outputs = [f.op(kind, [x, weight, bias], y, **o, **({"multiplier": 2} if depthwise else {}))]
    check(f, tmp_path, batch=2)


def test_a_pad_before_a_convolution_is_its_own(tmp_path: Path) -> None:
    f, random = File(), np.random.RandomState(3)
    x = f.tensor("x", [1, 8, 8, 4], scale=[0.04], zero=[-3])
    f.inputs = [x]
    pads = f.tensor("pads", [4, 2], "int32", np.array([[0, 0], [0, 1], [0, 1], [0, 0]], np.int32))
    padded = f.op("PAD", [x, pads], f.tensor("padded", [1, 9, 9, 4], scale=[0.04], zero=[-3]))
    w = f.tensor("w", [4, 3, 3, 4], "int8", random.randint(-127, 128, (4, 3, 3, 4)).astype(np.int8), [0.003])
    y = f.tensor("y", [1, 4, 4, 4], scale=[0.1], zero=[0])
    f.outputs = [f.op("CONV_2D", [padded, w], y, padding="VALID", stride_h=2, stride_w=2)]
    check(f, tmp_path)
    assert "Pad" not in {n.op_type for n in load(f, tmp_path).onnx.graph}


def test_weights_of_old_files_have_zero_points(tmp_path: Path) -> None:
    """uint8 throughout, as before TensorFlow 2.3."""
    f, random = File(), np.random.RandomState(4)
    x = f.tensor("x", [1, 12], "uint8", scale=[0.05], zero=[131])
    f.inputs = [x]
    w = f.tensor("w", [5, 12], "uint8", random.randint(0, 256, (5, 12)).astype(np.uint8), [0.01], [120])
    b = f.tensor("b", [5], "int32", random.randint(-300, 300, 5).astype(np.int32), [0.0005])
    f.outputs = [f.op("FULLY_CONNECTED", [x, w, b], f.tensor("y", [1, 5], "uint8", scale=[0.1], zero=[100]))]
    check(f, tmp_path, batch=4)


@pytest.mark.parametrize("keep", [False, True])
def test_fully_connected_of_more_dimensions(keep: bool, tmp_path: Path) -> None:
    f, random = File(), np.random.RandomState(5)
    x = f.tensor("x", [2, 3, 8], "float32")
    f.inputs = [x]
    w = f.tensor("w", [4, 8], "float32", random.randn(4, 8).astype(np.float32))
    y = f.tensor("y", [2, 3, 4] if keep else [6, 4], "float32")
    f.outputs = [f.op("FULLY_CONNECTED", [x, w], y, keep_num_dims=keep)]
    check(f, tmp_path, batch=2)


def test_weights_alone_may_be_integers_or_half(tmp_path: Path) -> None:
    """Dynamic-range files keep int8 weights, float16 files dequantize constants; both compute in float."""
    f, random = File(), np.random.RandomState(6)
    x = f.tensor("x", [1, 8], "float32")
    f.inputs = [x]
    w = f.tensor("w", [6, 8], "int8", random.randint(-127, 128, (6, 8)).astype(np.int8), [0.01])
    y = f.op("FULLY_CONNECTED", [x, w], f.tensor("y", [1, 6], "float32"))
    half = f.tensor("half", [1, 6], "float16", random.randn(1, 6).astype(np.float16))
    wide = f.op("DEQUANTIZE", [half], f.tensor("wide", [1, 6], "float32"))
    f.outputs = [f.op("ADD", [y, wide], f.tensor("z", [1, 6], "float32"))]
    check(f, tmp_path)


def test_quantize_and_dequantize(tmp_path: Path) -> None:
    f = File()
    x = f.tensor("x", [1, 40], "float32")
    f.inputs = [x]
    q = f.op("QUANTIZE", [x], f.tensor("q", [1, 40], scale=[0.02], zero=[5]))
    r = f.op("QUANTIZE", [q], f.tensor("r", [1, 40], "uint8", scale=[0.03], zero=[120]))
    f.outputs = [f.op("DEQUANTIZE", [r], f.tensor("y", [1, 40], "float32")), q]
    model = load(f, tmp_path)
    feeds = numbers(f)
    wanted = f.run(*feeds)
    for engine in ENGINES:
        floats, integers = model.run(feeds, engine=engine)
        assert np.abs(floats - wanted[0]).max() <= 0.0301 and np.abs(integers.astype(int) - wanted[1]).max() <= 1


# --- as a model -------------------------------------------------------------------------------------------------------


def test_it_is_found_and_commanded_as_other_models(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(small().bytes())
    for path in (tmp_path, tmp_path / "net"):
        assert requant.load(path).input_names == ["image"]
    with pytest.raises(FormatError, match="holds its parameters itself"):
        requant.load(tmp_path / "net.tflite", epoch=0)
    np.save(tmp_path / "x.npy", numbers(small())[0])
    for words in (
        ["inspect", str(tmp_path / "net.tflite")],
        ["run", str(tmp_path / "net.tflite"), "--input", str(tmp_path / "x.npy")],
        ["convert", str(tmp_path / "net.tflite"), "-o", str(tmp_path / "net.onnx")],
    ):
        result = CliRunner().invoke(group, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    x = numbers(small())
    np.testing.assert_array_equal(
        requant.load(tmp_path / "net.onnx").run(x)[0], requant.load(tmp_path / "net.tflite").run(x)[0]
    )


def test_a_float_file_is_quantized(tmp_path: Path) -> None:
    f = small("float32")
    made = requant.quantize(load(f, tmp_path), numbers(f, batch=24)[0], check=False)
    wanted = f.run(*numbers(f, batch=24))[0]
    assert np.abs(made.run(numbers(f, batch=24))[0] - wanted).max() < 0.1


@pytest.mark.shared
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "least"), [("pretrainedResnet_quant", 0.875), ("pretrainedResnet", 0.88)])
def test_trained_files_reach_their_accuracy(name: str, least: float, engine: str, shared: Path) -> None:
    """ResNet8 on the first 1,000 CIFAR-10 test images; its own runtime reaches 87.8 % and 88.1 %."""
    with np.load(shared / "data" / "images" / "cifar10_test.npz") as file:
        images, labels = file["x"][:1000], file["y"][:1000]
    model = requant.load(shared / "data" / "tflite" / f"{name}.tflite")
    x = (images.astype(int) - 128).astype(np.int8) if "quant" in name else images.astype(np.float32)
    [scores] = model.run(x, engine=engine)
    assert (scores.argmax(1) == labels).mean() >= least
