"""INT8 layers that move values: flatten, reshape, transpose, concat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.ops import ranges
from requant.ops.emit import Emit, Value
from requant.ops.pooling import FlattenAttrs, flatten
from requant.ops.quantized_linear import OUTPUTS
from requant.ops.ranges import INT8, UINT8, Triple
from requant.ops.registry import op
from requant.ops.reshape import NumpyReshapeAttrs, npx_reshape
from requant.ops.shape import TransposeAttrs, transpose

_DATA = ("data", "min_data", "max_data")


@op(
    "_contrib_quantized_flatten",
    "_npx_quantized_flatten",
    inputs=_DATA,
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=ranges.range_rule,
    param_types=ranges.int8_types,
)
def quantized_flatten(g: Emit, a: FlattenAttrs, data: Value, min_data: Value, max_data: Value) -> Triple:
    """(N, ...) to (N, everything else); the range is kept."""
    ranges.expect(g, data, "data", INT8, UINT8)
    return ranges.through(g, data, min_data, max_data, lambda x: flatten(g, a, x))


@dataclass(frozen=True, kw_only=True)
class QuantizedConcatAttrs(Attrs):
    num_args: int
    dim: int = 1


def _concat_names(a: QuantizedConcatAttrs) -> tuple[str, ...]:
    data = [f"arg{i}" for i in range(a.num_args)]
    return (*data, *(f"{name}_{end}" for name in data for end in ("min", "max")))


@op(
    "_contrib_quantized_concat",
    "_npx_quantized_concat",
    inputs=_concat_names,
    variadic="num_args",
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=ranges.range_rule,
    param_types=ranges.int8_types,
)
def quantized_concat(g: Emit, a: QuantizedConcatAttrs, **inputs: Value) -> Triple:
    """Joins int8 and uint8 data along ``dim`` at one scale.

    The result is int8 if any input is, and its range goes from the smallest minimum (0 at most) to the largest maximum
    (0 at least). Inputs of another scale are brought to it and rounded.
    """
    data = [inputs[f"arg{i}"] for i in range(a.num_args)]
    kinds = [ranges.expect(g, x, f"arg{i}", INT8, UINT8) for i, x in enumerate(data)]
    pairs = [(inputs[f"arg{i}_min"], inputs[f"arg{i}_max"]) for i in range(a.num_args)]
    kind = INT8 if INT8 in kinds else UINT8
    with g.folding():
        zero = g.const(np.zeros(1, np.float32))
        low = g("Min", zero, *(pair[0] for pair in pairs))
        high = g("Max", zero, *(pair[1] for pair in pairs))
    axis = g.axis(data[0], a.dim)
    if ranges.known(g, *pairs):
        joined = g("Concat", *(ranges.real(g, x, *pair) for x, pair in zip(data, pairs)), axis=axis)
        return ranges.integers(g, joined, kind, low, high), low, high
    scale = ranges.multiplier(g, kind, low, high)
    moved = []
    for x, pair, own in zip(data, pairs, kinds):
        with g.folding():
            ratio = g("Div", scale, ranges.multiplier(g, own, *pair))
        moved.append(ranges.saturated(g, g("Mul", g.cast(x, np.float32), ratio), kind))
    return g("Concat", *moved, axis=axis), low, high


@op(
    "_contrib_quantized_reshape",
    "_npx_quantized_reshape",
    inputs=_DATA,
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=ranges.range_rule,
    param_types=ranges.int8_types,
)
def quantized_reshape(g: Emit, a: NumpyReshapeAttrs, data: Value, min_data: Value, max_data: Value) -> Triple:
    """``_npx_reshape`` of int8 or uint8 data (MXNet 2.0); the range is kept."""
    ranges.expect(g, data, "data", INT8, UINT8)
    return ranges.through(g, data, min_data, max_data, lambda x: npx_reshape(g, a, x))


@op(
    "_contrib_quantized_transpose",
    "_npx_quantized_transpose",
    inputs=_DATA,
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=ranges.range_rule,
    param_types=ranges.int8_types,
)
def quantized_transpose(g: Emit, a: TransposeAttrs, data: Value, min_data: Value, max_data: Value) -> Triple:
    """``transpose`` of int8 or uint8 data (MXNet 2.0); the range is kept."""
    ranges.expect(g, data, "data", INT8, UINT8)
    return ranges.through(g, data, min_data, max_data, lambda x: transpose(g, a, x))
