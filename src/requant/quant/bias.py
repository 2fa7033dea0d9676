"""Fast bias correction: take back what rounding the weights adds to the mean of each output channel.

A rounded weight is wrong by a constant, so over data with mean E[x] the output is wrong by (W' − W) E[x] on average.
Later layers see that as a shift, not as noise, and it is the larger part of the damage in depthwise networks. One
number a channel of the input, its mean over calibration data, is enough to subtract it from the bias (Nagel et al.
2019, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import Array, attribute, ints
from requant.quant.plan import Plan


def mean_axes(model: ir.Model, plan: Plan) -> dict[str, int]:
    """Which tensors' channel means bias correction needs, and the axis their channels lie on.

    The mean of a channel is taken over all other axes and all samples.

    Args:
        model: the optimized model that was planned.
        plan: its plan.
    """
    nodes = {str(n.name): n for n in model.graph}
    wanted: dict[str, int] = {}
    for decision in plan.decisions:
        node = nodes.get(decision.node)
        if decision.chosen != "int8" or decision.weight != 1 or node is None or node.inputs[0] is None:
            continue
        axis = _input_axis(node)
        name = str(_unflattened(node.inputs[0]).name)
        if axis is not None and wanted.setdefault(name, axis) != axis:
            del wanted[name]  # read with different layouts: left uncorrected
    return wanted


def _input_axis(node: ir.Node) -> int | None:
    if node.op_type in ("Conv", "ConvTranspose"):
        return 1
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transA", 0) else 1
    return -1 if node.op_type == "MatMul" else None


def mean_of(node: ir.Node, means: Mapping[str, Array] | None) -> Array | None:
    """The channel means of the input of a compute node, if they were taken."""
    value = node.inputs[0]
    if means is None or value is None:
        return None
    return means.get(str(_unflattened(value).name))


def _unflattened(value: ir.Value) -> ir.Value:
    """The tensor (N, C, 1, 1) behind its flat form (N, C): equal channel means, and it is observed anyway."""
    node = value.producer()
    if node is None or node.op_type not in ("Flatten", "Reshape", "Squeeze") or node.inputs[0] is None:
        return value
    before, after = node.inputs[0].shape, value.shape
    if before is None or after is None or before.rank() < 3 or after.rank() != 2 or before[1] != after[1]:
        return value
    return node.inputs[0] if isinstance(after[1], int) and all(d == 1 for d in list(before)[2:]) else value


def shift(node: ir.Node, weight: Array, rounded: Array, mean: Array) -> Array | None:
    """What rounding the weight adds to the mean of each output channel.

    Args:
        node: Conv, ConvTranspose, Gemm or MatMul, with the weight as its second input.
        weight, rounded: float weight before and after quantization.
        mean: mean of each input channel, shape (channels,).

    Returns:
        float64 of shape (output channels,), or None if the mean does not fit the weight. At the borders of a padded
        convolution the true shift is smaller; there it is overestimated.
    """
    delta = rounded.astype(np.float64) - weight.astype(np.float64)
    mean = np.asarray(mean, np.float64).reshape(-1)
    groups = int(attribute(node, "group", 1))
    if node.op_type == "Conv":
        taps = delta.reshape(*delta.shape[:2], -1).sum(axis=2)
        if mean.size != taps.shape[1] * groups or taps.shape[0] % groups:
            return None
        by_group = np.repeat(mean.reshape(groups, -1), taps.shape[0] // groups, axis=0)
        return np.asarray((taps * by_group).sum(axis=1))
    if node.op_type == "ConvTranspose":
        if mean.size != delta.shape[0] or mean.size % groups:
            return None
        taps = delta.reshape(*delta.shape[:2], -1).sum(axis=2)
        # Each output position sees one in prod(strides) of the taps.
        share = 1.0 / max(1, math.prod(ints(node, "strides") or [1]))
        parts = (taps * mean[:, None]).reshape(groups, -1, taps.shape[1]).sum(axis=1)
        return np.asarray(parts.reshape(-1) * share)
    if delta.ndim != 2:
        return None
    matrix = delta.T if node.op_type == "Gemm" and attribute(node, "transB", 0) else delta
    return np.asarray(mean @ matrix) if matrix.shape[0] == mean.size else None
