"""Multiply-accumulates of ONNX nodes."""

from __future__ import annotations

import onnx_ir as ir

from requant.ops.registry import product


def _dims(value: ir.Value | None, *, open_batch: bool) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    dims = [1 if open_batch and i == 0 and not isinstance(d, int) else d for i, d in enumerate(value.shape)]
    if any(not isinstance(d, int) for d in dims):
        return None
    return tuple(int(d) for d in dims)  # type: ignore[arg-type]


def node_macs(node: ir.Node, *, open_batch: bool = False) -> int | None:
    """Multiply-accumulates of one ONNX node: 0 for those that have none, None if a shape is not known.

    Args:
        node: with shapes inferred.
        open_batch: a first dimension that is left open counts as 1.
    """

    def dims(value: ir.Value | None) -> tuple[int, ...] | None:
        return _dims(value, open_batch=open_batch)

    if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        x, w, y = dims(node.inputs[0]), dims(node.inputs[1]), dims(node.outputs[0])
        if x is None or w is None or y is None:
            return None
        if node.op_type == "Conv":
            return product(y) * product(w[1:])
        if node.op_type == "ConvTranspose":
            return product(x) * product(w[1:])
        if node.op_type == "MatMul":
            return product(y) * x[-1]
        transposed = node.attributes["transA"].as_int() if "transA" in node.attributes else 0
        return product(y) * x[0 if transposed else 1]
    if node.op_type in ("LSTM", "GRU", "RNN"):
        x, w, r = dims(node.inputs[0]), dims(node.inputs[1]), dims(node.inputs[2])
        if x is None or w is None or r is None:
            return None
        return x[0] * x[1] * (product(w) + product(r))
    return 0
