"""Broadcasting to given shapes, and repeating: broadcast_axis, broadcast_to, broadcast_like, repeat and tile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError, counted
from requant.ops.emit import LARGEST, Emit, Value
from requant.ops.registry import op
from requant.ops.sizes import Size, expand_to, reshape_to, sizes


@dataclass(frozen=True)
class BroadcastAxisAttrs(Attrs):
    axis: Ints = ()
    size: Ints = ()


def _spread(g: Emit, data: Value, target: list[Size], *like: Value) -> Value:
    """Broadcast after checking that every dimension that changes is 1 (or not known)."""
    for axis, (have, want) in enumerate(zip(sizes(g, data), target)):
        if have != want and have.number not in (1, None):
            raise ShapeError(
                "only dimensions of size 1 can be broadcast",
                where=g.node,
                got=f"{have.label} along axis {axis}",
                expected=f"1 or {want.label or '?'}",
            )
    return expand_to(g, data, target, (data, *like))


@op("broadcast_axis", "broadcast_axes")
def broadcast_axis(g: Emit, a: BroadcastAxisAttrs, data: Value) -> Value:
    """Broadcast dimensions of size 1 to the given sizes."""
    if len(a.axis) != len(a.size):
        raise AttributeValueError("one size per axis", where=g.node, got=f"axis={a.axis}, size={a.size}")
    target = sizes(g, data)
    for axis, size in zip(a.axis, a.size):
        axis = g.axis(data, axis)
        if target[axis].number not in (1, None):
            raise ShapeError("only dimensions of size 1 can be broadcast", where=g.node, got=target[axis].label)
        target[axis] = Size.number_of(size)
    return _spread(g, data, target)


@dataclass(frozen=True)
class BroadcastToAttrs(Attrs):
    shape: Ints = ()


@op("broadcast_to")
def broadcast_to(g: Emit, a: BroadcastToAttrs, data: Value) -> Value:
    """Broadcast to a shape of the same rank; 0 keeps a dimension."""
    have = sizes(g, data)
    if len(a.shape) != len(have):
        raise ShapeError("the rank must stay", where=g.node, got=a.shape, expected=counted(len(have), "dimension"))
    return _spread(g, data, [Size.number_of(d) if d else own for d, own in zip(a.shape, have)])


@op("_npi_broadcast_to", "_np_broadcast_to", inputs=("array",))
def np_broadcast_to(g: Emit, a: BroadcastToAttrs, array: Value) -> Value:
    """Broadcast to a shape by numpy's rules; -2 keeps a dimension."""
    missing = len(a.shape) - g.rank(array)
    if missing < 0:
        raise ShapeError(
            "the rank cannot shrink", where=g.node, got=a.shape, expected=f">= {counted(g.rank(array), 'dimension')}"
        )
    array = g.unsqueeze(array, list(range(missing)))
    have = sizes(g, array)
    return _spread(g, array, [own if d == -2 else Size.number_of(d) for d, own in zip(a.shape, have)])


@dataclass(frozen=True)
class BroadcastLikeAttrs(Attrs):
    lhs_axes: Ints | None = None
    rhs_axes: Ints | None = None


@op("broadcast_like", "_npx_broadcast_like", inputs=("lhs", "rhs"))
def broadcast_like(g: Emit, a: BroadcastLikeAttrs, lhs: Value, rhs: Value) -> Value:
    """lhs broadcast to the shape of rhs, or along ``lhs_axes`` to the sizes of ``rhs_axes``."""
    have, like = sizes(g, lhs), sizes(g, rhs)
    if a.lhs_axes is None and a.rhs_axes is None:
        if len(have) != len(like):
            raise ShapeError("ranks differ", where=g.node, got=len(like), expected=len(have), next="name the axes")
        return _spread(g, lhs, like, rhs)
    if a.lhs_axes is None or a.rhs_axes is None or len(a.lhs_axes) != len(a.rhs_axes):
        raise AttributeValueError("lhs_axes and rhs_axes must be given in pairs", where=g.node, got=a)
    for mine, theirs in zip(a.lhs_axes, a.rhs_axes):
        have[g.axis(lhs, mine)] = like[g.axis(rhs, theirs)]
    return _spread(g, lhs, have, rhs)


@dataclass(frozen=True)
class RepeatAttrs(Attrs):
    repeats: int
    axis: int | None = None


def _repeated(g: Emit, data: Value, times: int, axis: int | None) -> Value:
    if times < 1:
        raise AttributeValueError("repeats must be 1 or more", where=g.node, got=times)
    g.count(times, "repeats", LARGEST)
    data, axis = (g.reshape(data, [-1]), 0) if axis is None else (data, g.axis(data, axis))
    have = sizes(g, data)
    reps = [1] * (len(have) + 1)
    reps[axis + 1] = times
    tiled = g("Tile", g.unsqueeze(data, [axis + 1]), np.array(reps, np.int64))
    have[axis] = have[axis] * Size.number_of(times)
    return reshape_to(g, tiled, have, (data,))


@op("repeat", "_np_repeat")
def repeat(g: Emit, a: RepeatAttrs, data: Value) -> Value:
    """Repeat every element ``repeats`` times along ``axis``, or of the flattened data."""
    return _repeated(g, data, a.repeats, a.axis)


@dataclass(frozen=True)
class RepeatsAttrs(Attrs):
    repeats: Ints
    axis: int | None = None


@op("_npi_repeats")
def np_repeats(g: Emit, a: RepeatsAttrs, data: Value) -> Value:
    """Repeat the elements along ``axis`` (of the flattened data): all as often, or each as often as its own number."""
    if len(a.repeats) == 1:
        return _repeated(g, data, a.repeats[0], a.axis)
    data, axis = (g.reshape(data, [-1]), 0) if a.axis is None else (data, g.axis(data, a.axis))
    size = g.dims(data)[axis]
    if any(r < 0 for r in a.repeats) or (size is not None and size != len(a.repeats)):
        raise AttributeValueError("one count per element", where=g.node, got=a.repeats, expected=f"{size} numbers")
    g.count(sum(a.repeats), "the sum of repeats")
    return g("Gather", data, np.repeat(np.arange(len(a.repeats), dtype=np.int64), a.repeats), axis=axis)


@dataclass(frozen=True)
class TileAttrs(Attrs):
    reps: Ints


@op("tile", "_npi_tile")
def tile(g: Emit, a: TileAttrs, data: Value) -> Value:
    """Repeat the whole tensor ``reps`` times; the shorter of shape and reps is filled up with leading ones."""
    if any(r < 1 for r in a.reps):
        raise AttributeValueError("reps must be 1 or more", where=g.node, got=a.reps)
    missing = len(a.reps) - g.rank(data)
    data = g.unsqueeze(data, list(range(max(missing, 0))))
    reps = [1] * max(-missing, 0) + list(a.reps)
    return data if all(r == 1 for r in reps) else g("Tile", data, np.array(reps, np.int64))
