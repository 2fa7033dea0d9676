"""Integer operators on OpenVINO: the integers that ONNX Runtime computes, every one of them, by integer kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.openvino_integers import integer_kernels

CHANNELS, SIZE = 32, 40
PRODUCTS = ("Convolution", "GroupConvolution", "FullyConnected", "FullyConnectedQuantizedLegacy", "MatMul")
ENDS = {"uint8": (0.0, 255.0), "int8": (-128.0, 127.0)}


class Net:
    """A graph of integer operators, in the form that MXNet's quantized operators have in exact mode."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def const(self, value: Any) -> str:
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def integers(self, x: str, kind: str, test: bool = True) -> str:
        """Rounded and saturated."""
        low, high = ENDS[kind]
        if test:
            x = self.add("Where", self.add("IsNaN", x), self.const(np.float32(0)), x)
        x = self.add("Clip", self.add("Round", x), self.const(np.float32(low)), self.const(np.float32(high)))
        return self.add("Cast", x, to=TensorProto.UINT8 if kind == "uint8" else TensorProto.INT8)

    def real(self, q: str) -> str:
        return self.add("Cast", q, to=TensorProto.FLOAT)

    def scaled(self, q: str, by: float) -> str:
        return self.add("Mul", self.real(q), self.const(np.float32(by)))

    def conv(self, q: str, of: int, kernel: int = 3, stride: int = 1, group: int = 1) -> str:
        """Sums with their bias, as float, in units of what they become.

        Scales are short decimal fractions, so that one number in hundreds is half of an odd number, where the last bit
        decides to which side it is rounded: arithmetic in another order shows.
        """
        taps = self.rng.integers(-7, 8, (CHANNELS, of // group, kernel, kernel)).astype(np.int8)
        pads = [kernel // 2] * 4
        x = self.add("ConvInteger", q, self.const(taps), pads=pads, strides=[stride] * 2, group=group)
        x = self.add("Add", x, self.const(self.rng.integers(-1000, 1000, (1, CHANNELS, 1, 1)).astype(np.int32)))
        scale = np.round(
            self.rng.uniform(0.5, 1.5, (1, CHANNELS, 1, 1)) * 100 / (300 * np.sqrt(of / group) * kernel), 3
        )
        return self.add("Mul", self.real(x), self.const(scale.astype(np.float32)))

    def model(self, outputs: dict[str, int]) -> ir.Model:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, CHANNELS, SIZE, SIZE])
        made = [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()]
        graph = helper.make_graph(self.nodes, "integers", [given], made, self.initializers)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def compare(model: ir.Model) -> None:
    """Equal on both engines, and every product on OpenVINO by an integer kernel."""
    x = np.random.default_rng(1).normal(size=(2, CHANNELS, SIZE, SIZE)).astype(np.float32)
    wanted = engines.get("onnxruntime").load(model, EngineOptions()).run({"x": x})
    session = engines.get("openvino").load(model, EngineOptions(profile=True))
    for mine, theirs in zip(session.run({"x": x}), wanted, strict=True):
        assert mine.dtype == theirs.dtype and np.unique(theirs).size > 20
        np.testing.assert_array_equal(mine, theirs)
    if engines.get("openvino").scheme.reduced:
        return
    layers = [p for p in session.profile() if p.op in PRODUCTS]
    assert len(layers) == sum(n.op_type in ("ConvInteger", "MatMulInteger") for n in model.graph)
    assert all(p.kernel.lower().endswith("_i8") for p in layers), [(p.name, p.kernel) for p in layers]


@pytest.mark.parametrize("shortcut", ["uint8", "int8"])
@pytest.mark.parametrize("alone", [True, False])
def test_a_residual_block(shortcut: str, alone: bool) -> None:
    net = Net()
    q = net.integers(net.add("Mul", "x", net.const(np.float32(37.7))), shortcut)
    first = net.integers(net.add("Relu", net.conv(q, CHANNELS)), "uint8")
    side = net.integers(net.conv(q, CHANNELS, 1), "int8") if shortcut == "int8" else q
    total = net.add("Add", net.conv(first, CHANNELS, 1), net.scaled(side, 0.7))
    last = net.integers(net.add("Relu", total), "uint8")
    found = {last: TensorProto.UINT8}
    compare(net.model(found if alone else {first: TensorProto.UINT8, **found}))


def test_what_skips_positions_and_groups() -> None:
    net = Net()
    q = net.integers(net.add("Mul", "x", net.const(np.float32(40))), "uint8")
    a = net.integers(net.conv(q, CHANNELS, 1, stride=2), "int8")
    b = net.integers(net.conv(q, CHANNELS, 1, stride=2), "int8")
    c = net.integers(net.add("Relu", net.conv(a, CHANNELS, group=CHANNELS)), "uint8")
    compare(net.model({b: TensorProto.INT8, c: TensorProto.UINT8}))


def test_pooling_and_concatenation() -> None:
    net = Net()
    q = net.integers(net.add("Mul", "x", net.const(np.float32(40))), "uint8")
    a = net.integers(net.add("Relu", net.conv(q, CHANNELS)), "uint8")
    largest = net.add("Cast", net.add("MaxPool", net.real(a), kernel_shape=[3, 3]), to=TensorProto.UINT8)
    mean = net.integers(net.add("AveragePool", net.real(a), kernel_shape=[3, 3]), "uint8")
    rescaled = net.integers(net.scaled(mean, 0.83), "uint8")
    joined = net.add("Concat", largest, rescaled, axis=1)
    compare(net.model({net.integers(net.add("Relu", net.conv(joined, 2 * CHANNELS)), "uint8"): TensorProto.UINT8}))


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_signed_numbers_are_joined(kind: str) -> None:
    """With a shift of its own, OpenVINO would lose them behind a concatenation."""
    net = Net()
    q = net.integers(net.add("Mul", "x", net.const(np.float32(40))), "int8")
    parts = [net.integers(net.conv(q, CHANNELS), k) for k in ("int8", kind)]
    if kind == "uint8":
        parts[1] = net.integers(net.scaled(parts[1], 0.4), "int8")
    joined = net.add("Concat", *parts, axis=1)
    compare(net.model({net.integers(net.conv(joined, 2 * CHANNELS), "int8"): TensorProto.INT8}))


def test_a_product_of_matrices() -> None:
    net = Net()
    q = net.integers(net.add("Mul", "x", net.const(np.float32(40))), "uint8")
    a = net.integers(net.add("Relu", net.conv(q, CHANNELS)), "uint8")
    pooled = net.add("AveragePool", net.real(a), kernel_shape=[5, 5], strides=[5, 5])
    flat = net.add("Flatten", net.integers(pooled, "uint8"), axis=1)
    taps = net.rng.integers(-127, 128, (CHANNELS * 64, 50)).astype(np.int8)
    x = net.add("MatMulInteger", flat, net.const(taps))
    x = net.real(net.add("Add", x, net.const(net.rng.integers(-20000, 20000, 50).astype(np.int32))))
    x = net.add("Mul", x, net.const(np.float32(1.7e-4)))
    compare(net.model({net.integers(x, "int8"): TensorProto.INT8}))


def test_a_range_that_the_run_finds() -> None:
    """The quotient 127.5 / max|x| is the nearest float32, as in numpy."""
    net = Net()
    reach = net.add("ReduceMax", net.add("Abs", "x"), keepdims=0)
    scale = net.add("Div", net.const(np.float32(127.5)), net.add("Reshape", reach, net.const(np.array([1]))))
    q = net.integers(net.add("Mul", "x", scale), "int8")
    out = net.integers(net.add("Relu", net.conv(q, CHANNELS)), "uint8")
    model = net.model({q: TensorProto.INT8, out: TensorProto.UINT8, scale: TensorProto.FLOAT})
    session = engines.get("openvino").load(model, EngineOptions())
    for seed in range(20):
        x = np.random.default_rng(seed).normal(size=(2, CHANNELS, SIZE, SIZE)).astype(np.float32)
        assert session.run({"x": x})[2] == np.float32(127.5) / np.abs(x).max()


def test_what_may_be_nan_is_still_tested_for() -> None:
    net = Net()
    q = net.integers(net.add("Mul", "x", net.const(np.float32(40))), "uint8")
    out = net.integers(net.add("Relu", net.conv(q, CHANNELS)), "uint8")
    model = net.model({out: TensorProto.UINT8})
    assert [n.op_type for n in integer_kernels(model).graph].count("IsNaN") == 1
    x = np.random.default_rng(0).normal(size=(2, CHANNELS, SIZE, SIZE)).astype(np.float32)
    x[0, 0, 0, 0] = np.nan
    runs = [engines.get(e).load(model, EngineOptions()).run({"x": x})[0] for e in ("openvino", "onnxruntime")]
    np.testing.assert_array_equal(*runs)


def test_sums_that_are_read_as_integers_stay_integers() -> None:
    net = Net()
    q = net.integers(net.add("Mul", "x", net.const(np.float32(40))), "uint8")
    taps = net.const(net.rng.integers(-127, 128, (CHANNELS, CHANNELS, 1, 1)).astype(np.int8))
    sums = net.add("ConvInteger", q, taps)
    out = net.integers(net.add("Mul", net.real(sums), net.const(np.float32(1e-3))), "int8")
    compare(net.model({sums: TensorProto.INT32, out: TensorProto.INT8}))


def test_models_without_integer_products_are_left_alone() -> None:
    net = Net()
    q = net.integers(net.add("Mul", "x", net.const(np.float32(40))), "uint8")
    zero = net.const(np.array(3, np.uint8))
    taps = net.const(np.ones((CHANNELS, CHANNELS, 1, 1), np.int8))
    sums = net.add("ConvInteger", q, taps, zero)
    for outputs in ({q: TensorProto.UINT8}, {sums: TensorProto.INT32}):
        model = net.model(outputs)
        assert integer_kernels(model) is model
