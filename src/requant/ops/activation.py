"""Activations: Activation, LeakyReLU and their kin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from requant.attrs import Attrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, op, same_shape


@dataclass(frozen=True)
class ActivationAttrs(Attrs):
    act_type: Literal["relu", "sigmoid", "tanh", "softrelu", "softsign", "log_sigmoid", "mish"]


@op(
    "Activation",
    "_npx_activation",
    param_shapes=same_shape,
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_act",
)
def activation(g: Emit, a: ActivationAttrs, data: Value) -> Value:
    """relu, sigmoid, tanh, softrelu (log(1 + e^x)), softsign (x / (1 + |x|)); any shape, any float dtype."""
    match a.act_type:
        case "log_sigmoid":
            return g("Neg", g("Softplus", g("Neg", data)))
        case "mish":
            return g("Mish", data)
        case other:
            kinds = {
                "relu": "Relu",
                "sigmoid": "Sigmoid",
                "tanh": "Tanh",
                "softrelu": "Softplus",
                "softsign": "Softsign",
            }
            return g(kinds[other], data)
