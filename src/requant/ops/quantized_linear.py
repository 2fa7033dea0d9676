"""INT8 convolution, fully connected and embedding: 8-bit products summed in int32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from requant.errors import ShapeError
from requant.ops import ranges
from requant.ops.conv import (
    ConvolutionAttrs,
    FullyConnectedAttrs,
    channels_last,
    channels_to_back,
    channels_to_front,
    check_rank,
    convolution,
    fully_connected,
    spatial,
)
from requant.ops.emit import Emit, Value
from requant.ops.indexing import EmbeddingAttrs, embedding
from requant.ops.ranges import FLOAT32, INT8, INT32_LEVELS, UINT8, Range, Triple
from requant.ops.registry import Shape, find, op
from requant.qmath import Levels

OUTPUTS = ("output", "min_output", "max_output")


def _names(a: ConvolutionAttrs | FullyConnectedAttrs) -> tuple[str, ...]:
    parts = ("data", "weight") if a.no_bias else ("data", "weight", "bias")
    return (*parts, *(f"{end}_{part}" for part in parts for end in ("min", "max")))


def _shapes_of(float_op: str) -> Any:
    """The shape rule of a float operator, and (1,) for ranges."""

    def rule(a: Any, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
        plain = find(float_op)
        assert plain is not None and plain.param_shapes is not None
        return {**plain.param_shapes(a, shapes), **ranges.range_shapes(shapes)}

    return rule


def _types(a: Any, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return {"data": INT8, "weight": INT8, "bias": INT8, **ranges.range_types(types)}


def accumulator_step(g: Emit, data: np.dtype, of_data: Range, of_weight: Range) -> Value:
    """Real numbers per integer of an int32 accumulator of products, (1,): 127 levels for int8, 255 for uint8."""
    with g.folding():
        weight = ranges.step(g, INT8, *of_weight, "R7")
        return g("Mul", weight, ranges.step(g, data, *of_data, "R7"))


def accumulator_range(g: Emit, data: np.dtype, of_data: Range, of_weight: Range) -> Range:
    """The range (-M, M) that MXNet gives an int32 accumulator: one integer stands for ``M / 2147483647``."""
    with g.folding():
        high = g("Mul", accumulator_step(g, data, of_data, of_weight), INT32_LEVELS)
        return g("Neg", high), high


def conv_sums(g: Emit, a: ConvolutionAttrs, data: Value, weight: Value) -> Value:
    """The int32 sums of a convolution of 8-bit data (N, C, *spatial) with int8 weights, 1-D to 3-D."""
    n = len(a.kernel)
    check_rank(g, data, a.kernel)
    pads = spatial(a.pad, n, 0, "pad", g.node)
    return g(
        "ConvInteger",
        data,
        weight,
        kernel_shape=list(a.kernel),
        strides=spatial(a.stride, n, 1, "stride", g.node),
        dilations=spatial(a.dilate, n, 1, "dilate", g.node),
        pads=pads + pads,
        group=a.num_group,
    )


def positions(
    g: Emit, a: ConvolutionAttrs, data: Value, of_data: Range, levels: Levels = "R8"
) -> tuple[ConvolutionAttrs, Value]:
    """The data of a convolution in real numbers. A kernel of one position that skips others gets only those it reads.

    Both branches of a residual block begin so, and then share them; OpenVINO would compute such convolutions in float,
    because it skips the positions before them by itself, between the quantizers.
    """
    x = ranges.real(g, data, *of_data, levels)
    if max(a.kernel) > 1 or max(a.stride or (1,)) == 1 or any(a.pad):
        return a, x
    key = (x, repr(a.stride).encode())
    if key not in g.reals:
        read = g("MaxPool", x, kernel_shape=list(a.kernel), strides=list(a.stride))
        g.reals[key] = ranges.integers(g, read, g.dtype(data), *of_data, levels)
    return replace(a, stride=()), ranges.real(g, g.reals[key], *of_data, levels)


def fc_sums(g: Emit, a: FullyConnectedAttrs, data: Value, weight: Value) -> Value:
    """The int32 sums of a fully connected layer of 8-bit data with int8 weights (H, D)."""
    if a.flatten and g.rank(data) != 2:
        data = g("Flatten", data, axis=1)
    return g("MatMulInteger", data, g("Transpose", weight, perm=[1, 0]))


@op(
    "_contrib_quantized_conv",
    "_npx_quantized_conv",
    inputs=_names,
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=_shapes_of("Convolution"),
    param_types=_types,
)
def quantized_conv(
    g: Emit,
    a: ConvolutionAttrs,
    data: Value,
    weight: Value,
    bias: Value | None = None,
    min_data: Value | None = None,
    max_data: Value | None = None,
    min_weight: Value | None = None,
    max_weight: Value | None = None,
    min_bias: Value | None = None,
    max_bias: Value | None = None,
) -> Triple:
    """Convolution of int8 or uint8 data with int8 weights and bias, summed in int32; 1-D to 3-D, groups, dilation.

    Returns int32 sums and their range (-M, M), ``M = (max|data| / 127) (max|weight| / 127) 2147483647``, 255 levels for
    uint8 data. The bias is brought to the scale of the sums and rounded. (MXNet 1.9.1 on a CPU adds it as it stands,
    and reports the range of int8 data for uint8 data.)
    """
    assert min_data is not None and max_data is not None and min_weight is not None and max_weight is not None
    kind = ranges.expect(g, data, "data", INT8, UINT8)
    ranges.expect(g, weight, "weight", INT8)
    of_data, of_weight, pairs = (min_data, max_data), (min_weight, max_weight), []
    last = channels_last(a.layout)
    moved = (channels_to_front(g, data), channels_to_front(g, weight)) if last else (data, weight)
    sums = conv_sums(g, a, *moved)
    if bias is not None:
        assert min_bias is not None and max_bias is not None
        ranges.expect(g, bias, "bias", INT8)
        pairs = [(min_bias, max_bias)]
        with g.folding():
            ratio = g(
                "Div", ranges.step(g, INT8, min_bias, max_bias, "R7"), accumulator_step(g, kind, of_data, of_weight)
            )
            added = ranges.saturated32(g, g("Mul", g.cast(bias, np.float32), ratio))
            added = g.per_channel(added, g.rank(sums))
        sums = g("Add", sums, added)
    out = channels_to_back(g, sums) if last else sums
    if ranges.known(g, of_data, of_weight, *pairs):
        plain, x = (a, ranges.real(g, data, *of_data, "R7")) if last else positions(g, a, data, of_data, "R7")
        parts = [ranges.real(g, weight, *of_weight, "R7")]
        parts += [ranges.real(g, bias, *pair, "R7") for pair in pairs if bias is not None]
        unit = accumulator_step(g, kind, of_data, of_weight) if bias is None else None
        ranges.set_real(g, out, convolution(g, plain, x, *parts), unit)
    return out, *accumulator_range(g, kind, of_data, of_weight)


@op(
    "_contrib_quantized_fully_connected",
    "_npx_quantized_fully_connected",
    inputs=_names,
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=_shapes_of("FullyConnected"),
    param_types=_types,
)
def quantized_fully_connected(
    g: Emit,
    a: FullyConnectedAttrs,
    data: Value,
    weight: Value,
    bias: Value | None = None,
    min_data: Value | None = None,
    max_data: Value | None = None,
    min_weight: Value | None = None,
    max_weight: Value | None = None,
    min_bias: Value | None = None,
    max_bias: Value | None = None,
) -> Triple:
    """``data · weightᵀ + bias`` of int8 or uint8 data with int8 weights and bias, summed in int32.

    Returns int32 sums and their range as ``_contrib_quantized_conv`` does. The bias is brought to the scale of the sums
    (with 127.5 and 255.5 levels, as MXNet does) and truncated.
    """
    assert min_data is not None and max_data is not None and min_weight is not None and max_weight is not None
    kind = ranges.expect(g, data, "data", INT8, UINT8)
    ranges.expect(g, weight, "weight", INT8)
    of_data, of_weight = (min_data, max_data), (min_weight, max_weight)
    sums = fc_sums(g, a, data, weight)
    added: Value | None = None
    if bias is not None:
        assert min_bias is not None and max_bias is not None
        ranges.expect(g, bias, "bias", INT8)
        with g.folding():
            scale = g(
                "Mul",
                ranges.multiplier(g, kind, *of_data),
                ranges.multiplier(g, INT8, *of_weight),
            )
            ratio = g("Mul", scale, ranges.step(g, INT8, min_bias, max_bias))
            added = g.cast(g("Mul", g.cast(bias, np.float32), ratio), np.int32)
        sums = g("Add", sums, added)
    if ranges.known(g, of_data, of_weight):
        _real_fc(g, a, sums, data, weight, added, of_data, of_weight)
    return sums, *accumulator_range(g, kind, of_data, of_weight)


def _real_fc(
    g: Emit,
    a: FullyConnectedAttrs,
    sums: Value,
    data: Value,
    weight: Value,
    added: Value | None,
    of_data: Range,
    of_weight: Range,
) -> None:
    """The real numbers of a fully connected layer's sums, from dequantized data, weight and bias."""
    parts = [ranges.real(g, data, *of_data, "R7"), ranges.real(g, weight, *of_weight, "R7")]
    if added is not None:
        one = ranges.number(g, accumulator_step(g, g.dtype(data), of_data, of_weight))
        assert one is not None
        if g.value_of(added) is None:
            parts.append(g("Mul", g.cast(added, np.float32), np.float32(one)))
        else:
            parts.append(ranges.restored(g, added, np.asarray(one, np.float32)))
    unit = accumulator_step(g, g.dtype(data), of_data, of_weight)
    ranges.set_real(g, sums, fully_connected(g, a, *parts), unit)


def _embedding_types(a: EmbeddingAttrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return {"data": FLOAT32, "weight": INT8, **ranges.range_types(types)}


@op(
    "_contrib_quantized_embedding",
    "_npx_quantized_embedding",
    inputs=("data", "weight", "min_weight", "max_weight"),
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=_shapes_of("Embedding"),
    param_types=_embedding_types,
)
def quantized_embedding(
    g: Emit, a: EmbeddingAttrs, data: Value, weight: Value, min_weight: Value, max_weight: Value
) -> Triple:
    """Rows of an int8 weight (input_dim, output_dim) by index; indices out of range are clipped. The range is kept."""
    ranges.expect(g, weight, "weight", INT8)
    if g.rank(weight) != 2:
        raise ShapeError("the weight of an embedding is a matrix", where=g.node, got=f"rank {g.rank(weight)}")
    return embedding(g, a, data, weight), min_weight, max_weight
