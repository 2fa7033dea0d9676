"""Small ONNX networks of the kinds that other tools export: made here, with random weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32 = np.float32


def weight(name: str, *shape: int, seed: int = 0, gain: float = 1.0) -> onnx.TensorProto:
    """Normal numbers that keep the variance of what they multiply."""
    fan = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
    rng = np.random.default_rng([seed, *name.encode()])
    return numpy_helper.from_array((rng.standard_normal(shape) * gain / np.sqrt(fan)).astype(F32), name)


def constant(name: str, value: object, dtype: type = np.int64) -> onnx.NodeProto:
    """A parameter as a node, as some exporters write all of them."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, dtype), name))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[int | str | None]]],
    outputs: Sequence[tuple[str, int, Sequence[int | str | None]]],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """A model of these parts."""
    infos = [[helper.make_tensor_value_info(n, t, s) for n, t, s in part] for part in (inputs, outputs)]
    graph = helper.make_graph(list(nodes), "net", infos[0], infos[1], list(weights))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def detector(opset: int = 12) -> onnx.ModelProto:
    """PaddlePaddle's style: parameters in Constant nodes, hard-swish written out, a batch of -1, sizes of ?."""
    kernel = numpy_helper.to_array(weight("w0", 8, 3, 3, 3))
    depth = numpy_helper.to_array(weight("w1", 8, 1, 3, 3))
    nodes = [
        constant("w0", kernel, F32),
        constant("w1", depth, F32),
        constant("w2", numpy_helper.to_array(weight("w2", 4, 8, 1, 1)), F32),
        constant("up", numpy_helper.to_array(weight("up", 4, 1, 2, 2)), F32),
        constant("three", [3.0], F32),
        constant("six", [6.0], F32),
        constant("low", 0.0, F32),
        constant("high", 6.0, F32),
        helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2], name="Conv.0"),
        helper.make_node("Add", ["c0", "three"], ["a"], name="Add.0"),
        helper.make_node("Clip", ["a", "low", "high"], ["b"], name="Clip.0"),
        helper.make_node("Mul", ["c0", "b"], ["m"], name="Mul.0"),
        helper.make_node("Div", ["m", "six"], ["h"], name="Div.0"),
        helper.make_node("Conv", ["h", "w1"], ["c1"], pads=[1, 1, 1, 1], group=8, name="Conv.1"),
        helper.make_node("Relu", ["c1"], ["r"], name="Relu.0"),
        helper.make_node("Conv", ["r", "w2"], ["c2"], name="Conv.2"),
        helper.make_node("ConvTranspose", ["c2", "up"], ["y"], strides=[2, 2], name="Up.0"),
        helper.make_node("Sigmoid", ["y"], ["map"], name="Sigmoid.0"),
    ]
    return model(nodes, [("x", 1, [-1, 3, "?", "?"])], [("map", 1, [-1, 1, "?", "?"])], opset=opset)


def recognizer() -> onnx.ModelProto:
    """A text line recognizer: one size that the graph takes (48 high), a computed Reshape, attention, layer norm."""
    wide = 32
    nodes = [
        helper.make_node(
            "Conv", ["x", "w0"], ["c0"], strides=[8, 4], pads=[1, 1, 1, 1], kernel_shape=[8, 4], name="stem"
        ),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu"),
        helper.make_node("AveragePool", ["r0"], ["p"], kernel_shape=[6, 1], name="pool"),
        helper.make_node("Shape", ["p"], ["s"], name="shape"),
        constant("zero", [0]),
        constant("one", [1]),
        constant("minus", [-1]),
        helper.make_node("Slice", ["s", "zero", "one"], ["batch"], name="slice"),
        constant("wide", [wide]),
        helper.make_node("Concat", ["batch", "wide", "minus"], ["to"], axis=0, name="to"),
        helper.make_node("Reshape", ["p", "to"], ["flat"], name="reshape"),
        helper.make_node("Transpose", ["flat"], ["t"], perm=[0, 2, 1], name="transpose"),
        helper.make_node("MatMul", ["t", "q"], ["tq"], name="q"),
        helper.make_node("MatMul", ["t", "k"], ["tk"], name="k"),
        helper.make_node("Transpose", ["tk"], ["kt"], perm=[0, 2, 1], name="kt"),
        helper.make_node("MatMul", ["tq", "kt"], ["scores"], name="scores"),
        helper.make_node("Softmax", ["scores"], ["share"], axis=2, name="softmax"),
        helper.make_node("MatMul", ["share", "t"], ["mixed"], name="mixed"),
        helper.make_node("Add", ["mixed", "t"], ["sum"], name="residual"),
        helper.make_node("ReduceMean", ["sum"], ["mean"], axes=[2], name="mean"),
        helper.make_node("Sub", ["sum", "mean"], ["centred"], name="centred"),
        helper.make_node("MatMul", ["centred", "out"], ["logits"], name="head"),
        helper.make_node("Softmax", ["logits"], ["text"], axis=2, name="text"),
    ]
    weights = [weight("w0", wide, 3, 8, 4), *(weight(n, wide, wide) for n in "qk"), weight("out", wide, 40)]
    return model(nodes, [("x", 1, ["N", 3, 48, "W"])], [("text", 1, ["N", "T", 40])], weights, opset=11)


