"""Small graphs that every engine is put through."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir

from requant.engines import EngineOptions

OPTIONS = EngineOptions(threads=1)


def parse(text: str, opset: int = 17, ir_version: int = 8) -> ir.Model:
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n'
    return ir.from_proto(onnx.parser.parse_model(header + text))


def conv_relu(batch: str = "N") -> ir.Model:
    """A convolution with weights on both sides of the size from which weights are written apart."""
    model = parse(
        f"""net (float[{batch}, 3, 8, 8] data) => (float[{batch}, 16, 8, 8] out)
        {{ c = Conv<pads = [1, 1, 1, 1]>(data, weight, bias)   out = Relu(c) }}"""
    )
    rng = np.random.default_rng(7)
    for name, shape in (("weight", (16, 3, 3, 3)), ("bias", (16,))):
        value = ir.Value(name=name, const_value=ir.tensor(rng.standard_normal(shape).astype(np.float32), name=name))
        model.graph.register_initializer(value)
        for node in model.graph:
            for i, old in enumerate(node.inputs):
                if old is not None and old.name == name:
                    node.replace_input_with(i, value)
    return model


def conv_relu_by_hand(model: ir.Model, data: np.ndarray) -> np.ndarray:
    weight = model.graph.initializers["weight"].const_value.numpy()
    bias = model.graph.initializers["bias"].const_value.numpy()
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None], 0)


TWO = """two (float[N, 4] a, float[N, 4] b) => (float[N, 4] sum, float[N, 4] product, float[N] total)
{ sum = Add(a, b)   product = Mul(a, b)   total = ReduceSum<keepdims = 0>(product, axes) }"""


def two() -> ir.Model:
    return parse(TWO.replace("total)\n{", "total)\n<int64[1] axes = {1}> {"))


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
