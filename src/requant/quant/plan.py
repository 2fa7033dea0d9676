"""Decide what becomes INT8. A plan is frozen data: it can be printed, saved, compared and tested without a model.

``plan(model, mode, scheme)`` looks at an optimized ONNX graph and gives every node a `Decision` with its reason, and
the list of tensors whose ranges calibration must find. ``apply`` then edits the graph by the plan and has no opinion.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import onnx_ir as ir

from requant.errors import FormatError, QuantizationError
from requant.passes.rewrite import names_of, sole_user
from requant.quant import flow
from requant.quant.exclude import excluded_nodes
from requant.quant.roles import JOINING, SELECTING, Role, is_activation, role_of
from requant.quant.stem import cheap_stems
from requant.scheme import Scheme

log = logging.getLogger(__name__)

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
            + f"; {len(self.tensors)} tensors at {len(self.groups)} scales"
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


def plan(
    model: ir.Model,
    mode: Mode = "best",
    scheme: Scheme | None = None,
    *,
    exclude: Iterable[str] = (),
    exclude_ops: Iterable[str] = (),
) -> Plan:
    """Decide for every node of an optimized model.

    Args:
        model: what ``requant.passes.optimize`` returned.
        mode: ``full`` quantizes whatever has an int8 form; ``smart`` follows MXNet (compute nodes, and what lies
            between them); ``best`` quantizes what the scheme's engine runs faster for it.
        scheme: the engine's forms; plain QDQ for OpenVINO by default.
        exclude: nodes to leave in float: names (before or after fusion, MXNet's or ONNX's), scopes or globs.
        exclude_ops: operator types to leave in float, ONNX's or MXNet's.

    Raises:
        QuantizationError: an exclude matches nothing, or there is nothing to quantize.
    """
    if mode not in MODES:
        raise QuantizationError("unknown quantize mode", got=mode, expected=", ".join(MODES))
    maker = _Planner(model, mode, scheme or Scheme("default"), excluded_nodes(list(model.graph), exclude, exclude_ops))
    made = maker.make()
    if not any(d.chosen == "int8" for d in made.decisions):
        reasons = Counter(d.why for d in made.decisions)
        raise QuantizationError(
            "nothing in this model would be quantized",
            where=model.graph.name,
            got="; ".join(f"{n}× {why}" for why, n in reasons.most_common(5)) or "a graph without nodes",
            expected=f"at least one of {', '.join(sorted(maker.scheme.compute))} in float32",
            next="leave out excludes, or keep the float model",
        )
    _log(made)
    return made


def _log(made: Plan) -> None:
    log.info(
        "quantized %d of %d nodes (mode %s, scheme %s); %d tensors are observed",
        made.count("int8"),
        len(made.decisions),
        made.mode,
        made.scheme.name,
        len(made.observed),
    )
    for decision in made.decisions:
        if decision.chosen == "int8":
            merged = [n for n in decision.names if n != decision.node]
            log.info(
                "int8: %s (%s)%s", decision.node, decision.op_type, f", with {', '.join(merged)}" if merged else ""
            )
        elif decision.chosen == "float":
            log.info("float: %s (%s): %s", decision.node, decision.op_type, decision.why)
        else:
            log.info("%s: %s (%s): %s", decision.chosen, decision.node, decision.op_type, decision.why)


class _Planner:
    """The state of one planning: roles, choices, tensors."""

    def __init__(self, model: ir.Model, mode: Mode, scheme: Scheme, excluded: Mapping[ir.Node, str]) -> None:
        self.graph, self.mode, self.scheme, self.excluded = model.graph, mode, scheme, excluded
        self.nodes = list(model.graph)
        self.roles = {n: role_of(n, scheme) for n in self.nodes}
        self.chosen: dict[ir.Node, tuple[Choice, str]] = {}
        self.tensors: dict[ir.Value, ir.Value] = {}  # tensor -> first tensor of its group
        self.sources: dict[ir.Value, bool] = {}  # tensor -> observed
        self.stems: set[ir.Node] = set()  # left in float on purpose

    def make(self) -> Plan:
        """All decisions and tensors."""
        int8 = self._pick()
        for node in self.nodes:
            role = self.roles[node]
            if node in self.excluded:
                self.chosen[node] = ("float", self.excluded[node])
            elif node in int8:
                self.chosen[node] = ("int8", role.why)
            else:
                self.chosen[node] = ("float", self._refusal(node, role))
        for node in self.nodes:
            if node in int8:
                for index in self._quantized_inputs(node):
                    value = node.inputs[index]
                    assert value is not None
                    self._quantize(value)
        self._outputs(int8)
        self._carry()
        self._align(int8)
        self._fuse()
        return self._freeze(int8)

    # -- which nodes -------------------------------------------------------------------------------------------------

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

    # -- which tensors -----------------------------------------------------------------------------------------------

    def _quantized_inputs(self, node: ir.Node) -> tuple[int, ...]:
        data = self.roles[node].data
        if node.op_type != "Add":
            return data
        # What a stem left in float hands on is the finest there is, and the whole stream of sums depends on it.
        data = tuple(i for i in data if not self._from_stem(node.inputs[i]))
        if self.scheme.add_inputs == "both":
            return data
        if self.scheme.add_inputs == "none":
            return ()
        free = [i for i in data if self._accumulator(node.inputs[i])]
        return tuple(i for i in data if i != free[0]) if free else data

    def _from_stem(self, value: ir.Value | None) -> bool:
        """The tensor is what a convolution of an image made in float, or the activation behind it."""
        source = None if value is None else value.producer()
        while source is not None and self.roles[source].kind == "fused" and source not in self.stems:
            first = source.inputs[0]
            source = None if first is None else first.producer()
        return source is not None and source in self.stems

    def _accumulator(self, value: ir.Value | None) -> bool:
        """The tensor is what a compute node has just accumulated, and nobody else reads it."""
        source = None if value is None else value.producer()
        return (
            source is not None
            and value is not None
            and source.op_type in ("Conv", "Gemm")
            and sole_user(value) is not None
        )

    def _quantize(self, value: ir.Value, group: ir.Value | None = None) -> None:
        """Note a tensor, and follow it up through nodes that only move it: there the quantizer is worth more."""
        if value in self.tensors:
            if group is not None:
                self._join(value, group)
            return
        self.tensors[value] = value
        self.sources[value] = True
        if group is not None:
            self._join(value, group)
        node = value.producer()
        if (
            node is None
            or node in self.excluded
            or self.roles.get(node, _NONE).kind != "through"
            or node.op_type in SELECTING
        ):
            return
        source = node.inputs[0]
        if source is None or not is_activation(source):
            return
        self._quantize(source)
        self._join(value, source)
        self.sources[value] = False
        self.chosen[node] = ("through", "hands an int8 tensor on")

    def _join(self, value: ir.Value, other: ir.Value) -> None:
        mine, theirs = self.tensors[value], self.tensors[other]
        for member, first in self.tensors.items():
            if first is mine:
                self.tensors[member] = theirs

    def _outputs(self, int8: set[ir.Node]) -> None:
        """Quantize outputs where the engine needs that to run the node on integers."""
        for node in self.nodes:
            if node in int8 and node.op_type in self.scheme.quantized_outputs:
                out = self._behind_fused(node)
                if not out.is_graph_output() and out.uses():
                    self._quantize(out)

    def _behind_fused(self, node: ir.Node) -> ir.Value:
        """The output of a node, or of the clipping activation that alone reads it."""
        out = node.outputs[0]
        user = sole_user(out)
        if user is not None and user.op_type in ("Relu", "Clip") and user in self.roles and user not in self.excluded:
            return user.outputs[0]
        return out

    def _carry(self) -> None:
        """A moving node whose input is quantized anyway hands the integers on."""
        for node in self.nodes:
            if node in self.excluded or self.roles[node].kind != "through" or self.chosen[node][0] == "through":
                continue
            source = node.inputs[0]
            outs = [o for o in node.outputs if o.uses() or o.is_graph_output()]
            if source not in self.tensors or not outs or any(o.is_graph_output() for o in outs):
                continue
            if all(o in self.tensors for o in outs) and node.op_type in SELECTING:
                continue  # its outputs have ranges of their own
            if node.op_type in SELECTING and not all(o in self.tensors for o in outs):
                continue
            assert source is not None
            for out in outs:
                self._quantize(out, source)
                self.sources[out] = False
            self.chosen[node] = ("through", "hands an int8 tensor on")

    def _align(self, int8: set[ir.Node]) -> None:
        """The branches of a concatenation and its result share one scale: joining them costs nothing then."""
        for node in self.nodes:
            if node in int8 and node.op_type == "Concat":
                values = [v for v in node.inputs if v is not None and v in self.tensors]
                if node.outputs[0] in self.tensors:
                    self.sources[node.outputs[0]] = False
                    values.append(node.outputs[0])
                for value in values[1:]:
                    self._join(value, values[0])

    def _fuse(self) -> None:
        """Element-wise nodes behind an int8 node, read by nobody else, are computed inside it."""
        for node in self.nodes:
            if self.chosen[node][0] != "float" or node in self.excluded or self.roles[node].kind != "fused":
                continue
            source = next((v for v in node.inputs if is_activation(v)), None)
            before = None if source is None else source.producer()
            if before is None or source is None or source in self.tensors or sole_user(source) is None:
                continue
            if self.chosen.get(before, ("float",))[0] in ("int8", "fused"):
                self.chosen[node] = ("fused", f"computed inside {before.name}")

    # -- result ------------------------------------------------------------------------------------------------------

    def _freeze(self, int8: set[ir.Node]) -> Plan:
        decisions = []
        for node in self.nodes:
            chosen, why = self.chosen[node]
            role = self.roles[node]
            is_int8 = chosen == "int8"
            decisions.append(
                Decision(
                    node=str(node.name),
                    op_type=node.op_type,
                    chosen=chosen,
                    why=why,
                    names=tuple(n for n in names_of(node) if n != node.name),
                    inputs=self._quantized_inputs(node) if is_int8 else (),
                    weight=role.weight if is_int8 else None,
                    bias=role.bias if is_int8 and self.scheme.int32_bias else None,
                )
            )
        order = [v for node in self.nodes for v in (*node.inputs, *node.outputs)]
        tensors = []
        addends = self._addends(int8) if self.scheme.sums_unrounded else {}
        for value in dict.fromkeys(v for v in order if v is not None and v in self.tensors):
            tensors.append(
                Tensor(
                    str(value.name),
                    str(self.tensors[value].name),
                    self.sources[value] and value not in addends,
                    self._readers(value, int8),
                    self._shifted(value),
                    addends.get(value),
                )
            )
        return Plan(self.mode, self.scheme, tuple(decisions), tuple(tensors), str(self.graph.name or ""))

    def _addends(self, int8: set[ir.Node]) -> dict[ir.Value, tuple[str, str]]:
        """Of each quantized sum, the addend that the engine keeps in accumulators: see `Tensor.addend_of`."""
        found = {}
        for node in self.nodes:
            total = self._behind_fused(node)
            if node.op_type != "Add" or node not in int8 or total not in self.tensors or total.is_graph_output():
                continue
            first, second = node.inputs[:2]
            if first is None or second is None or not {first, second} <= self.tensors.keys():
                continue
            own, other = (first, second) if self._is_alone(first, int8) else (second, first)
            if own is not other and self._is_alone(own, int8):
                found[own] = (str(total.name), str(other.name))
        return found

    def _is_alone(self, value: ir.Value, int8: set[ir.Node]) -> bool:
        """An int8 convolution has just accumulated it, one node reads it, and its scale is its own."""
        source, group = value.producer(), self.tensors[value]
        return source in int8 and self._accumulator(value) and list(self.tensors.values()).count(group) == 1

    def _shifted(self, value: ir.Value) -> bool:
        """Whether an operator of `Scheme.shifted` made the tensor."""
        source = value.producer()
        return source is not None and source.op_type in self.scheme.shifted

    def _readers(self, value: ir.Value, int8: set[ir.Node]) -> tuple[str, ...] | None:
        """Who reads the quantized form: all, if an int8 kernel writes it, else only those who compute with it."""
        source = value.producer()
        if source is not None and self.chosen[source][0] != "float":
            return None
        return tuple(
            dict.fromkeys(
                str(use.node.name)
                for use in value.uses()
                if self.chosen.get(use.node, ("float",))[0] == "through"
                or (use.node in int8 and use.idx in self._quantized_inputs(use.node))
            )
        )


_NONE = Role("float", "")
#: What an image may go through and still be one.
_PREPARING = frozenset({"Pad", "Mul", "Add", "Sub", "Div", "BatchNormalization"})


def _mxnet_support(node: ir.Node) -> bool:
    if node.op_type not in flow.SUPPORT or node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Concat":
        axis = node.attributes.get("axis")
        return axis is not None and axis.as_int() > 0
    return True
