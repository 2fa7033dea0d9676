"""QDQ files for TensorRT, up to the engine: they keep its rules, and ONNX Runtime computes them right."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from tensorrt_rules import Graph, violations
from test_zoo import input_shape, load

import requant
from requant.engines.tensorrt_native import with_float_weights

#: Residual sums, depthwise convolutions, concatenations, grouped ones with shuffles, attention to channels.
NETWORKS = [
    "gluoncv-cifar_resnet20_v1",
    "vision-resnet18_v1",
    "vision-mobilenetv2_0.5",
    "vision-squeezenet1.1",
    "gluoncv-googlenet",
    "gluoncv-shufflenet_v1",
    "gluoncv-mobilenetv3_small",
]


def quantized(key: str, target: str) -> tuple[requant.Model, requant.QuantizedModel, np.ndarray]:
    model = load(key)
    x = np.random.default_rng(0).normal(size=(3, *input_shape(key)[1:])).astype(np.float32)
    return model, requant.quantize(model, x, target=target, calibrator="naive", check=False), x


def proto(model: requant.Model) -> onnx.ModelProto:
    return ir.to_proto(model.onnx)


def on_runtime(model: onnx.ModelProto, x: np.ndarray, optimized: bool) -> np.ndarray:
    options = ort.SessionOptions()
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


def decibel(signal: np.ndarray, other: np.ndarray) -> float:
    noise = np.square(signal.astype(np.float64) - other).sum()
    return float(10 * np.log10(np.square(signal.astype(np.float64)).sum() / max(noise, 1e-300)))


@pytest.mark.parametrize("key", NETWORKS)
def test_the_file_keeps_the_rules_and_is_right(key: str) -> None:
    model, int8, x = quantized(key, "tensorrt")
    made = proto(int8)
    onnx.checker.check_model(made, full_check=True)
    assert violations(made) == []
    graph = Graph(made)
    weighted = [n for n in graph.nodes if n.op_type in ("Conv", "Gemm")]
    int8_ones = [n for n in weighted if graph.maker(n.input[1], "DequantizeLinear") is not None]
    assert len(int8_ones) >= 0.9 * len(weighted) > 0
    wanted = model.run(x[:1])[0]
    exact = on_runtime(made, x[:1], optimized=False)
    assert decibel(wanted, exact) > 15
    assert decibel(exact, on_runtime(made, x[:1], optimized=True)) > 15
    assert decibel(exact, int8.run(x[:1])[0]) > 15  # OpenVINO


@pytest.mark.parametrize("target", ["openvino", "onnxruntime"])
def test_files_for_other_engines_break_the_rules(target: str) -> None:
    """The rules can fail: uint8 and biases of int32 for one engine, zero points for the other."""
    found = violations(proto(quantized("gluoncv-cifar_resnet20_v1", target)[1]))
    words = "\n".join(found)
    assert "uint8, not int8" in words
    assert "a quantized bias" in words
    if target == "onnxruntime":
        assert "a zero point that is not zero" in words


def test_weights_in_float_give_the_same_integers() -> None:
    """What parsers before TensorRT 10 want."""
    _, int8, x = quantized("gluoncv-cifar_resnet20_v1", "tensorrt")
    old = int8.onnx
    new = with_float_weights(old)
    made = ir.to_proto(new)
    onnx.checker.check_model(made, full_check=True)
    assert violations(made) == []
    assert not [t.name for t in made.graph.initializer if t.data_type == onnx.TensorProto.INT8 and np.prod(t.dims) > 64]
    assert any(v.dtype == ir.DataType.INT8 and np.prod(v.shape.numpy()) > 64 for v in old.graph.initializers.values())
    np.testing.assert_array_equal(on_runtime(made, x, False), on_runtime(proto(int8), x, False))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda g, n: g.zero(n, np.uint8), "uint8, not int8"),
        (lambda g, n: g.zero(n, np.int8, 3), "a zero point that is not zero"),
        (lambda g, n: g.scale(n, -1.0), "scales must be positive"),
        (lambda g, n: g.scale(n, [1.0, 1.0]), "zero points for 2 scales"),
        (lambda g, n: n.input.pop(), "2 inputs, not 3"),
    ],
)
def test_each_rule_of_the_parser_can_fail(change, word) -> None:  # type: ignore[no-untyped-def]
    made = proto(quantized("gluoncv-cifar_resnet20_v1", "tensorrt")[1])
    node = next(n for n in made.graph.node if n.op_type == "QuantizeLinear")
    change(Damage(made), node)
    assert word in "\n".join(violations(made))


class Damage:
    """Puts another scale or zero point under a quantizer."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph

    def zero(self, node: onnx.NodeProto, dtype: type, value: int = 0) -> None:
        self._put(node, 2, np.array(value, dtype))

    def scale(self, node: onnx.NodeProto, value: float | list[float]) -> None:
        self._put(node, 1, np.array(value, np.float32))

    def _put(self, node: onnx.NodeProto, index: int, array: np.ndarray) -> None:
        self.graph.initializer.append(onnx.numpy_helper.from_array(array, f"damaged{index}"))
        node.input[index] = f"damaged{index}"
