"""Region proposals of Faster R-CNN: Proposal (one image) and MultiProposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.attrs import Attrs, Floats
from requant.errors import AttributeValueError, ShapeError, counted
from requant.ops.detection import at_most, column, gather_to, suppress, take_rows
from requant.ops.emit import Emit, Value
from requant.ops.registry import op
from requant.ops.sizes import Size, expand_to, reshape_to, sizes, total

ONE, FOUR = Size.number_of(1), Size.number_of(4)


@dataclass(frozen=True)
class ProposalAttrs(Attrs):
    rpn_pre_nms_top_n: int = 6000
    rpn_post_nms_top_n: int = 300
    threshold: float = 0.7
    rpn_min_size: int = 16
    scales: Floats = (4.0, 8.0, 16.0, 32.0)
    ratios: Floats = (0.5, 1.0, 2.0)
    feature_stride: int = 16
    output_score: bool = False
    iou_loss: bool = False


def base_anchors(a: ProposalAttrs) -> np.ndarray:
    """Anchors (A, 4) of the first cell, as corners whose ends belong to them; float32 arithmetic as in MXNet."""
    one, half = np.float32(1), np.float32(0.5)
    side = np.float32(a.feature_stride)
    middle = half * (side - one)
    out = []
    for ratio in np.array(a.ratios, np.float32):
        for scale in np.array(a.scales, np.float32):
            width = np.floor(np.sqrt(np.floor(side * side / ratio)) + half) * scale
            height = np.floor(width / scale * ratio + half) * scale
            reach = half * (np.array([width, height], np.float32) - one)
            out.append(np.concatenate([middle - reach, middle + reach]))
    return np.array(out, np.float32)


def _check(g: Emit, a: ProposalAttrs, cls_prob: Value, bbox_pred: Value, im_info: Value) -> int:
    """The number of anchors of a cell."""
    anchors = len(a.scales) * len(a.ratios)
    if a.rpn_post_nms_top_n < 1 or not 0 <= a.threshold <= 1 or min(a.ratios, default=0) <= 0 or not a.scales:
        raise AttributeValueError(
            "rpn_post_nms_top_n is positive, threshold from 0 to 1, and there are scales and positive ratios",
            where=g.node,
            got=a,
        )
    wanted = (2 * anchors, 4 * anchors)
    for x, channels in zip((cls_prob, bbox_pred), wanted):
        if g.rank(x) != 4 or g.dims(x)[1] not in (channels, None):
            raise ShapeError(
                "scores and offsets do not fit the anchors",
                where=g.node,
                got=f"{g.dims(cls_prob)} and {g.dims(bbox_pred)}",
                expected=f"(B, {wanted[0]}, H, W) and (B, {wanted[1]}, H, W) for {counted(anchors, 'anchor')}",
            )
    if g.rank(im_info) != 2:
        raise ShapeError("im_info is (B, 3): height, width, scale", where=g.node, got=g.dims(im_info))
    return anchors


def _cells(g: Emit, x: Value, axis: int) -> Value:
    """0, 1, ... (size,), float32, along an axis."""
    count = g.squeeze(g.size_of(x, [axis]), [0])
    return g.cast(g("Range", g.const(np.int64(0)), count, g.const(np.int64(1))), np.float32)


def _anchors(g: Emit, a: ProposalAttrs, cls_prob: Value) -> Value:
    """Anchors (H, W, A, 4) of all cells."""
    _, _, height, width = sizes(g, cls_prob)
    stride = float(a.feature_stride)
    y = reshape_to(g, g("Mul", _cells(g, cls_prob, 2), stride), [height, ONE, ONE, ONE])
    x = reshape_to(g, g("Mul", _cells(g, cls_prob, 3), stride), [ONE, width, ONE, ONE])
    grid = [height, width, ONE, ONE]
    x, y = (expand_to(g, v, grid, (cls_prob,)) for v in (x, y))
    return g("Add", g("Concat", x, y, x, y, axis=3), g.const(base_anchors(a)))


def _moved(g: Emit, a: ProposalAttrs, anchors: Value, delta: Value) -> Value:
    """Anchors (N, 4) moved by predicted offsets (B, N, 4)."""
    if a.iou_loss:
        return g("Add", anchors, delta)
    extent = g("Add", g("Sub", column(g, anchors, 2, 2), column(g, anchors, 0, 2)), 1.0)
    middle = g("Add", column(g, anchors, 0, 2), g("Mul", g("Sub", extent, 1.0), 0.5))
    middle = g("Add", g("Mul", column(g, delta, 0, 2), extent), middle)
    reach = g("Mul", g("Sub", g("Mul", g("Exp", column(g, delta, 2, 2)), extent), 1.0), 0.5)
    return g("Concat", g("Sub", middle, reach), g("Add", middle, reach), axis=2)


def _inside(g: Emit, boxes: Value, im_info: Value) -> Value:
    """Boxes (B, N, 4) cut off at the edges of the images."""
    height, width = (g("Sub", column(g, im_info, i), 1.0) for i in (0, 1))
    edge = g.unsqueeze(g("Concat", width, height, width, height, axis=1), [1])
    return g("Max", g("Min", boxes, edge), 0.0)


def _padding(g: Emit, a: ProposalAttrs, cls_prob: Value, im_info: Value, shape: list[Size]) -> Value:
    """Which of the anchors (B, H·W·A) belong to cells beside the image."""
    batch, height, width, anchors = shape
    flags = []
    for axis in (0, 1):
        real = g("Floor", g("Div", column(g, im_info, axis), float(a.feature_stride)))
        cells = g.unsqueeze(_cells(g, cls_prob, axis + 2), [0])
        flags.append(g.unsqueeze(g("GreaterOrEqual", cells, real), [2 - axis]))
    beside = g.unsqueeze(g("Or", *flags), [3])
    beside = expand_to(g, beside, shape, (cls_prob, im_info))
    return reshape_to(g, beside, [batch, height * width * anchors], (cls_prob, im_info))


def _scored(
    g: Emit, a: ProposalAttrs, cls_prob: Value, bbox_pred: Value, im_info: Value, count: int
) -> tuple[Value, Value]:
    """All boxes (B, N, 4) and their scores (B, N): -1 for those that are too small or beside the image."""
    batch, _, height, width = sizes(g, cls_prob)
    anchors = Size.number_of(count)
    every = height * width * anchors
    score = g.transpose(g.slice(cls_prob, [count], [2 * count], [1]), [0, 2, 3, 1])
    score = reshape_to(g, score, [batch, every])
    delta = reshape_to(g, bbox_pred, [batch, anchors, FOUR, height, width], (cls_prob,))
    delta = reshape_to(g, g.transpose(delta, [0, 3, 4, 1, 2]), [batch, every, FOUR], (cls_prob,))
    flat = reshape_to(g, _anchors(g, a, cls_prob), [every, FOUR], (cls_prob,))
    boxes = _inside(g, _moved(g, a, flat, delta), im_info)
    beside = _padding(g, a, cls_prob, im_info, [batch, height, width, anchors])
    smallest = g.unsqueeze(g("Mul", column(g, im_info, 2), float(a.rpn_min_size)), [1])
    extent = g("Add", g("Sub", column(g, boxes, 2, 2), column(g, boxes, 0, 2)), 1.0)
    small = g.cast(g("Less", extent, smallest), np.float32)
    small = g("Greater", g.reduce("Max", small, [2], keepdims=True), 0.0)
    half = g("Mul", smallest, 0.5)
    grown = g("Add", boxes, g("Concat", g("Neg", half), g("Neg", half), half, half, axis=2))
    bad = g("Or", beside, g.squeeze(small, [2]))
    return g("Where", small, grown, boxes), g("Where", bad, g.const(-1, score), score)


def _repeated(g: Emit, rows: Value, count: Value, wanted: int) -> Value:
    """The first ``count`` (B, 1) rows of (B, K, W), again and again: (B, wanted, W)."""
    index = g("Mod", g.const(np.arange(wanted)[None]), count)
    return take_rows(g, rows, index)


def _outputs(a: ProposalAttrs) -> tuple[str, ...]:
    return ("output", "score") if a.output_score else ("output",)


def _proposals(
    g: Emit, a: ProposalAttrs, cls_prob: Value, bbox_pred: Value, im_info: Value
) -> Value | tuple[Value, Value]:
    count = _check(g, a, cls_prob, bbox_pred, im_info)
    dtype = g.dtype(cls_prob)
    cls_prob, bbox_pred, im_info = (g.cast(x, np.float32) for x in (cls_prob, bbox_pred, im_info))
    boxes, score = _scored(g, a, cls_prob, bbox_pred, im_info, count)
    key, order = g.multi("TopK", 2, score, at_most(g, a.rpn_pre_nms_top_n, score, 1), axis=1)
    best = take_rows(g, boxes, order)
    # Both ends of a box belong to it: its area, and that of an intersection, is counted up to the next cell.
    closed = g("Concat", column(g, best, 0, 2), g("Add", column(g, best, 2, 2), 1.0), axis=2)
    lowest = float(np.finfo(np.float32).min)
    kept = suppress(g, closed, key, a.threshold, lowest, most=a.rpn_post_nms_top_n)
    rows = g("Concat", best, g.unsqueeze(key, [2]), axis=2)
    rows = _repeated(g, gather_to(g, rows, kept.source, kept.target, 0), kept.number, a.rpn_post_nms_top_n)
    batch, wanted, _ = sizes(g, rows)
    index = reshape_to(g, _cells(g, cls_prob, 0), [batch, ONE, ONE], (cls_prob,))
    index = expand_to(g, index, [batch, wanted, ONE], (cls_prob, rows))
    every = total([batch, wanted])
    out = reshape_to(g, g("Concat", index, column(g, rows, 0, 4), axis=2), [every, Size.number_of(5)], (cls_prob,))
    if not a.output_score:
        return g.cast(out, dtype)
    scores = reshape_to(g, column(g, rows, 4), [every, ONE], (cls_prob,))
    return g.cast(out, dtype), g.cast(scores, dtype)


_FACTS: dict[str, Any] = {
    "inputs": ("cls_prob", "bbox_pred", "im_info"),
    "outputs": _outputs,
    "named_outputs": True,
    "hidden_outputs": lambda a: int(not a.output_score),
}


@op("_contrib_MultiProposal", **_FACTS)
def multi_proposal(
    g: Emit, a: ProposalAttrs, cls_prob: Value, bbox_pred: Value, im_info: Value
) -> Value | tuple[Value, Value]:
    """Regions (B · post, 5) as [image, xmin, ymin, xmax, ymax] that a region proposal network finds.

    cls_prob (B, 2·A, H, W), of which the second half is of objects; bbox_pred (B, 4·A, H, W); im_info (B, 3): height,
    width, scale. With ``output_score`` their scores too (B · post, 1). If fewer regions remain than
    ``rpn_post_nms_top_n``, they are repeated.
    """
    return _proposals(g, a, cls_prob, bbox_pred, im_info)


@op("_contrib_Proposal", **_FACTS)
def proposal(
    g: Emit, a: ProposalAttrs, cls_prob: Value, bbox_pred: Value, im_info: Value
) -> Value | tuple[Value, Value]:
    """Regions (post, 5) that a region proposal network finds in one image: see MultiProposal."""
    batch = g.dims(cls_prob)[0]
    if batch not in (1, None):
        raise ShapeError(
            "Proposal takes one image", where=g.node, got=g.dims(cls_prob), next="MultiProposal takes several"
        )
    return _proposals(g, a, cls_prob, bbox_pred, im_info)
