"""The hash that says which model a table belongs to."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant.quant.fingerprint import fingerprint

F32 = np.float32


def _model(weight: float, name: str = "y") -> ir.Model:
    x = ir.Value(name="x", shape=ir.Shape([1, 2]), type=ir.TensorType(ir.DataType.FLOAT))
    w = ir.Value(name="w", const_value=ir.tensor(np.full((2, 2), weight, F32)))
    node = ir.node("MatMul", [x, w], outputs=[ir.Value(name=name)], doc_string=f"made for {weight}")
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 20}, name="g")
    return ir.Model(graph, ir_version=10)


def test_fingerprint() -> None:
    assert fingerprint(_model(1.0)) == fingerprint(_model(1.0))
    assert fingerprint(_model(1.0)) != fingerprint(_model(2.0)) != fingerprint(_model(2.0, "z"))
