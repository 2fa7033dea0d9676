"""Which node of a plan the time of an engine's layer belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from requant.engines.session import LayerProfile
from requant.quant.plan import Plan

#: Engines' layers that stand between others and belong to none.
_CONVERSIONS = frozenset(
    {"Reorder", "ReorderInput", "ReorderOutput", "Transpose", "QuantizeLinear", "DequantizeLinear"}
)


def node_times(profile: Sequence[LayerProfile], model: ir.Model, plan: Plan) -> dict[str, float]:
    """Microseconds of each node of a plan that was executed, with all that is fused into it.

    Engines insert layers of their own, mostly conversions in front of a layer. Those have no node; their time goes to
    the node that is executed next.
    """
    owners = _owners(model, plan)
    found: dict[str, float] = {}
    waiting, last = 0.0, None
    for layer in profile:
        owner = owners.get(layer.name)
        if owner is None and layer.op not in _CONVERSIONS and "QuantizeLinear" not in layer.name:
            owner = owners.get(_beginning(layer.name, owners))
        if owner is None:
            waiting += layer.microseconds
            continue
        found[owner] = found.get(owner, 0.0) + layer.microseconds + waiting
        waiting, last = 0.0, owner
    if last is not None:
        found[last] += waiting
    return found


def _owners(model: ir.Model, plan: Plan) -> dict[str, str]:
    """The node that each name belongs to: of nodes, of what was fused into them, of what they make."""
    owners: dict[str, str] = {}
    decisions = {d.node: d for d in plan.decisions}
    for node in model.graph:  # in topological order
        name = str(node.name)
        decision = decisions[name]
        source = next((v.producer() for v in node.inputs if v is not None and v.producer() is not None), None)
        if decision.chosen in ("fused", "through") and source is not None:
            name = owners[str(source.name)]
        for known in (decision.node, *decision.names, *(str(v.name) for v in node.outputs)):
            owners.setdefault(known, name)
    return owners


def _beginning(name: str, known: Mapping[str, str]) -> str:
    """The longest known name that a layer's name begins with, up to a separator; engines add words of their own."""
    ends = [i for i, c in enumerate(name) if c in "/_.:"]
    return next((name[:i] for i in reversed(ends) if name[:i] in known), "")
