"""Scale and shift the output channels of a linear operator by changing its weights: y → y × scale + shift.

What batch normalization at inference is, and multiplications and additions of constants; no pass of its own.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import Array, attribute, constant, is_float, rank, replace_constant

#: Operators whose output channels can be scaled in their weights.
LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def channel_axis(node: ir.Node) -> int | None:
    """The axis of the output that the weight's output channels lie on: 1 for convolutions and Gemm, -1 for MatMul."""
    return -1 if node.op_type == "MatMul" else 1


def channels(node: ir.Node) -> int | None:
    """The number of output channels, or None if the weight is not a constant that fits the operator."""
    weight = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if weight is None or not is_float(weight):
        return None
    if node.op_type == "Conv" and weight.ndim >= 3:
        return int(weight.shape[0])
    if node.op_type == "ConvTranspose" and weight.ndim >= 3:
        return int(weight.shape[1]) * int(attribute(node, "group", 1))
    if node.op_type == "Gemm" and weight.ndim == 2:
        return int(weight.shape[0 if attribute(node, "transB", 0) else 1])
    if node.op_type == "MatMul" and weight.ndim == 2:
        return int(weight.shape[1])
    return None


def bias_of(node: ir.Node, count: int) -> Array | None:
    """The bias as a float64 vector of ``count``, zeros if there is none; None if it is not a constant per channel."""
    if node.op_type == "MatMul" or len(node.inputs) < 3 or node.inputs[2] is None:
        return np.zeros(count)
    bias = constant(node.inputs[2])
    if bias is None or not is_float(bias) or any(d != 1 for d in bias.shape[:-1]):
        return None
    if bias.size not in (1, count):
        return None
    bias = bias.astype(np.float64).reshape(-1)
    beta = float(attribute(node, "beta", 1.0)) if node.op_type == "Gemm" else 1.0
    return np.broadcast_to(bias, (count,)) * beta


def _scaled(node: ir.Node, weight: Array, scale: Array) -> Array:
    wide = weight.astype(np.float64)
    if node.op_type == "Conv":
        return wide * scale.reshape(-1, *[1] * (weight.ndim - 1))
    if node.op_type == "ConvTranspose":
        groups = int(attribute(node, "group", 1))
        split = wide.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
        return (split * scale.reshape(groups, 1, -1, *[1] * (weight.ndim - 2))).reshape(weight.shape)
    return wide * (scale[:, None] if node.op_type == "Gemm" and attribute(node, "transB", 0) else scale[None, :])


def can_fold(node: ir.Node, *, shift: bool) -> bool:
    """Whether scale (and shift) can go into the weights of ``node``."""
    count = channels(node)
    if count is None or (shift and node.op_type == "MatMul"):
        return False
    if node.op_type == "ConvTranspose":
        weight = constant(node.inputs[1])
        groups = int(attribute(node, "group", 1))
        if weight is None or groups < 1 or weight.shape[0] % groups:
            return False
    return bias_of(node, count) is not None


def fold(graph: ir.Graph, node: ir.Node, scale: Array, shift: Array) -> bool:
    """Multiply the output channels of ``node`` by ``scale`` and add ``shift``, in its weights. Computed in float64.

    Args:
        scale, shift: shape (channels,) or (1,).

    Returns:
        False, and nothing is done, if the weights do not allow it or would not be finite.
    """
    shifts = bool(np.any(shift != 0))
    count = channels(node)
    if count is None or not can_fold(node, shift=shifts):
        return False
    if scale.size not in (1, count) or shift.size not in (1, count):
        return False
    weight, bias = constant(node.inputs[1]), bias_of(node, count)
    assert weight is not None and bias is not None
    wide_scale = np.broadcast_to(scale.astype(np.float64).reshape(-1), (count,))
    wide_shift = np.broadcast_to(shift.astype(np.float64).reshape(-1), (count,))
    with np.errstate(over="ignore", invalid="ignore"):
        new_weight = _scaled(node, weight, wide_scale).astype(weight.dtype)
        new_bias = (bias * wide_scale + wide_shift).astype(weight.dtype)
    if not (np.isfinite(new_weight.astype(np.float32)).all() and np.isfinite(new_bias.astype(np.float32)).all()):
        return False
    replace_constant(graph, node, 1, new_weight)
    had_bias = len(node.inputs) > 2 and node.inputs[2] is not None
    if node.op_type != "MatMul" and (had_bias or np.any(new_bias != 0)):
        replace_constant(graph, node, 2, new_bias, f"{node.inputs[1].name}_bias" if node.inputs[1] else None)
        if node.op_type == "Gemm":
            node.attributes["beta"] = ir.AttrFloat32("beta", 1.0)
    return True


def per_channel(array: Array, node: ir.Node) -> Array | None:
    """A constant that is broadcast against the output of ``node``, as a vector over its channels.

    Returns:
        Shape (channels,) or (1,), or None if the constant varies along another axis or its rank is not known to fit.
    """
    count = channels(node)
    if array.size == 1 and array.ndim <= (rank(node.outputs[0]) or 0):
        return array.reshape(1)
    out_rank = rank(node.outputs[0]) or rank(node.inputs[0])
    if count is None or out_rank is None or array.ndim > out_rank:
        return None
    axis = channel_axis(node)
    assert axis is not None
    full = (1,) * (out_rank - array.ndim) + array.shape
    axis %= out_rank
    if full[axis] != count or any(d != 1 for i, d in enumerate(full) if i != axis):
        return None
    return array.reshape(-1)
