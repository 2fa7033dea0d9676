"""Ordering: topk, sort and argsort. Equal elements keep their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs
from requant.dtypes import as_dtype
from requant.errors import ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, same_shape


@dataclass(frozen=True)
class TopkAttrs(Attrs):
    axis: int | None = -1
    k: int = 1
    ret_typ: Literal["value", "indices", "mask", "both"] = "indices"
    is_ascend: bool = False
    dtype: str = "float32"


#: Types that ONNX Runtime's TopK lacks, and the type to order them in.
_ORDER_IN: dict[str, type[np.generic]] = {
    "float16": np.float32,
    "bfloat16": np.float32,
    "int8": np.int32,
    "uint8": np.int32,
    "int16": np.int32,
    "uint16": np.int32,
}


def _ordered(g: Emit, data: Value, axis: int, k: int, ascending: bool) -> tuple[Value, Value]:
    """The first ``k`` values (all, if k < 1) along ``axis`` in order, and their indices (int64)."""
    dtype, size = g.dtype(data), g.dims(data)[axis]
    if size is not None and k > size:
        raise ShapeError("k is larger than the dimension", where=g.node, got=f"k={k}", expected=f"at most {size}")
    count = g.const(np.array([k], np.int64)) if k >= 1 else g.size_of(data, [axis])
    wide = g.cast(data, _ORDER_IN.get(dtype.name, dtype))
    values, indices = g.multi("TopK", 2, wide, count, axis=axis, largest=int(not ascending), sorted=1)
    return g.cast(values, dtype), indices


def _along(g: Emit, data: Value, axis: int | None) -> tuple[Value, int]:
    """The data and the axis; without an axis, the flattened data."""
    return (g.reshape(data, [-1]), 0) if axis is None else (data, g.axis(data, axis))


def _topk_names(a: TopkAttrs) -> tuple[str, ...]:
    return {"both": ("output0", "output1"), "value": ("output0",)}.get(a.ret_typ, ("output",))


def _mask(g: Emit, data: Value, indices: Value, axis: int) -> Value:
    one = np.ones(1, g.dtype(data))
    zeros = g("ConstantOfShape", g.size_of(data), value=np.zeros_like(one))
    ones = g("ConstantOfShape", g.size_of(indices), value=one)
    return g("ScatterElements", zeros, indices, ones, axis=axis)


@op(
    "topk",
    "_npx_topk",
    outputs=_topk_names,
    named_outputs=True,
    hidden_outputs=lambda a: int(a.ret_typ == "value"),
)
def topk(g: Emit, a: TopkAttrs, data: Value) -> Value | tuple[Value, ...]:
    """The k largest (smallest) elements along ``axis``, in order: values, indices as ``dtype``, both, or a 0/1 mask."""
    flat, axis = _along(g, data, a.axis)
    values, indices = _ordered(g, flat, axis, a.k, a.is_ascend)
    if a.ret_typ == "mask":
        mask = _mask(g, flat, indices, axis)
        return mask if a.axis is not None else g.set_shape(g("Reshape", mask, g.size_of(data)), g.dims(data))
    if a.ret_typ == "value":
        return values
    numbers = g.cast(indices, as_dtype(a.dtype, where=g.node))
    return (values, numbers) if a.ret_typ == "both" else numbers


@dataclass(frozen=True)
class SortAttrs(Attrs):
    axis: int | None = -1
    is_ascend: bool = True


@op(
    "sort",
    "_npi_sort",
    outputs=("output0",),
    named_outputs=True,
    hidden_outputs=1,
    param_shapes=lambda a, shapes: same_shape(a, shapes) if a.axis is not None else {},
)
def sort(g: Emit, a: SortAttrs, data: Value) -> Value:
    """The elements in order along ``axis``, or of the flattened data."""
    flat, axis = _along(g, data, a.axis)
    return _ordered(g, flat, axis, 0, a.is_ascend)[0]


@dataclass(frozen=True)
class ArgsortAttrs(Attrs):
    axis: int | None = -1
    is_ascend: bool = True
    dtype: str = "float32"


@op("argsort", "_npi_argsort")
def argsort(g: Emit, a: ArgsortAttrs, data: Value) -> Value:
    """The indices that put the elements in order along ``axis`` (of the flattened data), as ``dtype``."""
    flat, axis = _along(g, data, a.axis)
    return g.cast(_ordered(g, flat, axis, 0, a.is_ascend)[1], as_dtype(a.dtype, where=g.node))
