"""Fold batch normalization at inference into the linear operator before it, or into the one after it.

``BatchNormalization(y) = gamma × (y − mean) / sqrt(var + epsilon) + beta`` is a scale and a shift a channel
(Ioffe and Szegedy 2015; folding: Jacob et al. 2018, section 3.2).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant.passes import affine
from requant.passes.rewrite import (
    Array,
    NodePass,
    absorb,
    attribute,
    bypass,
    can_bypass,
    constant,
    ints,
    is_default,
    maker,
    rank,
    replace_constant,
    sole_user,
)


def scale_and_shift(node: ir.Node) -> tuple[Array, Array] | None:
    """The scale and shift of a batch normalization, float64 (channels,); None if it is in training mode."""
    if attribute(node, "training_mode", 0) or len(node.inputs) < 5 or any(o.uses() for o in node.outputs[1:]):
        return None
    parts = [constant(v) for v in node.inputs[1:5]]
    if any(p is None or p.ndim != 1 or p.shape != parts[1].shape for p in parts):  # type: ignore[union-attr]
        return None
    gamma, beta, mean, var = (np.asarray(p, np.float64) for p in parts)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = gamma / np.sqrt(var + float(attribute(node, "epsilon", 1e-5)))
        shift = beta - mean * scale
    return (scale, shift) if np.isfinite(scale).all() and np.isfinite(shift).all() else None


class FoldBatchNorm(NodePass):
    """Conv, ConvTranspose or Gemm → BatchNormalization becomes one operator; so does BatchNormalization → Conv or Gemm
    where no zero padding comes between the two.
    """

    op_types = frozenset({"BatchNormalization"})

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Fold one batch normalization."""
        parts = scale_and_shift(node)
        if parts is None:
            return False
        return self._backward(graph, node, *parts) or self._forward(graph, node, *parts)

    def _backward(self, graph: ir.Graph, node: ir.Node, scale: Array, shift: Array) -> bool:
        before = maker(node.inputs[0], "Conv", "ConvTranspose", "Gemm")
        if before is None or before.graph is not graph or affine.channels(before) != scale.size:
            return False
        if not can_bypass(node, before.outputs[0]) or not affine.fold(graph, before, scale, shift):
            return False
        absorb(before, node)
        bypass(node, before.outputs[0])
        return True

    def _forward(self, graph: ir.Graph, node: ir.Node, scale: Array, shift: Array) -> bool:
        after = sole_user(node.outputs[0])
        if after is None or after.graph is not graph or after.inputs[0] is not node.outputs[0]:
            return False
        if after.op_type not in ("Conv", "Gemm") or not is_default(after):
            return False
        count = affine.channels(after)
        weight = constant(after.inputs[1])
        if count is None or weight is None or node.inputs[0] is None:
            return False
        bias = affine.bias_of(after, count)
        if bias is None or (after.op_type == "Conv" and _pads(after, weight) and np.any(shift != 0)):
            return False
        wide = weight.astype(np.float64)
        if after.op_type == "Conv":
            groups = int(attribute(after, "group", 1))
            if scale.size != weight.shape[1] * groups or count % groups:
                return False
            spread = (-1, weight.shape[1], *[1] * (weight.ndim - 2))
            by_group = [
                np.repeat(v.reshape(groups, -1), count // groups, axis=0).reshape(spread) for v in (scale, shift)
            ]
            new_weight, added = wide * by_group[0], (wide * by_group[1]).sum(axis=tuple(range(1, weight.ndim)))
        else:
            if attribute(after, "transA", 0) or rank(node.inputs[0]) != 2:
                return False
            rows = bool(attribute(after, "transB", 0))
            if scale.size != weight.shape[1 if rows else 0]:
                return False
            spread = (1, -1) if rows else (-1, 1)
            new_weight = wide * scale.reshape(spread)
            added = (wide * shift.reshape(spread)).sum(axis=1 if rows else 0) * float(attribute(after, "alpha", 1.0))
        replace_constant(graph, after, 1, new_weight.astype(weight.dtype))
        if np.any(added != 0):
            assert after.inputs[1] is not None
            replace_constant(graph, after, 2, (bias + added).astype(weight.dtype), f"{after.inputs[1].name}_bias")
            if after.op_type == "Gemm":
                after.attributes["beta"] = ir.AttrFloat32("beta", 1.0)
        absorb(after, node)
        bypass(node, node.inputs[0])
        return True


def _pads(node: ir.Node, weight: Array) -> bool:
    """The convolution pads its input (or may: SAME)."""
    mode = attribute(node, "auto_pad", "NOTSET")
    if mode.startswith("SAME"):
        return any(k != 1 for k in weight.shape[2:])
    return mode != "VALID" and any(ints(node, "pads") or [])