def encoder() -> onnx.ModelProto:
    """A sentence encoder: two int64 inputs with open batch and length, Gather, mask, attention, LayerNormalization."""
    wide, words = 32, 50
    nodes = [
        helper.make_node("Gather", ["embedding", "input_ids"], ["e"], name="embed"),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT, name="mask"),
        constant("last", [-1]),
        constant("middle", [1]),
        helper.make_node("Unsqueeze", ["m", "last"], ["column"], name="column"),
        helper.make_node("Unsqueeze", ["m", "middle"], ["row"], name="row"),
        constant("unit", 1.0, F32),
        constant("much", -10000.0, F32),
        helper.make_node("Sub", ["row", "unit"], ["hole"], name="hole"),
        helper.make_node("Abs", ["hole"], ["absent"], name="absent"),
        helper.make_node("Mul", ["absent", "much"], ["far"], name="far"),
        helper.make_node("MatMul", ["e", "q"], ["eq"], name="q"),
        helper.make_node("MatMul", ["e", "k"], ["ek"], name="k"),
        helper.make_node("MatMul", ["e", "v"], ["ev"], name="v"),
        helper.make_node("Transpose", ["ek"], ["kt"], perm=[0, 2, 1], name="kt"),
        helper.make_node("MatMul", ["eq", "kt"], ["scores"], name="scores"),
        helper.make_node("Add", ["scores", "far"], ["masked"], name="masked"),
        helper.make_node("Softmax", ["masked"], ["share"], axis=-1, name="softmax"),
        helper.make_node("MatMul", ["share", "ev"], ["mixed"], name="mixed"),
        helper.make_node("Add", ["mixed", "e"], ["sum"], name="residual"),
        helper.make_node("LayerNormalization", ["sum", "gamma", "beta"], ["norm"], axis=-1, name="norm"),
        helper.make_node("MatMul", ["norm", "up"], ["wide1"], name="up"),
        helper.make_node("Erf", ["wide1"], ["erf"], name="erf"),
        helper.make_node("Mul", ["wide1", "erf"], ["act"], name="act"),
        helper.make_node("MatMul", ["act", "down"], ["narrow"], name="down"),
        helper.make_node("Mul", ["narrow", "column"], ["kept"], name="kept"),
        helper.make_node("ReduceSum", ["kept", "middle"], ["vector"], keepdims=0, name="vector"),
    ]
    weights = [weight("embedding", words, wide, gain=7.0), *(weight(n, wide, wide) for n in "qkv")]
    weights += [weight("up", wide, 2 * wide), weight("down", 2 * wide, wide)]
    weights += [
        numpy_helper.from_array(v, n) for n, v in (("gamma", np.ones(wide, F32)), ("beta", np.zeros(wide, F32)))
    ]
    tokens: list[int | str | None] = ["batch", "length"]
    ids, mask = (("input_ids", TensorProto.INT64, tokens), ("attention_mask", TensorProto.INT64, tokens))
    return model(nodes, [ids, mask], [("vector", 1, ["batch", wide])], weights)


