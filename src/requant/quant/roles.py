"""What part each node of an ONNX graph can play in an INT8 model, whatever is decided later.

A *role* is a fact about a node and a `Scheme`: it multiplies and accumulates (compute), it has an integer form worth
having beside those (support), it moves values (through), it is computed inside the kernel before it (fused), or it
stays float, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import attribute, constant, is_default, rank
from requant.scheme import Scheme

Kind = Literal["compute", "support", "through", "fused", "float"]

#: Through operators whose output may lie in a much smaller range than their input: they select.
SELECTING = frozenset({"Slice", "Split", "Gather"})
#: Element-wise operators that join two tensors: quantizing one side only gains nothing.
JOINING = frozenset({"Add", "Mul", "Sub", "Div"})


@dataclass(frozen=True)
class Role:
    """What a node can be.

    Attributes:
        kind: see the module.
        why: for ``float`` the reason, else what makes it so.
        data: indices of the inputs that carry activations.
        weight: index of the constant weight, or None.
        bias: index of the constant bias, or None.
    """

    kind: Kind
    why: str
    data: tuple[int, ...] = ()
    weight: int | None = None
    bias: int | None = None


def is_activation(value: ir.Value | None) -> bool:
    """The value is computed or fed, not a constant."""
    return value is not None and constant(value) is None and value.const_value is None


def is_float32(value: ir.Value | None) -> bool:
    """The value is float32 (or of a type that nothing in the graph tells)."""
    return value is not None and value.dtype in (None, ir.DataType.FLOAT)


def role_of(node: ir.Node, scheme: Scheme) -> Role:
    """The role of a node under a scheme."""
    if not is_default(node):
        return Role("float", f"{node.domain}::{node.op_type} is not an operator of ONNX")
    if not all(is_float32(out) for out in node.outputs[:1]):
        return Role("float", "its output is not float32")
    op = node.op_type
    if op in scheme.compute:
        return _compute(node)
    if op in scheme.support:
        return _support(node)
    if op in scheme.through:
        if not node.inputs or not is_activation(node.inputs[0]):
            return Role("float", "its data is constant")
        return Role("through", "moves values and keeps them", (0,))
    if op in scheme.fused:
        return Role("fused", "element-wise", (0,))
    return Role("float", f"{op} has no int8 form in scheme {scheme.name!r}")


def _compute(node: ir.Node) -> Role:
    left, right = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    if left is None or right is None or not is_float32(left) or not is_float32(right):
        return Role("float", "its inputs are not float32")
    bias = _bias_index(node)
    weight = constant(right)
    if weight is not None:
        if weight.size == 0:
            return Role("float", "its weight is empty")
        if not is_activation(left):
            return Role("float", "both inputs are constants")
        if node.op_type == "MatMul" and weight.ndim < 2:
            return Role("float", "a product with a vector")
        return Role("compute", f"{node.op_type} with a constant weight", (0,), 1, bias)
    if node.op_type in ("Conv", "ConvTranspose"):
        return Role("float", "its weight is computed, not constant")
    if constant(left) is not None:
        return Role("compute", f"{node.op_type} with a constant weight on the left", (1,), 0, None)
    for value in (left, right):
        if (rank(value) or 2) < 2:
            return Role("float", "a product with a vector")
    return Role("compute", f"{node.op_type} of two activations", (0, 1), None, bias)


def _bias_index(node: ir.Node) -> int | None:
    if node.op_type == "MatMul" or len(node.inputs) < 3 or node.inputs[2] is None:
        return None
    bias = constant(node.inputs[2])
    if bias is None or bias.dtype != np.float32:
        return None
    if node.op_type == "Gemm" and (
        float(attribute(node, "alpha", 1.0)) != 1.0 or float(attribute(node, "beta", 1.0)) != 1.0
    ):
        return None
    return 2


def _support(node: ir.Node) -> Role:
    if node.op_type == "Concat":
        data = tuple(i for i, v in enumerate(node.inputs) if is_activation(v))
        if len(data) != len(node.inputs):
            return Role("float", "joins constants")
        return Role("support", "joins branches at one scale", data)
    if node.op_type in JOINING:
        if not all(is_activation(v) for v in node.inputs):
            return Role(
                "fused", "element-wise with a constant", tuple(i for i, v in enumerate(node.inputs) if is_activation(v))
            )
        return Role("support", "joins two activations", (0, 1))
    if not is_activation(node.inputs[0]):
        return Role("float", "its data is constant")
    if node.op_type == "ReduceMean" and rank(node.inputs[0]) not in (3, 4, 5):
        return Role("float", "not a pooling over spatial axes")
    return Role("support", "pools an int8 tensor", (0,))
