"""Pooling over regions of interest: ROIAlign, ROIPooling and PSROIPooling.

Regions are rows [batch index, xmin, ymin, xmax, ymax] in image coordinates. Those with a negative batch index are
padding and give 0: they are moved beside the image, where nothing is to be pooled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops.detection import column
from requant.ops.emit import Emit, Value
from requant.ops.registry import op
from requant.ops.sizes import Size, reshape_to, sizes

#: A coordinate beside every feature map.
_BESIDE = -1e6


@dataclass(frozen=True)
class RoiAlignAttrs(Attrs):
    pooled_size: Ints
    spatial_scale: float
    sample_ratio: int = -1
    position_sensitive: bool = False
    aligned: bool = False


def _two(g: Emit, pooled: Ints) -> tuple[int, int]:
    size = pooled * 2 if len(pooled) == 1 else pooled
    if len(size) != 2 or min(size) < 1:
        raise AttributeValueError("pooled_size is (height, width)", where=g.node, got=pooled)
    return size[0], size[1]


def _check(g: Emit, data: Value, rois: Value) -> None:
    if g.rank(data) != 4 or g.rank(rois) != 2 or g.dims(rois)[1] not in (5, None):
        raise ShapeError(
            "data is (N, C, H, W) and regions are (R, 5)", where=g.node, got=f"{g.dims(data)} and {g.dims(rois)}"
        )


def _split(g: Emit, rois: Value) -> tuple[Value, Value, Value]:
    """Batch indices (R, 1), corners (R, 4), and which regions are padding (R, 1); float32."""
    rois = g.cast(rois, np.float32)
    index = column(g, rois, 0)
    return g("Max", index, 0.0), column(g, rois, 1, 4), g("Less", index, 0.0)


@op("_contrib_ROIAlign", inputs=("data", "rois"))
def roi_align(g: Emit, a: RoiAlignAttrs, data: Value, rois: Value) -> Value:
    """Means of bilinear samples in the bins of regions: (R, C, height, width), from data (N, C, H, W), rois (R, 5).

    Position-sensitive pooling takes each bin from a channel of its own: C = channels of data / (height · width).
    Without ``aligned`` regions are at least one cell wide and high.
    """
    _check(g, data, rois)
    height, width = _two(g, a.pooled_size)
    index, corners, padding = _split(g, rois)
    nothing = padding
    if a.aligned and a.sample_ratio <= 0:  # as many samples as the region has cells, which may be none
        extent = g("Sub", column(g, corners, 2, 2), column(g, corners, 0, 2))
        none = g("LessOrEqual", g("ReduceMin", extent, np.array([1], np.int64), keepdims=1), 0.0)
        nothing = g("Or", padding, none)
    beside = g.const([_BESIDE, _BESIDE, _BESIDE + 1, _BESIDE + 1], corners)
    corners = g("Where", nothing, beside, corners)
    out = g(
        "RoiAlign",
        g.cast(data, np.float32),
        corners,
        g.cast(g.squeeze(index, [1]), np.int64),
        output_height=height,
        output_width=width,
        sampling_ratio=max(a.sample_ratio, 0),
        spatial_scale=a.spatial_scale,
        coordinate_transformation_mode="half_pixel" if a.aligned else "output_half_pixel",
    )
    out = _own_bins(g, out, height, width) if a.position_sensitive else out
    return g.cast(out, g.dtype(data))


def _own_bins(g: Emit, pooled: Value, height: int, width: int) -> Value:
    """From (R, C·bins, height, width) for each bin its own channel: (R, C, height, width)."""
    count = height * width
    regions, channels, *_ = sizes(g, pooled)
    bins = Size.number_of(count)
    groups = channels / bins
    if groups.number is None and not groups.powers:
        raise ShapeError("position-sensitive channels are a multiple of the bins", where=g.node, got=g.dims(pooled))
    square = reshape_to(g, pooled, [regions, groups, bins * bins])
    own = g("Gather", square, np.arange(count, dtype=np.int64) * (count + 1), axis=2)
    return reshape_to(g, own, [regions, groups, Size.number_of(height), Size.number_of(width)], (pooled,))


@dataclass(frozen=True)
class RoiPoolingAttrs(Attrs):
    pooled_size: Ints
    spatial_scale: float


@op("ROIPooling", inputs=("data", "rois"), hidden_outputs=1)
def roi_pooling(g: Emit, a: RoiPoolingAttrs, data: Value, rois: Value) -> Value:
    """Maxima in the bins of regions that are rounded to whole cells: (R, C, height, width)."""
    _check(g, data, rois)
    index, corners, padding = _split(g, rois)
    corners = g("Where", padding, g.const(_BESIDE, corners), corners)
    regions = g("Concat", index, corners, axis=1)
    dtype = g.dtype(data)
    out = g(
        "MaxRoiPool",
        g.cast(data, np.float32),
        regions,
        pooled_shape=list(_two(g, a.pooled_size)),
        spatial_scale=a.spatial_scale,
    )
    return g.cast(out, dtype)


@dataclass(frozen=True)
class PsroiPoolingAttrs(Attrs):
    spatial_scale: float
    output_dim: int
    pooled_size: int
    group_size: int = 0


def _rounded(g: Emit, x: Value) -> Value:
    """C's round: halves away from zero."""
    return g("Mul", g("Sign", x), g("Floor", g("Add", g("Abs", x), 0.5)))


