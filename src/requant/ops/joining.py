"""Joining and splitting: Concat, stack, SliceChannel and split_v2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, op


@dataclass(frozen=True)
class ConcatAttrs(Attrs):
    num_args: int
    dim: int = 1


def _concat_shapes(a: ConcatAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    """All inputs and the output agree in every dimension but one, whose last unknown member is the difference."""
    ranks = {len(s) for s in shapes.values() if s is not None}
    if len(ranks) != 1:
        return {}
    rank = ranks.pop()
    if not -rank <= a.dim < rank:
        return {}
    dim = a.dim % rank
    joint = [next((s[i] for s in shapes.values() if s is not None and s[i]), 0) for i in range(rank)]
    parts = {n: (s[dim] if s is not None else 0) for n, s in shapes.items() if n != "output"}
    unknown = [n for n, d in parts.items() if not d]
    out = shapes["output"]
    if len(unknown) == 1 and out is not None and out[dim]:
        parts[unknown[0]] = max(0, out[dim] - sum(parts.values()))
    return {n: (*joint[:dim], d, *joint[dim + 1 :]) for n, d in parts.items()}


def _join(g: Emit, axis: int, data: Sequence[Value]) -> Value:
    if not data:
        raise ShapeError("nothing to join", where=g.node, expected="at least one input")
    ranks = {g.rank(x) for x in data}
    if len(ranks) != 1:
        raise ShapeError("tensors of different ranks cannot be joined", where=g.node, got=f"ranks {sorted(ranks)}")
    axis = g.axis(data[0], axis)
    return data[0] if len(data) == 1 else g("Concat", *data, axis=axis)


@op(
    "Concat",
    "concat",
    variadic="num_args",
    inputs=("arg",),
    param_shapes=_concat_shapes,
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_concat",
)
def concat(g: Emit, a: ConcatAttrs, *data: Value) -> Value:
    """Join along dimension ``dim``."""
    return _join(g, a.dim, data)


@dataclass(frozen=True)
class NumpyConcatenateAttrs(Attrs):
    num_args: int
    axis: int | None = 0


@op("_npi_concatenate", variadic="num_args", inputs=("arg",), outputs=("out",), named_outputs=True)
def np_concatenate(g: Emit, a: NumpyConcatenateAttrs, *data: Value) -> Value:
    """Join along dimension ``axis``, or what all inputs hold as one vector if it is None."""
    if a.axis is None:
        return _join(g, 0, [g.reshape(x, [-1]) for x in data])
    return _join(g, a.axis, data)


@dataclass(frozen=True, kw_only=True)
class StackAttrs(Attrs):
    axis: int = 0
    num_args: int


@op("stack", "_npi_stack", variadic="num_args", inputs=("arg",))
def stack(g: Emit, a: StackAttrs, *data: Value) -> Value:
    """Join along a new dimension, placed at ``axis``."""
    rank = g.rank(data[0]) + 1
    if not -rank <= a.axis < rank:
        raise ShapeError("axis out of range", where=g.node, got=a.axis, expected=f"-{rank} <= axis < {rank}")
    axis = a.axis % rank
    return _join(g, axis, [g.unsqueeze(x, [axis]) for x in data])


@dataclass(frozen=True)
class NumpyStackAttrs(Attrs):
    num_args: int
    dim: int = 1


@op("_npi_vstack", variadic="num_args", inputs=("arg",))
def np_vstack(g: Emit, a: NumpyStackAttrs, *data: Value) -> Value:
    """Join along the first dimension; vectors are rows."""
    return _join(g, 0, [_row(g, x) if g.rank(x) < 2 else x for x in data])


@op("_npi_hstack", variadic="num_args", inputs=("arg",), outputs=("out",), named_outputs=True)
def np_hstack(g: Emit, a: NumpyStackAttrs, *data: Value) -> Value:
    """Join along the second dimension; vectors along their only one."""
    return _join(g, min(1, g.rank(data[0]) - 1), data)


def _row(g: Emit, x: Value) -> Value:
    return g.unsqueeze(x, [0]) if g.rank(x) == 1 else g.reshape(x, [1, 1])


@dataclass(frozen=True)
class SliceChannelAttrs(Attrs):
    num_outputs: int
    axis: int = 1
    squeeze_axis: bool = False


def _numbered(a: SliceChannelAttrs) -> tuple[str, ...]:
    return tuple(f"output{i}" for i in range(a.num_outputs))


def _split_evenly(g: Emit, data: Value, parts: int, axis: int, squeeze: bool) -> tuple[Value, ...]:
    axis = g.axis(data, axis)
    size = g.dims(data)[axis]
    if parts < 1 or (size is not None and size % parts):
        raise ShapeError("a dimension cannot be split evenly", where=g.node, got=f"{size} into {parts}")
    if squeeze and size is not None and size != parts:
        raise ShapeError("squeeze_axis needs parts of size 1", where=g.node, got=f"{size} into {parts}")
    if parts == 1:
        outs: tuple[Value, ...] = (data,)
    elif size is None:
        outs = g.multi("Split", parts, data, axis=axis, num_outputs=parts)
    else:
        outs = g.multi("Split", parts, data, np.full(parts, size // parts, np.int64), axis=axis)
    return tuple(g.squeeze(x, [axis]) for x in outs) if squeeze else outs


@op("SliceChannel", "split", outputs=_numbered, named_outputs=True)
def slice_channel(g: Emit, a: SliceChannelAttrs, data: Value) -> tuple[Value, ...]:
    """Split a dimension evenly; ``squeeze_axis`` drops it where the parts are of size 1."""
    return _split_evenly(g, data, a.num_outputs, a.axis, a.squeeze_axis)


@dataclass(frozen=True)
class SplitAttrs(Attrs):
    indices: Ints
    axis: int = 1
    squeeze_axis: bool = False
    sections: int = 0


def _split_names(a: SplitAttrs) -> tuple[str, ...]:
    count = a.sections if a.sections > 0 else len(a.indices)
    return ("output",) if count == 1 else tuple(f"output{i}" for i in range(count))


@op("_split_v2", "_npi_split", outputs=_split_names)
def split_v2(g: Emit, a: SplitAttrs, data: Value) -> tuple[Value, ...]:
    """Split a dimension into ``sections`` even parts, or at the given first indices (of which the first is 0)."""
    if a.sections > 0:
        return _split_evenly(g, data, a.sections, a.axis, a.squeeze_axis)
    if not a.indices:
        raise AttributeValueError("neither sections nor indices are given", where=g.node)
    return _split_at(g, data, a.indices, g.axis(data, a.axis), a.squeeze_axis)


def _split_at(g: Emit, data: Value, indices: Ints, axis: int, squeeze: bool) -> tuple[Value, ...]:
    size = g.dims(data)[axis]
    ends = [*indices[1:], size if size is not None else np.iinfo(np.int64).max]
    if any(b > e for b, e in zip(indices, ends)):
        raise ShapeError("split indices must rise", where=g.node, got=indices, expected=f"0 <= ... <= {size}")
    if size is not None and indices[0] == 0:
        outs: tuple[Value, ...] = (data,)
        if len(indices) > 1:
            lengths = np.array([e - b for b, e in zip(indices, ends)], np.int64)
            outs = g.multi("Split", len(lengths), data, lengths, axis=axis)
    else:
        outs = tuple(g.slice(data, [b], [e], [axis]) for b, e in zip(indices, ends))
    return tuple(g.squeeze(x, [axis]) for x in outs) if squeeze else outs


@op("_npi_hsplit", outputs=_split_names)
def np_hsplit(g: Emit, a: SplitAttrs, data: Value) -> tuple[Value, ...]:
    """Split along the second dimension (vectors: the only one)."""
    axis = min(1, g.rank(data) - 1)
    if a.sections > 0:
        return _split_evenly(g, data, a.sections, axis, a.squeeze_axis)
    return _split_at(g, data, a.indices, axis, a.squeeze_axis)
