"""Two faults of OpenVINO with quantized concatenations, and how graphs are put so that it does not meet them.

**Signed integers.** Where a CPU multiplies unsigned by signed bytes (VNNI without AMX), OpenVINO shifts signed tensors
by 128 by itself, and behind a concatenation that a convolution reads it loses that shift: results are wrong by half of
the values' size (seen with 2026.4). With a zero point in the graph there is nothing to shift (`unsigned_joins`).

**Two quantizers in a row.** Compiling ends the process (segmentation fault, seen with 2026.4) where a concatenation is
quantized with a zero point and nothing but element-wise arithmetic lies between that and the next quantizer, as in
DenseNet, which normalizes what it joins. A maximum over windows of one element between the two keeps OpenVINO from
moving the second quantizer through the first; it changes no value and is computed on bytes (`parted_quantizers`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from requant.engines.signed import is_signed, shift
from requant.passes.rewrite import changed_copy, constant, initializer, is_default, rank, stand_in, unique

#: Operators that hand on the values of their first input, or clip them.
_MOVING = frozenset(
    {
        *("Relu", "Clip", "MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split"),
        *("Identity", "Pad", "DepthToSpace", "SpaceToDepth", "Resize", "Expand", "Tile", "Dropout"),
    }
)
#: Operators through which OpenVINO moves a quantizer towards a concatenation, or may.
_ELEMENTWISE = frozenset(
    {
        *("Relu", "Clip", "LeakyRelu", "PRelu", "Mul", "Add", "Sub", "Div", "BatchNormalization", "Neg", "Identity"),
        *("Concat", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Dropout"),
    }
)
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})


def parted_quantizers(model: ir.Model) -> ir.Model:
    """A model of equal results in which no second quantizer follows that of a concatenation, if that has a zero point.

    Args:
        model: left as it is; returned if there is nothing to part.
    """
    return changed_copy(model, _in_a_row, _part)


def _in_a_row(graph: ir.Graph) -> Iterator[ir.Node]:
    """Dequantizers of joined tensors with a zero point that another quantizer follows."""
    for node in graph:
        if node.op_type != "Concat" or not is_default(node):
            continue
        for quantizer in _reached(node.outputs[0], _ELEMENTWISE):
            if quantizer.op_type == "QuantizeLinear" and _has_zero_point(quantizer):
                for use in quantizer.outputs[0].uses():
                    behind = use.node
                    if behind.op_type == "DequantizeLinear" and any(
                        n.op_type == "QuantizeLinear" for n in _reached(behind.outputs[0], _ELEMENTWISE)
                    ):
                        yield behind


def _has_zero_point(node: ir.Node) -> bool:
    value = node.inputs[2] if len(node.inputs) > 2 else None
    array = constant(value)
    return value is not None and (array is None or bool(np.any(array)))


def _part(graph: ir.Graph, dequantizer: ir.Node) -> None:
    """Put a maximum over windows of one element behind a node. It needs one to three axes behind batch and channels."""
    value = dequantizer.outputs[0]
    axes = rank(value)
    made: list[ir.Node] = []

    def behind(given: ir.Value, op: str, *more: ir.Value, window: int = 0) -> ir.Value:
        name = unique(graph, f"{value.name}.{op.lower()}")
        out = ir.Value(name=name, type=value.type)
        attributes = [ir.AttrInt64s("kernel_shape", [1] * window)] if window else []
        made.append(ir.Node("", op, [given, *more], attributes=attributes, outputs=[out], name=name))
        return out

    if axes is not None and 3 <= axes <= 5:
        behind(value, "MaxPool", window=axes - 2)
    else:  # in one long row, and back
        row = initializer(graph, f"{value.name}.row", np.array([1, 1, -1], np.int64))
        pooled = behind(behind(value, "Reshape", row), "MaxPool", window=1)
        sizes = behind(value, "Shape")
        sizes.type = ir.TensorType(ir.DataType.INT64)
        behind(pooled, "Reshape", sizes)
    stand_in(graph, value, made, f"{value.name}.joined")


def unsigned_joins(model: ir.Model) -> ir.Model:
    """A model of equal results without signed quantizers at concatenations that products read; the given one if it has
    none.

    Args:
        model: left as it is.
    """
    return changed_copy(model, _found, shift)


def _found(graph: ir.Graph) -> Iterator[ir.Value]:
    """Signed integers of the branches and results of concatenations."""
    for node in graph:
        if node.op_type != "Concat" or not is_default(node) or not _multiplied(node.outputs[0]):
            continue
        for value in node.inputs:
            source = _source(value)
            if source is not None and source.op_type == "DequantizeLinear" and is_signed(source.inputs[0]):
                assert source.inputs[0] is not None
                yield source.inputs[0]
        for quantizer in _reached(node.outputs[0], _MOVING):
            if quantizer.op_type == "QuantizeLinear" and is_signed(quantizer.outputs[0]):
                yield quantizer.outputs[0]


def _source(value: ir.Value | None) -> ir.Node | None:
    """The node that makes a tensor, before those that move its values."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in _MOVING:
        node = None if node.inputs[0] is None else node.inputs[0].producer()
    return node


def _reached(value: ir.Value, through: frozenset[str]) -> Iterator[ir.Node]:
    """The nodes that read a tensor, behind those that are only passed."""
    seen: set[ir.Node] = set()
    waiting = [value]
    while waiting:
        for use in waiting.pop().uses():
            if use.node in seen:
                continue
            seen.add(use.node)
            if use.node.op_type in through and is_default(use.node):
                waiting.extend(use.node.outputs)
            else:
                yield use.node


def _multiplied(value: ir.Value) -> bool:
    """A convolution or matrix product reads the tensor: as it is, quantized, joined with others, or moved."""
    through = _MOVING | {"Concat", "QuantizeLinear", "DequantizeLinear"}
    return any(n.op_type in _PRODUCTS for n in _reached(value, through))
