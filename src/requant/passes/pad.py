"""Fold a Pad node into the operator that reads it."""

from __future__ import annotations

import onnx_ir as ir

from requant.passes.rewrite import (
    NodePass,
    absorb,
    attribute,
    bypass,
    can_bypass,
    int_list,
    ints,
    is_default,
    rank,
    scalar,
    sole_user,
)


class FoldPad(NodePass):
    """Zero padding before Conv, or before an AveragePool that counts its padding, becomes that operator's own."""

    op_types = frozenset({"Pad"})

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Fold one Pad."""
        user = sole_user(node.outputs[0])
        size, pads = rank(node.inputs[0]), spatial_pads(node)
        if user is None or size is None or pads is None or user.graph is not graph or not is_default(user):
            return False
        if user.inputs[0] is not node.outputs[0] or user.op_type not in ("Conv", "AveragePool"):
            return False
        if attribute(user, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            return False
        if user.op_type == "AveragePool":
            own = any(ints(user, "pads") or [])
            # ceil_mode rounds the padded size, and windows that start in the added padding are dropped: not the same.
            if attribute(user, "ceil_mode", 0) or (own and not attribute(user, "count_include_pad", 0)):
                return False
        source = node.inputs[0]
        if source is None or not can_bypass(node, source):
            return False
        own_pads = ints(user, "pads") or [0] * (2 * (size - 2))
        if attribute(user, "auto_pad", "NOTSET") == "VALID":
            own_pads = [0] * (2 * (size - 2))
        user.attributes.pop("auto_pad", None)
        user.attributes["pads"] = ir.AttrInt64s("pads", [a + b for a, b in zip(own_pads, pads)])
        if user.op_type == "AveragePool":
            user.attributes["count_include_pad"] = ir.AttrInt64("count_include_pad", 1)
        absorb(user, node)
        bypass(node, source)
        return True


def spatial_pads(node: ir.Node) -> list[int] | None:
    """The pads of the spatial axes, begins then ends; None unless only those are padded, with zeros."""
    if attribute(node, "mode", "constant") != "constant":
        return None
    size = rank(node.inputs[0])
    pads = int_list(node.inputs[1]) if len(node.inputs) > 1 else None
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if pads is None or size is None or (value is not None and scalar(value) != 0):
        return None
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        axes = int_list(node.inputs[3])
        if axes is None or len(pads) != 2 * len(axes):
            return None
        pads = _whole(pads, [a % size for a in axes], size)
    if size < 3 or len(pads) != 2 * size or min(pads) < 0:
        return None
    if any(pads[:2]) or any(pads[size : size + 2]):
        return None
    return pads[2:size] + pads[size + 2 :]


def _whole(pads: list[int], axes: list[int], size: int) -> list[int]:
    out = [0] * (2 * size)
    for i, axis in enumerate(axes):
        out[axis], out[size + axis] = pads[i], pads[len(axes) + i]
    return out
