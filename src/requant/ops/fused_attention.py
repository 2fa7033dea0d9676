"""MXNet's fused self-attention, ``_sg_mkldnn_selfatt_qk`` and ``_sg_mkldnn_selfatt_valatt``: float and int8."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from requant.attrs import Attrs
from requant.errors import GraphError
from requant.ops import ranges
from requant.ops.attention import AttentionAttrs, mix_heads, scores, selfatt_qk, selfatt_valatt, split_heads
from requant.ops.emit import Emit, Value
from requant.ops.identity import root_of_size
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


def _outputs(a: FusedAttentionAttrs) -> tuple[str, ...]:
    return ("output", "min_output", "max_output") if a.quantized and not a.float_output else ("output",)


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
    a: FusedAttentionAttrs,
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
    outputs=_outputs,
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
    outputs=_outputs,
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
