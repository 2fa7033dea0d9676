"""MXNet's fused convolution, ``_sg_mkldnn_conv``: float, and quantized with per-channel weights.

A quantized node holds float parameters: batch normalization is folded and weights are quantized here. On arrays and for
parameters that are inputs, the arithmetic is MXNet's (mxnet 1.9, except that each channel of a grouped convolution
keeps its own scale, a sum is stored in the declared type, and a clip cuts at its own bound). In a graph it becomes
DequantizeLinear → Conv → … → QuantizeLinear with int8 weights, which engines run as one int8 kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from requant.attrs import Attrs
from requant.errors import GraphError, ShapeError
from requant.ops import nested, ranges
from requant.ops.conv import ConvolutionAttrs, channels_last, convolution
from requant.ops.emit import Emit, Value
from requant.ops.fused_layer import FusedLayer
from requant.ops.nested import Chain, Nested
from requant.ops.normalization import BatchNormAttrs
from requant.ops.quantized_linear import accumulator_range, conv_sums, positions
from requant.ops.ranges import FLOAT32, INT8, UINT8, Range, Triple
from requant.ops.registry import Shape, op
from requant.qmath import MXNET_ZERO_RANGE_SCALE


@dataclass(frozen=True)
class FusedConvAttrs(Attrs):
    """Spellings of 1.4 (``with_relu``, ``weight_channelwise_scale``) to 2.0 (``dedup_sum``, ``enabled_float_output``).

    What a node does stands in its nested graph; of these, only ``quantized`` and the ranges add to it.
    """

    with_bn: bool = False
    with_act: bool = False
    with_sum: bool = False
    with_postsum_act: bool = False
    quantized: bool = False
    min_calib_range: float | None = None
    max_calib_range: float | None = None
    with_relu: bool = field(default=False, metadata={"since": "1.4"})
    with_postsum_relu: bool = field(default=False, metadata={"since": "1.4"})
    weight_channelwise_scale: bool = field(default=True, metadata={"since": "1.4"})
    dedup_sum: bool = field(default=False, metadata={"since": "2.0"})
    enabled_float_output: str | None = field(default=None, metadata={"since": "2.0"})


def _names(a: FusedConvAttrs, count: int | None = None) -> tuple[str, ...]:
    statistics = ("gamma", "beta", "mean", "var") if a.with_bn else ()
    added = ("sum",) if a.with_sum and not a.dedup_sum else ()
    ranged = ("data", *added) if a.quantized else ()
    ends = tuple(f"{n}_{end}" for n in ranged for end in ("min", "max"))
    plain = (*statistics, *added, *ends)
    bias = ("bias",) if count is None or count > 2 + len(plain) else ()
    return ("data", "weight", *bias, *plain)


def _outputs(a: FusedConvAttrs) -> tuple[str, ...]:
    return ("output", "output_min", "output_max") if a.quantized and not a.enabled_float_output else ("output",)


def _types(a: FusedConvAttrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    plain = dict.fromkeys(types, FLOAT32)
    return {**plain, "data": INT8, "sum": INT8} if a.quantized else plain


def _shapes(a: Attrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    return ranges.range_shapes(shapes)  # the others follow from the nested graph


@op(
    "_sg_mkldnn_conv",
    "_sg_onednn_conv",
    by_count=_names,
    outputs=_outputs,
    named_outputs=True,
    aux=("mean", "var"),
    param_shapes=_shapes,
    param_types=_types,
)
def fused_conv(
    g: Emit,
    a: FusedConvAttrs,
    data: Value,
    weight: Value,
    bias: Value | None = None,
    gamma: Value | None = None,
    beta: Value | None = None,
    mean: Value | None = None,
    var: Value | None = None,
    sum: Value | None = None,
    data_min: Value | None = None,
    data_max: Value | None = None,
    sum_min: Value | None = None,
    sum_max: Value | None = None,
    subgraphs: Sequence[Nested] = (),
) -> Value | Triple:
    """Convolution with batch normalization, sum and activations, as the nested graph has them.

    Quantized: int8 or uint8 data (and sum) with float32 parameters. With a calibrated range the result is uint8 if the
    last step is an activation that is never negative, else int8; without, int32 with its range.
    """
    graph = nested.only(g, subgraphs)
    inputs = [v for v in (data, weight, bias, gamma, beta, mean, var, sum) if v is not None]
    if not a.quantized:
        return nested.run(g, graph, inputs)
    if data_min is None or data_max is None:
        raise GraphError("a quantized node needs the range of its data", where=g.node, expected="data_min, data_max")
    chain = nested.read(g, graph, inputs, "Convolution")
    kind = ranges.expect(g, data, "data", INT8, UINT8)
    of = {data: (data_min, data_max)}
    if sum is not None and sum_min is not None and sum_max is not None:
        ranges.expect(g, sum, "sum", INT8, UINT8)
        of[sum] = (sum_min, sum_max)
    layer = _Layer(g, chain, kind, of)
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    if a.enabled_float_output:
        return layer.as_float()
    if calib is None:
        return layer.as_int32()
    return layer.as_int8(UINT8 if chain.unsigned else INT8, calib)


def fold_norm(g: Emit, chain: Chain, weight: Value, bias: Value | None) -> tuple[Value, Value | None]:
    """Weight and bias with the batch normalization folded into them."""
    if chain.norm is None:
        return weight, bias
    norm = cast(BatchNormAttrs, chain.norm)
    gamma, beta, mean, var = chain.statistics
    with g.folding():
        scale = g("Sqrt", g("Add", var, np.float32(norm.eps)))
        scale = g("Reciprocal", scale) if norm.fix_gamma else g("Div", gamma, scale)
        shift = g("Neg", mean) if bias is None else g("Sub", bias, mean)
        return g("Mul", weight, g.per_channel(scale, g.rank(weight), 0)), g("Add", beta, g("Mul", scale, shift))


def rounded_weight(g: Emit, weight: Value, scale: Value) -> Value:
    """``weight × scale`` as int8; ``scale`` has one number, or one for each output channel (dimension 0)."""
    with g.folding():
        units = g("Mul", weight, g.per_channel(scale, g.rank(weight), 0))
        return g.cast(g("Clip", g("Round", units), -128.0, 127.0), np.int8)


def channel_multipliers(g: Emit, weight: Value, bias: Value | None, of_data: Value | None) -> Value:
    """Integers per real number of each output channel's weights, (K,); dimension 0 of the weight is the channel.

    127.5 levels for the largest magnitude, and no more than keep a bias within half of int32 in units of the sums
    (``of_data``: integers per real number of the data; None if a bias is not stored as an integer).
    """
    with g.folding():
        flat = g.reshape(weight, [0, -1])
        reach = g.reduce("Max", g("Abs", flat), [1])
        found = g("Div", np.float32(127.5), reach)
        found = g("Where", g("Equal", reach, np.float32(0)), MXNET_ZERO_RANGE_SCALE, found)
        if bias is None or of_data is None:
            return found
        half = g("Div", g("Div", np.float32(2**30), g("Abs", bias)), of_data)
        return g("Where", g("Equal", bias, np.float32(0)), found, g("Min", found, half))


class _Layer(FusedLayer):
    """A quantized convolution that is being written: folded parameters, and what follows the sums."""

    def __init__(self, g: Emit, chain: Chain, kind: np.dtype, of: Mapping[Value, Range]) -> None:
        self.g, self.chain, self.of = g, chain, of
        self.attrs = cast(ConvolutionAttrs, chain.linear.parsed)
        if channels_last(self.attrs.layout):
            raise ShapeError("fused convolutions are channels first", where=g.node, got=self.attrs.layout)
        self.data, self.kind = chain.inputs["data"], kind
        self.weight, self.bias = fold_norm(g, chain, chain.inputs["weight"], chain.inputs.get("bias"))
        self.rank = len(self.attrs.kernel) + 2
        self.of_data = of[self.data]
        self.ds = ranges.multiplier(g, kind, *self.of_data)

    def _known(self) -> bool:
        """Whether the parameters are constants of a graph."""
        parts = (self.weight, self.bias)
        return not self.g.exact and all(v is None or self.g.value_of(v) is not None for v in parts)

    def _scales(self) -> bool:
        return all(step.scales for step in self.chain.steps)

    def _sums(self, multipliers: Value) -> Value:
        """The int32 sums, the bias included, of weights in these units (per channel or one for all)."""
        g = self.g
        if g.value_of(self.weight) is not None and g.value_of(multipliers) is None:
            sums = self._sums_of_constants(multipliers)
        else:
            sums = conv_sums(g, self.attrs, self.data, rounded_weight(g, self.weight, multipliers))
        if self.bias is None:
            return sums
        with g.folding():
            added = ranges.saturated32(g, g("Mul", self.bias, g("Mul", multipliers, self.ds)))
            added = g.per_channel(added, self.rank)
        return g("Add", sums, added)

    def _sums_of_constants(self, multipliers: Value) -> Value:
        """The sums without bias, of weights whose units depend on data: on how large a bias is beside them.

        It is so large only beside data that are next to nothing. So that engines multiply by constants, the sums are
        shrunk then, and not the weights.
        """
        g = self.g
        plain = channel_multipliers(g, self.weight, None, None)
        sums = conv_sums(g, self.attrs, self.data, rounded_weight(g, self.weight, plain))
        with g.folding():
            share = g.per_channel(g("Div", multipliers, plain), self.rank)
        return ranges.saturated32(g, g("Mul", g.cast(sums, np.float32), share))

    def _scaled(self, unit: Value) -> Value:
        """The sums per channel as float in ``1 / unit`` real numbers, and all steps applied."""
        g = self.g
        multipliers = channel_multipliers(g, self.weight, self.bias, self.ds)
        with g.folding():
            ratio = g.per_channel(g("Div", g("Div", unit, self.ds), multipliers), self.rank)
        x = g("Mul", g.cast(self._sums(multipliers), np.float32), ratio)
        for step in self.chain.steps:
            if step.other is None:
                x = step.apply(g, x, unit)
                continue
            own = ranges.multiplier(g, g.dtype(step.other), *self.of[step.other])
            x = g("Add", x, g("Mul", g.cast(step.other, np.float32), g("Div", unit, own)))
        return x

    def as_int32(self) -> Triple:
        """Sums without a calibrated range: weights in one unit, steps on integers."""
        g = self.g
        with g.folding():
            low = g.reshape(g.reduce("Min", self.weight, []), [1])
            high = g.reshape(g.reduce("Max", self.weight, []), [1])
        one = ranges.multiplier(g, INT8, low, high)
        x = self._sums(one)
        with g.folding():
            unit = g("Mul", self.ds, one)
        for step in self.chain.steps:
            if step.other is not None:
                own = ranges.multiplier(g, g.dtype(step.other), *self.of[step.other])
                moved = g("Mul", g.cast(step.other, np.float32), g("Div", unit, own))
                x = g("Add", x, ranges.saturated32(g, moved))
            elif step.slope == 0.0:
                x = g("Max", x, 0)
            else:
                x = ranges.saturated32(g, step.apply(g, g.cast(x, np.float32), unit))
        return x, *accumulator_range(g, self.kind, self.of_data, (low, high))

    def _real(self, skip_last: bool = False) -> Value:
        """The pattern for engines: dequantized data and weights, convolution, steps; all in real numbers."""
        g = self.g
        ds = ranges.number(g, self.ds)
        multipliers = channel_multipliers(g, self.weight, self.bias, None if ds is None else self.ds)
        ws = np.asarray(g.value_of(multipliers), np.float32)
        weight = rounded_weight(g, self.weight, multipliers)
        weight.name = f"{self.chain.inputs['weight'].name}_int8"
        parts = [ranges.restored(g, weight, 1 / ws, axis=0)]
        if ds is not None:
            if self.bias is not None:
                parts.append(self._restored_bias(multipliers, ws, ds))
            attrs, x = positions(g, self.attrs, self.data, self.of_data)
            x = convolution(g, attrs, x, *parts)
        else:  # a range that only a run can tell: the convolution runs on plain integers, its result is scaled
            x = convolution(g, self.attrs, ranges.restored(g, self.data, np.ones((), np.float32)), *parts)
            x = g("Mul", x, g.reshape(ranges.step(g, self.kind, *self.of_data), [1] * self.rank))
            if self.bias is not None:
                x = g("Add", x, g.per_channel(self.bias, self.rank))
        for step in self.chain.steps[: -1 if skip_last else None]:
            if step.other is None:
                x = step.apply(g, x)
            else:
                x = g("Add", x, ranges.real(g, step.other, *self.of[step.other]))
        return x

    def _restored_bias(self, multipliers: Value, ws: np.ndarray, ds: float) -> Value:
        """The bias as int32 in units of the sums, and back."""
        g = self.g
        with g.folding():
            integers = ranges.saturated32(g, g("Mul", cast(Value, self.bias), g("Mul", multipliers, self.ds)))
        return ranges.restored(g, integers, 1 / (ws * np.float32(ds)), axis=0)