def _edges(g: Emit, a: PsroiPoolingAttrs, corners: Value, axis: int, size: Value) -> tuple[Value, Value]:
    """First cells and ends (R, bins), int64, of bins along an axis (0: x, 1: y) of that size."""
    start = g("Mul", _rounded(g, column(g, corners, axis)), a.spatial_scale)
    end = g("Mul", g("Add", _rounded(g, column(g, corners, axis + 2)), 1.0), a.spatial_scale)
    step = g("Div", g("Max", g("Sub", end, start), 0.1), float(a.pooled_size))
    bins = np.arange(a.pooled_size, dtype=np.float32)
    first = g("Floor", g("Add", g("Mul", step, g.const(bins)), start))
    last = g("Ceil", g("Add", g("Mul", step, g.const(bins + 1)), start))
    limit = g.cast(size, np.float32)
    ends = [g.cast(g("Min", g("Max", v, 0.0), limit), np.int64) for v in (first, last)]
    return ends[0], ends[1]


def _summed(g: Emit, data: Value) -> Value:
    """Integral images (N, C, H + 1, W + 1): sums over all cells above and left."""
    rows = g("CumSum", data, g.const(np.int64(2)))
    both = g("CumSum", rows, g.const(np.int64(3)))
    return g("Pad", both, np.array([0, 0, 1, 1, 0, 0, 0, 0], np.int64))


@op("_contrib_PSROIPooling", inputs=("data", "rois"))
def psroi_pooling(g: Emit, a: PsroiPoolingAttrs, data: Value, rois: Value) -> Value:
    """Means in the bins of regions, each bin from a channel of its own: (R, output_dim, pooled_size, pooled_size).

    data (N, output_dim · group_size², H, W). Sums come from integral images of data less its mean, which keeps them
    small and exact enough for float32.
    """
    _check(g, data, rois)
    g.count(a.output_dim * a.pooled_size**2, "the number of bins")
    groups, bins = a.group_size or a.pooled_size, a.pooled_size
    channels = a.output_dim * groups * groups
    if g.dims(data)[1] not in (channels, None):
        raise ShapeError(
            "data needs output_dim · group_size² channels", where=g.node, got=g.dims(data), expected=channels
        )
    dtype = g.dtype(data)
    data = g.cast(data, np.float32)
    index, corners, padding = _split(g, rois)
    corners = g("Where", padding, g.const(_BESIDE, corners), corners)
    mean = g("ReduceMean", data, np.array([2, 3], np.int64), keepdims=1)
    table = g.reshape(_summed(g, g("Sub", data, mean)), [-1])
    height, width = g.size_of(data, [2]), g.size_of(data, [3])
    left, right = (g.unsqueeze(v, [1, 2]) for v in _edges(g, a, corners, 0, width))
    top, bottom = (g.unsqueeze(v, [1, 3]) for v in _edges(g, a, corners, 1, height))
    group = np.minimum(np.arange(bins) * groups // bins, groups - 1)
    own = (np.arange(a.output_dim)[:, None, None] * groups + group[:, None]) * groups + group
    plane = g("Add", g("Mul", g.cast(g.unsqueeze(index, [2, 3]), np.int64), channels), g.const(own[None]))
    rows, columns = g("Add", height, 1), g("Add", width, 1)

    def corner(y: Value, x: Value) -> Value:
        line = g("Add", g("Mul", plane, rows), y)
        return g("Gather", table, g("Add", g("Mul", line, columns), x), axis=0)

    inside = g(
        "Sub", g("Add", corner(bottom, right), corner(top, left)), g("Add", corner(bottom, left), corner(top, right))
    )
    high, wide = g("Max", g("Sub", bottom, top), 0), g("Max", g("Sub", right, left), 0)
    area = g.cast(g("Mul", high, wide), np.float32)
    average = g("Add", g("Div", inside, g("Max", area, 1.0)), g("Gather", g.reshape(mean, [-1]), plane, axis=0))
    return g.cast(g("Where", g("Greater", area, 0.0), average, g.const(0, average)), dtype)
