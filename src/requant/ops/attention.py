"""Multi-head attention on interleaved projections, as GluonNLP's transformers have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from requant.attrs import Attrs
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.identity import root_of_size
from requant.ops.registry import Shape, op
from requant.ops.sizes import sizes


@dataclass(frozen=True)
class AttentionAttrs(Attrs):
    heads: int


def split_heads(g: Emit, a: AttentionAttrs, x: Value, parts: int, wanted: tuple[int, ...]) -> list[Value]:
    """(T, N, heads · parts · D) as values (N, heads, T, D), one for each of the ``wanted`` parts."""
    if a.heads < 1:
        raise AttributeValueError("heads", where=g.node, got=a.heads, expected="a positive number")
    if g.rank(x) != 3:
        raise ShapeError(
            "projections are (time, batch, features)", where=g.node, got=f"rank {g.rank(x)}", expected="rank 3"
        )
    size = g.dims(x)[2]
    if size is not None and size % (a.heads * parts):
        raise ShapeError(
            "the features do not divide among the heads",
            where=g.node,
            got=size,
            expected=f"a multiple of {a.heads * parts}",
        )
    depth = -1 if size is None else size // (a.heads * parts)
    headed = g.reshape(x, [0, 0, a.heads, parts, depth])
    moved = g.transpose(headed, [3, 1, 2, 0, 4])
    return [g.squeeze(g.slice(moved, [i], [i + 1], [0]), [0]) for i in wanted]


def scores(g: Emit, queries: Value, keys: Value, matmul: str = "MatMul") -> Value:
    """Dot products: (N, heads, T, D) twice to (N · heads, T of queries, T of keys); ``matmul`` is the operator."""
    product = g(matmul, queries, g.transpose(keys, [0, 1, 3, 2]))
    rows, columns = g.dims(queries)[2], g.dims(keys)[2]
    merged = g.reshape(
        product,
        [
            -1,
            g.size_of(queries, [2]) if rows is None else rows,
            g.size_of(keys, [2]) if columns is None else columns,
        ],
    )
    batch, heads, steps, _ = sizes(g, queries)
    return g.set_shape(merged, [(batch * heads).label, steps.label, sizes(g, keys)[2].label])


def _scaled_scores(g: Emit, queries: Value, keys: Value) -> Value:
    return scores(g, g("Div", queries, root_of_size(g, queries, 3)), keys)


def mix_heads(g: Emit, a: AttentionAttrs, attention: Value, values: Value, matmul: str = "MatMul") -> Value:
    """attention (N · heads, T, S), values (N, heads, S, D) to (T, N, heads · D)."""
    rows, columns = g.dims(attention)[1:]
    headed = g.reshape(
        attention,
        [
            -1,
            a.heads,
            g.size_of(attention, [1]) if rows is None else rows,
            g.size_of(attention, [2]) if columns is None else columns,
        ],
    )
    mixed = g.transpose(g(matmul, headed, values), [2, 0, 1, 3])
    batch, heads, _, depth = sizes(g, values)
    out = g.reshape(mixed, [0, 0, -1])
    return g.set_shape(out, [sizes(g, attention)[1].label, batch.label, (heads * depth).label])


@op(
    "_contrib_interleaved_matmul_selfatt_qk",
    "_npx_interleaved_matmul_selfatt_qk",
    inputs=("queries_keys_values",),
)
def selfatt_qk(g: Emit, a: AttentionAttrs, queries_keys_values: Value) -> Value:
    """Scores of self-attention: (T, N, heads · 3 · D) to (N · heads, T, T), queries divided by sqrt(D)."""
    queries, keys = split_heads(g, a, queries_keys_values, 3, (0, 1))
    return _scaled_scores(g, queries, keys)


def _valatt_shapes(a: AttentionAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    qkv = shapes["queries_keys_values"]
    return {} if qkv is None or len(qkv) != 3 else {"attention": (qkv[1] * a.heads, qkv[0], qkv[0])}


@op(
    "_contrib_interleaved_matmul_selfatt_valatt",
    "_npx_interleaved_matmul_selfatt_valatt",
    inputs=("queries_keys_values", "attention"),
    param_shapes=_valatt_shapes,
)
def selfatt_valatt(g: Emit, a: AttentionAttrs, queries_keys_values: Value, attention: Value) -> Value:
    """Values of self-attention mixed: (T, N, heads · 3 · D), (N · heads, T, T) to (T, N, heads · D)."""
    return mix_heads(g, a, attention, split_heads(g, a, queries_keys_values, 3, (2,))[0])


@op(
    "_contrib_interleaved_matmul_encdec_qk",
    "_npx_interleaved_matmul_encdec_qk",
    inputs=("queries", "keys_values"),
)
def encdec_qk(g: Emit, a: AttentionAttrs, queries: Value, keys_values: Value) -> Value:
    """Scores of attention between two sequences: (T, N, heads · D), (S, N, heads · 2 · D) to (N · heads, T, S)."""
    return _scaled_scores(g, split_heads(g, a, queries, 1, (0,))[0], split_heads(g, a, keys_values, 2, (0,))[0])


@op(
    "_contrib_interleaved_matmul_encdec_valatt",
    "_npx_interleaved_matmul_encdec_valatt",
    inputs=("keys_values", "attention"),
)
def encdec_valatt(g: Emit, a: AttentionAttrs, keys_values: Value, attention: Value) -> Value:
    """Values of attention between two sequences: (S, N, heads · 2 · D), (N · heads, T, S) to (T, N, heads · D)."""
    return mix_heads(g, a, attention, split_heads(g, a, keys_values, 2, (1,))[0])
