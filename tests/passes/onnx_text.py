"""Graphs as text, for tests of passes: what goes in is ONNX's textual form, what comes out is one line a node."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort


def parse(text: str, opset: int = 17) -> ir.Model:
    """A model from the text of a graph, with shapes inferred as `optimize` has them; it must be valid ONNX."""
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    onnx.checker.check_model(proto)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def _attribute(attr: ir.Attr) -> str:
    value = attr.value
    return f"{attr.name}={list(value) if isinstance(value, (list, tuple)) else value}"


def _constant(value: ir.Value) -> str:
    assert value.const_value is not None
    array = value.const_value.numpy()
    return (
        np.array2string(array, separator=",", formatter={"all": lambda v: f"{v:g}"}).replace("\n", "").replace(" ", "")
    )


def show(model: ir.Model) -> list[str]:
    """The nodes, one a line: ``y = Conv(x, [[[[2]]]]) strides=[1, 1]``. Constants are written out, names are kept."""
    lines = []
    for node in model.graph:
        inputs = ["" if v is None else _constant(v) if v.is_initializer() else str(v.name) for v in node.inputs]
        attributes = "".join(f" {_attribute(a)}" for _, a in sorted(node.attributes.items()))
        lines.append(
            f"{', '.join(str(o.name) for o in node.outputs)} = {node.op_type}({', '.join(inputs)}){attributes}"
        )
    return lines


def run(model: ir.Model, seed: int = 0, batch: int = 2) -> list[np.ndarray]:
    """The outputs for seeded normal inputs, on ONNX Runtime without its own optimizations."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(seed)
    feeds = {}
    for spec in session.get_inputs():
        shape = [d if isinstance(d, int) else batch for d in spec.shape]
        kind = {"tensor(float)": np.float32, "tensor(int64)": np.int64}[spec.type]
        feeds[spec.name] = rng.normal(size=shape).astype(kind)
    return list(session.run(None, feeds))


def check(text: str, rewrite: Callable[[ir.Model], object], expected: list[str], opset: int = 17) -> ir.Model:
    """Rewrite a graph in place and compare its lines and its numbers."""
    model = parse(text, opset)
    before = run(model)
    rewrite(model)
    assert show(model) == expected
    for a, b in zip(before, run(model), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
    return model
