"""Signed int8 tensors as unsigned ones, for engines that are wrong or slow with signed ones.

``q`` with zero point ``z`` as int8 and ``q + 128`` with ``z + 128`` as uint8 stand for the same number, so a graph
means the same afterwards.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant import qmath
from requant.passes.rewrite import constant, initializer


def is_signed(value: ir.Value | None) -> bool:
    """An int8 tensor with one scale, which only Dequantize nodes read."""
    if value is None or value.is_graph_output() or value.is_graph_input():
        return False
    maker = value.producer()
    ends = [use.node for use in value.uses()]
    if maker is not None:
        if maker.op_type != "QuantizeLinear":
            return False
        ends.append(maker)
    else:
        array = constant(value)
        if array is None or array.dtype != np.int8:
            return False
    return all(n.op_type in ("QuantizeLinear", "DequantizeLinear") and _has_one_zero(n) for n in ends)


def _has_one_zero(node: ir.Node) -> bool:
    scale = constant(node.inputs[1])
    zero = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    return scale is not None and scale.size == 1 and zero is not None and zero.dtype == np.int8 and zero.size == 1


def shift(graph: ir.Graph, quantized: ir.Value) -> None:
    """Put a tensor of which `is_signed` as uint8: its quantizer, or its constant, and all that read it.

    Args:
        graph: is changed.
    """
    nodes = [use.node for use in quantized.uses()]
    maker = quantized.producer()
    if maker is not None:
        nodes.append(maker)
        maker.attributes.pop("output_dtype", None)
        quantized.type = ir.TensorType(ir.DataType.UINT8)  # a clone shares the type with what it was made of
    for node in nodes:
        zero = constant(node.inputs[2])
        assert zero is not None
        moved = qmath.as_unsigned(zero)
        node.replace_input_with(2, initializer(graph, f"{node.name}_zero_point", moved))
    array = constant(quantized) if maker is None else None
    if array is not None:
        shifted = initializer(graph, f"{quantized.name}_unsigned", qmath.as_unsigned(array))
        for node in nodes:
            node.replace_input_with(0, shifted)
