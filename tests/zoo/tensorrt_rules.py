"""What TensorRT's parser and its documents demand of a QDQ graph, as a list of what a graph does wrong.

The parser's part is what ``QuantDequantLinearHelper`` of https://github.com/onnx/onnx-tensorrt refuses: zero points
other than zeros, scales that are not positive, another number of scales than channels, types other than int8 (a bias of
int32 among them). The rest is where quantizers ought to stand, by TensorRT's chapter on explicit quantization: pairs on
all inputs of an operator with weights, scales by channel on weights alone, and a quantized shortcut in a residual sum
whose other branch comes unquantized from its convolution.
"""

from __future__ import annotations

import numpy as np
import onnx

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
INTEGER = ("QLinear", "Integer", "DynamicQuantize", "QGemm")


class Graph:
    """A graph with what its names mean."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes = list(model.graph.node)
        self.constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        for node in self.nodes:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        self.makers = {out: node for node in self.nodes for out in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def maker(self, name: str, *kinds: str) -> onnx.NodeProto | None:
        node = self.makers.get(name)
        return node if node is not None and node.op_type in kinds else None

    def is_weight(self, node: onnx.NodeProto) -> bool:
        """A quantizer or dequantizer of a constant."""
        source = node.input[0]
        before = self.maker(source, "QuantizeLinear")
        return source in self.constants or (before is not None and before.input[0] in self.constants)


def attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((a.i for a in node.attribute if a.name == name), default)


def violations(model: onnx.ModelProto) -> list[str]:
    """What is wrong; empty if TensorRT can take the graph and runs its quantized part as int8."""
    graph = Graph(model)
    found = []
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    if opset < 13:
        found.append(f"opset {opset} has no axis for scales")
    for node in graph.nodes:
        if any(word in node.op_type for word in INTEGER):
            found.append(f"{node.name}: {node.op_type} is no operator of TensorRT")
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            found += _quantizer(graph, node)
        elif node.op_type in WEIGHTED:
            found += _weighted(graph, node)
        elif node.op_type == "Add":
            found += _sum(graph, node)
    return found


def _quantizer(graph: Graph, node: onnx.NodeProto) -> list[str]:
    where = f"{node.name} ({node.op_type})"
    if len(node.input) != 3:
        return [f"{where}: {len(node.input)} inputs, not 3"]
    scale, zero = (graph.constants.get(n) for n in node.input[1:])
    if scale is None or zero is None:
        return [f"{where}: scale or zero point is computed"]
    found = []
    if zero.dtype != np.int8:
        found.append(f"{where}: {zero.dtype}, not int8")
    if zero.any():
        found.append(f"{where}: a zero point that is not zero")
    if zero.size != scale.size:
        found.append(f"{where}: {zero.size} zero points for {scale.size} scales")
    if scale.dtype != np.float32 or not (scale > 0).all() or not np.isfinite(scale).all():
        found.append(f"{where}: scales must be positive float32")
    if node.op_type == "DequantizeLinear" and node.input[0] in graph.constants:
        stored = graph.constants[node.input[0]]
        if stored.dtype != np.int8:
            found.append(f"{where}: a constant of {stored.dtype}")
        axis = attribute(node, "axis", 1)
        if scale.size > 1 and stored.shape[axis] != scale.size:
            found.append(f"{where}: {scale.size} scales for axis {axis} of {stored.shape}")
    if scale.size > 1 and not graph.is_weight(node):
        found.append(f"{where}: scales by channel on an activation")
    if node.op_type == "QuantizeLinear":
        readers = graph.readers.get(node.output[0], [])
        if not readers or any(r.op_type != "DequantizeLinear" for r in readers):
            found.append(f"{where}: integers are read by {[r.op_type for r in readers]}")
        if any(list(r.input[1:]) != list(node.input[1:]) for r in readers):
            found.append(f"{where}: another scale on the way back")
    elif node.input[0] not in graph.constants and graph.maker(node.input[0], "QuantizeLinear") is None:
        found.append(f"{where}: nothing quantizes what it reads")
    return found


def _weighted(graph: Graph, node: onnx.NodeProto) -> list[str]:
    restored = [graph.maker(n, "DequantizeLinear") for n in node.input[:2]]
    found = []
    if sum(r is not None for r in restored) == 1:
        found.append(f"{node.name} ({node.op_type}): one of two factors is quantized")
    if len(node.input) > 2 and graph.maker(node.input[2], "DequantizeLinear") is not None:
        found.append(f"{node.name} ({node.op_type}): a quantized bias")
    for index, source in enumerate(restored):
        if source is None or not graph.is_weight(source) or graph.constants[source.input[1]].size == 1:
            continue
        stored = graph.constants.get(source.input[0])
        rank = 4 if stored is None else stored.ndim
        wanted = {
            "Conv": 0,
            "ConvTranspose": 1,
            "MatMul": rank - 1 if index == 1 else rank - 2,
            "Gemm": (0 if attribute(node, "transB", 0) else 1) if index == 1 else 0,
        }[node.op_type]
        if (axis := attribute(source, "axis", 1)) != wanted:
            found.append(f"{node.name} ({node.op_type}): scales along axis {axis}, not {wanted}")
    return found


def _sum(graph: Graph, node: onnx.NodeProto) -> list[str]:
    if any(n in graph.constants for n in node.input):
        return []
    fresh = [graph.maker(n, "Conv", "Gemm") for n in node.input]
    restored = [graph.maker(n, "DequantizeLinear") for n in node.input]
    if not any(restored):
        return []
    found = []
    if all(restored):
        for source in restored:
            before = None if source is None else graph.maker(source.input[0], "QuantizeLinear")
            made = None if before is None else graph.maker(before.input[0], "Conv", "Gemm")
            if made is not None and len(graph.readers[made.output[0]]) == 1:
                found.append(f"{node.name} (Add): the branch from {made.name} is rounded before the sum")
                break
    elif not any(fresh):
        found.append(f"{node.name} (Add): one branch is quantized, and no convolution makes the other")
    return found
