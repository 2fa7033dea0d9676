"""Fused products of activations, float and int8: self-attention of MXNet 1.9, ``batch_dot`` of 2.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from requant.attrs import Attrs
from requant.errors import GraphError
from requant.ops import ranges
from requant.ops.attention import AttentionAttrs, mix_heads, scores, selfatt_qk, selfatt_valatt, split_heads
from requant.ops.emit import Emit, Value
from requant.ops.fused_layer import outputs
from requant.ops.identity import root_of_size
from requant.ops.matrix import DotAttrs, batch_dot
from requant.ops.nested import Nested
from requant.ops.quantized_linear import accumulator_range
from requant.ops.ranges import FLOAT32, INT8, UINT8, Range, Triple
from requant.ops.registry import Shape, find, op


@dataclass(frozen=True, kw_only=True)
class FusedAttentionAttrs(Attrs):
    heads: int
    quantized: bool = False
    enable_float_output: bool = False
    min_calib_range: float | None = None
    max_calib_range: float | None = None
    enabled_float_output: str | None = field(default=None, metadata={"since": "2.0"})

    @property
    def float_output(self) -> bool:
        return self.enable_float_output or self.enabled_float_output is not None

    @property
    def plain(self) -> AttentionAttrs:
        return AttentionAttrs(self.heads)


def _qk_names(a: FusedAttentionAttrs) -> tuple[str, ...]:
    return ("queries_keys_values", "min_qkv", "max_qkv") if a.quantized else ("queries_keys_values",)


def _valatt_names(a: FusedAttentionAttrs) -> tuple[str, ...]:
    data = ("queries_keys_values", "attention")
    return (*data, "min_qkv", "max_qkv", "min_att", "max_att") if a.quantized else data


def _types(a: FusedAttentionAttrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    if not a.quantized:
        return dict.fromkeys(types, FLOAT32)
    return {"queries_keys_values": INT8, "attention": UINT8, **ranges.range_types(types)}


def _valatt_shapes(a: FusedAttentionAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    plain = find("_contrib_interleaved_matmul_selfatt_valatt")
    assert plain is not None and plain.param_shapes is not None
    return {**plain.param_shapes(a.plain, shapes), **ranges.range_shapes(shapes)}


def _value(x: object) -> Value:
    assert isinstance(x, Value)
    return x


def _finish(
    g: Emit,
    a: FusedAttentionAttrs | FusedBatchDotAttrs,
    sums: Callable[[], Value],
    real: Callable[[], Value],
    unit: Value,
    sums_range: Range,
    constant: bool,
) -> Value | Triple:
    """The result in the form that the attributes ask for. ``unit``: integers of the sums per real number."""
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    if a.float_output:
        if constant:
            return real()
        return g("Mul", g.cast(sums(), np.float32), g("Div", np.float32(1), unit))
    if calib is None:
        return sums(), *sums_range
    low, high = ranges.constant_range(g, calib)
    if constant:
        return ranges.integers(g, real(), INT8, low, high), low, high
    ratio = g("Div", ranges.multiplier(g, INT8, low, high), unit)
    return ranges.saturated(g, g("Mul", g.cast(sums(), np.float32), ratio), INT8), low, high


@op(
    "_sg_mkldnn_selfatt_qk",
    "_sg_onednn_selfatt_qk",
    inputs=_qk_names,
    outputs=outputs,
    named_outputs=True,
    param_shapes=ranges.range_rule,
    param_types=_types,
)
def fused_selfatt_qk(
    g: Emit,
    a: FusedAttentionAttrs,
    queries_keys_values: Value,
    min_qkv: Value | None = None,
    max_qkv: Value | None = None,
    subgraphs: Sequence[Nested] = (),
) -> Value | Triple:
    """Scores of self-attention, (T, N, heads · 3 · D) to (N · heads, T, T), divided by sqrt(D).

    Quantized: int8 data to float32, or to int8 of a calibrated range, or to int32 sums with their range.
    """
    if not a.quantized:
        return _value(selfatt_qk(g, a.plain, queries_keys_values))
    if min_qkv is None or max_qkv is None:
        raise GraphError("a quantized node needs the range of its data", where=g.node, expected="min_qkv, max_qkv")
    qkv, of = queries_keys_values, (min_qkv, max_qkv)
    kind = ranges.expect(g, qkv, "queries_keys_values", INT8, UINT8)
    queries, keys = split_heads(g, a.plain, qkv, 3, (0, 1))
    scale = ranges.multiplier(g, kind, *of)
    root = g.cast(root_of_size(g, queries, 3), np.float32)
    with g.folding():
        unit = g("Mul", g("Mul", scale, scale), root)
        reach = g("Div", accumulator_range(g, kind, of, of)[1], root)
        sums_range = g("Neg", reach), reach
    return _finish(
        g,
        a,
        lambda: scores(g, queries, keys, "MatMulInteger"),
        lambda: _value(selfatt_qk(g, a.plain, ranges.real(g, qkv, *of))),
        unit,
        sums_range,
        ranges.known(g, of),
    )


@op(
    "_sg_mkldnn_selfatt_valatt",
    "_sg_onednn_selfatt_valatt",
    inputs=_valatt_names,
    outputs=outputs,
    named_outputs=True,
    param_shapes=_valatt_shapes,
    param_types=_types,
)
def fused_selfatt_valatt(
    g: Emit,
    a: FusedAttentionAttrs,
    queries_keys_values: Value,
    attention: Value,
    min_qkv: Value | None = None,
    max_qkv: Value | None = None,
    min_att: Value | None = None,
    max_att: Value | None = None,
    subgraphs: Sequence[Nested] = (),
) -> Value | Triple:
    """Values of self-attention mixed: (T, N, heads · 3 · D), (N · heads, T, T) to (T, N, heads · D).

    Quantized: int8 data and uint8 attention, to the same forms as the scores.
    """
    if not a.quantized:
        return _value(selfatt_valatt(g, a.plain, queries_keys_values, attention))
    if min_qkv is None or max_qkv is None or min_att is None or max_att is None:
        raise GraphError("a quantized node needs the ranges of its data", where=g.node, expected="min_qkv ... max_att")
    qkv, of, of_attention = queries_keys_values, (min_qkv, max_qkv), (min_att, max_att)
    ranges.expect(g, qkv, "queries_keys_values", INT8)
    kind = ranges.expect(g, attention, "attention", INT8, UINT8)
    values = split_heads(g, a.plain, qkv, 3, (2,))[0]
    with g.folding():
        unit = g("Mul", ranges.multiplier(g, INT8, *of), ranges.multiplier(g, kind, *of_attention))

    def real() -> Value:
        mixed = selfatt_valatt(g, a.plain, ranges.real(g, qkv, *of), ranges.real(g, attention, *of_attention))
        return _value(mixed)

    return _finish(
        g,
        a,
        lambda: mix_heads(g, a.plain, attention, values, "MatMulInteger"),
        real,
        unit,
        accumulator_range(g, kind, of_attention, of),
        ranges.known(g, of, of_attention),
    )


@dataclass(frozen=True)
class FusedBatchDotAttrs(Attrs):
    transpose_a: bool = False
    transpose_b: bool = False
    quantized: bool = False
    min_calib_range: float | None = None
    max_calib_range: float | None = None
    enabled_float_output: str | None = None

    @property
    def float_output(self) -> bool:
        return self.enabled_float_output is not None


def _dot_names(a: FusedBatchDotAttrs) -> tuple[str, ...]:
    return ("lhs", "rhs", "min_lhs", "max_lhs", "min_rhs", "max_rhs") if a.quantized else ("lhs", "rhs")


def _dot_types(a: FusedBatchDotAttrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return ranges.int8_types(a, types) if a.quantized else dict.fromkeys(types, FLOAT32)


@op(
    "_sg_onednn_batch_dot",
    "_sg_mkldnn_batch_dot",
    inputs=_dot_names,
    outputs=outputs,
    named_outputs=True,
    param_shapes=ranges.range_rule,
    param_types=_dot_types,
)
def fused_batch_dot(
    g: Emit,
    a: FusedBatchDotAttrs,
    lhs: Value,
    rhs: Value,
    min_lhs: Value | None = None,
    max_lhs: Value | None = None,
    min_rhs: Value | None = None,
    max_rhs: Value | None = None,
    subgraphs: Sequence[Nested] = (),
) -> Value | Triple:
    """Matrix products over the last two axes (MXNet 2.0).

    Quantized: int8 or uint8 matrices to float32, or to int8 of a calibrated range, or to int32 sums with their range.
    """
    plain = DotAttrs(a.transpose_a, a.transpose_b)
    if not a.quantized:
        return _value(batch_dot(g, plain, lhs, rhs))
    if min_lhs is None or max_lhs is None or min_rhs is None or max_rhs is None:
        raise GraphError("a quantized node needs the ranges of its data", where=g.node, expected="min_lhs ... max_rhs")
    pairs = {lhs: (min_lhs, max_lhs), rhs: (min_rhs, max_rhs)}
    kinds = [ranges.expect(g, x, n, INT8, UINT8) for x, n in ((lhs, "lhs"), (rhs, "rhs"))]
    left, right = (min_lhs, max_lhs), (min_rhs, max_rhs)
    with g.folding():
        unit = g("Mul", ranges.multiplier(g, kinds[0], *left), ranges.multiplier(g, kinds[1], *right))
        step = g("Mul", ranges.step(g, kinds[0], *left, "R7"), ranges.step(g, kinds[1], *right, "R7"))
        reach = g("Mul", step, ranges.INT32_LEVELS)
        sums_range = g("Neg", reach), reach

    def turned(x: Value, turn: bool) -> Value:
        rank = g.rank(x)
        return g.transpose(x, [*range(rank - 2), rank - 1, rank - 2]) if turn else x

    return _finish(
        g,
        a,
        lambda: g("MatMulInteger", turned(lhs, a.transpose_a), turned(rhs, a.transpose_b)),
        lambda: _value(batch_dot(g, plain, *(ranges.real(g, x, *pair) for x, pair in pairs.items()))),
        unit,
        sums_range,
        ranges.known(g, left, right),
    )
