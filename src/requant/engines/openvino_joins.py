"""Signed int8 tensors around a concatenation, put as unsigned ones for OpenVINO.

Where a CPU multiplies unsigned by signed bytes (VNNI without AMX), OpenVINO shifts signed tensors by 128 by itself, and
behind a concatenation it loses that shift: results are wrong by half of the values' size (seen with 2026.4). With a
zero point in the graph there is nothing to shift. ``q`` with zero point ``z`` as int8 and ``q + 128`` with ``z + 128``
as uint8 stand for the same number, so nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from requant import qmath
from requant.passes.rewrite import constant, forget_names, initializer, is_default

#: Operators that hand on the values of their first input, or clip them.
_MOVING = frozenset(
    {
        *("Relu", "Clip", "MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split"),
        *("Identity", "Pad", "DepthToSpace", "SpaceToDepth", "Resize", "Expand", "Tile", "Dropout"),
    }
)


def unsigned_joins(model: ir.Model) -> ir.Model:
    """A model of equal results without signed quantizers at concatenations; the given one if it has none.

    Args:
        model: left as it is.
    """
    if not any(_found(model.graph)):
        return model
    new = model.clone()
    forget_names(new)
    for quantized in list(dict.fromkeys(_found(new.graph))):
        _shift(new.graph, quantized)
    return new


def _found(graph: ir.Graph) -> Iterator[ir.Value]:
    """Signed integers of the branches and results of concatenations."""
    for node in graph:
        if node.op_type != "Concat" or not is_default(node):
            continue
        for value in node.inputs:
            source = _source(value)
            if source is not None and source.op_type == "DequantizeLinear" and _signed(source.inputs[0]):
                assert source.inputs[0] is not None
                yield source.inputs[0]
        for quantizer in _readers(node.outputs[0]):
            if quantizer.op_type == "QuantizeLinear" and _signed(quantizer.outputs[0]):
                yield quantizer.outputs[0]


def _source(value: ir.Value | None) -> ir.Node | None:
    """The node that makes a tensor, before those that move its values."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in _MOVING:
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    return node


def _readers(value: ir.Value) -> Iterator[ir.Node]:
    """The nodes that read a tensor, behind those that move its values."""
    for use in value.uses():
        if use.node.op_type in _MOVING and use.idx == 0:
            for out in use.node.outputs:
                yield from _readers(out)
        else:
            yield use.node


def _signed(value: ir.Value | None) -> bool:
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
    return all(n.op_type in ("QuantizeLinear", "DequantizeLinear") and _one_signed(n) for n in ends)


def _one_signed(node: ir.Node) -> bool:
    scale = constant(node.inputs[1])
    zero = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    return scale is not None and scale.size == 1 and zero is not None and zero.dtype == np.int8 and zero.size == 1


def _shift(graph: ir.Graph, quantized: ir.Value) -> None:
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
