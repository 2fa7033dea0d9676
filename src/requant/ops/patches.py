"""im2col and col2im: sliding windows laid out as columns, and their sum put back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import ShapeError
from requant.ops.conv import spatial
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, product
from requant.ops.sizes import Size, reshape_to, sizes


@dataclass(frozen=True)
class Im2colAttrs(Attrs):
    kernel: Ints
    stride: Ints = ()
    dilate: Ints = ()
    pad: Ints = ()


@dataclass(frozen=True)
class Col2imAttrs(Attrs):
    output_size: Ints
    kernel: Ints
    stride: Ints = ()
    dilate: Ints = ()
    pad: Ints = ()


def _selectors(g: Emit, kernel: Ints, channels: int, like: Value) -> Value:
    """Convolution weights (channels · K, 1, *kernel), of which the k-th of a channel picks its k-th window element."""
    count = product(kernel)
    g.count(count * count * channels, "the number of window elements")
    one = np.eye(count, dtype=g.dtype(like)).reshape(count, 1, *kernel)
    return g.const(np.tile(one, (channels, 1, *[1] * len(kernel))))


def _windows(g: Emit, a: Im2colAttrs | Col2imAttrs) -> tuple[list[int], list[int], list[int]]:
    n = len(a.kernel)
    return (
        spatial(a.stride, n, 1, "stride", g.node),
        spatial(a.dilate, n, 1, "dilate", g.node),
        spatial(a.pad, n, 0, "pad", g.node),
    )


@op("im2col")
def im2col(g: Emit, a: Im2colAttrs, data: Value) -> Value:
    """Windows of data (N, C, *spatial) as columns (N, C · prod(kernel), number of windows)."""
    if g.rank(data) != len(a.kernel) + 2:
        raise ShapeError("data and kernel do not fit together", where=g.node, got=g.dims(data), expected=a.kernel)
    strides, dilations, pads = _windows(g, a)
    channels = g.dim(data, 1)
    weight = _selectors(g, a.kernel, channels, data)
    out = g(
        "Conv",
        data,
        weight,
        kernel_shape=list(a.kernel),
        strides=strides,
        dilations=dilations,
        pads=pads + pads,
        group=channels,
    )
    own = sizes(g, out)
    last = own[2]
    for size in own[3:]:
        last = last * size
    return reshape_to(g, out, [own[0], own[1], last])


@op("col2im")
def col2im(g: Emit, a: Col2imAttrs, data: Value) -> Value:
    """The sum of windows: columns (N, C · prod(kernel), L) put back into (N, C, *output_size)."""
    strides, dilations, pads = _windows(g, a)
    rows, count = g.dim(data, 1), product(a.kernel)
    if len(a.output_size) != len(a.kernel) or rows % count:
        raise ShapeError(
            "columns, kernel and output_size do not fit together",
            where=g.node,
            got=f"{g.dims(data)}, kernel {a.kernel}, output_size {a.output_size}",
        )
    spans = [d * (k - 1) + 1 for d, k in zip(dilations, a.kernel)]
    grid = [(o + 2 * p - w) // s + 1 for o, p, w, s in zip(a.output_size, pads, spans, strides)]
    missing = [o - ((n - 1) * s + w - 2 * p) for o, n, s, w, p in zip(a.output_size, grid, strides, spans, pads)]
    channels = rows // count
    placed = reshape_to(g, data, [sizes(g, data)[0], Size.number_of(rows), *map(Size.number_of, grid)])
    return g(
        "ConvTranspose",
        placed,
        _selectors(g, a.kernel, channels, data),
        kernel_shape=list(a.kernel),
        strides=strides,
        dilations=dilations,
        pads=pads + pads,
        output_padding=missing,
        group=channels,
    )
