"""Decide what becomes INT8.

``plan(model, mode, scheme)`` looks at an optimized ONNX graph and gives every node a `Decision` with its reason, and
the list of tensors whose ranges calibration must find. Which nodes: `requant.quant.modes`; here is what follows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

import onnx_ir as ir

from requant.errors import QuantizationError, counted, nearest
from requant.passes.rewrite import names_of, sole_user, users_names
from requant.quant.exclude import excluded_nodes
from requant.quant.modes import Selection
from requant.quant.plan import MEASURED, MODES, Choice, Decision, Mode, Plan, Tensor
from requant.quant.roles import SELECTING, Role, is_activation
from requant.scheme import Scheme

log = logging.getLogger(__name__)
_NONE = Role("float", "")


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
        modes = (*MODES, MEASURED)
        raise QuantizationError(
            "unknown quantize mode", got=repr(mode), expected=", ".join(modes), next=nearest(mode, modes)
        )
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
    _log(made, {str(n.name): users_names(n) for n in maker.nodes})
    return made


def _log(made: Plan, users: Mapping[str, tuple[str, ...]]) -> None:
    """Every decision in a line.

    Args:
        made: the plan.
        users: what the user calls each node, and what is merged into it.
    """
    log.info(
        "quantized %d of %s (mode %s, scheme %s); %s observed",
        made.count("int8"),
        counted(len(made.decisions), "node"),
        made.mode,
        made.scheme.name,
        counted(len(made.observed), "tensor is", "tensors are"),
    )
    for decision in made.decisions:
        name, *merged = users[decision.node]
        if decision.chosen == "int8":
            log.info("int8: %s (%s)%s", name, decision.op_type, f", with {', '.join(merged)}" if merged else "")
        else:
            why = " ".join(users.get(word, [word])[0] for word in decision.why.split(" "))
            log.info("%s: %s (%s): %s", decision.chosen, name, decision.op_type, why)


class _Planner:
    """The state of one planning: choices and tensors, which follow from the selected nodes."""

    def __init__(self, model: ir.Model, mode: Mode, scheme: Scheme, excluded: Mapping[ir.Node, str]) -> None:
        self.graph, self.mode, self.scheme, self.excluded = model.graph, mode, scheme, excluded
        self.selected = Selection(model.graph, mode, scheme, excluded)
        self.nodes, self.roles = self.selected.nodes, self.selected.roles
        self.int8, self.stems = self.selected.int8, self.selected.stems
        self.chosen: dict[ir.Node, tuple[Choice, str]] = {}
        self.tensors: dict[ir.Value, ir.Value] = {}  # tensor -> first tensor of its group
        self.sources: dict[ir.Value, bool] = {}  # tensor -> observed

    def make(self) -> Plan:
        """All decisions and tensors."""
        for node in self.nodes:
            self.chosen[node] = ("int8" if node in self.int8 else "float", self.selected.why(node))
        for node in self.nodes:
            if node in self.int8:
                for index in self._quantized_inputs(node):
                    value = node.inputs[index]
                    assert value is not None
                    self._quantize(value)
        self._outputs()
        self._carry()
        self._align()
        self._fuse()
        return self._freeze()

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

    def _outputs(self) -> None:
        """Quantize outputs where the engine needs that to run the node on integers."""
        for node in self.nodes:
            if node in self.int8 and node.op_type in self.scheme.quantized_outputs:
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

    def _align(self) -> None:
        """The branches of a concatenation and its result share one scale: joining them costs nothing then."""
        for node in self.nodes:
            if node in self.int8 and node.op_type == "Concat":
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

    def _freeze(self) -> Plan:
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
        addends = self._addends() if self.scheme.sums_unrounded else {}
        for value in dict.fromkeys(v for v in order if v is not None and v in self.tensors):
            tensors.append(
                Tensor(
                    str(value.name),
                    str(self.tensors[value].name),
                    self.sources[value] and value not in addends,
                    self._readers(value),
                    self._shifted(value),
                    addends.get(value),
                )
            )
        return Plan(self.mode, self.scheme, tuple(decisions), tuple(tensors), str(self.graph.name or ""))

    def _addends(self) -> dict[ir.Value, tuple[str, str]]:
        """Of each quantized sum, the addend that the engine keeps in accumulators: see `Tensor.addend_of`."""
        found = {}
        for node in self.nodes:
            total = self._behind_fused(node)
            if node.op_type != "Add" or node not in self.int8 or total not in self.tensors or total.is_graph_output():
                continue
            first, second = node.inputs[:2]
            if first is None or second is None or not {first, second} <= self.tensors.keys():
                continue
            own, other = (first, second) if self._is_alone(first) else (second, first)
            if own is not other and self._is_alone(own):
                found[own] = (str(total.name), str(other.name))
        return found

    def _is_alone(self, value: ir.Value) -> bool:
        """An int8 convolution has just accumulated it, one node reads it, and its scale is its own."""
        source, group = value.producer(), self.tensors[value]
        return source in self.int8 and self._accumulator(value) and list(self.tensors.values()).count(group) == 1

    def _shifted(self, value: ir.Value) -> bool:
        """Whether an operator of `Scheme.shifted` made the tensor."""
        source = value.producer()
        return source is not None and source.op_type in self.scheme.shifted

    def _readers(self, value: ir.Value) -> tuple[str, ...] | None:
        """Who reads the quantized form: all, if an int8 kernel writes it, else only those who compute with it."""
        source = value.producer()
        if source is not None and self.chosen[source][0] != "float":
            return None
        return tuple(
            dict.fromkeys(
                str(use.node.name)
                for use in value.uses()
                if self.chosen.get(use.node, ("float",))[0] == "through"
                or (use.node in self.int8 and use.idx in self._quantized_inputs(use.node))
            )
        )
