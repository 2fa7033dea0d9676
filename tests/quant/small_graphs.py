"""Small graphs for tests of planning and applying, and a way to run what comes out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from requant.qmath import Range
from requant.quant.plan import Plan

Tensors = Mapping[str, np.ndarray]


class Build:
    """Builds a graph line by line; weights are seeded normal numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(seed)

    def weight(self, name: str, *shape: int, scale: float = 1.0) -> str:
        """A weight of that shape."""
        self.weights[name] = (self.rng.normal(size=shape) * scale).astype(np.float32)
        return name

    def op(self, op_type: str, out: str, *inputs: str, mx: str = "", **attributes: object) -> str:
        """A node, named like its output; ``mx`` is the name it had in MXNet."""
        node = onnx.helper.make_node(op_type, list(inputs), [out], name=out, **attributes)
        if mx:
            node.metadata_props.add(key="mx.node", value=mx)
        self.nodes.append(node)
        return out

    def conv(self, out: str, source: str, cin: int, cout: int, k: int = 3, group: int = 1, bias: bool = True) -> str:
        """A convolution that keeps the size."""
        names = [source, self.weight(f"{out}.w", cout, cin // group, k, k, scale=(k * k * cin // group) ** -0.5)]
        if bias:
            names.append(self.weight(f"{out}.b", cout))
        return self.op("Conv", out, *names, group=group, pads=[k // 2] * 4)

    def model(self, inputs: Mapping[str, tuple[object, ...]], outputs: Mapping[str, tuple[object, ...]]) -> ir.Model:
        """The checked model, with shapes inferred."""
        infos = [
            [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in d.items()]
            for d in (inputs, outputs)
        ]
        weights = [onnx.numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = onnx.helper.make_graph(self.nodes, "small", *infos, weights)
        proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(proto, full_check=True)
        return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def residual(bn: bool = False) -> ir.Model:
    """conv → relu → maxpool → (conv → relu → conv) + shortcut → relu → pool → flatten → gemm → softmax."""
    b = Build()
    b.conv("c0", "x", 3, 4)
    b.op("Relu", "r0", "c0")
    b.op("MaxPool", "p0", "r0", kernel_shape=[2, 2], strides=[2, 2])
    b.conv("c1", "p0", 4, 4)
    b.op("Relu", "r1", "c1")
    b.conv("c2", "r1", 4, 4)
    b.op("Add", "s", "c2", "p0")
    last = "s"
    if bn:
        stats = [b.weight(f"bn.{n}", 4) for n in ("g", "b", "m", "v")]
        b.weights["bn.v"] = np.abs(b.weights["bn.v"]) + 0.5
        last = b.op("BatchNormalization", "bn", "s", *stats)
    b.op("Relu", "r2", last)
    b.op("GlobalAveragePool", "gap", "r2")
    b.op("Flatten", "f", "gap")
    b.op("Gemm", "fc", "f", b.weight("fc.w", 5, 4), b.weight("fc.b", 5), transB=1)
    b.op("Softmax", "y", "fc")
    return b.model({"x": ("N", 3, 8, 8)}, {"y": ("N", 5)})


def run(model: ir.Model, feeds: Tensors, names: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Outputs (and the named inner tensors) on ONNX Runtime, each node computed as it stands."""
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto)
    known = {o.name for o in proto.graph.output} | {i.name for i in proto.graph.input}
    for name in names:
        if name not in known:
            proto.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = [o.name for o in session.get_outputs()]
    return {**feeds, **dict(zip(wanted, session.run(wanted, dict(feeds))))}


def ranges(model: ir.Model, plan: Plan, feeds: Tensors) -> dict[str, Range]:
    """Minimum and maximum of every observed tensor."""
    seen = run(model, feeds, plan.observed)
    return {name: Range(float(seen[name].min()), float(seen[name].max())) for name in plan.observed}


def types(model: ir.Model) -> list[str]:
    """Operator types, in order, without quantizers."""
    return [n.op_type for n in model.graph if "quantize" not in n.op_type.lower() and "Linear" not in n.op_type]
