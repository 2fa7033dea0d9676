"""Slicing: slice, slice_axis, slice_like, reverse, and assignment to a slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Ints, OptInts
from requant.errors import AttributeValueError, ShapeError, counted
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, same_shape
from requant.ops.sizes import labelled, sizes

_END = int(np.iinfo(np.int64).max)
_BEFORE_START = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class SliceAttrs(Attrs):
    begin: OptInts
    end: OptInts
    step: OptInts = ()


@dataclass(frozen=True)
class _Bounds:
    """A slice as ONNX writes it: only the dimensions that it changes."""

    starts: list[int]
    ends: list[int]
    axes: list[int]
    steps: list[int]


def _bounds(g: Emit, data: Value, begin: OptInts, end: OptInts, step: OptInts) -> _Bounds:
    """Numpy's meaning of begin, end and step. Raises AttributeValueError where their lengths do not fit."""
    rank = g.rank(data)
    if len(begin) != len(end) or (step and len(step) != len(begin)) or len(begin) > rank:
        raise AttributeValueError(
            "begin, end and step must have the same length, at most the data's rank",
            where=g.node,
            got=f"begin={begin}, end={end}, step={step}",
            expected=f"at most {counted(rank, 'number')}",
        )
    out = _Bounds([], [], [], [])
    for axis, (b, e, s) in enumerate(zip(begin, end, step or (None,) * len(begin))):
        stride = 1 if s is None else s
        if stride == 0:
            raise AttributeValueError("a step of 0", where=g.node, got=step)
        if b in (None, 0) and e is None and stride == 1:
            continue
        out.starts.append((0 if stride > 0 else _END) if b is None else b)
        out.ends.append((_END if stride > 0 else _BEFORE_START) if e is None else e)
        out.axes.append(axis)
        out.steps.append(stride)
    return out


def _sliced(g: Emit, data: Value, to: _Bounds) -> Value:
    if not to.axes:
        return data
    return g.slice(data, to.starts, to.ends, to.axes, to.steps if any(s != 1 for s in to.steps) else None)


@op("slice", "crop", "_npi_slice", "_npx_slice", "_sparse_slice")
def slice_(g: Emit, a: SliceAttrs, data: Value) -> Value:
    """``data[begin:end:step]`` for the leading dimensions; None, negative numbers and steps as in numpy."""
    return _sliced(g, data, _bounds(g, data, a.begin, a.end, a.step))


@dataclass(frozen=True)
class SliceAxisAttrs(Attrs):
    axis: int
    begin: int
    end: int | None


@op("slice_axis", "_npi_slice_axis")
def slice_axis(g: Emit, a: SliceAxisAttrs, data: Value) -> Value:
    """``begin:end`` of one dimension; negative numbers count from its end."""
    axis = g.axis(data, a.axis)
    size = g.dims(data)[axis]
    if size is not None:
        begin = a.begin + size * (a.begin < 0)
        end = size if a.end is None else a.end + size * (a.end < 0)
        if not 0 <= begin < end <= size:
            raise ShapeError(
                "the slice lies outside of the dimension", where=g.node, got=f"{a.begin}:{a.end}", expected=f"0:{size}"
            )
        if (begin, end) == (0, size):
            return data
    return g.slice(data, [a.begin], [_END if a.end is None else a.end], [axis])


@dataclass(frozen=True)
class SliceLikeAttrs(Attrs):
    axes: Ints = ()


@op("slice_like", inputs=("data", "shape_like"))
def slice_like(g: Emit, a: SliceLikeAttrs, data: Value, shape_like: Value) -> Value:
    """The leading part of ``data`` that is as large as ``shape_like`` along ``axes`` (all, if none are given)."""
    have, like = sizes(g, data), sizes(g, shape_like)
    if not a.axes and len(have) != len(like):
        raise ShapeError("ranks differ", where=g.node, got=len(like), expected=len(have), next="name the axes")
    axes = [(g.axis(data, i), g.axis(shape_like, i)) for i in a.axes or range(len(have))]
    for mine, theirs in axes:
        small, large = have[mine].number, like[theirs].number
        if small is not None and large is not None and large > small:
            raise ShapeError("a dimension is too small to be sliced", where=g.node, got=small, expected=f">= {large}")
    changed = [(m, t) for m, t in axes if have[m] != like[t]]
    if not changed:
        return data
    ends = g.size_of(shape_like, [t for _, t in changed])
    starts = np.zeros(len(changed), np.int64)
    out = g("Slice", data, starts, ends, np.array([m for m, _ in changed], np.int64))
    for mine, theirs in changed:
        have[mine] = like[theirs]
    return labelled(g, out, have)


