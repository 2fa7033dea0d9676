"""Edit a graph by a plan: standard QDQ ONNX with int8 weights. It decides nothing.

Every quantized tensor gets one QuantizeLinear → DequantizeLinear pair, which all its int8 readers share; weights and
biases are stored as int8 and int32 constants with a DequantizeLinear behind them. The result is right in any runtime.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from requant import qmath
from requant.errors import CalibrationError, QuantizationError, nearest
from requant.passes.clip import bounds
from requant.passes.rewrite import (
    Array,
    absorb,
    constant,
    forget_names,
    initializer,
    replace_constant,
    sole_user,
    unique,
)
from requant.qmath import QuantParams, Range
from requant.quant.bias import mean_of, shift
from requant.quant.channels import level_channels
from requant.quant.forms import activation_params
from requant.quant.moments import Moments, layout, round_weight
from requant.quant.plan import Decision, Plan, Tensor
from requant.quant.weights import bias_params, room_for_bias, weight_params
from requant.scheme import Scheme

log = logging.getLogger(__name__)

#: What calibration hands over for a tensor: its range, or finished parameters.
RangeLike = Range | QuantParams | tuple[float, float]


def apply(
    model: ir.Model,
    plan: Plan,
    ranges: Mapping[str, RangeLike],
    *,
    means: Mapping[str, Array] | None = None,
    moments: Mapping[str, Moments] | None = None,
) -> ir.Model:
    """A quantized copy of a model.

    Args:
        model: the model that was planned.
        plan: what to quantize.
        ranges: by tensor name, for each of ``plan.observed``: the range to represent, or parameters.
        means: by tensor name, for those of ``requant.quant.bias.mean_axes``: the mean of each channel, shape
            (channels,). Biases are corrected by them; without them (or for tensors left out) they are not.
        moments: by node name, what the blocks of its weight meet (`requant.quant.moments`). The weight is rounded by
            them, and channels get scales of their own (`requant.quant.channels`); without them (or for nodes left out)
            each element is rounded to the nearest integer.

    Returns:
        A new model; the given one is not touched.

    Raises:
        CalibrationError: a range is missing.
        QuantizationError: the plan is of another model, or a weight holds NaN or Inf.
    """
    new = model.clone()
    forget_names(new)
    params = group_params(plan, ranges)
    leveled: list[ir.Value] = []
    if moments:
        params, means, leveled = level_channels(new, plan, params, means, moments)
    made = _Editor(new, plan, params, means, moments).edit()
    for value in leveled:  # it is not the tensor of that name any more
        value.name = unique(new.graph, f"{value.name}_leveled")
    return made


def group_params(plan: Plan, ranges: Mapping[str, RangeLike]) -> dict[str, QuantParams]:
    """The parameters of each tensor of a plan, equal within a group.

    Raises:
        CalibrationError: a range is missing.
    """
    found: dict[str, QuantParams] = {}
    by_name = {t.name: t for t in plan.tensors}
    bounded = [t for t in plan.tensors if t.addend_of is not None and t.name not in ranges]
    for members in plan.groups.values():
        if by_name[members[0]] in bounded:
            continue
        given = []
        for name in members:
            if by_name[name].observe or name in ranges:
                if name not in ranges:
                    raise CalibrationError(
                        "no range for a tensor that the plan quantizes",
                        where=name,
                        next=nearest(name, ranges) if ranges else "calibrate first",
                    )
                given.append(ranges[name])
        params = _params(plan.scheme_of(members), given, members[0])
        found.update(dict.fromkeys(members, params))
    for tensor in bounded:
        assert tensor.addend_of is not None
        found[tensor.name] = activation_params(plan.scheme, qmath.addend_range(*(found[n] for n in tensor.addend_of)))
    return found


def _params(scheme: Scheme, given: list[RangeLike], where: str) -> QuantParams:
    """Parameters for the union of some ranges."""
    finished = [r for r in given if isinstance(r, QuantParams)]
    if finished and len(finished) == len(given) and all(p.same_as(finished[0]) for p in finished):
        return finished[0]
    low, high = np.inf, -np.inf
    for item in given:
        if isinstance(item, QuantParams):
            ends = qmath.represented(item)
            a, b = float(np.min(ends[0])), float(np.max(ends[1]))
        else:
            a, b = float(item[0]), float(item[1])
        if not (np.isfinite(a) and np.isfinite(b)) or a > b:
            raise CalibrationError(
                "a range must be finite and ordered",
                where=where,
                got=(a, b),
                next="look for NaN or Inf in the calibration data",
            )
        low, high = min(low, a), max(high, b)
    return activation_params(scheme, Range(low, high))


class _Editor:
    """The state of one edit."""

    def __init__(
        self,
        model: ir.Model,
        plan: Plan,
        params: dict[str, QuantParams],
        means: Mapping[str, Array] | None,
        moments: Mapping[str, Moments] | None,
    ) -> None:
        self.moments = moments or {}
        self.model, self.graph, self.plan, self.params, self.means = model, model.graph, plan, params, means
        self.values = {str(v.name): v for v in (*self.graph.inputs, *(o for n in self.graph for o in n.outputs))}
        self.nodes = {str(n.name): n for n in self.graph}
        self.shared: dict[Any, ir.Value] = {}  # quantized constants and scales by content
        self.restored: dict[str, ir.Value] = {}  # dequantized form of each tensor

    def edit(self) -> ir.Model:
        """Insert all quantizers."""
        for decision in self.plan.decisions:
            self._find(decision.node, self.nodes, decision)
        int8 = [d for d in self.plan.decisions if d.chosen == "int8"]
        for decision in int8:  # before activations: which parameters an input has is told by its name
            if decision.weight is not None:
                self._constants(decision)
        for tensor in self.plan.tensors:
            if tensor.name not in self.values:
                raise self._other(tensor.name, self.values)
            self._activation(tensor)
        for name in [n for n, v in self.graph.initializers.items() if not v.uses() and not v.is_graph_output()]:
            del self.graph.initializers[name]
        self.model.metadata_props["requant.scheme"] = self.plan.scheme.name
        return self.model

    def _find(self, name: str, known: Mapping[str, ir.Node], decision: Decision) -> ir.Node:
        node = known.get(name)
        if node is None or node.op_type != decision.op_type:
            raise self._other(name, known)
        return node

    def _other(self, name: str, known: Mapping[str, object]) -> QuantizationError:
        return QuantizationError(
            "the plan is of another model",
            where=self.graph.name,
            got=f"the plan names {name!r}",
            next=f"plan this model again; {nearest(name, known)}",
        )

    # -- activations -------------------------------------------------------------------------------------------------

    def _activation(self, tensor: Tensor) -> None:
        value, params = self.values[tensor.name], self.params[tensor.name]
        readers = None if tensor.readers is None else set(tensor.readers)
        wanted = (
            {d.node: set(d.inputs) for d in self.plan.decisions if d.chosen == "int8"} if readers is not None else {}
        )
        uses = [
            use
            for use in value.uses()
            if readers is None or (str(use.node.name) in readers and use.idx in wanted.get(str(use.node.name), {0}))
        ]
        source = self._absorb(value, params) if readers is None else value
        restored = self._pair(source, params, tensor.name, value)
        for use in uses:
            use.node.replace_input_with(use.idx, restored)
        self._drop(value)

    def _pair(self, source: ir.Value, params: QuantParams, name: str, like: ir.Value) -> ir.Value:
        """Quantize and dequantize ``source``; the nodes stand right behind whatever makes it."""
        scale, zero = self._scale(params, name), self._zero(params, name)
        quantized = ir.Value(
            name=unique(self.graph, f"{name}_quantized"),
            shape=like.shape,
            type=ir.TensorType(ir.DataType.from_numpy(params.dtype)),
        )
        restored = ir.Value(
            name=unique(self.graph, f"{name}_dequantized"), shape=like.shape, type=ir.TensorType(ir.DataType.FLOAT)
        )
        first = ir.Node("", "QuantizeLinear", [source, scale, zero], outputs=[quantized], name=f"{name}/QuantizeLinear")
        second = ir.Node(
            "", "DequantizeLinear", [quantized, scale, zero], outputs=[restored], name=f"{name}/DequantizeLinear"
        )
        producer = source.producer()
        if producer is not None:
            self.graph.insert_after(producer, [first, second])
        elif len(self.graph):
            self.graph.insert_before(self.graph[0], [first, second])
        return restored

    def _absorb(self, value: ir.Value, params: QuantParams) -> ir.Value:
        """What to quantize for ``value``: the input of its Relu or Clip, where saturation does the clipping exactly."""
        if not self.plan.scheme.absorbs or value.is_graph_output():
            return value
        node = value.producer()
        if node is None or node.op_type not in ("Relu", "Clip") or node.inputs[0] is None:
            return value
        source = node.inputs[0]
        found = bounds(node)
        if found is None or sole_user(source) is not node or source.producer() is None:
            return value
        low, high = (qmath.quantize(np.asarray(v, np.float32), params) for v in found)
        if int(low) != params.limits.min or int(high) != params.limits.max:
            return value
        maker = source.producer()
        assert maker is not None
        absorb(maker, node)
        return source

    def _drop(self, value: ir.Value) -> None:
        """Remove an activation that its quantizer absorbed."""
        node = value.producer()
        if node is not None and node.op_type in ("Relu", "Clip") and not value.uses() and not value.is_graph_output():
            self.graph.remove(node, safe=True)

    # -- constants ---------------------------------------------------------------------------------------------------

    def _constants(self, decision: Decision) -> None:
        """Quantize the weight and bias of one compute node."""
        node, scheme = self.nodes[decision.node], self.plan.scheme
        assert decision.weight is not None
        old = node.inputs[decision.weight]
        weight = constant(old)
        if old is None or weight is None:
            raise self._other(decision.node, self.nodes)
        params = weight_params(
            node, weight, decision.weight, per_channel=node.op_type in scheme.per_channel, reduced=scheme.reduced
        )
        shape = constant(node.inputs[2]) if node.op_type != "MatMul" and len(node.inputs) > 2 else None
        channels = 0 if node.op_type == "MatMul" else _channels(node, weight)
        bias = None if shape is None or not channels else _per_channel(shape, channels)
        activation = self._input_params(node, decision)
        if bias is not None and activation is not None and decision.bias is not None:
            params = room_for_bias(weight, params, activation, bias)
        q = self._rounded(node, decision, weight, params)
        mean = mean_of(node, self.means) if decision.weight == 1 else None
        extra = None if mean is None else shift(node, weight, qmath.dequantize(q, params), mean)
        if extra is not None and np.isfinite(extra).all():
            bias = self._corrected(node, bias, extra, channels)
        if bias is not None:
            self._bias(node, bias, activation if decision.bias is not None or shape is None else None, params)
        node.replace_input_with(decision.weight, self._stored(str(old.name), q, params, node))

    def _rounded(self, node: ir.Node, decision: Decision, weight: Array, params: QuantParams) -> Array:
        """The integers of a weight."""
        moments = self.moments.get(decision.node)
        found = layout(node, weight) if moments is not None and decision.weight == 1 else None
        if moments is None or found is None:
            return qmath.quantize(weight, params)
        return round_weight(weight, params, found, moments)

    def _input_params(self, node: ir.Node, decision: Decision) -> QuantParams | None:
        value = node.inputs[decision.inputs[0]] if decision.inputs else None
        return None if value is None else self.params.get(str(value.name))

    def _corrected(self, node: ir.Node, bias: Array | None, extra: Array, channels: int) -> Array | None:
        """The bias without the shift of rounding; for a MatMul it stands in the addition behind it, if there is one."""
        if node.op_type != "MatMul":
            if bias is None and len(node.inputs) > 2 and node.inputs[2] is not None:
                return None  # a computed bias, or one that varies along other axes
            return np.asarray((np.zeros(channels) if bias is None else bias.astype(np.float64)) - extra, np.float32)
        user = sole_user(node.outputs[0])
        if user is not None and user.op_type == "Add":
            at = 0 if user.inputs[1] is node.outputs[0] else 1
            added = constant(user.inputs[at])
            if added is not None and added.dtype == np.float32 and added.shape[-1:] == extra.shape:
                replace_constant(self.graph, user, at, np.asarray(added.astype(np.float64) - extra, np.float32))
        return None

    def _bias(self, node: ir.Node, bias: Array, activation: QuantParams | None, weight: QuantParams) -> None:
        """Store a bias: int32 in the accumulator's units, or float."""
        old = node.inputs[2] if len(node.inputs) > 2 else None
        name = f"{node.name}_bias" if old is None else str(old.name)
        if len(node.inputs) < 3:
            node.resize_inputs(3)
        if self.plan.scheme.int32_bias and activation is not None:
            scale = bias_params(activation, weight, bias.size)
            value = self._stored(name, qmath.quantize(bias, scale), scale, node)
        else:
            value = initializer(self.graph, name, np.array(bias, np.float32))
        node.replace_input_with(2, value)

    def _stored(self, name: str, q: Array, params: QuantParams, node: ir.Node) -> ir.Value:
        """An integer constant with a DequantizeLinear behind it; equal ones are stored once."""
        key = (name, q.shape, str(q.dtype), q.tobytes() if q.size < 4096 else hash(q.tobytes()), params.scale.tobytes())
        stored = self.shared.get(key)
        if stored is None:
            stored = self.shared[key] = initializer(self.graph, f"{name}_{params.dtype.name}", q)
        # OpenVINO reshapes a zero point for the operator that reads it. One that a product and a convolution share is
        # no constant for either any more, and the convolution is computed in float (seen with 2026.4).
        kind = (node.op_type, q.ndim)
        scale, zero = self._scale(params, name, kind), self._zero(params, name, kind)
        out = ir.Value(
            name=unique(self.graph, f"{name}_dequantized"),
            shape=ir.Shape(q.shape),
            type=ir.TensorType(ir.DataType.FLOAT),
        )
        attributes = {} if params.axis is None else {"axis": params.axis}
        made = ir.Node(
            "",
            "DequantizeLinear",
            [stored, scale, zero],
            attributes=ir.convenience.convert_attributes(attributes),
            outputs=[out],
            name=f"{out.name}/DequantizeLinear",
        )
        self.graph.insert_before(node, made)
        return out

    def _scale(self, params: QuantParams, name: str, kind: object = None) -> ir.Value:
        return self._shared("scale", params.scale, name, kind)

    def _zero(self, params: QuantParams, name: str, kind: object = None) -> ir.Value:
        return self._shared("zero_point", params.zero_point, name, kind)

    def _shared(self, what: str, array: Array, name: str, kind: object) -> ir.Value:
        key = (what, array.shape, str(array.dtype), array.tobytes(), kind)
        if key not in self.shared:
            self.shared[key] = initializer(self.graph, f"{name}_{what}", np.array(array))
        return self.shared[key]


def _channels(node: ir.Node, weight: Array) -> int:
    """Output channels of a Conv, ConvTranspose or Gemm."""
    if node.op_type == "Conv":
        return int(weight.shape[0])
    if node.op_type == "ConvTranspose":
        group = node.attributes.get("group")
        return int(weight.shape[1]) * (1 if group is None else int(group.as_int()))
    trans = node.attributes.get("transB")
    return int(weight.shape[0 if trans is not None and trans.as_int() else 1])


def _per_channel(bias: Array, channels: int) -> Array | None:
    """A bias as a vector over output channels; None if it varies along another axis too."""
    if any(d != 1 for d in bias.shape[:-1]) or bias.size not in (1, channels):
        return None
    return np.broadcast_to(bias.reshape(-1), (channels,))
