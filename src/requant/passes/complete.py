"""Quantizers that an engine's scheme asks for and an int8 graph from elsewhere does not have.

MXNet's fused convolution adds the shortcut of a residual block before it rounds: Conv → Add(DequantizeLinear) →
QuantizeLinear. An engine whose convolutions run as integers only if their output is quantized (ONNX Runtime) would
compute such a convolution in float. Two forms help:

- A kernel of one position is a product of matrices, which such engines have as MatMulInteger: the same sums.
- Any other convolution gets a quantizer for its output. The range follows from those of the sum and the shortcut:
  whatever lies beyond them saturates in the sum as well, so only the rounding is new, and the sum stays within one
  step of what it was if the shortcut's step is no larger than its own.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant import qmath
from requant.passes.rewrite import Array, attribute, constant, initializer, insert_before, ints, sole_user, unique
from requant.qmath import QuantParams
from requant.scheme import Scheme


def complete(model: ir.Model, scheme: Scheme) -> ir.Model:
    """A model with the quantizers that ``scheme`` needs; the given one if there is nothing to add."""
    if "Conv" not in scheme.quantized_outputs or not any(_place(node) for node in model.graph):
        return model
    new = model.clone()
    for node in list(new.graph):
        found = _place(node)
        if found is not None and not _as_matrices(new.graph, node):
            _insert(new.graph, node, qmath.asymmetric(*qmath.addend_range(*found), np.uint8))
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


def _as_matrices(graph: ir.Graph, node: ir.Node) -> bool:
    """Replace a convolution with a kernel of one position by a product of integer matrices, if it is one."""
    data, weight = (v.producer() for v in node.inputs[:2] if v is not None)
    source, of_data = None if data is None else data.inputs[0], _params(data)
    taps, step = _weight(weight)
    plain = node.op_type == "Conv" and attribute(node, "group", 1) == 1 and not any(ints(node, "pads") or [])
    if not plain or source is None or source.shape is None or of_data is None or taps is None or step is None:
        return False
    if any(k != 1 for k in taps.shape[2:]) or any(k != 1 for k in ints(node, "strides") or []):
        return False
    bias = _bias(node)
    if bias is None:
        return False
    out = node.outputs[0]
    rank = taps.ndim

    def add(kind: str, inputs: list[ir.Value], name: str, dtype: ir.DataType, **attributes: object) -> ir.Value:
        own = ir.convenience.convert_attributes(attributes)
        return insert_before(node, kind, inputs, f"{out.name}_{name}", dtype, None, own)

    def stored(array: Array, name: str) -> ir.Value:
        return initializer(graph, f"{out.name}_{name}", array)

    matrix = np.ascontiguousarray(taps.reshape(taps.shape[0], -1).T)
    back = [0, rank - 1, *range(1, rank - 1)]
    x = add("Transpose", [source], "rows", source.dtype or ir.DataType.UINT8, perm=[0, *range(2, rank), 1])
    zero = stored(np.asarray(of_data.zero_point), "zero_point")
    x = add("MatMulInteger", [x, stored(matrix, "matrix"), zero], "sums", ir.DataType.INT32)
    x = add("Cast", [x], "float", ir.DataType.FLOAT, to=int(ir.DataType.FLOAT))
    x = add("Mul", [x, stored(step * of_data.scale, "step")], "scaled", ir.DataType.FLOAT)
    if bias.size:
        x = add("Add", [x, stored(bias, "bias")], "shifted", ir.DataType.FLOAT)
    x = add("Transpose", [x], "channels", ir.DataType.FLOAT, perm=back)
    x.shape = out.shape
    ir.convenience.replace_all_uses_with(out, x)
    graph.remove(node, safe=True)
    return True


def _weight(node: ir.Node | None) -> tuple[Array | None, Array | None]:
    """int8 taps and each output channel's step behind a DequantizeLinear of a constant; None where it is not one."""
    if node is None or len(node.inputs) < 2:
        return None, None
    taps, scale = constant(node.inputs[0]), constant(node.inputs[1])
    zero = constant(node.inputs[2]) if len(node.inputs) > 2 else None
    if taps is None or scale is None or taps.dtype != np.int8 or taps.ndim < 3 or (zero is not None and zero.any()):
        return None, None
    if scale.size != 1 and (attribute(node, "axis", 1) % taps.ndim or scale.shape != taps.shape[:1]):
        return None, None
    return taps, np.broadcast_to(scale.reshape(-1).astype(np.float32), taps.shape[:1])


def _bias(node: ir.Node) -> Array | None:
    """The bias in real numbers, empty if there is none; None if it is not a constant."""
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None:
        return np.zeros(0, np.float32)
    maker = value.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        return constant(value)
    integers, scale = constant(maker.inputs[0]), constant(maker.inputs[1])
    zero = constant(maker.inputs[2]) if len(maker.inputs) > 2 else None
    if integers is None or scale is None or (zero is not None and zero.any()):
        return None
    return integers.astype(np.float32) * scale


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