@dataclass(frozen=True)
class ReverseAttrs(Attrs):
    axis: Ints


def reverse_along(g: Emit, data: Value, axes: Sequence[int]) -> Value:
    """The elements in reverse order along dimensions."""
    axes = sorted({g.axis(data, i) for i in axes})
    n = len(axes)
    return g.slice(data, [_END] * n, [_BEFORE_START] * n, axes, [-1] * n)


@op("reverse", "flip", param_shapes=same_shape)
def reverse(g: Emit, a: ReverseAttrs, data: Value) -> Value:
    """Reverse the order along the given dimensions."""
    return reverse_along(g, data, a.axis)


@dataclass(frozen=True)
class NumpyFlipAttrs(Attrs):
    axis: Ints | None = None


@op("_npi_flip", param_shapes=same_shape)
def np_flip(g: Emit, a: NumpyFlipAttrs, data: Value) -> Value:
    """Reverse the order along the given dimensions, or along all."""
    return reverse_along(g, data, range(g.rank(data)) if a.axis is None else a.axis)


@dataclass(frozen=True)
class RollAttrs(Attrs):
    shift: Ints | None = None
    axis: Ints | None = None


@op("_np_roll", "_npi_roll", param_shapes=same_shape)
def roll(g: Emit, a: RollAttrs, data: Value) -> Value:
    """Shift the elements along dimensions (of the flattened data, if none are named); what falls off comes in again."""
    if a.shift is None:
        raise AttributeValueError("attribute 'shift' is missing", where=g.node, expected="an integer or a tuple")
    if a.axis is None:
        flat = roll(g, RollAttrs(a.shift[:1], (0,)), g.reshape(data, [-1]))
        return labelled(g, g("Reshape", flat, g.size_of(data)), sizes(g, data))
    shifts = a.shift * len(a.axis) if len(a.shift) == 1 else a.shift
    if len(shifts) != len(a.axis):
        raise AttributeValueError("one shift per axis", where=g.node, got=a)
    have = sizes(g, data)
    for shift, axis in zip(shifts, (g.axis(data, i) for i in a.axis)):
        cut = -shift % g.dim(data, axis)  # the element that comes first
        if cut:
            data = g("Concat", g.slice(data, [cut], [_END], [axis]), g.slice(data, [0], [cut], [axis]), axis=axis)
    return labelled(g, data, have)


@dataclass(frozen=True, kw_only=True)
class SliceAssignScalarAttrs(Attrs):
    scalar: float = 0.0
    begin: OptInts
    end: OptInts
    step: OptInts = ()


def _places(g: Emit, data: Value, begin: OptInts, end: OptInts, step: OptInts) -> tuple[tuple[int, ...], np.ndarray]:
    """The shape of a slice, and the flat positions of its elements."""
    dims = g.static(data)
    _bounds(g, data, begin, end, step)
    steps = step or (None,) * len(begin)
    positions = np.arange(int(np.prod(dims)), dtype=np.int64).reshape(dims)
    taken = positions[tuple(slice(b, e, s) for b, e, s in zip(begin, end, steps))]
    return taken.shape, taken.reshape(-1)


@op("_slice_assign", "_crop_assign", "_npi_slice_assign", inputs=("lhs", "rhs"))
def slice_assign(g: Emit, a: SliceAttrs, lhs: Value, rhs: Value) -> Value:
    """lhs with the slice ``[begin:end:step]`` replaced by rhs."""
    shape, places = _places(g, lhs, a.begin, a.end, a.step)
    if g.static(rhs) != shape:
        raise ShapeError("what is assigned must have the slice's shape", where=g.node, got=g.dims(rhs), expected=shape)
    return _scattered(g, lhs, places, g.reshape(rhs, [-1]))


@op("_slice_assign_scalar", "_crop_assign_scalar", "_npi_slice_assign_scalar")
def slice_assign_scalar(g: Emit, a: SliceAssignScalarAttrs, data: Value) -> Value:
    """data with the slice ``[begin:end:step]`` filled with ``scalar``."""
    _, places = _places(g, data, a.begin, a.end, a.step)
    value = np.float64(a.scalar).astype(g.dtype(data))
    return _scattered(g, data, places, g.const(np.full(len(places), value)))


def _scattered(g: Emit, data: Value, places: np.ndarray, values: Value) -> Value:
    flat = g("ScatterElements", g.reshape(data, [-1]), places, values, axis=0)
    return g.reshape(flat, g.static(data))
