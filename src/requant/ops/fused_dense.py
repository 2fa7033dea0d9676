"""MXNet's fused fully connected layer, ``_sg_mkldnn_fully_connected``: float, quantized, with float or int8 results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from requant.attrs import Attrs
from requant.errors import AttributeValueError, GraphError
from requant.ops import nested, ranges
from requant.ops.conv import FullyConnectedAttrs, fully_connected
from requant.ops.emit import Emit, Value
from requant.ops.fused import channel_multipliers, rounded_weight
from requant.ops.fused_layer import FusedLayer, outputs
from requant.ops.nested import Chain, Nested
from requant.ops.quantized_linear import accumulator_range, fc_sums
from requant.ops.ranges import FLOAT32, INT8, UINT8, Range, Triple
from requant.ops.registry import Shape, op


@dataclass(frozen=True)
class FusedDenseAttrs(Attrs):
    """Spellings of 1.5 (``with_relu``) to 2.0 (``with_sum``, ``enabled_float_output``)."""

    quantized: bool = False
    enable_float_output: bool = False
    with_eltwise: bool = False
    min_calib_range: float | None = None
    max_calib_range: float | None = None
    channel_wise_quantize: bool | None = None
    with_relu: bool = field(default=False, metadata={"since": "1.5"})
    with_sum: bool = field(default=False, metadata={"since": "2.0"})
    enabled_float_output: str | None = field(default=None, metadata={"since": "2.0"})

    @property
    def float_output(self) -> bool:
        return self.enable_float_output or self.enabled_float_output is not None


def _names(a: FusedDenseAttrs, count: int | None = None) -> tuple[str, ...]:
    whole, without = (_names_with(a, bias) for bias in (True, False))
    return without if count is not None and count <= len(without) else whole


def _names_with(a: FusedDenseAttrs, bias: bool) -> tuple[str, ...]:
    parts = ("data", "weight", "bias") if bias else ("data", "weight")
    added = ("sum",) if a.with_sum else ()
    if not a.quantized:
        return parts + added
    ranged: tuple[str, ...] = ("data",) if a.channel_wise_quantize else parts
    if a.with_sum and a.enabled_float_output is None:
        ranged += added
    return (*parts, *added, *(f"{end}_{n}" for n in ranged for end in ("min", "max")))


def _types(a: FusedDenseAttrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    if not a.quantized:
        return dict.fromkeys(types, FLOAT32)
    parameters = FLOAT32 if a.channel_wise_quantize else INT8
    added = INT8 if a.enabled_float_output is None else FLOAT32
    return {"data": INT8, "weight": parameters, "bias": parameters, "sum": added, **ranges.range_types(types)}


def _shapes(a: Attrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    return ranges.range_shapes(shapes)  # the others follow from the nested graph


@op(
    "_sg_mkldnn_fully_connected",
    "_sg_onednn_fully_connected",
    by_count=_names,
    outputs=outputs,
    named_outputs=True,
    param_shapes=_shapes,
    param_types=_types,
)
def fused_fully_connected(
    g: Emit,
    a: FusedDenseAttrs,
    data: Value,
    weight: Value,
    bias: Value | None = None,
    sum: Value | None = None,
    min_data: Value | None = None,
    max_data: Value | None = None,
    min_weight: Value | None = None,
    max_weight: Value | None = None,
    min_bias: Value | None = None,
    max_bias: Value | None = None,
    min_sum: Value | None = None,
    max_sum: Value | None = None,
    subgraphs: Sequence[Nested] = (),
) -> Value | Triple:
    """Fully connected layer with an activation (and a sum, in MXNet 2.0), as the nested graph has them.

    Quantized: int8 or uint8 data with int8 weight and bias and their ranges, or with float32 ones, which are quantized
    here by output channel (``channel_wise_quantize``). The result is float32, or 8-bit for a calibrated range, or int32
    with its range. It is uint8 where the activation is never negative (a leaky one may be; MXNet 1.9.1 cuts it off).
    """
    graph = nested.only(g, subgraphs)
    inputs = [v for v in (data, weight, bias, sum) if v is not None]
    if not a.quantized:
        return nested.run(g, graph, inputs)
    if min_data is None or max_data is None:
        raise GraphError("a quantized node needs the range of its data", where=g.node, expected="min_data, max_data")
    chain = nested.read(g, graph, inputs, "FullyConnected")
    kind = ranges.expect(g, data, "data", INT8, UINT8)
    of: dict[Value, Range] = {data: (min_data, max_data)}
    for value, low, high in ((weight, min_weight, max_weight), (bias, min_bias, max_bias), (sum, min_sum, max_sum)):
        if value is not None and low is not None and high is not None:
            of[value] = (low, high)
    layer = _Layer(g, chain, kind, of)
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    if a.float_output:
        return layer.as_float()
    if calib is not None:
        return layer.as_int8(UINT8 if chain.unsigned else INT8, calib)
    if a.channel_wise_quantize:
        raise AttributeValueError(
            "weights quantized by channel need a calibrated range or float output",
            where=g.node,
            next="calibrate the graph, or quantize with quantize_granularity='tensor-wise'",
        )
    return layer.as_int32()


class _Layer(FusedLayer):
    """A quantized fully connected layer that is being written.

    Attributes:
        weight: int8 (H, D).
        ws: integers per real number of the weight, (1,) or (H,).
        added: the bias as int32 in units of the sums.
    """

    def __init__(self, g: Emit, chain: Chain, kind: np.dtype, of: Mapping[Value, Range]) -> None:
        self.g, self.chain, self.kind, self.of = g, chain, kind, of
        self.attrs = cast(FullyConnectedAttrs, chain.linear.parsed)
        self.data = chain.inputs["data"]
        self.of_data = of[self.data]
        self.ds = ranges.multiplier(g, kind, *self.of_data)
        self.added: Value | None = None
        weight, bias = chain.inputs["weight"], chain.inputs.get("bias")
        if weight in of:
            self._tensor_wise(weight, bias)
        else:
            self._channel_wise(weight, bias)
        self.name = weight.name

    def _tensor_wise(self, weight: Value, bias: Value | None) -> None:
        g = self.g
        ranges.expect(g, weight, "weight", INT8)
        self.weight, self.ws = weight, ranges.multiplier(g, INT8, *self.of[weight])
        if bias is None:
            return
        ranges.expect(g, bias, "bias", INT8)
        with g.folding():
            bs = ranges.multiplier(g, INT8, *self.of[bias])
            ratio = g("Div", g("Mul", self.ds, self.ws), bs)
            most = g("Div", g("Div", np.float32(2**30 - 1), ranges.largest(g, *self.of[bias])), bs)
            # A bias too large for its sums makes the weights count less, so that both fit.
            less = g("Min", g("Div", most, ratio), np.float32(1))
            shrunk = rounded_weight(g, g.cast(weight, np.float32), less)
            if g.value_of(less) is None or ranges.number(g, less) != 1.0:
                self.weight, self.ws = shrunk, g("Mul", self.ws, less)
            reach = g("Mul", g.cast(bias, np.float32), g("Min", ratio, most))
            away = g("Mul", g("Sign", reach), g("Floor", g("Add", g("Abs", reach), np.float32(0.5))))
            self.added = g.cast(away, np.int32)

    def _channel_wise(self, weight: Value, bias: Value | None) -> None:
        g = self.g
        ranges.expect(g, weight, "weight", FLOAT32)
        self.ws = channel_multipliers(g, weight, bias, self.ds)
        self.weight = rounded_weight(g, weight, self.ws)
        if bias is not None:
            with g.folding():
                self.added = ranges.saturated32(g, g("Mul", bias, g("Mul", self.ws, self.ds)))

    def _known(self) -> bool:
        """Whether everything but the data is a constant of a graph."""
        g = self.g
        parts = (self.weight, self.ws, self.ds, self.added)
        return not g.exact and all(v is None or g.value_of(v) is not None for v in parts)

    def _scales(self) -> bool:
        return not self.chain.steps

    def _sums(self) -> Value:
        sums = fc_sums(self.g, self.attrs, self.data, self.weight)
        return sums if self.added is None else self.g("Add", sums, self.added)

    def _scaled(self, unit: Value) -> Value:
        """The sums as float in ``1 / unit`` real numbers, and all steps applied."""
        g = self.g
        with g.folding():
            ratio = g("Div", g("Div", unit, self.ds), self.ws)
        x = g("Mul", g.cast(self._sums(), np.float32), ratio)
        for step in self.chain.steps:
            x = step.apply(g, x, unit) if step.other is None else g("Add", x, g("Mul", self._other(step.other), unit))
        return x

    def _other(self, other: Value) -> Value:
        """The real numbers of a summand."""
        return ranges.real(self.g, other, *self.of[other]) if other in self.of else other

    def as_int32(self) -> Triple:
        """Sums without a calibrated range; steps on integers."""
        g = self.g
        x = self._sums()
        with g.folding():
            unit = g("Mul", self.ds, self.ws)
        for step in self.chain.steps:
            if step.other is not None:
                x = g("Add", x, ranges.saturated32(g, g("Mul", self._other(step.other), unit)))
            elif step.slope == 0.0:
                x = g("Max", x, 0)
            else:
                x = ranges.saturated32(g, step.apply(g, g.cast(x, np.float32), unit))
        return x, *accumulator_range(g, self.kind, self.of_data, self.of[self.chain.inputs["weight"]])

    def _real(self, skip_last: bool = False) -> Value:
        """The pattern for engines: dequantized data, weight and bias; all in real numbers."""
        g = self.g
        ws = np.asarray(g.value_of(self.ws), np.float32)
        ds = np.asarray(g.value_of(self.ds), np.float32)
        if self.weight.producer() is None and self.weight.name not in g.initializers:
            self.weight.name = f"{self.name}_int8"
        whole = ws.size == 1
        scale = ws.reshape(()) if whole else ws
        parts = [ranges.restored(g, self.weight, 1 / scale, axis=None if whole else 0)]
        if self.added is not None:
            units = scale * ds.reshape(())
            parts.append(ranges.restored(g, self.added, 1 / units, axis=None if whole else 0))
        x: Value = fully_connected(g, self.attrs, ranges.real(g, self.data, *self.of_data), *parts)
        for step in self.chain.steps[: -1 if skip_last else None]:
            x = step.apply(g, x) if step.other is None else g("Add", x, self._other(step.other))
        return x
