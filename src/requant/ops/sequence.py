"""Batches of sequences of different lengths: SequenceMask, SequenceLast and SequenceReverse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.indexing import select
from requant.ops.registry import Shape, op
from requant.ops.sizes import labelled, sizes
from requant.ops.slicing import reverse_along


@dataclass(frozen=True)
class SequenceAttrs(Attrs):
    use_sequence_length: bool = False
    axis: int = 0


@dataclass(frozen=True)
class SequenceMaskAttrs(Attrs):
    use_sequence_length: bool = False
    value: float = 0.0
    axis: int = 0


def _names(a: SequenceAttrs | SequenceMaskAttrs) -> tuple[str, ...]:
    return ("data", "sequence_length") if a.use_sequence_length else ("data",)


def _length_shape(a: SequenceAttrs | SequenceMaskAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"]
    if data is None or len(data) < 2 or not a.use_sequence_length or a.axis not in (0, 1):
        return {}
    return {"sequence_length": (data[1 - a.axis],)}


def _axes(g: Emit, axis: int, data: Value) -> tuple[int, int]:
    """The time and the batch axis. Raises AttributeValueError, ShapeError."""
    if axis not in (0, 1):
        raise AttributeValueError("the sequence axis is 0 or 1", where=g.node, got=axis)
    if g.rank(data) < 2:
        raise ShapeError("a batch of sequences has two dimensions or more", where=g.node, got=g.dims(data))
    return axis, 1 - axis


@op("SequenceMask", "_npx_sequence_mask", inputs=_names, param_shapes=_length_shape)
def sequence_mask(g: Emit, a: SequenceMaskAttrs, data: Value, sequence_length: Value | None = None) -> Value:
    """data with ``value`` after the end of each sequence. data (T, N, ...) or, for axis 1, (N, T, ...)."""
    if sequence_length is None:
        return data
    time, batch = _axes(g, a.axis, data)
    size = g.dims(data)[time]
    if size is not None:
        steps = g.const(np.arange(size, dtype=np.int64))
    else:
        end = g.squeeze(g.size_of(data, [time]), [0])
        steps = g("Range", g.const(np.int64(0)), end, g.const(np.int64(1)))
    rank = g.rank(data)
    steps = g.unsqueeze(steps, [i for i in range(rank) if i != time])
    lengths = g.unsqueeze(g.cast(sequence_length, np.int64), [i for i in range(rank) if i != batch])
    return labelled(g, select(g, g("Less", steps, lengths), data, g.const(a.value, data)), sizes(g, data))


@op("SequenceLast", inputs=_names, param_shapes=_length_shape)
def sequence_last(g: Emit, a: SequenceAttrs, data: Value, sequence_length: Value | None = None) -> Value:
    """The last step of each sequence (N, ...). data (T, N, ...) or, for axis 1, (N, T, ...)."""
    time, batch = _axes(g, a.axis, data)
    if sequence_length is None:
        return g.squeeze(g.slice(data, [-1], [np.iinfo(np.int64).max], [time]), [time])
    by_batch = g.transpose(data, [batch, time, *range(2, g.rank(data))])
    last = g("Sub", g.cast(sequence_length, np.int64), 1)
    return g("GatherND", by_batch, g.unsqueeze(last, [1]), batch_dims=1)


@op("SequenceReverse", inputs=_names, param_shapes=_length_shape)
def sequence_reverse(g: Emit, a: SequenceAttrs, data: Value, sequence_length: Value | None = None) -> Value:
    """data (T, N, ...) with the steps of each sequence in reverse order; what follows its end stays in place."""
    if a.axis != 0:
        raise AttributeValueError("SequenceReverse reverses axis 0 alone", where=g.node, got=a.axis, expected=0)
    if sequence_length is None:
        return reverse_along(g, data, [0])
    _axes(g, 0, data)
    lengths = g.cast(sequence_length, np.int64)
    return g("ReverseSequence", data, lengths, time_axis=0, batch_axis=1)
