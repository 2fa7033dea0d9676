"""Quantizers that an engine's scheme asks for and an int8 graph from elsewhere does not have.

MXNet's fused convolution adds the shortcut of a residual block before it rounds: Conv → Add(DequantizeLinear) →
QuantizeLinear. An engine whose convolutions run as integers only if their output is quantized (ONNX Runtime) would
compute such a convolution in float. Here its output gets a quantizer of its own. Its range follows from those of the
sum and the shortcut: whatever lies beyond them saturates in the sum as well, so only the rounding is new, and the sum
stays within one step of what it was if the shortcut's step is no larger than its own.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant import qmath
from requant.passes.rewrite import constant, initializer, sole_user, unique
from requant.qmath import QuantParams
from requant.scheme import Scheme


def complete(model: ir.Model, scheme: Scheme) -> ir.Model:
    """A model with the quantizers that ``scheme`` needs; the given one if there is nothing to add."""
    if "Conv" not in scheme.quantized_outputs or not any(_place(node) for node in model.graph):
        return model
    new = model.clone()
    for node in list(new.graph):
        found = _place(node)
        if found is not None:
            _insert(new.graph, node, _beyond(*found))
    return new


def _place(node: ir.Node) -> tuple[QuantParams, QuantParams] | None:
    """The parameters of sum and shortcut behind a convolution whose output wants a quantizer, else None."""
    if node.op_type not in ("Conv", "ConvTranspose") or not all(_restored(v) for v in node.inputs[:2]):
        return None
    addition = sole_user(node.outputs[0])
    if addition is None or addition.op_type != "Add":
        return None
    other = addition.inputs[1 if addition.inputs[0] is node.outputs[0] else 0]
    user = sole_user(addition.outputs[0])
    if user is not None and user.op_type == "Relu":
        user = sole_user(user.outputs[0])
    if user is None or user.op_type != "QuantizeLinear":
        return None
    shortcut = _params(other.producer()) if other is not None and _restored(other) else None
    total = _params(user)
    return None if shortcut is None or total is None else (total, shortcut)


def _restored(value: ir.Value | None) -> bool:
    maker = None if value is None else value.producer()
    return maker is not None and maker.op_type == "DequantizeLinear"


def _params(node: ir.Node | None) -> QuantParams | None:
    """The parameters of a quantizer that has one constant scale and 8 bits."""
    if node is None or len(node.inputs) < 3:
        return None
    scale, zero = constant(node.inputs[1]), constant(node.inputs[2])
    if scale is None or zero is None or scale.size != 1 or zero.dtype not in (np.int8, np.uint8):
        return None
    return QuantParams(scale.reshape(()).astype(np.float32), zero.reshape(()), zero.dtype)


def _beyond(total: QuantParams, shortcut: QuantParams) -> QuantParams:
    """Parameters for what is added to the shortcut: with numbers outside of them the total saturates in any case."""
    low, high = (float(v) for v in qmath.represented(total))
    least, most = (float(v) for v in qmath.represented(shortcut))
    return qmath.asymmetric(low - most, high - least, np.uint8)


def _insert(graph: ir.Graph, node: ir.Node, params: QuantParams) -> None:
    value = node.outputs[0]
    readers = list(value.uses())
    scale = initializer(graph, f"{value.name}_scale", np.asarray(params.scale))
    zero = initializer(graph, f"{value.name}_zero_point", np.asarray(params.zero_point))
    quantized = ir.Value(
        name=unique(graph, f"{value.name}_quantized"), shape=value.shape, type=ir.TensorType(ir.DataType.UINT8)
    )
    restored = ir.Value(
        name=unique(graph, f"{value.name}_dequantized"), shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT)
    )
    made = [
        ir.Node("", "QuantizeLinear", [value, scale, zero], outputs=[quantized], name=f"{value.name}/QuantizeLinear"),
        ir.Node(
            "",
            "DequantizeLinear",
            [quantized, scale, zero],
            outputs=[restored],
            name=f"{value.name}/DequantizeLinear",
        ),
    ]
    for one in made:
        one.metadata_props.update(node.metadata_props)
    graph.insert_after(node, made)
    for use in readers:
        use.node.replace_input_with(use.idx, restored)
