"""Activations: Activation, LeakyReLU and their kin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs
from requant.errors import ShapeError, UnsupportedError
from requant.ops.elementwise import NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, op, same_shape


@dataclass(frozen=True)
class ActivationAttrs(Attrs):
    act_type: Literal["relu", "sigmoid", "tanh", "softrelu", "softsign", "log_sigmoid", "mish"]


def _relu(g: Emit, data: Value) -> Value:
    dtype = g.dtype(data)
    if dtype.kind == "u":
        return data
    return g("Max", data, 0) if dtype in (np.int64, np.int16) else g("Relu", data)


def _log_sigmoid(g: Emit, data: Value) -> Value:
    return g("Neg", g.in_float32("Softplus", g("Neg", data)))


@op(
    "Activation",
    "_npx_activation",
    param_shapes=same_shape,
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_act",
)
def activation(g: Emit, a: ActivationAttrs, data: Value) -> Value:
    """relu, sigmoid, tanh, softrelu (log(1 + e^x)), softsign (x / (1 + |x|)); any shape, any float dtype.

    log_sigmoid and mish are those of MXNet 2.0.
    """
    match a.act_type:
        case "relu":
            return _relu(g, data)
        case "log_sigmoid":
            return _log_sigmoid(g, data)
        case other:
            kinds = {
                "sigmoid": "Sigmoid",
                "tanh": "Tanh",
                "softrelu": "Softplus",
                "softsign": "Softsign",
                "mish": "Mish",
            }
            return g.in_float32(kinds[other], data)


@op("relu", "_npx_relu", param_shapes=same_shape)
def relu(g: Emit, a: NoAttrs, data: Value) -> Value:
    """``max(x, 0)``; any shape, any dtype."""
    return _relu(g, data)


@op("sigmoid", "_npx_sigmoid", param_shapes=same_shape)
def sigmoid(g: Emit, a: NoAttrs, data: Value) -> Value:
    """``1 / (1 + e^-x)``."""
    return g.in_float32("Sigmoid", data)


@op("softsign", "_npx_softsign", param_shapes=same_shape)
def softsign(g: Emit, a: NoAttrs, data: Value) -> Value:
    """``x / (1 + |x|)``."""
    return g.in_float32("Softsign", data)


@op("log_sigmoid", "_npx_log_sigmoid", param_shapes=same_shape)
def log_sigmoid(g: Emit, a: NoAttrs, data: Value) -> Value:
    """``log(1 / (1 + e^-x))`` (MXNet 2.0)."""
    return _log_sigmoid(g, data)


@op("mish", "_npx_mish", param_shapes=same_shape)
def mish(g: Emit, a: NoAttrs, data: Value) -> Value:
    """``x tanh(log(1 + e^x))`` (MXNet 2.0; Misra, 2019)."""
    return g.in_float32("Mish", data)


@dataclass(frozen=True)
class HardSigmoidAttrs(Attrs):
    alpha: float = 0.2
    beta: float = 0.5


@op("hard_sigmoid", "_npx_hard_sigmoid", param_shapes=same_shape)
def hard_sigmoid(g: Emit, a: HardSigmoidAttrs, data: Value) -> Value:
    """``max(0, min(1, alpha x + beta))``."""
    return g.in_float32("HardSigmoid", data, alpha=a.alpha, beta=a.beta)


@dataclass(frozen=True)
class LeakyReLUAttrs(Attrs):
    act_type: Literal["leaky", "prelu", "elu", "selu", "gelu", "gelu_erf", "gelu_tanh", "rrelu"] = "leaky"
    slope: float = 0.25
    lower_bound: float = 0.125
    upper_bound: float = 0.334


def _leaky_inputs(a: LeakyReLUAttrs) -> tuple[str, ...]:
    return ("data", "gamma") if a.act_type == "prelu" else ("data",)


def _leaky_outputs(a: LeakyReLUAttrs) -> tuple[str, ...]:
    return ("output", "mask") if a.act_type == "rrelu" else ("output",)


def _leaky_shapes(a: LeakyReLUAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    if data is None:
        return {}
    out = {"data": data}
    channels = data[1] if len(data) > 1 else data[0]
    if a.act_type == "prelu" and shapes["gamma"] is None and channels:
        out["gamma"] = (channels,)
    return out


@op(
    "LeakyReLU",
    "_npx_leaky_relu",
    inputs=_leaky_inputs,
    outputs=_leaky_outputs,
    named_outputs=True,
    param_shapes=_leaky_shapes,
    default_init={"gamma": '["Constant", {"value": 0.25}]'},
    by_mode=True,
)
def leaky_relu(g: Emit, a: LeakyReLUAttrs, data: Value, gamma: Value | None = None) -> Value | tuple[Value, ...]:
    """Rectifiers that let negative numbers through.

    leaky (slope x), prelu (gamma x; gamma (1,) or (C,)), elu (slope (e^x - 1)), selu, gelu (by the error function;
    gelu_tanh by its approximation, MXNet 2.0), rrelu (at inference the mean of both bounds is the slope, which is also
    what ``mask`` holds).
    """
    match a.act_type:
        case "leaky":
            return g.in_float32("LeakyRelu", data, alpha=a.slope)
        case "prelu":
            assert gamma is not None
            return g.in_float32("PRelu", data, _slopes(g, data, gamma))
        case "elu":
            return g.in_float32("Elu", data, alpha=a.slope)
        case "selu":
            return g.in_float32("Selu", data)
        case "rrelu":
            if g.training:
                raise UnsupportedError(
                    "rrelu in training mode is random", where=g.node, next="leave train_mode(), or use act_type='leaky'"
                )
            slope = (a.lower_bound + a.upper_bound) / 2
            mask = g("Expand", g.const(slope, data), g.size_of(data))
            return g.in_float32("LeakyRelu", data, alpha=slope), mask
        case kind:
            return g.in_float32("Gelu", data, approximate="tanh" if kind == "gelu_tanh" else "none")


def _slopes(g: Emit, data: Value, gamma: Value) -> Value:
    """PReLU's gamma, one number or one per channel, such that it broadcasts to data."""
    if g.rank(gamma) != 1:
        raise ShapeError(
            "the slopes of a PReLU are a vector", where=g.node, got=f"rank {g.rank(gamma)}", expected="(1,) or (C,)"
        )
    if g.rank(data) <= 2 or g.dims(gamma) == (1,):
        return gamma
    return g.per_channel(gamma, g.rank(data) - 1, 0)
