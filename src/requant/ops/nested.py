"""Nested graphs of fused nodes: what a lowering may know of them, and how to run and read them.

A fused node holds the operators it was made of as a graph of their own, whose variables are the node's inputs in order.
That graph belongs to the tree of symbols, of which operators know nothing: here is the little they see of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from requant.attrs import Attrs
from requant.errors import GraphError, UnsupportedError, counted
from requant.ops.emit import Emit, Value
from requant.ops.registry import OpDef


class NestedNode(Protocol):
    """A node of a nested graph: an operator, or a variable if ``op`` is None."""

    op: OpDef | None
    name: str
    inputs: Any
    subgraphs: Any

    @property
    def parsed(self) -> Attrs: ...

    @property
    def input_names(self) -> tuple[str, ...]: ...


class Nested(Protocol):
    """A nested graph: its nodes, each after its inputs, and its outputs as (node, output index)."""

    @property
    def nodes(self) -> tuple[Any, ...]: ...

    @property
    def entries(self) -> tuple[Any, ...]: ...


def only(g: Emit, subgraphs: Sequence[Nested]) -> Nested:
    """The one nested graph of a fused node.

    Raises:
        GraphError: there is none, or more than one.
    """
    if len(subgraphs) != 1:
        raise GraphError(
            "a fused node holds one nested graph",
            where=g.node,
            got=counted(len(subgraphs), "graph"),
            expected="subgraphs with one entry",
            next="call the operators it was made of instead",
        )
    return subgraphs[0]


def bind(g: Emit, graph: Nested, inputs: Sequence[Value]) -> dict[int, Value]:
    """Values of the graph's variables, by the node's identity: the k-th variable is the k-th input.

    Raises:
        GraphError: the counts differ.
    """
    variables = [n for n in graph.nodes if n.op is None]
    if len(variables) != len(inputs):
        raise GraphError(
            "a fused node and its nested graph differ in their inputs",
            where=g.node,
            got=counted(len(inputs), "input"),
            expected=f"{len(variables)}: {', '.join(n.name for n in variables)}",
        )
    return {id(n): v for n, v in zip(variables, inputs)}


def run(g: Emit, graph: Nested, inputs: Sequence[Value]) -> Value:
    """The nested graph's first output, in float."""
    made: dict[tuple[int, int], Value] = {(i, 0): v for i, v in bind(g, graph, inputs).items()}
    for node in graph.nodes:
        if node.op is None:
            continue
        given = [made[id(n), i] for n, i in node.inputs]
        extra = {"subgraphs": node.subgraphs} if node.subgraphs else {}
        if node.op.variadic is not None and not callable(node.op.inputs):
            found = node.op.lower(g, node.parsed, *given, **extra)
        else:
            found = node.op.lower(g, node.parsed, **dict(zip(node.input_names, given)), **extra)
        for i, value in enumerate(found if isinstance(found, tuple) else (found,)):
            made[id(node), i] = value
    head, index = graph.entries[0]
    return made[id(head), index]


@dataclass(frozen=True)
class Step:
    """What follows the linear operator: an activation, or a sum with another tensor.

    Attributes:
        node: the nested node.
        other: the operand that is added; None for an activation.
    """

    node: NestedNode
    other: Value | None = None

    @property
    def op(self) -> str:
        return cast(OpDef, self.node.op).name

    @property
    def slope(self) -> float | None:
        """0 for ReLU, the slope of a leaky one; None for anything else."""
        if self.op == "relu" or (self.op == "Activation" and getattr(self.node.parsed, "act_type", "") == "relu"):
            return 0.0
        if self.op == "LeakyReLU" and getattr(self.node.parsed, "act_type", "") == "leaky":
            return float(getattr(self.node.parsed, "slope", 0.25))
        return None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Of a clip, else None."""
        if self.op != "clip":
            return None
        return float(getattr(self.node.parsed, "a_min", -np.inf)), float(getattr(self.node.parsed, "a_max", np.inf))

    @property
    def scales(self) -> bool:
        """Whether the operator commutes with a positive factor (a clip does if its bounds take part)."""
        return self.other is not None or self.slope is not None or self.bounds is not None

    @property
    def unsigned(self) -> bool:
        """Whether its result is never negative, and MXNet makes it uint8."""
        if self.op in ("Activation", "relu", "clip", "square", "sqrt", "exp", "abs"):
            kind = getattr(self.node.parsed, "act_type", "relu")
            return kind in ("relu", "sigmoid", "softrelu")
        return self.slope == 0.0

    def apply(self, g: Emit, x: Value, unit: Value | None = None) -> Value:
        """The activation of ``x``, which counts in 1 / ``unit`` real numbers (in real numbers if that is None)."""
        if self.bounds is not None and unit is not None:
            low, high = (g("Mul", unit, np.float32(end)) for end in self.bounds)
            return g("Min", g("Max", x, low), high)
        lower = cast(OpDef, self.node.op).lower
        return cast(Value, lower(g, self.node.parsed, **{self.node.input_names[0]: x}))


@dataclass(frozen=True)
class Chain:
    """A nested graph read as a linear operator, its batch normalization if any, and what follows.

    Attributes:
        linear: Convolution or FullyConnected.
        inputs: its values by input name.
        norm: attributes of the batch normalization.
        statistics: gamma, beta, moving mean and variance.
        steps: activations and at most one sum, in order.
    """

    linear: NestedNode
    inputs: Mapping[str, Value]
    norm: Attrs | None
    statistics: tuple[Value, ...]
    steps: tuple[Step, ...]

    @property
    def unsigned(self) -> bool:
        """Whether the last step makes the result uint8."""
        return bool(self.steps) and self.steps[-1].other is None and self.steps[-1].unsigned


_SUMS = frozenset({"elemwise_add", "broadcast_add", "_plus", "_npi_add"})


def read(g: Emit, graph: Nested, inputs: Sequence[Value], linear: str) -> Chain:
    """Read a nested graph as a chain that starts with an operator of the name ``linear``.

    Raises:
        UnsupportedError: it is not such a chain; the message names the node at fault.
    """
    values = bind(g, graph, inputs)
    nodes: list[Any] = [n for n in graph.nodes if n.op is not None]
    if not nodes or nodes[0].op.name != linear:
        raise UnsupportedError(
            "an unknown kind of fused node", where=g.node, got=[n.op.name for n in nodes[:1]], expected=linear
        )
    norm: Attrs | None = None
    statistics: tuple[Value, ...] = ()
    steps: list[Step] = []
    before = nodes[0]
    for node in nodes[1:]:
        others = [n for n, _ in node.inputs if n is not before]
        if len(others) == len(node.inputs) or any(n.op is not None for n in others):
            raise _unknown(g, node, "a chain of operators")
        if node.op.name == "BatchNorm" and not steps and norm is None:
            norm, statistics = node.parsed, tuple(values[id(n)] for n in others)
        elif node.op.name in _SUMS and len(others) == 1:
            steps.append(Step(node, values[id(others[0])]))
        elif not others:
            steps.append(Step(node))
        else:
            raise _unknown(g, node, "batch normalization, a sum or an activation")
        before = node
    own = {name: values[id(n)] for name, (n, _) in zip(nodes[0].input_names, nodes[0].inputs)}
    return Chain(nodes[0], own, norm, statistics, tuple(steps))


def _unknown(g: Emit, node: Any, expected: str) -> UnsupportedError:
    return UnsupportedError(
        "an unknown kind of fused node", where=f"{g.node}: {node.name}", got=node.op.name, expected=expected
    )
