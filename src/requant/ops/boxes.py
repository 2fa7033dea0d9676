"""Arithmetic on boxes: overlap, encoding and decoding against anchors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.errors import DTypeError, ShapeError
from requant.ops.detection import BoxFormat, column, to_center, to_corner
from requant.ops.elementwise import NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import op
from requant.ops.sizes import Size, reshape_to, sizes, total


def _need_boxes(g: Emit, **inputs: Value) -> None:
    for name, x in inputs.items():
        if g.dtype(x).kind != "f":
            raise DTypeError("boxes are floating-point numbers", where=g.node, got=f"{name}: {g.dtype(x)}")
        if g.rank(x) < 2 or g.dims(x)[-1] not in (4, None):
            raise ShapeError("boxes are (..., 4)", where=g.node, got=f"{name}: {g.dims(x)}")


@dataclass(frozen=True)
class BoxIouAttrs(Attrs):
    format: BoxFormat = "corner"


def _area(g: Emit, extent: Value) -> Value:
    """Width times height (..., 1) of extents (..., 2); 0 where one is negative."""
    extent = g("Max", extent, 0.0)
    return g("Mul", column(g, extent, 0), column(g, extent, 1))


def iou(g: Emit, lhs: Value, rhs: Value, format: BoxFormat) -> Value:
    """Intersection over union (...) of boxes (..., 4) that are broadcast against each other; 0 where both are empty."""
    corners, areas = [], []
    for x in (lhs, rhs):
        corner = to_corner(g, x) if format == "center" else x
        low, high = column(g, corner, 0, 2), column(g, corner, 2, 2)
        corners.append((low, high))
        areas.append(_area(g, column(g, x, 2, 2) if format == "center" else g("Sub", high, low)))
    (low_a, high_a), (low_b, high_b) = corners
    both = _area(g, g("Sub", g("Min", high_a, high_b), g("Max", low_a, low_b)))
    union = g("Sub", g("Add", *areas), both)
    some = g("Greater", union, 0.0)
    out = g("Where", some, g("Div", both, g("Where", some, union, g.const(1, union))), g.const(0, union))
    return g.squeeze(out, [g.rank(out) - 1])


@op("_contrib_box_iou", inputs=("lhs", "rhs"))
def box_iou(g: Emit, a: BoxIouAttrs, lhs: Value, rhs: Value) -> Value:
    """Intersection over union of every box of lhs (a..., 4) with every box of rhs (b..., 4): (a..., b...)."""
    _need_boxes(g, lhs=lhs, rhs=rhs)
    one, four = Size.number_of(1), Size.number_of(4)
    left, right = sizes(g, lhs)[:-1], sizes(g, rhs)[:-1]
    x, y = (g.cast(v, np.float32) if g.dtype(v) == np.float16 else v for v in (lhs, rhs))
    out = iou(g, reshape_to(g, x, [total(left), one, four]), reshape_to(g, y, [one, total(right), four]), a.format)
    return g.cast(reshape_to(g, out, [*left, *right], (lhs, rhs)), g.dtype(lhs))


@dataclass(frozen=True)
class BoxDecodeAttrs(Attrs):
    std0: float = 1.0
    std1: float = 1.0
    std2: float = 1.0
    std3: float = 1.0
    clip: float = -1.0
    format: BoxFormat = "center"


def decode(
    g: Emit, offset: Value, anchor: Value, stds: tuple[float, float, float, float], limit: float | None = None
) -> Value:
    """Corners (..., 4) of boxes given as offsets from anchors (x, y, width, height), both (..., 4).

    Args:
        stds: what offsets were divided by when they were encoded.
        limit: an upper bound of the offsets of width and height.
    """
    moved = g("Mul", column(g, offset, 0, 2), g.const(list(stds[:2]), offset))
    grown = g("Mul", column(g, offset, 2, 2), g.const(list(stds[2:]), offset))
    if limit is not None:
        grown = g("Min", grown, limit)
    place, extent = column(g, anchor, 0, 2), column(g, anchor, 2, 2)
    middle = g("Add", g("Mul", moved, extent), place)
    half = g("Mul", g("Mul", g("Exp", grown), extent), 0.5)
    return g("Concat", g("Sub", middle, half), g("Add", middle, half), axis=-1)


@op("_contrib_box_decode", inputs=("data", "anchors"))
def box_decode(g: Emit, a: BoxDecodeAttrs, data: Value, anchors: Value) -> Value:
    """Boxes (B, N, 4) as corners, from offsets (B, N, 4) and anchors (1, N, 4) in ``format``."""
    _need_boxes(g, data=data, anchors=anchors)
    dtype = g.dtype(data)
    x, anchor = (g.cast(v, np.float32) if g.dtype(v) == np.float16 else v for v in (data, anchors))
    if a.format == "corner":
        anchor = to_center(g, anchor)
    out = decode(g, x, anchor, (a.std0, a.std1, a.std2, a.std3), a.clip if a.clip > 0 else None)
    return g.cast(out, dtype)


def _matched(g: Emit, refs: Value, matches: Value) -> Value:
    """The reference box (B, N, 4) of each anchor, by index (B, N)."""
    index = g.unsqueeze(g.cast(matches, np.int64), [2])
    return g("GatherND", refs, index, batch_dims=1)


@op(
    "_contrib_box_encode",
    inputs=("samples", "matches", "anchors", "refs", "means", "stds"),
    outputs=("output0", "output1"),
)
def box_encode(
    g: Emit, a: NoAttrs, samples: Value, matches: Value, anchors: Value, refs: Value, means: Value, stds: Value
) -> tuple[Value, Value]:
    """Offsets (B, N, 4) of the reference boxes (B, M, 4) from the anchors (B, N, 4) that they match, and the mask.

    samples (B, N): anchors with more than 0.5 count. matches (B, N): which reference. means, stds: (4,).
    """
    _need_boxes(g, anchors=anchors, refs=refs)
    chosen = g.unsqueeze(g("Greater", samples, 0.5), [2])
    ref = to_center(g, _matched(g, refs, matches))
    anchor = to_center(g, anchors)
    place, extent = column(g, anchor, 0, 2), column(g, anchor, 2, 2)
    moved = g("Div", g("Sub", column(g, ref, 0, 2), place), extent)
    grown = g("Log", g("Div", column(g, ref, 2, 2), extent))
    out = g("Div", g("Sub", g("Concat", moved, grown, axis=-1), means), stds)
    shape = g("Shape", out) if None in g.dims(out) else g.size_of(out)
    mask = g("Expand", g.cast(chosen, g.dtype(out)), shape)
    return g("Where", chosen, out, g.const(0, out)), mask


@dataclass(frozen=True)
class AllcloseAttrs(Attrs):
    rtol: float = 1e-5
    atol: float = 1e-8
    equal_nan: bool = True


@op("_contrib_allclose", inputs=("a", "b"))
def allclose(g: Emit, attrs: AllcloseAttrs, a: Value, b: Value) -> Value:
    """1 if |a - b| <= atol + rtol · |b| everywhere, else 0, as a uint8 scalar."""
    close = g(
        "LessOrEqual",
        g("Abs", g("Sub", a, b)),
        g("Add", g("Mul", g("Abs", b), float(attrs.rtol)), float(attrs.atol)),
    )
    close = g("Or", close, g("Equal", a, b))  # infinities
    if attrs.equal_nan:
        close = g("Or", close, g("And", g("IsNaN", a), g("IsNaN", b)))
    flags = g.reshape(g.cast(close, np.int32), [-1])
    return g.cast(g("ReduceMin", flags, np.array([0], np.int64), keepdims=0), np.uint8)
