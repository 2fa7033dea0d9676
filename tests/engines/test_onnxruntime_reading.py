"""What older releases of ONNX Runtime lack: the graphs put for them mean the same, on whatever release is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from requant.engines import get
from requant.engines.base import EngineOptions
from requant.engines.onnxruntime_reading import conform, unwanted

OLD, NEW = "1.23.2", "1.32.0"
Array = np.ndarray[Any, np.dtype[Any]]


def model_of(text: str, **weights: Array) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 20]> {text}')
    for name, array in weights.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def run(model: ir.Model, *arrays: Array) -> Array:
    """On the installed release alone, with the optimizations that an old one would leave out left out."""
    data, left_out = ir.to_proto(model).SerializeToString(), unwanted(model, OLD)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"], disabled_optimizers=left_out)
    (found,) = session.run(None, {port.name: array for port, array in zip(session.get_inputs(), arrays)})
    return np.asarray(found)


def convolved(x: Array, w: Array) -> Array:
    """A plain 3 x 3 convolution with one row and column of zeros around, in exact integers."""
    padded = np.pad(x.astype(np.int64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("constant", [True, False])
def test_integer_convolutions_become_uint8_and_keep_their_sums(dtype: type, constant: bool) -> None:
    rng = np.random.default_rng(0)
    ends = np.iinfo(dtype)
    x = rng.integers(ends.min, ends.max, (2, 3, 5, 6), endpoint=True).astype(dtype)
    w = rng.integers(-128, 127, (4, 3, 3, 3), endpoint=True).astype(np.int8)
    fed = "" if constant else ", int8[4,3,3,3] w"
    weights = {"w": w} if constant else {}
    body = "y = ConvInteger <pads=[1,1,1,1]> (x, w)"
    text = f"g ({np.dtype(dtype).name}[2,3,5,6] x{fed}) => (int32[2,4,5,6] y) {{ {body} }}"
    old = conform(model_of(text, **weights), OLD)
    (node,) = [n for n in old.graph if n.op_type == "ConvInteger"]
    assert [v.dtype for v in node.inputs if v is not None][:2] == [ir.DataType.UINT8] * 2
    np.testing.assert_array_equal(run(old, x, *([] if constant else [w])), convolved(x, w))


def test_zero_points_move_with_their_integers() -> None:
    x, w = np.array([[-7, 5]], np.int8), np.array([[3], [250]], np.uint8)
    text = "g (int8[1,2] x) => (int32[1,1] y) { y = MatMulInteger (x, w, x_zero, w_zero) }"
    old = conform(model_of(text, w=w, x_zero=np.array(-3, np.int8), w_zero=np.array(9, np.uint8)), OLD)
    assert run(old, x).item() == (-7 + 3) * (3 - 9) + (5 + 3) * (250 - 9)


@pytest.mark.parametrize("pads", ["0,0,1,1", "1,0,1,0", "0,2,1,1"])
def test_averages_that_count_padding(pads: str) -> None:
    x = np.arange(1, 61, dtype=np.float32).reshape(1, 2, 5, 6)
    begin_h, begin_w, end_h, end_w = map(int, pads.split(","))
    padded = np.pad(x, [(0, 0), (0, 0), (begin_h, end_h), (begin_w, end_w)])
    want = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3)).mean((-2, -1))
    text = (
        f"g (float[1,2,5,6] x) => (float[1,2,h,w] y) "
        f"{{ y = AveragePool <kernel_shape=[3,3], pads=[{pads}], count_include_pad=1> (x) }}"
    )
    old = conform(model_of(text), OLD)
    assert [n.op_type for n in old.graph] == ["Pad", "AveragePool"]
    np.testing.assert_allclose(run(old, x), want, rtol=1e-6)


def test_the_error_function_keeps_nan() -> None:
    text = "g (float[4] x) => (float[4] y, float[4] z) { y = Erf (x) z = Neg (y) }"
    old = conform(model_of(text), OLD)
    assert [v.name for v in old.graph.outputs] == ["y", "z"]
    x = np.array([np.nan, np.inf, -np.inf, 0], np.float32)
    y, z = get("onnxruntime").load(old, EngineOptions()).run({"x": x})
    np.testing.assert_array_equal(y, np.array([np.nan, 1, -1, 0], np.float32))
    np.testing.assert_array_equal(z, -y)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[1,2,5,6] x) => (float[1,2,5,6] y) "
        "{ y = AveragePool <kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1> (x) }",
        "g (uint8[1,2] x, int8[2,1] w) => (int32[1,1] y) { y = MatMulInteger (x, w) }",
        "g (float[4] x) => (float[4] y) { y = Relu (x) }",
    ],
)
def test_what_is_right_stays_as_it_is(text: str) -> None:
    model = model_of(text)
    assert conform(model, OLD) is model


def test_a_new_release_gets_every_graph_untouched() -> None:
    model = model_of("g (int8[1,2] x, uint8[2,1] w) => (int32[1,1] y) { y = MatMulInteger (x, w) }")
    assert conform(model, NEW) is model
    assert conform(model, "2.0.0+local") is model
    assert unwanted(model, NEW) == []
    assert conform(model, OLD) is not model


@pytest.mark.parametrize("zero", [np.uint8(128), np.int8(0)], ids=str)
def test_products_and_additions_run_as_integers(zero: Any) -> None:
    """ONNX Runtime would make a Gemm of them, or find no kernel for int8 data, and dequantize the weight every time."""
    kind = zero.dtype.name
    text = """g (float[8,16] x, float s, float ws, KIND z, int8 wz, int8[16,4] w, float[4] b) => (float[8,4] y) {
        q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)
        wd = DequantizeLinear (w, ws, wz)
        m = MatMul (d, wd)
        y = Add (m, b)
    }"""
    weights = {
        "s": np.array(0.02, np.float32),
        "ws": np.array(0.01, np.float32),
        "z": np.array(zero),
        "wz": np.array(0, np.int8),
        "w": np.random.default_rng(0).integers(-127, 128, (16, 4)).astype(np.int8),
        "b": np.arange(4, dtype=np.float32),
    }
    model = model_of(text.replace("KIND", kind), **weights)
    for name in weights:
        del model.graph.inputs[[str(v.name) for v in model.graph.inputs].index(name)]
    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    session = get("onnxruntime").load(model, EngineOptions(profile=True), {"x": x.shape})
    (got,) = session.run({"x": x})
    ran = {layer.op for layer in session.profile()}
    assert "MatMulIntegerToFloat" in ran
    assert not ran & {"Gemm", "MatMul", "DequantizeLinear"}
    wanted = np.clip(np.round(x / 0.02), -128, 127) * 0.02 @ (weights["w"] * 0.01) + weights["b"]
    np.testing.assert_allclose(got, wanted, atol=1e-3)
