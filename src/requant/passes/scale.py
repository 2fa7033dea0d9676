"""Fold multiplications and additions of constants into the linear operator before them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from requant.passes import affine
from requant.passes.rewrite import Array, NodePass, absorb, bypass, can_bypass, constant, is_float, maker


class FoldScale(NodePass):
    """``Conv(x) × c``, ``Conv(x) + c``, ``c − Conv(x)``, ``Conv(x) / c`` with a constant c per channel."""

    op_types = frozenset({"Mul", "Add", "Sub", "Div"})

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Fold one multiplication or addition."""
        sides = [constant(v) for v in node.inputs]
        if len(sides) != 2 or (sides[0] is None) == (sides[1] is None):
            return False
        at = 0 if sides[1] is None else 1  # where the constant is
        number = sides[at]
        before = maker(node.inputs[1 - at], *affine.LINEAR)
        if before is None or before.graph is not graph or number is None or not is_float(number):
            return False
        vector = affine.per_channel(number.astype(np.float64), before)
        parts = None if vector is None else _scale_and_shift(node.op_type, vector, constant_first=at == 0)
        if parts is None or not can_bypass(node, before.outputs[0]):
            return False
        if not affine.fold(graph, before, *parts):
            return False
        absorb(before, node)
        bypass(node, before.outputs[0])
        return True


def _scale_and_shift(op_type: str, c: Array, *, constant_first: bool) -> tuple[Array, Array] | None:
    one, zero = np.ones(1), np.zeros(1)
    if op_type == "Mul":
        return c, zero
    if op_type == "Add":
        return one, c
    if op_type == "Sub":
        return (-one, c) if constant_first else (one, -c)
    if constant_first or not np.all(c):
        return None
    return 1.0 / c, zero
