"""What a plan is: what becomes INT8 in one model, as frozen data, which can be printed, saved, compared and tested
without a model. `requant.quant.planner` makes plans, and ``apply`` edits a graph by one and has no opinion.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast

from requant.errors import FormatError, counted
from requant.scheme import Scheme

Mode = Literal["full", "smart", "best", "measured"]
#: Rules that decide by looking at a graph alone.
MODES: tuple[Mode, ...] = ("full", "smart", "best")
#: The mode of plans that `requant.pipeline.measured` found by running the model.
MEASURED: Mode = "measured"
#: ``int8``: computes on integers. ``through``: hands integers on. ``fused``: computed inside the node before it.
Choice = Literal["int8", "through", "fused", "float"]
FORMAT, VERSION = "requant plan", 1


@dataclass(frozen=True)
class Decision:
    """What was chosen for one node, and why.

    Attributes:
        node: name of the ONNX node.
        op_type: its operator.
        chosen: see `Choice`.
        why: one sentence.
        names: every name the node is known by: nodes fused into it and MXNet's names too.
        inputs: indices of the inputs that are quantized activations.
        weight, bias: indices of the weight and bias that become integers, or None.
    """

    node: str
    op_type: str
    chosen: Choice
    why: str
    names: tuple[str, ...] = ()
    inputs: tuple[int, ...] = ()
    weight: int | None = None
    bias: int | None = None


@dataclass(frozen=True)
class Tensor:
    """A tensor that gets a quantizer.

    Attributes:
        name: name of the value in the graph.
        group: name of the tensor whose scale it shares; its own name if it is the first of its group. Members of a
            group are quantized with one scale and zero point, from the union of the ranges observed.
        observe: calibration must find its range. False where the values come unchanged from another of the group, and
            where it follows from two others.
        readers: names of the nodes that read the quantized tensor; None for all but the graph's outputs.
        shifted: where it has negative values it is unsigned with a zero point (`Scheme.shifted`).
        addend_of: names of a sum and of the other addend, whose ranges bound that of this one: what lies beyond their
            difference saturates in the sum in any case. For sums that the engine accumulates before it rounds
            (`Scheme.sums_unrounded`), so that this tensor's own steps do not matter.
    """

    name: str
    group: str
    observe: bool = True
    readers: tuple[str, ...] | None = None
    shifted: bool = False
    addend_of: tuple[str, str] | None = None


@dataclass(frozen=True)
class Plan:
    """What becomes INT8 in one model, and how.

    Attributes:
        mode: the rule it was made by.
        scheme: the engine's forms.
        decisions: one for each node of the main graph, in order.
        tensors: what is quantized between nodes.
        graph: name of the graph.
    """

    mode: Mode
    scheme: Scheme
    decisions: tuple[Decision, ...]
    tensors: tuple[Tensor, ...]
    graph: str = ""

    @property
    def observed(self) -> tuple[str, ...]:
        """Names of the tensors whose ranges calibration must find. Nobody needs to name calibration layers."""
        return tuple(t.name for t in self.tensors if t.observe)

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Tensors by the group that shares one scale."""
        out: dict[str, list[str]] = {}
        for tensor in self.tensors:
            out.setdefault(tensor.group, []).append(tensor.name)
        return {name: tuple(members) for name, members in out.items()}

    def scheme_of(self, tensors: Iterable[str]) -> Scheme:
        """The forms that some tensors may take together: where one of them is shifted, all are."""
        names = set(tensors)
        shifted = any(t.shifted for t in self.tensors if t.name in names)
        return dataclasses.replace(self.scheme, signed="uint8_asymmetric") if shifted else self.scheme

    def decision(self, name: str) -> Decision:
        """The decision for a node, by any name that the node has or had.

        Raises:
            KeyError: no node has that name.
        """
        for decision in self.decisions:
            if name == decision.node or name in decision.names:
                return decision
        raise KeyError(name)

    def count(self, chosen: Choice) -> int:
        """How many nodes were decided so."""
        return sum(1 for d in self.decisions if d.chosen == chosen)

    def __str__(self) -> str:
        lines = [
            f"plan of {self.graph or 'a graph'}: mode {self.mode}, scheme {self.scheme.name}; "
            + ", ".join(f"{self.count(c)} {c}" for c in ("int8", "through", "fused", "float"))
            + f"; {counted(len(self.tensors), 'tensor')} at {counted(len(self.groups), 'scale')}"
        ]
        width = max((len(d.op_type) for d in self.decisions), default=0)
        lines += [f"  {d.chosen:<7} {d.op_type:<{width}} {d.node}: {d.why}" for d in self.decisions]
        return "\n".join(lines)

    def diff(self, other: Plan) -> list[str]:
        """What differs from ``other``, one line each; empty if the plans say the same."""
        lines = []
        for what in ("mode", "graph", "scheme"):
            mine, theirs = getattr(self, what), getattr(other, what)
            if mine != theirs:
                lines.append(f"{what}: {mine!r} -> {theirs!r}")
        left, right = {d.node: d for d in self.decisions}, {d.node: d for d in other.decisions}
        for name in dict.fromkeys([*left, *right]):
            a, b = left.get(name), right.get(name)
            if a is None or b is None:
                lines.append(f"{name}: {'only in the second' if a is None else 'only in the first'}")
            elif a != b:
                lines.append(f"{name}: {a.chosen} ({a.why}) -> {b.chosen} ({b.why})")
        own, theirs_ = {t.name: t for t in self.tensors}, {t.name: t for t in other.tensors}
        for name in dict.fromkeys([*own, *theirs_]):
            if own.get(name) != theirs_.get(name):
                lines.append(f"tensor {name}: {_brief(own.get(name))} -> {_brief(theirs_.get(name))}")
        return lines

    def to_json(self) -> str:
        """The plan as JSON text; `from_json` reads it back equal."""
        scheme = {
            f.name: sorted(v) if isinstance(v := getattr(self.scheme, f.name), frozenset) else v
            for f in dataclasses.fields(self.scheme)
        }
        body = {
            "format": FORMAT,
            "version": VERSION,
            "graph": self.graph,
            "mode": self.mode,
            "scheme": scheme,
            "decisions": [dataclasses.asdict(d) for d in self.decisions],
            "tensors": [dataclasses.asdict(t) for t in self.tensors],
        }
        return json.dumps(body, indent=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a JSON file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json() + "\n")


