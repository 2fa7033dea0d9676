"""Which nodes of a graph become INT8: the rule of each mode. Which tensors follow from that is the planner's."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from requant.passes.rewrite import is_default
from requant.quant import flow
from requant.quant.plan import Mode
from requant.quant.roles import JOINING, Role, role_of
from requant.quant.stem import cheap_stems
from requant.scheme import Scheme

#: What an image may go through and still be one.
_PREPARING = frozenset({"Pad", "Mul", "Add", "Sub", "Div", "BatchNormalization"})


class Selection:
    """The nodes that a mode makes INT8 in one graph.

    Attributes:
        nodes: of the graph, in order.
        roles: what each can be.
        excluded: those that the caller leaves in float, with the reason.
        int8: those that compute on integers.
        stems: those that read an image and stay in float on purpose.
    """

    def __init__(self, graph: ir.Graph, mode: Mode, scheme: Scheme, excluded: Mapping[ir.Node, str]) -> None:
        self.mode, self.scheme, self.excluded = mode, scheme, excluded
        self.nodes = list(graph)
        self.roles = {n: role_of(n, scheme) for n in self.nodes}
        self.stems: set[ir.Node] = set()
        self.int8 = self._pick()

    def why(self, node: ir.Node) -> str:
        """Why a node is among them, or is not."""
        if node in self.excluded:
            return self.excluded[node]
        role = self.roles[node]
        return role.why if node in self.int8 else self._refusal(node, role)

    def _pick(self) -> set[ir.Node]:
        able = {n for n in self.nodes if n not in self.excluded and self.roles[n].kind in ("compute", "support")}
        compute = {n for n in able if self.roles[n].kind == "compute"}
        if self.mode == "full":
            return able
        if self.mode == "smart":
            chain = {n for n in self.nodes if n not in self.excluded and _mxnet_support(n)}
            return flow.smart(self.nodes, compute.__contains__, chain.__contains__) & able
        self.stems = cheap_stems(self.nodes, compute, self._carries_input, self.scheme.float_stem)
        if self.stems != compute:
            compute -= self.stems
        return compute | self._worthwhile(able - compute - self.stems, compute)

    def _carries_input(self, node: ir.Node) -> bool:
        return self.roles[node].kind in ("through", "fused") or node.op_type in _PREPARING

    def _worthwhile(self, support: set[ir.Node], compute: set[ir.Node]) -> set[ir.Node]:
        """Support nodes between compute nodes; what carries a chain on costs nothing in int8 or is fused anyway."""
        links = {n for n in self.nodes if n not in self.excluded and (n in support or self._carries(n))}
        down = flow.reached(self.nodes, compute.__contains__, links.__contains__, forward=True)
        up = flow.reached(self.nodes, compute.__contains__, links.__contains__, forward=False)
        pools = {n for n in support if n.op_type not in JOINING and n.op_type != "Concat"}
        # A pooling that only feeds float still reads a quarter of the bytes.
        picked = {n for n in support if n in down and (n in up or n in pools)}
        # A sum that float nodes read as well is a stream that everything after depends on: it stays precise.
        while streams := {n for n in picked if n.op_type in JOINING and self._read_as_float(n, compute | picked)}:
            picked -= streams
        # One scale for all branches of a concatenation is worth it only where the result is read as int8.
        able = compute | picked
        direct = flow.reached(self.nodes, able.__contains__, self._moves, forward=False)
        return {n for n in picked if n.op_type != "Concat" or n in direct}

    def _read_as_float(self, node: ir.Node, int8: set[ir.Node]) -> bool:
        """Some reader of a node, behind what is fused or only moves values, would not read int8."""
        seen, stack = {node}, [node]
        while stack:
            current = stack.pop()
            if any(out.is_graph_output() for out in current.outputs):
                return True
            for reader in flow.after(current):
                if reader in int8 or reader in seen:
                    continue
                if reader in self.excluded or not self._carries(reader):
                    return True
                seen.add(reader)
                stack.append(reader)
        return False

    def _moves(self, node: ir.Node) -> bool:
        return node not in self.excluded and self.roles[node].kind == "through"

    def _carries(self, node: ir.Node) -> bool:
        return self.roles[node].kind in ("through", "fused")

    def _refusal(self, node: ir.Node, role: Role) -> str:
        if role.kind == "float":
            return role.why
        if node in self.stems:
            return "it reads an image and is a small part of all products: int8 would gain little and add most noise"
        if role.kind in ("compute", "support"):
            rule = "MXNet's smart rule" if self.mode == "smart" else "mode best"
            return f"no chain of int8 nodes leads through it ({rule})"
        if role.kind == "fused":
            return "element-wise, behind no int8 node"
        return "no int8 tensor comes to it"


def _mxnet_support(node: ir.Node) -> bool:
    if node.op_type not in flow.SUPPORT or not is_default(node):
        return False
    if node.op_type == "Concat":
        axis = node.attributes.get("axis")
        return axis is not None and axis.as_int() > 0
    return True
