"""Pooling over windows and over everything; Flatten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
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
    """Where windows lie: kernel, stride, the padding before, and the padding after.

    Every MXNet convention becomes this one: windows at ``i · stride - before`` as long as they fit into the padded
    data. ``full`` rounds the count of windows up, which is more padding at the end; so does ``same``.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def size(self) -> int:
        return product(self.kernel)

    @property
    def native(self) -> bool:
        """Whether engines take the padding: it must be smaller than the kernel."""
        return all(p < k for p, k in zip(self.before + self.after, self.kernel * 2))


def windows(g: Emit, a: PoolingAttrs | PoolingV1Attrs, data: Value) -> Windows:
    """The windows of a pooling over data (N, C, *spatial).

    Raises:
        AttributeValueError: a count of numbers is wrong. ShapeError: the kernel is larger than the padded data.
    """
    n = g.rank(data) - 2
    if len(a.kernel) != n or not n:
        raise AttributeValueError(
            "kernel must have one number per spatial dimension", where=g.node, got=a.kernel, expected=f"{n} numbers"
        )
    stride, pad = spatial(a.stride, n, 1, "stride", g.node), spatial(a.pad, n, 0, "pad", g.node)
    if a.pooling_convention == "same" and any(pad):
        raise AttributeValueError("pooling_convention 'same' takes no pad", where=g.node, got=pad, expected="no pad")
    after = []
    for k, s, p, d in zip(a.kernel, stride, pad, g.dims(data)[2:]):
        if k < 1 or s < 1:
            raise AttributeValueError("kernel and stride must be positive", where=g.node, got=(k, s))
        if d is not None and k > d + 2 * p and a.pooling_convention != "same":
            raise ShapeError("the kernel is larger than the data", where=g.node, got=k, expected=f"at most {d + 2 * p}")
        if a.pooling_convention == "valid":
            after.append(p)
        elif a.pooling_convention == "full":  # one window more if a part of one is left
            after.append(p + (s - 1 if d is None else (k - d - 2 * p) % s))
        else:  # as many windows as strides begin within the data
            after.append(k - 1 if d is None else max(0, (d - 1) // s * s + k - d))
    return Windows(a.kernel, tuple(stride), tuple(pad), tuple(after))


def _padded(g: Emit, data: Value, before: tuple[int, ...], after: tuple[int, ...], value: float) -> Value:
    pads = [0, 0, *before, 0, 0, *after]
    return g("Pad", data, np.array(pads, np.int64), g.const(value, data)) if any(pads) else data


def _pool(g: Emit, kind: str, data: Value, w: Windows, fill: float, **attributes: int) -> Value:
    """An ONNX pooling node; padding that engines refuse becomes a Pad node with ``fill``."""
    pads = w.before + w.after
    if not w.native:
        data, pads = _padded(g, data, w.before, w.after, fill), (0,) * len(pads)
    return g.in_float32(kind, data, kernel_shape=list(w.kernel), strides=list(w.stride), pads=list(pads), **attributes)


def _maximum(g: Emit, data: Value, w: Windows) -> Value:
    return _pool(g, "MaxPool", data, w, float(np.finfo(g.dtype(data)).min))


def _mean_of_all(g: Emit, data: Value, w: Windows) -> Value:
    """The sum of a window divided by the kernel's size: padding counts as zeros."""
    return _pool(g, "AveragePool", data, w, 0.0, count_include_pad=1)


def _share(g: Emit, data: Value, w: Windows, limit: tuple[int, ...]) -> Value:
    """Which share of each window lies within the data and ``limit`` of padding on both sides, (1, 1, *out).

    At least one place's worth, so that one can divide by it.
    """
    dims = g.dims(data)[2:]
    if None in dims:
        sizes = g.concat_sizes([1, 1, g.size_of(data, range(2, g.rank(data)))])
        ones = g("Expand", g.const(1.0, data), sizes)
        ones = _padded(g, ones, limit, limit, 1.0)
        rest = tuple(p - q for p, q in zip(w.before + w.after, limit * 2))
        ones = _padded(g, ones, rest[: len(limit)], rest[len(limit) :], 0.0)
        plain = Windows(w.kernel, w.stride, (0,) * len(limit), (0,) * len(limit))
        return g("Max", _mean_of_all(g, ones, plain), 1.0 / w.size)
    share = np.ones((1, 1))
    for k, s, b, e, q, d in zip(w.kernel, w.stride, w.before, w.after, limit, g.static(data)[2:]):
        starts = np.arange((d + b + e - k) // s + 1) * s - b
        inside = np.minimum(starts + k, d + q) - np.maximum(starts, -q)
        share = share[..., None] * (np.maximum(inside, 0) / k)
    return g.const(np.maximum(share, 1.0 / w.size), data)


def _average(g: Emit, a: PoolingAttrs, data: Value, w: Windows) -> Value:
    """The mean over windows clipped to the data and, if ``count_include_pad``, to ``pad`` zeros around it."""
    include = a.count_include_pad is not False
    padded = any(w.before)
    if w.native:
        if include and w.after == w.before:
            return _mean_of_all(g, data, w)
        if not (include and padded):
            return _pool(g, "AveragePool", data, w, 0.0, count_include_pad=0)
    limit = w.before if include else (0,) * len(w.before)
    return g("Div", _mean_of_all(g, data, w), _share(g, data, w, limit))


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
            out = _maximum(g, data, w)
        case "avg":
            out = _average(g, a, data, w)
        case "sum":
            out = g("Mul", _mean_of_all(g, data, w), float(w.size))
        case _:
            p = _p_value(g, a)
            out = _root(g, g("Mul", _mean_of_all(g, _power(g, data, p), w), float(w.size)), p)
    return channels_to_back(g, out) if last else out


@op("Pooling_v1")
def pooling_v1(g: Emit, a: PoolingV1Attrs, data: Value) -> Value:
    """Pooling of old files: padding is zeros in the maximum too, and averages always divide by the kernel's size."""
    _check_data(g, data)
    if a.global_pool:
        return _global(g, a, data)
    w = windows(g, a, data)
    match a.pool_type:
        case "max":
            none = (0,) * len(w.kernel)
            rest = tuple(e - b for b, e in zip(w.before, w.after))
            return _maximum(g, _padded(g, data, w.before, w.before, 0.0), Windows(w.kernel, w.stride, none, rest))
        case "avg":
            return _mean_of_all(g, data, w)
        case _:
            return g("Mul", _mean_of_all(g, data, w), float(w.size))


@dataclass(frozen=True)
class FlattenAttrs(Attrs):
    pass


@op("Flatten", "flatten", "_npx_batch_flatten", quant=Quant.SUPPORT, quantized="_contrib_quantized_flatten")
def flatten(g: Emit, a: FlattenAttrs, data: Value) -> Value:
    """(N, ...) to (N, everything else)."""
    return g("Flatten", data, axis=1)
