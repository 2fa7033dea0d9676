"""The MultiBox operators of SSD: anchors, detection, and training targets (which inference cuts)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Floats
from requant.errors import AttributeValueError, ShapeError
from requant.ops.boxes import decode
from requant.ops.detection import at_most, column, gather_to, suppress, take_rows, to_center
from requant.ops.emit import Emit, Value
from requant.ops.registry import op
from requant.ops.sizes import Size, expand_to, reshape_to, sizes, total

FOUR = Size.number_of(4)


@dataclass(frozen=True)
class MultiBoxPriorAttrs(Attrs):
    sizes: Floats = (1.0,)
    ratios: Floats = (1.0,)
    clip: bool = False
    steps: Floats = (-1.0, -1.0)
    offsets: Floats = (0.5, 0.5)


def _pair(g: Emit, value: Floats, name: str) -> tuple[float, float]:
    if len(value) != 2:
        raise AttributeValueError(f"attribute {name!r} is a pair (y, x)", where=g.node, got=value)
    return value[0], value[1]


def _centers(g: Emit, data: Value, axis: int, step: float, offset: float) -> Value:
    """Centers of cells along a spatial axis: (size,)."""
    count = g.squeeze(g.size_of(data, [axis]), [0])
    index = g.cast(g("Range", g.const(np.int64(0)), count, g.const(np.int64(1))), np.float32)
    shifted = g("Add", index, offset)
    return g("Mul", shifted, step) if step > 0 else g("Div", shifted, g.cast(count, np.float32))


def _halves(g: Emit, a: MultiBoxPriorAttrs, data: Value) -> Value:
    """Half widths and heights (A, 2) of the anchors of a cell, relative to the image."""
    size = np.array([*a.sizes, *[a.sizes[0]] * (len(a.ratios) - 1)], np.float32)
    ratio = np.sqrt(np.array([a.ratios[0]] * len(a.sizes) + list(a.ratios[1:]), np.float32))
    half = g.const(size / 2)
    height, width = (g.cast(g.size_of(data, [axis]), np.float32) for axis in (2, 3))
    across = g("Mul", g("Mul", half, g("Div", height, width)), g.const(ratio))
    return g("Concat", *(g.unsqueeze(v, [1]) for v in (across, g("Div", half, g.const(ratio)))), axis=1)


@op("_contrib_MultiBoxPrior")
def multibox_prior(g: Emit, a: MultiBoxPriorAttrs, data: Value) -> Value:
    """Anchors (1, H·W·A, 4) as corners relative to the image, for the cells of data (N, C, H, W).

    Each cell has one for every size with the first ratio, then one for every other ratio with the first size.
    """
    if g.rank(data) != 4 or not a.sizes or not a.ratios:
        raise ShapeError(
            "anchors need 4-D data, a size and a ratio", where=g.node, got=f"rank {g.rank(data)}, {a.sizes}, {a.ratios}"
        )
    (step_y, step_x), (offset_y, offset_x) = _pair(g, a.steps, "steps"), _pair(g, a.offsets, "offsets")
    if (step_y > 0) != (step_x > 0):
        raise AttributeValueError("steps are given for both y and x, or for none", where=g.node, got=a.steps)
    _, _, height, width = sizes(g, data)
    one = Size.number_of(1)
    grid = [height, width, one]
    y = reshape_to(g, _centers(g, data, 2, step_y, offset_y), [height, one, one])
    x = reshape_to(g, _centers(g, data, 3, step_x, offset_x), [one, width, one])
    center = g("Concat", expand_to(g, x, grid, (data,)), expand_to(g, y, grid, (data,)), axis=2)
    half, center = _halves(g, a, data), g.unsqueeze(center, [2])
    boxes = g("Concat", g("Sub", center, half), g("Add", center, half), axis=3)
    if a.clip:
        boxes = g("Clip", boxes, 0.0, 1.0)
    count = total([height, width, Size.number_of(len(a.sizes) + len(a.ratios) - 1)])
    return g.cast(reshape_to(g, boxes, [one, count, FOUR], (data,)), g.dtype(data))


@dataclass(frozen=True)
class MultiBoxDetectionAttrs(Attrs):
    clip: bool = True
    threshold: float = 0.01
    background_id: int = 0
    nms_threshold: float = 0.5
    force_suppress: bool = False
    variances: Floats = (0.1, 0.1, 0.2, 0.2)
    nms_topk: int = -1


def _four(g: Emit, value: Floats) -> tuple[float, float, float, float]:
    if len(value) != 4:
        raise AttributeValueError("variances are 4 numbers", where=g.node, got=value)
    return value[0], value[1], value[2], value[3]


def _candidates(g: Emit, a: MultiBoxDetectionAttrs, cls_prob: Value, loc_pred: Value, anchor: Value) -> Value:
    """Every anchor as a row [class, score, xmin, ymin, xmax, ymax]: (B, N, 6). The class is -1 for the background."""
    batch, _, count = sizes(g, cls_prob)
    objects = g.slice(cls_prob, [1], [2**31 - 1], [1])
    score = g.reduce("Max", objects, [1])
    best = g.cast(g("ArgMax", objects, axis=1, keepdims=0), np.float32)
    ids = g("Where", g("Less", score, a.threshold), g.const(-1, best), best)
    offset = reshape_to(g, loc_pred, [batch, count, FOUR], (cls_prob,))
    boxes = decode(g, offset, to_center(g, anchor), _four(g, a.variances))
    if a.clip:
        boxes = g("Clip", boxes, 0.0, 1.0)
    return g("Concat", g.unsqueeze(ids, [2]), g.unsqueeze(score, [2]), boxes, axis=2)


def _valid_first(g: Emit, rows: Value) -> Value:
    """The rows that have a class, in their order, and -1 behind them."""
    valid = g.cast(g("GreaterOrEqual", g.squeeze(column(g, rows, 0), [2]), 0.0), np.int64)
    place = g("Sub", g("CumSum", valid, g.const(np.int64(1))), 1)
    flat = g.squeeze(g("NonZero", g.reshape(valid, [-1])), [0])
    target = g("Gather", g.reshape(place, [-1]), flat, axis=0)
    if g.dims(rows)[0] != 1:
        count = g.size_of(rows, [1])
        target = g("Add", target, g("Mul", g("Div", flat, count), count))
    return gather_to(g, rows, flat, target, -1)


@op("_contrib_MultiBoxDetection", inputs=("cls_prob", "loc_pred", "anchor"))
def multibox_detection(g: Emit, a: MultiBoxDetectionAttrs, cls_prob: Value, loc_pred: Value, anchor: Value) -> Value:
    """Detections (B, N, 6) as [class, score, xmin, ymin, xmax, ymax] by descending score; class -1 means suppressed.

    cls_prob (B, 1 + classes, N), of which class 0 is the background; loc_pred (B, 4·N); anchor (1, N, 4), corners.
    Rows of anchors that are no detection come last, as -1. ``background_id`` is not looked at (MXNet does not either).
    """
    if g.rank(cls_prob) != 3 or g.rank(loc_pred) != 2 or g.rank(anchor) != 3:
        raise ShapeError(
            "cls_prob is (B, classes, N), loc_pred (B, 4·N), anchor (1, N, 4)",
            where=g.node,
            got=f"{g.dims(cls_prob)}, {g.dims(loc_pred)}, {g.dims(anchor)}",
        )
    dtype = g.dtype(cls_prob)
    rows = _candidates(g, a, *(g.cast(x, np.float32) for x in (cls_prob, loc_pred, anchor)))
    if not 0 < a.nms_threshold <= 1:
        return g.cast(_valid_first(g, rows), dtype)
    score = g.squeeze(column(g, rows, 1), [2])
    valid = g("GreaterOrEqual", g.squeeze(column(g, rows, 0), [2]), 0.0)
    key, order = g.multi(
        "TopK", 2, g("Where", valid, score, g.const(-1, score)), at_most(g, a.nms_topk, rows, 1), axis=1
    )
    best = take_rows(g, rows, order)
    best = g("Where", g("Greater", g.unsqueeze(key, [2]), -1.0), best, g.const(-1, best))
    ids = column(g, best, 0)
    classes = None if a.force_suppress else g.cast(g.squeeze(ids, [2]), np.int64)
    # Boxes are suppressed when their IoU reaches the threshold; NonMaxSuppression wants it to be greater.
    overlap = float(np.nextafter(np.float32(a.nms_threshold), np.float32(0)))
    number = g.dims(cls_prob)[1]
    known = None if number is None else number - 1
    kept = suppress(g, column(g, best, 2, 4), key, overlap, -1, classes, known)
    best = g("Concat", _kept(g, ids, kept.source), column(g, best, 1, 5), axis=2)
    have, want = g.dims(best)[1], g.dims(rows)[1]
    if a.nms_topk <= 0 or (have is not None and have == want):
        return g.cast(best, dtype)
    rest = g("Slice", _valid_first(g, rows), g.size_of(best, [1]), np.array([2**31 - 1]), np.array([1]))
    dropped = g(
        "Concat",
        g("ConstantOfShape", g("Shape", column(g, rest, 0)), value=np.full(1, -1, np.float32)),
        column(g, rest, 1, 5),
        axis=2,
    )
    out = g("Concat", best, dropped, axis=1)
    return g.cast(g.set_shape(out, [s.label for s in sizes(g, rows)]), dtype)


def _kept(g: Emit, ids: Value, source: Value) -> Value:
    """Classes (B, K, 1) where a box stays, else -1. source: places of those that stay, among all B·K."""
    flat = g.reshape(ids, [-1])
    gone = g("ConstantOfShape", g("Shape", flat), value=np.full(1, -1, np.float32))
    kept = g("ScatterElements", gone, source, g("Gather", flat, source, axis=0))
    return reshape_to(g, kept, sizes(g, ids), (ids,))


@dataclass(frozen=True)
class MultiBoxTargetAttrs(Attrs):
    overlap_threshold: float = 0.5
    ignore_label: float = -1.0
    negative_mining_ratio: float = -1.0
    negative_mining_thresh: float = 0.5
    minimum_negative_samples: int = 0
    variances: Floats = (0.1, 0.1, 0.2, 0.2)


@op(
    "_contrib_MultiBoxTarget",
    inputs=("anchor", "label", "cls_pred"),
    outputs=("loc_target", "loc_mask", "cls_target"),
    named_outputs=True,
    labels=("label",),
    training=True,
)
def multibox_target(
    g: Emit, a: MultiBoxTargetAttrs, anchor: Value, cls_pred: Value, label: Value | None = None
) -> tuple[Value, Value, Value]:
    """Training targets of SSD. The labels are cut at inference: the targets are those of images without objects.

    anchor (1, N, 4), cls_pred (B, 1 + classes, N) give loc_target and loc_mask (B, 4·N), which are 0, and cls_target
    (B, N), which is ``ignore_label``.
    """
    batch, count = g.size_of(cls_pred, [0]), g.size_of(anchor, [1])
    four = g.concat_sizes([batch, g("Mul", count, 4) if g.value_of(count) is None else 4 * int(g.dim(anchor, 1))])
    dtype = g.dtype(cls_pred)
    nothing = g("ConstantOfShape", four, value=np.zeros(1, dtype))
    mask = g("ConstantOfShape", four, value=np.zeros(1, dtype))
    ignored = g("ConstantOfShape", g.concat_sizes([batch, count]), value=np.full(1, a.ignore_label, dtype))
    return nothing, mask, ignored
