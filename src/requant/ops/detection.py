"""Non-maximum suppression: ``box_nms``, and the phrases that every detection operator shares.

Boxes are ordered by score first, with equal scores in their order of appearance, as MXNet does; ONNX's
NonMaxSuppression then only decides which of them stay. Its IoU is MXNet's, so that the decisions are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from requant.attrs import Attrs
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import op
from requant.ops.sizes import reshape_to, sizes, total

BoxFormat = Literal["corner", "center"]


@dataclass(frozen=True)
class BoxNmsAttrs(Attrs):
    overlap_thresh: float = 0.5
    valid_thresh: float = 0.0
    topk: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = -1
    background_id: int = -1
    force_suppress: bool = False
    in_format: BoxFormat = "corner"
    out_format: BoxFormat = "corner"


def column(g: Emit, x: Value, start: int, count: int = 1) -> Value:
    """``count`` columns of the last axis."""
    last = g.rank(x) - 1
    width = g.dims(x)[last]
    if width is None:  # of a Slice, not even its size would be known
        return g("Gather", x, np.arange(start, start + count), axis=last)
    return x if width == count else g.slice(x, [start], [start + count], [last])


def to_corner(g: Emit, boxes: Value) -> Value:
    """(x, y, width, height) as (xmin, ymin, xmax, ymax), along the last axis."""
    middle = column(g, boxes, 0, 2)
    half = g("Mul", column(g, boxes, 2, 2), 0.5)
    return g("Concat", g("Sub", middle, half), g("Add", middle, half), axis=-1)


def to_center(g: Emit, boxes: Value) -> Value:
    """(xmin, ymin, xmax, ymax) as (x, y, width, height), along the last axis."""
    low, high = column(g, boxes, 0, 2), column(g, boxes, 2, 2)
    return g("Concat", g("Mul", g("Add", low, high), 0.5), g("Sub", high, low), axis=-1)


def proper(g: Emit, boxes: Value) -> Value:
    """Corner boxes of which those that are inside out have no area, as MXNet counts them (ONNX would turn them)."""
    low, high = column(g, boxes, 0, 2), column(g, boxes, 2, 2)
    return g("Concat", low, g("Max", low, high), axis=-1)


def batch_offsets(g: Emit, x: Value, per_batch: Value) -> Value | None:
    """Where the rows of each batch begin once (B, K, ...) is flattened: (B, 1), or None where B is known to be 1."""
    batch = g.dims(x)[0]
    if batch == 1:
        return None
    size = g.value_of(per_batch)
    if batch is not None and size is not None:
        return g.const((np.arange(batch, dtype=np.int64) * int(size[0])).reshape(batch, 1))
    count = g.squeeze(g.size_of(x, [0]), [0])
    return g.unsqueeze(g("Mul", g("Range", g.const(np.int64(0)), count, g.const(np.int64(1))), per_batch), [1])


def take_rows(g: Emit, x: Value, index: Value) -> Value:
    """Rows of (B, N, W) by index (B, K): (B, K, W)."""
    offsets = batch_offsets(g, x, g.size_of(x, [1]))
    flat = index if offsets is None else g("Add", index, offsets)
    _, _, width = sizes(g, x)
    table = reshape_to(g, x, [total(sizes(g, x)[:2]), width])
    return g("Gather", table, flat, axis=0)


def at_most(g: Emit, k: int, x: Value, axis: int) -> Value:
    """min(k, size of an axis), or the size if k is not positive: 1-D int64 of one element."""
    size = g.size_of(x, [axis])
    known = g.value_of(size)
    if k <= 0:
        return size
    return g("Min", size, g.const(np.array([k]))) if known is None else g.const(np.array([min(k, int(known[0]))]))


def _class_scores(g: Emit, score: Value, classes: Value, floor: float, known: int | None) -> Value:
    """Scores (B, C, K) by class, ``floor`` where a box is of another class.

    Args:
        classes: (B, K) int64. Those of boxes that are not valid do not count.
        known: C, if classes are below it; else they may have any values, and are numbered as they occur.
    """
    if known is not None:
        place, number = classes, g.const(np.arange(known))
    else:
        first = g.slice(classes, [0], [1], [1])
        counted = g("Where", g("Greater", score, floor), classes, first)
        values, _, place, _ = g.multi("Unique", 4, counted, sorted=1)
        place = reshape_to(g, g.set_shape(place, [total(sizes(g, score)).label]), [*sizes(g, score)], (score,))
        number = g("Range", g.const(np.int64(0)), g.squeeze(g("Shape", values), [0]), g.const(np.int64(1)))
    same = g("Equal", g.unsqueeze(place, [1]), g.unsqueeze(number, [1]))
    return g("Where", same, g.unsqueeze(score, [1]), g.const(floor, score))


class Kept(NamedTuple):
    """Boxes that suppression keeps, of (B, K) in order of their scores.

    Attributes:
        source: their places among all B·K; in no order.
        target: their new places, behind the boxes of their batch that come before them.
        number: (B, 1), how many there are.
    All are int64.
    """

    source: Value
    target: Value
    number: Value


def suppress(
    g: Emit,
    boxes: Value,
    score: Value,
    overlap: float,
    floor: float,
    classes: Value | None = None,
    known: int | None = None,
    most: int | None = None,
) -> Kept:
    """Keep boxes that do not overlap a better one that is kept.

    Args:
        boxes: (B, K, 4) float32, corners, proper; in order of their scores.
        score: (B, K) float32, descending; boxes count only if it is greater than ``floor``.
        overlap: boxes stay up to this IoU.
        classes: (B, K) int64; boxes of different classes do not suppress each other. None: all do.
        known: number of classes, if classes are below it.
        most: how many boxes are wanted (per class).
    """
    by_class = g.unsqueeze(score, [1]) if classes is None else _class_scores(g, score, classes, floor, known)
    batch, count = g.dims(score)[0], g.size_of(score, [1])
    limits = np.array([min(max(overlap, 0.0), 1.0)], np.float32), np.array([floor], np.float32)
    wanted = count if most is None else g.const(np.array([most]))
    chosen = g("NonMaxSuppression", boxes, by_class, wanted, *limits)
    place = g("Gather", chosen, g.const(np.int64(2)), axis=1)
    source, space = place, count
    if batch != 1:
        source = g("Add", place, g("Mul", g("Gather", chosen, g.const(np.int64(0)), axis=1), count))
        space = g("Mul", g.size_of(score, [0]), count)
    none = g("ConstantOfShape", space, value=np.zeros(1, np.int64))
    ones = g("ConstantOfShape", g("Shape", source), value=np.ones(1, np.int64))
    stays = g.set_shape(g("ScatterElements", none, source, ones), [total(sizes(g, score)).label])
    rank = g("CumSum", reshape_to(g, stays, sizes(g, score), (score,)), g.const(np.int64(1)))
    target = g("Sub", g("Gather", g.reshape(rank, [-1]), source, axis=0), 1)
    if batch != 1:
        target = g("Add", target, g("Sub", source, place))
    return Kept(source, target, g.slice(rank, [-1], [2**31 - 1], [1]))


def gather_to(g: Emit, rows: Value, source: Value, target: Value, blank: float) -> Value:
    """Rows of (B, K, W) moved to new places among all B·K; other places are filled with ``blank``."""
    batch, count, width = sizes(g, rows)
    table = reshape_to(g, rows, [batch * count, width])
    shape = g.size_of(table)
    filled = g("ConstantOfShape", shape, value=np.full(1, blank, g.dtype(rows)))
    moved = g("ScatterND", filled, g.unsqueeze(target, [1]), g("Gather", table, source, axis=0))
    return reshape_to(g, moved, [batch, count, width], (rows,))


def pad_rows(g: Emit, rows: Value, like: Value, blank: float) -> Value:
    """(B, K, W) filled up with ``blank`` rows to the number of rows of ``like``."""
    have, want = g.dims(rows)[1], g.dims(like)[1]
    if have is not None and have == want:
        return rows
    missing: int | Value
    if have is None or want is None:
        missing = g("Sub", g.size_of(like, [1]), g.size_of(rows, [1]))
    else:
        missing = want - have
    return g("Pad", rows, g.concat_sizes([0, 0, 0, 0, missing, 0]), g.const(blank, rows))


def _checked(g: Emit, a: BoxNmsAttrs, data: Value) -> None:
    if g.rank(data) < 2:
        raise ShapeError("boxes are (..., n, width)", where=g.node, got=g.dims(data))
    width = g.dims(data)[-1]
    needed = max(a.coord_start + 4, a.score_index + 1, a.id_index + 1)
    if min(a.coord_start, a.score_index) < 0 or (width is not None and needed > width):
        raise AttributeValueError(
            "coord_start, score_index or id_index point beside the box",
            where=g.node,
            got=f"coord_start={a.coord_start}, score_index={a.score_index}, id_index={a.id_index}, width {width}",
        )
    if a.overlap_thresh < 0:
        raise AttributeValueError("overlap_thresh is negative", where=g.node, got=a.overlap_thresh, expected="0 to 1")


@op(
    "_contrib_box_nms",
    "_contrib_box_non_maximum_suppression",
    outputs=("output0",),
    named_outputs=True,
    hidden_outputs=1,
)
def box_nms(g: Emit, a: BoxNmsAttrs, data: Value) -> Value:
    """Boxes (..., n, width) by descending score, without those that overlap a better one; -1 fills the rest.

    Boxes with a score up to ``valid_thresh``, of class ``background_id`` (-1 too), or beyond the best ``topk`` are
    dropped. With ``id_index`` and without ``force_suppress`` only boxes of one class suppress each other.
    """
    _checked(g, a, data)
    if a.topk == 0:
        return data
    *lead, count, width = sizes(g, data)
    rows = reshape_to(g, data, [total(lead), count, width])
    score = g.cast(g.squeeze(column(g, rows, a.score_index), [2]), np.float32)
    valid = g("Greater", score, a.valid_thresh)
    if a.id_index >= 0:
        ids = g.cast(g.squeeze(column(g, rows, a.id_index), [2]), np.float32)
        valid = g("And", valid, g("Not", g("Equal", ids, float(a.background_id))))
    key = g("Where", valid, score, g.const(a.valid_thresh, score))
    key, order = g.multi("TopK", 2, key, at_most(g, a.topk, rows, 1), axis=1, largest=1, sorted=1)
    best = take_rows(g, rows, order)
    boxes = g.cast(column(g, best, a.coord_start, 4), np.float32)
    boxes = proper(g, to_corner(g, boxes) if a.in_format == "center" else boxes)
    classes = None
    if a.id_index >= 0 and not a.force_suppress:
        classes = g.cast(g.squeeze(column(g, best, a.id_index), [2]), np.int64)
    kept = suppress(g, boxes, key, a.overlap_thresh, a.valid_thresh, classes)
    if a.in_format != a.out_format:
        best = _recoded(g, a, best)
    moved = gather_to(g, best, kept.source, kept.target, -1)
    return reshape_to(g, pad_rows(g, moved, rows, -1), sizes(g, data), (data,))


def _recoded(g: Emit, a: BoxNmsAttrs, rows: Value) -> Value:
    """Rows with their boxes in ``out_format``."""
    boxes = column(g, rows, a.coord_start, 4)
    boxes = to_center(g, boxes) if a.out_format == "center" else to_corner(g, boxes)
    parts = [g.slice(rows, [0], [a.coord_start], [2])] if a.coord_start else []
    width = g.dims(rows)[2]
    rest = [] if width == a.coord_start + 4 else [g.slice(rows, [a.coord_start + 4], [2**31 - 1], [2])]
    return g("Concat", *parts, boxes, *rest, axis=2) if parts or rest else boxes