def bytes_classifier() -> onnx.ModelProto:
    """Magika's style: int32 bytes, one-hot as a comparison, a convolution over time, a large maximum."""
    wide, length = 16, 64
    nodes = [
        constant("axis", [2]),
        helper.make_node("Unsqueeze", ["bytes", "axis"], ["b"], name="b"),
        helper.make_node("Equal", ["b", "alphabet"], ["same"], name="same"),
        helper.make_node("Cast", ["same"], ["onehot"], to=TensorProto.FLOAT, name="onehot"),
        helper.make_node("MatMul", ["onehot", "embed"], ["e"], name="embed"),
        helper.make_node("Transpose", ["e"], ["t"], perm=[0, 2, 1], name="t"),
        helper.make_node("Conv", ["t", "kernel"], ["c"], kernel_shape=[5], name="conv"),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalMaxPool", ["r"], ["g"], name="pool"),
        constant("end", [2]),
        helper.make_node("Squeeze", ["g", "end"], ["f"], name="f"),
        helper.make_node("Gemm", ["f", "head", "bias"], ["logits"], name="head"),
        helper.make_node("Softmax", ["logits"], ["target"], axis=1, name="target"),
    ]
    kernel = np.random.default_rng(1).standard_normal((2 * wide, wide, 5)).astype(F32) / 9
    weights = [
        numpy_helper.from_array(np.arange(257, dtype=np.int32), "alphabet"),
        numpy_helper.from_array(numpy_helper.to_array(weight("embed", 257, wide, gain=16.0)), "embed"),
        numpy_helper.from_array(kernel, "kernel"),
        weight("head", 2 * wide, 12),
        numpy_helper.from_array(np.zeros(12, F32), "bias"),
    ]
    return model(nodes, [("bytes", TensorProto.INT32, ["n", length])], [("target", 1, ["n", 12])], weights, opset=15)


def branches(op: str) -> onnx.ModelProto:
    """A network with control flow: ``If`` or ``Loop`` around a convolution, behind another convolution."""

    def body(name: str, kernel: str, inputs: Sequence[onnx.ValueInfoProto], extra: Sequence[str]) -> onnx.GraphProto:
        nodes = [helper.make_node("Conv", ["c0" if op == "If" else "state", kernel], [f"{name}.y"], pads=[1, 1, 1, 1])]
        outs = [helper.make_tensor_value_info(f"{name}.y", 1, ["N", 4, 8, 8])]
        if extra:
            nodes.insert(0, helper.make_node("Identity", [extra[0]], [f"{name}.go"]))
            outs.insert(0, helper.make_tensor_value_info(f"{name}.go", TensorProto.BOOL, []))
        return helper.make_graph(nodes, name, list(inputs), outs)

    nodes = [helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1], name="before")]
    weights = [weight("w0", 4, 3, 3, 3), weight("w1", 4, 4, 3, 3), weight("w2", 4, 4, 3, 3)]
    if op == "If":
        nodes += [
            helper.make_node("ReduceMean", ["c0"], ["mean"], keepdims=0, name="mean"),
            constant("zero", 0.0, F32),
            helper.make_node("Greater", ["mean", "zero"], ["ok"], name="test"),
            helper.make_node(
                "If",
                ["ok"],
                ["y"],
                then_branch=body("then", "w1", (), ()),
                else_branch=body("else", "w2", (), ()),
                name="if",
            ),
        ]
    else:
        inputs = [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", 1, ["N", 4, 8, 8]),
        ]
        nodes += [
            constant("times", 2),
            constant("always", True, np.bool_),
            helper.make_node(
                "Loop", ["times", "always", "c0"], ["y"], body=body("body", "w1", inputs, ["go"]), name="loop"
            ),
        ]
    nodes.append(helper.make_node("Relu", ["y"], ["out"], name="after"))
    return model(nodes, [("x", 1, ["N", 3, 8, 8])], [("out", 1, ["N", 4, 8, 8])], weights)


def foreign() -> onnx.ModelProto:
    """A node of another domain than ONNX's, beside a convolution."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("Gelu", ["c"], ["y"], domain="com.microsoft", name="gelu"),
        helper.make_node("Conv", ["y", "w1"], ["z"], pads=[1, 1, 1, 1], name="conv2"),
    ]
    weights = [weight("w0", 4, 3, 3, 3), weight("w1", 4, 4, 3, 3)]
    return model(nodes, [("x", 1, ["N", 3, 8, 8])], [("z", 1, ["N", 4, 8, 8])], weights, domains=["com.microsoft"])
