"""Which int8 nodes of a plan belong together: what returns to float together costs the fewest conversions.

A *block* is a connected part of what a plan runs as integers, cut behind every node that joins branches (a residual
sum, a concatenation): between blocks there is one tensor to convert. Readers of one quantized tensor that float makes
share its conversion, so they are one block too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from requant.passes.rewrite import attribute, constant
from requant.quant import flow
from requant.quant.plan import Decision, Plan
from requant.quant.roles import JOINING, is_activation


@dataclass(frozen=True)
class Block:
    """Nodes that become int8, or float, together.

    Attributes:
        name: name of its last int8 node.
        nodes: names of its int8 nodes, in the graph's order.
    """

    name: str
    nodes: tuple[str, ...]


def blocks(model: ir.Model, plan: Plan) -> tuple[Block, ...]:
    """The blocks of a plan, in the graph's order. Every int8 node of the plan is in exactly one.

    Args:
        model: the model that was planned.
        plan: its plan.
    """
    chosen = {d.node: d.chosen for d in plan.decisions}
    nodes = list(model.graph)
    leader: dict[ir.Node, ir.Node] = {n: n for n in nodes if chosen.get(str(n.name), "float") != "float"}

    def find(node: ir.Node) -> ir.Node:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    ends = {n for n in leader if _joins(n)}
    for node in nodes:
        if node not in leader:
            readers = [r for out in node.outputs for r in _readers(out) if r in leader]
            for reader in readers[1:]:
                leader[find(reader)] = find(readers[0])
            continue
        for before in flow.before(node):
            if before not in leader:
                continue
            if before in ends:
                if chosen[str(node.name)] == "fused":  # it is computed inside the join, and the cut is behind it
                    ends.add(node)
                else:
                    continue
            leader[find(node)] = find(before)
    parts: dict[ir.Node, list[str]] = {}
    for node in nodes:
        if chosen.get(str(node.name)) == "int8":
            parts.setdefault(find(node), []).append(str(node.name))
    return tuple(Block(names[-1], tuple(names)) for names in parts.values())


def _joins(node: ir.Node) -> bool:
    joined = [v for v in node.inputs if is_activation(v)]
    return node.op_type in (*JOINING, "Concat") and len(joined) > 1


def _readers(value: ir.Value) -> Iterator[ir.Node]:
    for use in value.uses():
        yield use.node


def kinds(model: ir.Model, decisions: Sequence[Decision]) -> dict[str, tuple[str, ...]]:
    """Names of int8 nodes by what an engine has one kernel for, such as ``Conv 3x3 depthwise``."""
    nodes = {str(n.name): n for n in model.graph}
    found: dict[str, list[str]] = {}
    for decision in decisions:
        if decision.chosen == "int8":
            found.setdefault(_kind(nodes[decision.node]), []).append(decision.node)
    return {kind: tuple(names) for kind, names in found.items()}


def _kind(node: ir.Node) -> str:
    if node.op_type not in ("Conv", "ConvTranspose"):
        return node.op_type
    weight = constant(node.inputs[1])
    words = [node.op_type]
    if weight is not None:
        words.append("x".join(str(d) for d in weight.shape[2:]))
        group = int(attribute(node, "group", 1))
        if group > 1:
            words.append("depthwise" if weight.shape[1] == 1 else "grouped")
    if any(s > 1 for s in attribute(node, "strides", [])):
        words.append("strided")
    return " ".join(words)
