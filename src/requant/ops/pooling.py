"""Pooling over windows and over everything; Flatten."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError, counted
from requant.ops.conv import channels_last, channels_to_back, channels_to_front, spatial
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, op, product

PoolLayout = Literal["NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"]


@dataclass(frozen=True)
class PoolingAttrs(Attrs):
    kernel: Ints = ()
    pool_type: Literal["max", "avg", "sum", "lp"] = "max"
    global_pool: bool = False
    cudnn_off: bool = False
    pooling_convention: Literal["valid", "full", "same"] = "valid"
    stride: Ints = ()
    pad: Ints = ()
    p_value: int | None = None
    count_include_pad: bool | None = None
    layout: PoolLayout | None = None


@dataclass(frozen=True)
class PoolingV1Attrs(Attrs):
    kernel: Ints = ()
    pool_type: Literal["max", "avg", "sum"] = "max"
    global_pool: bool = False
    pooling_convention: Literal["valid", "full"] = "valid"
    stride: Ints = ()
    pad: Ints = ()


@dataclass(frozen=True)
class Windows:
    """Where windows lie: kernel, stride, the padding before and after, per spatial dimension.

    Every MXNet convention becomes this one: windows at ``i · stride - before`` as long as they fit into the padded
    data. ``full`` rounds the count of windows up, which is more padding at the end; so does ``same``. Engines want
    padding smaller than the kernel: windows that see nothing but padding are left out here and counted in ``lead`` and
    ``trail``; ``skip`` is what the first window that is left passes over.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    lead: tuple[int, ...]
    trail: tuple[int, ...]
    skip: tuple[int, ...]

    @property
    def size(self) -> int:
        return product(self.kernel)


