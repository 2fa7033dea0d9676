"""Quantize the constants of compute nodes: int8 weights, int32 biases."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant import qmath
from requant.errors import QuantizationError
from requant.passes.rewrite import Array, attribute
from requant.qmath import QuantParams

#: A bias may take this many of the accumulator's 2^31 - 1 units; the rest is left for the products.
BIAS_LIMIT = 2**30


def channel_axis(node: ir.Node, weight: Array, index: int) -> int | None:
    """The axis of a weight that counts output channels, or None if it has none to itself.

    Conv: 0. ConvTranspose: 1 (with groups, each scale serves the same channel of every group). Gemm: 0 with transB,
    else 1. MatMul: the last axis of a right factor, the one before it of a left factor.
    """
    op = node.op_type
    if op == "Conv":
        return 0
    if op == "ConvTranspose":
        return 1
    if op == "Gemm":
        if index == 0:
            return 1 if attribute(node, "transA", 0) else 0
        return 0 if attribute(node, "transB", 0) else 1
    if op == "MatMul":
        return weight.ndim - (1 if index == 1 else 2)
    return None


def weight_params(node: ir.Node, weight: Array, index: int, *, per_channel: bool, reduced: bool) -> QuantParams:
    """Symmetric int8 parameters of the weight of a compute node.

    Raises:
        QuantizationError: NaN or Inf in it; the message names the node and channel.
    """
    axis = channel_axis(node, weight, index) if per_channel else None
    try:
        return qmath.weight_params(weight, axis, np.int8, reduced=reduced)
    except QuantizationError as fault:
        raise QuantizationError(
            fault.what,
            where=f"weight of {node.name} ({node.op_type}), {fault.where}",
            next="exclude this node, or repair the model",
        ) from fault


def room_for_bias(weight: Array, params: QuantParams, activation: QuantParams, bias: Array) -> QuantParams:
    """Weight parameters under which the bias fits into int32.

    A bias is stored in units of activation scale × weight scale. A channel with tiny weights (a dead one, mostly) and
    an ordinary bias would overflow that. Its weight scale then grows until the bias takes `BIAS_LIMIT` units. Nothing
    of that shows: each weight is wrong by half its scale at most, so the output by K × 255 × scale / 2, which for
    K = 5000 products is 6e-4 of the bias, where one int8 step of the output is 4e-3 of it or more.

    Where all weights are zero the scale is free, and is made as fine as the bias allows.

    Args:
        weight: float.
        params: of the weight; per channel or per tensor.
        bias: float, shape (channels,) of the output.
    """
    need = np.abs(bias.astype(np.float64)) / (float(activation.scale) * BIAS_LIMIT)
    if params.axis is None:
        need = np.asarray(need.max(initial=0.0))
    elif need.size != params.scale.size:  # grouped ConvTranspose: one scale for the same channel of every group
        need = need.reshape(-1, params.scale.size).max(axis=0)
    other = tuple(i for i in range(weight.ndim) if i != params.axis) if params.axis is not None else None
    dead = (np.abs(weight).max(axis=other, initial=0.0) == 0) & (need > 0)
    own = np.where(dead, np.float64(qmath.SMALLEST_SCALE), params.scale.astype(np.float64))
    scale = np.maximum(own, need).astype(np.float32)
    if np.array_equal(scale, params.scale):
        return params
    return QuantParams(scale, params.zero_point, params.dtype, params.axis, params.bounds)


def bias_params(activation: QuantParams, weight: QuantParams, channels: int) -> QuantParams:
    """int32 parameters of a bias, one scale for each of its ``channels``."""
    params = qmath.bias_params(activation, weight)
    if params.axis is None or params.scale.size == channels:
        return params
    scale = np.tile(params.scale, channels // params.scale.size)
    return QuantParams(scale, np.zeros(channels, np.int32), params.dtype, 0)
