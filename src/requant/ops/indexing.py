"""Gathering, scattering and selecting by index: Embedding, take, pick, gather_nd, scatter_nd, one_hot and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.dtypes import as_dtype
from requant.errors import AttributeValueError, ShapeError
from requant.ops.elementwise import NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, op

IndexMode = Literal["clip", "wrap", "raise"]


def integers(g: Emit, index: Value) -> Value:
    """Indices as ONNX takes them; MXNet's are mostly float32, of which the whole part counts."""
    if g.dtype(index) in (np.dtype(np.int32), np.dtype(np.int64)):
        return index
    return g.cast(index, np.int64)


def _bounded(g: Emit, index: Value, data: Value, axis: int, mode: IndexMode) -> Value:
    """Indices brought into the range of a dimension: clipped or wrapped around; ``raise`` leaves it to the engine."""
    if mode == "raise":
        return index
    size = g.dims(data)[axis]
    if size is not None:
        return g("Clip", index, 0, size - 1) if mode == "clip" else g("Mod", index, size)
    count = g.cast(g.squeeze(g.size_of(data, [axis]), [0]), g.dtype(index))
    if mode == "wrap":
        return g("Mod", index, count)
    return g("Max", g("Min", index, g("Sub", count, 1)), g.const(0, index))


@dataclass(frozen=True)
class EmbeddingAttrs(Attrs):
    input_dim: int
    output_dim: int
    dtype: str = "float32"
    sparse_grad: bool = False


