"""A scale of its own for each channel that a depthwise convolution reads.

One scale serves all channels of a tensor, and channels differ by factors of a hundred: small ones are left with a few
integers. A convolution that mixes channels drowns that in its sum; a depthwise one hands it on, channel by channel. It
also makes the mending free: what it reads is divided by a number for each channel, and its weight, which has one scale
a channel anyway, multiplied by it. Where the tensor comes from a convolution, or from a multiplication with constants,
the division is done by their constants and nothing is computed that was not before.

What comes out of Relu or Relu6 is left alone: there a channel can be silent on all the data that were looked at and
speak up later, and would then saturate (EfficientNet-Lite0 on other photographs lost 20 decibel by that).

This happens while a plan is applied, with what a second look at the data told (`requant.quant.moments`): plans and
tables know nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from requant.passes.rewrite import (
    Array,
    attribute,
    constant,
    initializer,
    is_default,
    replace_constant,
    sole_user,
    unique,
)
from requant.qmath import QuantParams, Range
from requant.quant.forms import activation_params
from requant.quant.moments import Moments
from requant.quant.plan import Plan
from requant.quant.roles import is_float32
from requant.scheme import Scheme

F64 = npt.NDArray[np.float64]

#: A channel is divided by no less than this share of what the largest is divided by: data that were not looked at may
#: reach further.
_SMALLEST = 1 / 64
#: How far the common range reaches below zero beside above it.
_BELOW = (0.03, 0.06, 0.125, 0.25, 0.5, 1.0, 2.0)
#: Noise beside that with one scale for all channels, from which on it is worth doing.
_WORTH = 0.8
#: Operators behind which a channel may be silent.
_SILENCING = frozenset({"Relu", "Clip", "MaxPool"})
#: Element-wise operators into whose kernel a multiplication behind them goes.
_ELEMENTWISE = frozenset({"Mul", "Add", "Sub", "Div", "HardSwish", "HardSigmoid", "Sigmoid", "Elu", "Gelu"})


@dataclass(frozen=True)
class _Levels:
    """What channels are divided by, at most 1, and the parameters of the result."""

    factors: F64
    params: QuantParams


def level_channels(
    model: ir.Model,
    plan: Plan,
    params: Mapping[str, QuantParams],
    means: Mapping[str, Array] | None,
    moments: Mapping[str, Moments],
) -> tuple[dict[str, QuantParams], dict[str, Array] | None, list[ir.Value]]:
    """Divide the channels of what int8 depthwise convolutions read, where that makes less noise.

    Args:
        model: the float model that is about to be quantized; changed in place, to one that computes the same.
        plan: its plan.
        params: of each tensor of the plan.
        means: channel means by tensor.
        moments: by node name; those of depthwise convolutions hold the ends of each channel.

    Returns:
        ``params`` and ``means`` of the changed model, and the tensors whose channels were divided.
    """
    editor = _Leveler(model.graph, plan, moments)
    new, shifted = dict(params), None if means is None else dict(means)
    changed = []
    for value, readers in list(editor.candidates()):
        name = str(value.name)
        levels = editor.levels(value, readers, params[name])
        divided = None if levels is None else editor.divide(value, levels.factors)
        if levels is None or divided is None:
            continue
        for reader in readers:
            weight = constant(reader.inputs[1])
            assert weight is not None
            by_row = np.repeat(levels.factors, weight.shape[0] // len(levels.factors))
            replace_constant(model.graph, reader, 1, _scaled(weight, by_row, 0))
        new[name] = levels.params
        if shifted is not None and name in shifted:
            shifted[name] = np.asarray(shifted[name]) / levels.factors
        changed.append(divided)
    return new, shifted, changed


def is_depthwise(node: ir.Node) -> bool:
    """A convolution with a constant weight whose every output channel reads one input channel of several."""
    weight = constant(node.inputs[1]) if node.op_type == "Conv" else None
    return weight is not None and weight.shape[1] == 1 and int(attribute(node, "group", 1)) > 1


def may_be_leveled(node: ir.Node) -> bool:
    """A depthwise convolution of what neither Relu nor Relu6 made: the ends of its channels are of use."""
    source = node.inputs[0].producer() if is_depthwise(node) and node.inputs[0] is not None else None
    return source is not None and source.op_type not in _SILENCING


class _Leveler:
    def __init__(self, graph: ir.Graph, plan: Plan, moments: Mapping[str, Moments]) -> None:
        self.graph, self.plan, self.moments = graph, plan, moments
        self.chosen = {d.node: d for d in plan.decisions}
        self.tensors = {t.name for t in plan.tensors}

    def candidates(self) -> Iterator[tuple[ir.Value, list[ir.Node]]]:
        """Tensors that int8 depthwise convolutions alone read, with a scale that no other tensor shares."""
        values = {str(v.name): v for n in self.graph for v in n.outputs}
        for members in self.plan.groups.values():
            value = values.get(members[0]) if len(members) == 1 else None
            if value is None or value.is_graph_output() or not is_float32(value):
                continue
            uses = list(value.uses())
            if uses and all(use.idx == 0 and self._reads(use.node) for use in uses):
                yield value, [use.node for use in uses]

    def _reads(self, node: ir.Node) -> bool:
        decision, seen = self.chosen.get(str(node.name)), self.moments.get(str(node.name))
        return (
            decision is not None
            and decision.chosen == "int8"
            and decision.weight == 1
            and seen is not None
            and seen.low is not None
            and may_be_leveled(node)
        )

    # -- how large ---------------------------------------------------------------------------------------------------

    def levels(self, value: ir.Value, readers: list[ir.Node], params: QuantParams) -> _Levels | None:
        """What to divide the channels by; None if that gains little."""
        seen = [self.moments[str(n.name)] for n in readers]
        lows, highs = [m.low for m in seen if m.low is not None], [m.high for m in seen if m.high is not None]
        if len({len(a) for a in lows}) != 1:
            return None
        variance = seen[0].variance
        if len(variance) != len(lows[0]):
            return None
        low, high = np.min(lows, axis=0), np.max(highs, axis=0)
        alive = variance > 1e-12 * max(float(variance.max()), 1e-30)
        if not alive.any():
            return None
        before = _noise(np.full(len(variance), float(params.scale)), variance, alive)
        found = _best(self.plan.scheme_of([str(value.name)]), low, high, variance, alive)
        return found[1] if found is not None and found[0] <= _WORTH * before else None

    # -- by whom -----------------------------------------------------------------------------------------------------

    def divide(self, value: ir.Value, factors: F64) -> ir.Value | None:
        """Divide the channels of a tensor, by the constants that it is made with if there are such.

        Returns:
            The divided tensor, under the name of the given one; None if nothing could divide it for free.
        """
        if self._by_constants(value, factors, dry=True):
            self._by_constants(value, factors, dry=False)
            return value
        node = value.producer()
        decision = None if node is None else self.chosen.get(str(node.name))
        if (
            node is None
            or decision is None
            or decision.chosen not in ("float", "fused")
            or node.op_type not in _ELEMENTWISE
        ):
            return None
        if value.shape is None:
            return None
        name = str(value.name)
        divisor = initializer(
            self.graph, f"{name}_levels", (1 / factors).astype(np.float32).reshape(-1, *[1] * (value.shape.rank() - 2))
        )
        value.name = unique(self.graph, f"{name}_whole")
        out = ir.Value(name=name, shape=value.shape, type=value.type)
        made = ir.Node("", "Mul", [value, divisor], outputs=[out], name=unique(self.graph, f"{name}/levels"))
        for use in list(value.uses()):
            if use.node is not made:
                use.node.replace_input_with(use.idx, out)
        self.graph.insert_after(node, made)
        return out

    def _by_constants(self, value: ir.Value, factors: F64, *, dry: bool) -> bool:
        node = value.producer()
        if node is None or not is_default(node) or not node.inputs or node.inputs[0] is None:
            return False
        op = node.op_type
        if op == "Conv":
            weight, bias = constant(node.inputs[1]), node.inputs[2] if len(node.inputs) > 2 else None
            vector = None if bias is None else constant(bias)
            if weight is None or len(weight) != len(factors) or (bias is not None and vector is None):
                return False
            if not dry:
                replace_constant(self.graph, node, 1, _scaled(weight, 1 / factors, 0))
                if vector is not None:
                    replace_constant(self.graph, node, 2, (vector / factors).astype(vector.dtype))
            return True
        if op == "LeakyRelu":
            source = node.inputs[0]
            return self._own(source, node) and self._by_constants(source, factors, dry=dry)
        if op in ("Add", "Mul") and len(node.inputs) == 2:
            at = next((i for i in (0, 1) if constant(node.inputs[i]) is not None), None)
            number = None if at is None else constant(node.inputs[at])
            shape = value.shape
            if at is None or number is None or shape is None or shape.rank() < 3:
                return False
            full = (1,) * (shape.rank() - number.ndim) + number.shape
            if len(full) != shape.rank() or any(d != 1 for i, d in enumerate(full) if i != 1):
                return False
            other = node.inputs[1 - at]
            if op == "Add" and (
                other is None or not self._own(other, node) or not self._by_constants(other, factors, dry=dry)
            ):
                return False
            if not dry:
                divisor = factors.reshape(-1, *[1] * (shape.rank() - 2))
                replace_constant(self.graph, node, at, (number.astype(np.float64) / divisor).astype(number.dtype))
            return True
        return False

    def _own(self, value: ir.Value, reader: ir.Node) -> bool:
        """Nobody else reads the tensor, and it has no quantizer."""
        return sole_user(value) is reader and str(value.name) not in self.tensors


def _scaled(weight: Array, by: F64, axis: int) -> Array:
    shape = [-1 if i == axis else 1 for i in range(weight.ndim)]
    return np.ascontiguousarray((weight.astype(np.float64) * by.reshape(shape)).astype(weight.dtype))


def _best(
    scheme: Scheme, low: F64, high: F64, variance: F64, alive: npt.NDArray[np.bool_]
) -> tuple[float, _Levels] | None:
    """The least noise, and the levels that make it."""
    found: list[tuple[float, _Levels]] = []
    for below in (0.0,) if (low >= 0).all() and scheme.unsigned else _BELOW:
        need = np.maximum(high, -low / below) if below else high
        largest = float(need[alive].max(initial=0.0))
        if not (np.isfinite(largest) and largest > 0):
            continue
        factors = np.where(alive, np.clip(need / largest, _SMALLEST, 1.0), 1.0)
        params = activation_params(scheme, Range(-below * largest, largest))
        found.append((_noise(factors * float(params.scale), variance, alive), _Levels(factors, params)))
    return min(found, key=lambda f: f[0]) if found else None


def _noise(steps: F64, variance: F64, alive: npt.NDArray[np.bool_]) -> float:
    """Noise of rounding beside the signal, mean over channels; no channel counts for more than all of its signal."""
    return float(np.minimum(steps[alive] ** 2 / 12 / variance[alive], 1.0).mean())