def _brief(tensor: Tensor | None) -> str:
    return "float" if tensor is None else f"int8 at the scale of {tensor.group!r}"


def from_json(text: str, where: object = "plan") -> Plan:
    """Read a plan that `Plan.to_json` wrote.

    Raises:
        FormatError: it is not one.
    """
    try:
        body = json.loads(text)
        if body["format"] != FORMAT or body["version"] != VERSION:
            raise FormatError(
                "not a plan of this version",
                where=where,
                got=(body["format"], body["version"]),
                expected=(FORMAT, VERSION),
            )
        fields: dict[str, Any] = {k: frozenset(v) if isinstance(v, list) else v for k, v in body["scheme"].items()}
        scheme = Scheme(**fields)
        if body["mode"] not in (*MODES, MEASURED):
            raise FormatError("unknown mode", where=where, got=body["mode"], expected=(*MODES, MEASURED))
        decisions = tuple(Decision(**{k: _frozen(v) for k, v in d.items()}) for d in body["decisions"])
        tensors = tuple(Tensor(**{k: _frozen(v) for k, v in t.items()}) for t in body["tensors"])
        return Plan(cast(Mode, body["mode"]), scheme, decisions, tensors, str(body["graph"]))
    except (KeyError, TypeError, AttributeError, ValueError) as fault:
        if isinstance(fault, FormatError):
            raise
        raise FormatError("this is not a plan", where=where, got=f"{type(fault).__name__}: {fault}"[:200]) from fault


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def load(path: str | os.PathLike[str]) -> Plan:
    """Read a plan file.

    Raises:
        FormatError: it is not one.
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        return from_json(file.read(), os.fspath(path))