def _embedding_shapes(a: EmbeddingAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    return {"weight": (a.input_dim, a.output_dim)}


def _embedding_types(a: EmbeddingAttrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return {"weight": as_dtype(a.dtype)}


@op(
    "Embedding",
    "_npx_embedding",
    "_sparse_Embedding",
    inputs=("data", "weight"),
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_embedding",
    param_shapes=_embedding_shapes,
    param_types=_embedding_types,
)
def embedding(g: Emit, a: EmbeddingAttrs, data: Value, weight: Value) -> Value:
    """Rows of weight (input_dim, output_dim) by index; indices out of range are clipped. data of any shape."""
    return g("Gather", weight, _bounded(g, integers(g, data), weight, 0, "clip"), axis=0)


@op(
    "_contrib_SparseEmbedding",
    inputs=("data", "weight"),
    param_shapes=_embedding_shapes,
    param_types=_embedding_types,
)
def sparse_embedding(g: Emit, a: EmbeddingAttrs, data: Value, weight: Value) -> Value:
    """Embedding whose gradient is sparse; at inference it is the same."""
    return g("Gather", weight, _bounded(g, integers(g, data), weight, 0, "clip"), axis=0)


@dataclass(frozen=True)
class TakeAttrs(Attrs):
    axis: int = 0
    mode: IndexMode = "clip"


@op("take", "_npi_take", inputs=("a", "indices"))
def take(g: Emit, attrs: TakeAttrs, a: Value, indices: Value) -> Value:
    """Slices of ``a`` along ``axis`` by index; the indices' dimensions take that dimension's place."""
    axis = g.axis(a, attrs.axis)
    return g("Gather", a, _bounded(g, integers(g, indices), a, axis, attrs.mode), axis=axis)


@dataclass(frozen=True)
class PickAttrs(Attrs):
    axis: int | None = -1
    keepdims: bool = False
    mode: Literal["clip", "wrap"] = "clip"


def _picked(g: Emit, data: Value, index: Value, axis: int, mode: IndexMode) -> Value:
    """One element along ``axis`` for every place of the other dimensions; the axis stays, of size 1."""
    index = integers(g, index)
    if g.rank(index) == g.rank(data) - 1:
        index = g.unsqueeze(index, [axis])
    if g.rank(index) != g.rank(data):
        raise ShapeError(
            "the index must have the data's dimensions but one",
            where=g.node,
            got=g.dims(index),
            expected=f"{g.dims(data)} without axis {axis}",
        )
    return g("GatherElements", data, _bounded(g, index, data, axis, mode), axis=axis)


@op("pick", "choose_element_0index", "_npx_pick", inputs=("data", "index"))
def pick(g: Emit, a: PickAttrs, data: Value, index: Value) -> Value:
    """``data[i, index[i], j]`` for every i and j: one element along ``axis``."""
    if a.axis is None:
        raise AttributeValueError("pick needs an axis", where=g.node, got="axis=None", expected="an integer")
    axis = g.axis(data, a.axis)
    out = _picked(g, data, index, axis, a.mode)
    return out if a.keepdims else g.squeeze(out, [axis])


@op("batch_take", inputs=("a", "indices"))
def batch_take(g: Emit, attrs: NoAttrs, a: Value, indices: Value) -> Value:
    """``a[i, indices[i]]``, clipped to the range."""
    return g.squeeze(_picked(g, a, indices, g.axis(a, 1), "clip"), [1])


def _last_axis_indices(g: Emit, indices: Value) -> Value:
    """MXNet keeps the coordinates along the first dimension, ONNX along the last."""
    rank = g.rank(indices)
    g.dim(indices, 0)
    return g.cast(g.transpose(indices, [*range(1, rank), 0]), np.int64)


@op("gather_nd", "_npi_gather_nd", "_npx_gather_nd", inputs=("data", "indices"))
def gather_nd(g: Emit, a: NoAttrs, data: Value, indices: Value) -> Value:
    """``out[y..., x...] = data[indices[0, y...], ..., indices[M-1, y...], x...]``. indices (M, Y...)."""
    coordinates = g.dim(indices, 0)
    if coordinates > g.rank(data):
        raise ShapeError("more coordinates than dimensions", where=g.node, got=coordinates, expected=g.rank(data))
    sizes = g.size_of(data, range(coordinates))
    places = _last_axis_indices(g, indices)
    from_end = g("Less", places, 0)
    return g("GatherND", data, g("Where", from_end, g("Add", places, sizes), places))


@dataclass(frozen=True)
class ScatterAttrs(Attrs):
    shape: Ints


@op("scatter_nd", inputs=("data", "indices"))
def scatter_nd(g: Emit, a: ScatterAttrs, data: Value, indices: Value) -> Value:
    """Zeros of ``shape`` with ``out[indices[0, y...], ..., x...] = data[y..., x...]``. indices (M, Y...)."""
    zeros = g("ConstantOfShape", np.array(a.shape, np.int64), value=np.zeros(1, g.dtype(data)))
    return g("ScatterND", zeros, _last_axis_indices(g, indices), data)


@op("_scatter_set_nd", "_npi_scatter_set_nd", inputs=("lhs", "rhs", "indices"))
def scatter_set_nd(g: Emit, a: ScatterAttrs, lhs: Value, rhs: Value, indices: Value) -> Value:
    """lhs with ``lhs[indices[0, y...], ..., x...] = rhs[y..., x...]``."""
    return g("ScatterND", lhs, _last_axis_indices(g, indices), rhs)


@op("_contrib_index_copy", inputs=("old_tensor", "index_vector", "new_tensor"))
def index_copy(g: Emit, a: NoAttrs, old_tensor: Value, index_vector: Value, new_tensor: Value) -> Value:
    """old_tensor with the rows that index_vector names replaced by those of new_tensor."""
    places = g.unsqueeze(g.cast(index_vector, np.int64), [1])
    return g("ScatterND", old_tensor, places, new_tensor)


@dataclass(frozen=True)
class BooleanMaskAttrs(Attrs):
    axis: int = 0


@op("_contrib_boolean_mask", "_npi_boolean_mask", inputs=("data", "index"))
def boolean_mask(g: Emit, a: BooleanMaskAttrs, data: Value, index: Value) -> Value:
    """The slices of data along ``axis`` where index (a vector) is not 0. The result's size depends on the data."""
    places = g.squeeze(g("NonZero", index), [0])
    return g("Gather", data, places, axis=g.axis(data, a.axis))


@dataclass(frozen=True)
class OneHotAttrs(Attrs):
    depth: int
    on_value: float = 1.0
    off_value: float = 0.0
    dtype: str = "float32"


def _converted(value: float, dtype: np.dtype) -> np.ndarray:
    """A number as C converts it: integers drop the fraction and wrap around."""
    if dtype.kind in "iu":
        return np.array(int(value)).astype(dtype)
    return np.array(value).astype(dtype)


@op("one_hot", "_npx_one_hot", inputs=("indices",))
def one_hot(g: Emit, a: OneHotAttrs, indices: Value) -> Value:
    """``on_value`` at the index along a new last dimension of size ``depth``; indices out of range have none."""
    dtype = as_dtype(a.dtype, where=g.node)
    index = g.cast(indices, np.int64)
    g.count(a.depth, "depth")
    hit = g("Equal", g.unsqueeze(index, [g.rank(index)]), np.arange(a.depth, dtype=np.int64))
    if (a.on_value, a.off_value) == (1.0, 0.0):
        return g.cast(hit, dtype)
    on, off = (g.const(_converted(v, dtype)) for v in (a.on_value, a.off_value))
    return select(g, hit, on, off)


#: What ONNX Runtime's CPU provider cannot select in, and what it does it in instead.
_SELECT_IN: dict[str, type[np.generic]] = {
    "float16": np.float32,
    "bfloat16": np.float32,
    "int8": np.int32,
    "int16": np.int32,
    "uint16": np.int32,
}


def select(g: Emit, mask: Value, x: Value, y: Value) -> Value:
    """``x`` where the boolean mask is true, else ``y``, broadcast; in a wider type where engines need one."""
    dtype = g.dtype(x)
    wide = _SELECT_IN.get(dtype.name, dtype)
    return g.cast(g("Where", mask, g.cast(x, wide), g.cast(y, wide)), dtype)


def _truth(g: Emit, condition: Value) -> Value:
    """Whether each element is not 0."""
    return condition if g.dtype(condition) == np.dtype(np.bool_) else g("Not", g("Equal", condition, 0))


def _where_shapes(a: NoAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    found = shapes["x"] or shapes["y"] or shapes["output"]
    return {} if found is None else {"x": found, "y": found}


@op("where", inputs=("condition", "x", "y"), param_shapes=_where_shapes)
def where(g: Emit, a: NoAttrs, condition: Value, x: Value, y: Value) -> Value:
    """x where condition is not 0, else y. condition has the shape of x, or is a vector that chooses whole rows."""
    mask = _truth(g, condition)
    if g.rank(mask) == 1:
        mask = g.unsqueeze(mask, list(range(1, g.rank(x))))
    elif g.rank(mask) != g.rank(x):
        raise ShapeError(
            "the condition must have the shape of x, or be a vector",
            where=g.node,
            got=g.dims(condition),
            expected=g.dims(x),
        )
    return select(g, mask, x, y)


@op("_npi_where", inputs=("condition", "x", "y"))
def np_where(g: Emit, a: NoAttrs, condition: Value, x: Value, y: Value) -> Value:
    """x where condition is not 0, else y; all three are broadcast."""
    return select(g, _truth(g, condition), x, y)


@dataclass(frozen=True)
class ScalarAttrs(Attrs):
    scalar: float = 0.0


@op("_npi_where_lscalar", inputs=("condition", "x"))
def np_where_lscalar(g: Emit, a: ScalarAttrs, condition: Value, x: Value) -> Value:
    """A number where condition is not 0, else x; broadcast."""
    return select(g, _truth(g, condition), g.const(_converted(a.scalar, g.dtype(x))), x)


@op("_npi_where_rscalar", inputs=("condition", "y"))
def np_where_rscalar(g: Emit, a: ScalarAttrs, condition: Value, y: Value) -> Value:
    """y where condition is not 0, else a number; broadcast."""
    return select(g, _truth(g, condition), y, g.const(_converted(a.scalar, g.dtype(y))))