def _within_data(
    g: Emit, kernel: int, stride: int, before: int, after: int, size: int
) -> tuple[int, int, int, int, int]:
    """before, after, lead, trail and skip of one dimension whose padding reaches beyond some window."""
    count = (size + before + after - kernel) // stride + 1
    lead = 0 if before < kernel else (before - kernel) // stride + 1
    trail = max(0, count - -(-(size + before) // stride))
    first, last = lead * stride - before, (count - trail - 1) * stride - before
    if last < first:
        raise ShapeError("no window of the pooling sees any data", where=g.node, got=f"stride {stride}, size {size}")
    return max(-first, 0), max(last + kernel - size, 0), lead, trail, max(first, 0)


def windows(g: Emit, a: PoolingAttrs | PoolingV1Attrs, data: Value) -> Windows:
    """The windows of a pooling over data (N, C, *spatial).

    Raises:
        AttributeValueError: a count of numbers is wrong. ShapeError: the kernel is larger than the padded data.
        NeedsShape: the sizes are needed to tell which windows see data.
    """
    n = g.rank(data) - 2
    if len(a.kernel) != n or not n:
        raise AttributeValueError(
            "kernel must have one number per spatial dimension",
            where=g.node,
            got=a.kernel,
            expected=counted(n, "number"),
        )
    stride, pad = spatial(a.stride, n, 1, "stride", g.node), spatial(a.pad, n, 0, "pad", g.node)
    if a.pooling_convention == "same" and any(pad):
        raise AttributeValueError("pooling_convention 'same' takes no pad", where=g.node, got=pad, expected="no pad")
    found = []
    for i, (k, s, p, d) in enumerate(zip(a.kernel, stride, pad, g.dims(data)[2:])):
        if k < 1 or s < 1 or p < 0:
            raise AttributeValueError(
                "kernel and stride must be positive, pad not negative", where=g.node, got=(k, s, p)
            )
        if d is not None and k > d + 2 * p and a.pooling_convention != "same":
            raise ShapeError("the kernel is larger than the data", where=g.node, got=k, expected=f"at most {d + 2 * p}")
        if a.pooling_convention == "valid":
            end = p
        elif a.pooling_convention == "full":  # one window more if a part of one is left
            end = p + (s - 1 if d is None else (k - d - 2 * p) % s)
        else:  # as many windows as strides begin within the data
            end = k - 1 if d is None else max(0, (d - 1) // s * s + k - d)
        if max(p, end) < k:
            found.append((p, end, 0, 0, 0))
        else:
            found.append(_within_data(g, k, s, p, end, g.dim(data, 2 + i)))
    return Windows(a.kernel, tuple(stride), *zip(*found))


def _pool(g: Emit, kind: str, data: Value, w: Windows, **attributes: int) -> Value:
    """An ONNX pooling node over the windows that see data."""
    if any(w.skip):
        axes = [2 + i for i, n in enumerate(w.skip) if n]
        data = g.slice(data, [n for n in w.skip if n], [np.iinfo(np.int64).max] * len(axes), axes)
    return g.in_float32(
        kind,
        data,
        kernel_shape=list(w.kernel),
        strides=list(w.stride),
        pads=list(w.before + w.after),
        **attributes,
    )


def _with_blank(g: Emit, out: Value, w: Windows, value: float) -> Value:
    """The result with the windows that see nothing but padding put back."""
    if not any(w.lead + w.trail):
        return out
    pads = [0, 0, *w.lead, 0, 0, *w.trail]
    return g("Pad", out, np.array(pads, np.int64), g.const(value, out))


def _mean_of_all(g: Emit, data: Value, w: Windows) -> Value:
    """The sum of a window divided by the kernel's size: padding counts as zeros."""
    return _pool(g, "AveragePool", data, w, count_include_pad=1)


def _inside(g: Emit, data: Value, w: Windows, i: int, limit: int) -> Value:
    """How many places of each window, along spatial dimension i, lie within the data and ``limit`` around it."""
    k, s, b, e = w.kernel[i], w.stride[i], w.before[i], w.after[i]
    size = g.dims(data)[2 + i]
    if size is not None:
        starts = np.arange((size - w.skip[i] + b + e - k) // s + 1) * s - b + w.skip[i]
        return g.const(np.minimum(starts + k, size + limit) - np.maximum(starts, -limit))
    length = g.squeeze(g.size_of(data, [2 + i]), [0])
    count = g("Add", g("Div", g("Add", length, b + e - k), s), 1)
    first = g("Sub", g("Mul", g("Range", g.const(np.int64(0)), count, g.const(np.int64(1))), s), b)
    return g("Sub", g("Min", g("Add", first, k), g("Add", length, limit)), g("Max", first, -limit))


def _share(g: Emit, data: Value, w: Windows, limit: tuple[int, ...]) -> Value:
    """Which share of each window lies within the data and ``limit`` of padding on both sides, (*out)."""
    n = len(w.kernel)
    counts = [g.unsqueeze(_inside(g, data, w, i, limit[i]), list(range(1, n - i))) for i in range(n)]
    known = [array for c in counts if (array := g.value_of(c)) is not None]
    if len(known) == n:
        return g.const(functools.reduce(operator.mul, known) / w.size, data)
    area = functools.reduce(lambda x, y: g("Mul", x, y), counts)
    return g("Div", g.cast(area, g.dtype(data)), float(w.size))


def _average(g: Emit, a: PoolingAttrs, data: Value, w: Windows) -> Value:
    """The mean over windows clipped to the data and, if ``count_include_pad``, to ``pad`` zeros around it."""
    include, pad = a.count_include_pad is not False, a.pad or (0,) * len(w.kernel)
    if include and pad == w.before == w.after:
        return _mean_of_all(g, data, w)
    if not include or not any(pad):
        return _pool(g, "AveragePool", data, w, count_include_pad=0)
    return g("Div", _mean_of_all(g, data, w), _share(g, data, w, pad))


def _root(g: Emit, total: Value, p: int) -> Value:
    """The p-th root that MXNet takes: of the plain sum if p is 1, and of negative sums too if p is 3."""
    if p == 1:
        return total
    if p == 2:
        return g("Sqrt", total)
    return g("Mul", g("Sign", total), g("Pow", g("Abs", total), 1.0 / 3.0))


def _power(g: Emit, data: Value, p: int) -> Value:
    return data if p == 1 else g("Mul", data, g("Mul", data, data) if p == 3 else data)


def _p_value(g: Emit, a: PoolingAttrs) -> int:
    if a.p_value not in (1, 2, 3):
        raise AttributeValueError("p_value of lp pooling", where=g.node, got=a.p_value, expected="1, 2 or 3")
    return a.p_value


def _global(g: Emit, a: PoolingAttrs | PoolingV1Attrs, data: Value) -> Value:
    axes = list(range(2, g.rank(data)))
    match a.pool_type:
        case "max":
            return g.in_float32("GlobalMaxPool", data)
        case "avg":
            return g.in_float32("GlobalAveragePool", data)
        case "sum":
            return g.reduce("Sum", data, axes, keepdims=True)
        case _:
            assert isinstance(a, PoolingAttrs)
            p = _p_value(g, a)
            return _root(g, g.reduce("Sum", _power(g, data, p), axes, keepdims=True), p)


def _check_data(g: Emit, data: Value) -> None:
    if g.rank(data) not in (3, 4, 5):
        raise ShapeError(
            "pooling takes 1 to 3 spatial dimensions", where=g.node, got=f"rank {g.rank(data)}", expected="rank 3 to 5"
        )


def _workspace(a: PoolingAttrs) -> int:
    """Whether MXNet's oneDNN kernel keeps where the maxima were, as a second output that is not listed."""
    return int(a.pool_type == "max" and len(a.kernel) > 0 and not channels_last(a.layout))


@op(
    "Pooling",
    "_npx_pooling",
    hidden_outputs=_workspace,
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_pooling",
)
def pooling(g: Emit, a: PoolingAttrs, data: Value) -> Value:
    """Max, average, sum or Lp pooling over windows, or over everything (``global_pool``: kernel and pad do not count).

    data (N, C, *spatial), or with channels last. The count of windows is rounded down by the convention ``valid``, up
    by ``full``, and is ``size / stride`` rounded up by ``same``. Averages divide by the window's size after clipping
    it to the data and the ``pad`` around it, or to the data alone if ``count_include_pad`` is false.
    """
    _check_data(g, data)
    last = channels_last(a.layout)
    if last:
        data = channels_to_front(g, data)
    if a.global_pool:
        out = _global(g, a, data)
        return channels_to_back(g, out) if last else out
    w = windows(g, a, data)
    match a.pool_type:
        case "max":
            out = _with_blank(g, _pool(g, "MaxPool", data, w), w, float(np.finfo(g.dtype(data)).min))
        case "avg":
            out = _with_blank(g, _average(g, a, data, w), w, 0.0)
        case kind:
            p = 1 if kind == "sum" else _p_value(g, a)
            total = g("Mul", _mean_of_all(g, _power(g, data, p), w), float(w.size))
            out = _with_blank(g, _root(g, total, p), w, 0.0)
    return channels_to_back(g, out) if last else out


@op("Pooling_v1")
def pooling_v1(g: Emit, a: PoolingV1Attrs, data: Value) -> Value:
    """Pooling of old files: padding is zeros in the maximum too, and averages always divide by the kernel's size."""
    _check_data(g, data)
    if a.global_pool:
        return _global(g, a, data)
    w = windows(g, a, data)
    if a.pool_type == "max":
        lowest = float(np.finfo(g.dtype(data)).min)
        out = _pool(g, "MaxPool", data, w)
        if not any(a.pad):
            return _with_blank(g, out, w, lowest)
        none = (0,) * len(w.kernel)
        sees_padding = g("Greater", _share(g, data, w, a.pad), _share(g, data, w, none))
        out = g("Max", out, g("Where", sees_padding, g.const(0.0, data), g.const(lowest, data)))
        return _with_blank(g, out, w, 0.0)
    out = _mean_of_all(g, data, w)
    return _with_blank(g, out if a.pool_type == "avg" else g("Mul", out, float(w.size)), w, 0.0)


@dataclass(frozen=True)
class FlattenAttrs(Attrs):
    pass


@op("Flatten", "flatten", "_npx_batch_flatten", quant=Quant.SUPPORT, quantized="_contrib_quantized_flatten")
def flatten(g: Emit, a: FlattenAttrs, data: Value) -> Value:
    """(N, ...) to (N, everything else)."""
    return g("Flatten", data, axis=1)
