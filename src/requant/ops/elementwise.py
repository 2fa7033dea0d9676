"""Element-wise operators: unary, with a scalar, of two tensors (equal shapes or broadcast)."""

from __future__ import annotations

from dataclasses import dataclass

from requant.attrs import Attrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, op, same_shape


@dataclass(frozen=True)
class NoAttrs(Attrs):
    """An operator without attributes."""


@dataclass(frozen=True)
class ClipAttrs(Attrs):
    a_min: float
    a_max: float


@op("clip", param_shapes=same_shape)
def clip(g: Emit, a: ClipAttrs, data: Value) -> Value:
    """Limit to [a_min, a_max]."""
    return g("Clip", data, a.a_min, a.a_max)


@op(
    "elemwise_add",
    "_plus",
    "_Plus",
    "_add",
    inputs=("lhs", "rhs"),
    param_shapes=same_shape,
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_elemwise_add",
)
def elemwise_add(g: Emit, a: NoAttrs, lhs: Value, rhs: Value) -> Value:
    """lhs + rhs, of equal shapes."""
    return g("Add", lhs, rhs)
