"""Batch, layer, instance and group normalization, L2 normalization and LRN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs
from requant.errors import ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, op, same_shape


@dataclass(frozen=True)
class BatchNormAttrs(Attrs):
    eps: float = 1e-3
    momentum: float = 0.9
    fix_gamma: bool = True
    use_global_stats: bool = False
    output_mean_var: bool = False
    axis: int = 1
    cudnn_off: bool = False
    min_calib_range: float | None = None
    max_calib_range: float | None = None


@dataclass(frozen=True)
class BatchNormV1Attrs(Attrs):
    eps: float = 1e-3
    momentum: float = 0.9
    fix_gamma: bool = True
    use_global_stats: bool = False
    output_mean_var: bool = False


@dataclass(frozen=True, kw_only=True)
class SyncBatchNormAttrs(Attrs):
    eps: float = 1e-3
    momentum: float = 0.9
    fix_gamma: bool = True
    use_global_stats: bool = False
    output_mean_var: bool = False
    ndev: int = 1
    key: str


_STATS = ("gamma", "beta", "moving_mean", "moving_var")
_STATS_INIT = {"moving_mean": '["zero", {}]', "moving_var": '["one", {}]'}


def _bn_types(a: Attrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    """The statistics of half precision data are kept in single precision."""
    data = types["data"]
    narrow = data is not None and data.itemsize < 4
    return dict.fromkeys(_STATS, np.dtype(np.float32)) if narrow else {}


def _bn_shapes(
    a: BatchNormAttrs | BatchNormV1Attrs | SyncBatchNormAttrs, shapes: Mapping[str, Shape | None]
) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    if data is None:
        return {}
    channels = data[getattr(a, "axis", 1)]
    return {"data": data, **(dict.fromkeys(_STATS, (channels,)) if channels else {})}


def _bn_outputs(a: BatchNormAttrs | BatchNormV1Attrs | SyncBatchNormAttrs) -> tuple[str, ...]:
    return ("output", "mean", "var") if a.output_mean_var else ("output",)


def _normalize(
    g: Emit, data: Value, params: tuple[Value, Value, Value, Value], axis: int, eps: float, fix_gamma: bool
) -> Value:
    """``gamma (data - mean) / sqrt(var + eps) + beta`` along ``axis``; computed in the parameters' dtype."""
    gamma, beta, mean, var = params
    if fix_gamma:
        known = g.value_of(gamma)
        one = g.const(1.0, gamma)
        gamma = g.const(np.ones(known.shape, known.dtype)) if known is not None else g("Expand", one, g.size_of(gamma))
    rank, axis = g.rank(data), g.axis(data, axis)
    dtype = g.dtype(data)
    data = g.cast(data, g.dtype(var))
    if rank == 1:
        scale = g("Div", gamma, g("Sqrt", g("Add", var, eps)))
        return g.cast(g("Add", g("Mul", g("Sub", data, mean), scale), beta), dtype)
    perm = list(range(rank))
    perm.insert(1, perm.pop(axis))
    out = g("BatchNormalization", g.transpose(data, perm), gamma, beta, mean, var, epsilon=eps)
    return g.cast(g.transpose(out, [int(i) for i in np.argsort(perm)]), dtype)


def _batch_stats(g: Emit, data: Value, axis: int, dtype: np.dtype) -> tuple[Value, Value]:
    """Mean and (biased) variance of each channel of a batch, in the dtype of the statistics."""
    data, axis = g.cast(data, dtype), g.axis(data, axis)
    over = g.const(np.array([d for d in range(g.rank(data)) if d != axis], np.int64))
    mean = g("ReduceMean", data, over, keepdims=1)
    apart = g("Sub", data, mean)
    var = g("ReduceMean", g("Mul", apart, apart), over, keepdims=0)
    return g.squeeze(mean, [d for d in range(g.rank(data)) if d != axis]), var


@op(
    "_contrib_SyncBatchNorm",
    "_contrib_SyncBatchNorm_v1",
    "_npx_sync_batch_norm",
    attrs=SyncBatchNormAttrs,
    inputs=("data", *_STATS),
    outputs=_bn_outputs,
    named_outputs=True,
    aux=("moving_mean", "moving_var"),
    hidden_outputs=2,
    param_shapes=_bn_shapes,
    param_types=_bn_types,
    default_init=_STATS_INIT,
    by_mode=True,
)
@op(
    "BatchNorm_v1",
    attrs=BatchNormV1Attrs,
    inputs=("data", *_STATS),
    outputs=_bn_outputs,
    named_outputs=True,
    aux=("moving_mean", "moving_var"),
    hidden_outputs=2,
    param_shapes=_bn_shapes,
    param_types=_bn_types,
    default_init=_STATS_INIT,
    by_mode=True,
)
@op(
    "BatchNorm",
    "CuDNNBatchNorm",
    "_npx_batch_norm",
    attrs=BatchNormAttrs,
    inputs=("data", *_STATS),
    outputs=_bn_outputs,
    named_outputs=True,
    aux=("moving_mean", "moving_var"),
    hidden_outputs=lambda a: 0 if a.output_mean_var else 2,
    param_shapes=_bn_shapes,
    param_types=_bn_types,
    default_init=_STATS_INIT,
    by_mode=True,
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_batch_norm",
)
def batch_norm(
    g: Emit,
    a: BatchNormAttrs | BatchNormV1Attrs | SyncBatchNormAttrs,
    data: Value,
    gamma: Value,
    beta: Value,
    moving_mean: Value,
    moving_var: Value,
) -> Value | tuple[Value, ...]:
    """Batch normalization with the moving statistics, as at inference.

    In training mode with those of the batch, unless ``use_global_stats``; the moving ones stay as they are.
    ``fix_gamma`` (true by default!) takes gamma as 1, whatever the file holds. data (N, C, ...) with C at ``axis``, the
    rest (C,). With ``output_mean_var`` also the moving mean and ``1 / sqrt(moving_var + eps)``, as MXNet names "var".
    """
    axis = a.axis if isinstance(a, BatchNormAttrs) else 1
    if g.training and not a.use_global_stats:
        moving_mean, moving_var = _batch_stats(g, data, axis, g.dtype(moving_var))
    out = _normalize(g, data, (gamma, beta, moving_mean, moving_var), axis, a.eps, a.fix_gamma)
    if not a.output_mean_var:
        return out
    return out, g("Identity", moving_mean), g("Reciprocal", g("Sqrt", g("Add", moving_var, a.eps)))


@op(
    "_contrib_BatchNormWithReLU",
    "_npx_batch_norm_with_relu",
    "_sg_onednn_batch_norm",
    inputs=("data", *_STATS),
    outputs=_bn_outputs,
    named_outputs=True,
    aux=("moving_mean", "moving_var"),
    hidden_outputs=lambda a: 1 if a.output_mean_var else 3,
    param_shapes=_bn_shapes,
    param_types=_bn_types,
    default_init=_STATS_INIT,
    by_mode=True,
)
def batch_norm_with_relu(
    g: Emit, a: BatchNormAttrs, data: Value, gamma: Value, beta: Value, moving_mean: Value, moving_var: Value
) -> Value | tuple[Value, ...]:
    """Batch normalization followed by ReLU."""
    found = batch_norm(g, a, data, gamma, beta, moving_mean, moving_var)
    if isinstance(found, tuple):
        return g("Relu", found[0]), *found[1:]
    return g("Relu", found)


@dataclass(frozen=True)
class LayerNormAttrs(Attrs):
    axis: int = -1
    eps: float = 1e-5
    output_mean_var: bool = False


def _moments_outputs(a: LayerNormAttrs | GroupNormAttrs) -> tuple[str, ...]:
    return ("output", "mean", "std") if a.output_mean_var else ("output",)


def _ln_shapes(a: LayerNormAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    if data is None or not -len(data) <= a.axis < len(data):
        return {}
    size = data[a.axis]
    return {"data": data, **(dict.fromkeys(("gamma", "beta"), (size,)) if size else {})}


def _moments(g: Emit, data: Value, axes: list[int], eps: float, keepdims: bool) -> tuple[Value, Value]:
    """Mean and ``sqrt(variance + eps)`` over ``axes``."""
    mean = g.reduce("Mean", data, axes, keepdims=True)
    off = g("Sub", data, mean)
    std = g("Sqrt", g("Add", g.reduce("Mean", g("Mul", off, off), axes, keepdims=True), eps))
    return (mean, std) if keepdims else (g.squeeze(mean, axes), g.squeeze(std, axes))


@op(
    "LayerNorm",
    "_npx_layer_norm",
    inputs=("data", "gamma", "beta"),
    outputs=_moments_outputs,
    named_outputs=True,
    hidden_outputs=lambda a: 0 if a.output_mean_var else 2,
    param_shapes=_ln_shapes,
)
def layer_norm(g: Emit, a: LayerNormAttrs, data: Value, gamma: Value, beta: Value) -> Value | tuple[Value, ...]:
    """Normalization along one axis, whose size gamma and beta have; with ``output_mean_var`` also mean and std."""
    rank, axis = g.rank(data), g.axis(data, a.axis)
    perm = [i for i in range(rank) if i != axis] + [axis]
    out = g("LayerNormalization", g.transpose(data, perm), gamma, beta, axis=-1, epsilon=a.eps)
    out = g.transpose(out, [int(i) for i in np.argsort(perm)])
    return (out, *_moments(g, data, [axis], a.eps, keepdims=True)) if a.output_mean_var else out


@dataclass(frozen=True)
class InstanceNormAttrs(Attrs):
    eps: float = 1e-3


def _in_shapes(a: InstanceNormAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    if data is None or len(data) < 3:
        return {}
    return {"data": data, **(dict.fromkeys(("gamma", "beta"), (data[1],)) if data[1] else {})}


@op("InstanceNorm", "_npx_instance_norm", inputs=("data", "gamma", "beta"), hidden_outputs=2, param_shapes=_in_shapes)
def instance_norm(g: Emit, a: InstanceNormAttrs, data: Value, gamma: Value, beta: Value) -> Value:
    """Normalization over the spatial dimensions of each sample's channel. data (N, C, *spatial), gamma, beta (C,)."""
    if g.rank(data) < 3:
        raise ShapeError(
            "instance normalization needs spatial dimensions",
            where=g.node,
            got=f"rank {g.rank(data)}",
            expected="data (N, C, *spatial)",
        )
    return g.in_float32("InstanceNormalization", data, gamma, beta, epsilon=a.eps)


@dataclass(frozen=True)
class GroupNormAttrs(Attrs):
    num_groups: int = 1
    eps: float = 1e-5
    output_mean_var: bool = False


def _gn_shapes(a: GroupNormAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    return {"gamma": (a.num_groups,), "beta": (a.num_groups,), **({"data": data} if data is not None else {})}


@op(
    "GroupNorm",
    "_npx_group_norm",
    inputs=("data", "gamma", "beta"),
    outputs=_moments_outputs,
    named_outputs=True,
    hidden_outputs=lambda a: 0 if a.output_mean_var else 2,
    param_shapes=_gn_shapes,
)
def group_norm(g: Emit, a: GroupNormAttrs, data: Value, gamma: Value, beta: Value) -> Value | tuple[Value, ...]:
    """Normalization over the channels of a group and the spatial dimensions.

    data (N, C, *spatial). gamma and beta have one number per group, (num_groups,), as MXNet 1.x has them, or one per
    channel, (C,), as MXNet 2.0 has them. With ``output_mean_var`` also mean and std, (N, num_groups).
    """
    rank, size = g.rank(data), g.dims(gamma)[0]
    grouped = g.reshape(data, [0, a.num_groups, -1])
    per_group = size is None or size == a.num_groups
    scale, shift = gamma, beta
    if not per_group:
        g.count(a.num_groups, "num_groups")
        scale = g.const(np.ones(a.num_groups), gamma)
        shift = g.const(np.zeros(a.num_groups), beta)
    out = g.in_float32("InstanceNormalization", grouped, scale, shift, epsilon=a.eps)
    inner = g.dims(data)[1:]
    out = g.reshape(out, [0, *(d for d in inner if d is not None)] if None not in inner else [g.size_of(data)])
    g.set_shape(out, data.shape or ())
    if not per_group:
        out = g("Add", g("Mul", out, g.per_channel(gamma, rank)), g.per_channel(beta, rank))
    return (out, *_moments(g, grouped, [2], a.eps, keepdims=False)) if a.output_mean_var else out


@dataclass(frozen=True)
class L2NormalizationAttrs(Attrs):
    eps: float = 1e-10
    mode: Literal["channel", "instance", "spatial"] = "instance"


@op("L2Normalization", "_npx_l2_normalization", hidden_outputs=1, param_shapes=same_shape)
def l2_normalization(g: Emit, a: L2NormalizationAttrs, data: Value) -> Value:
    """``data / sqrt(sum(data²) + eps)``: summed per sample, over channels, or over the spatial dimensions."""
    rank = g.rank(data)
    axes = {"instance": list(range(1, rank)), "channel": [1], "spatial": list(range(2, rank))}[a.mode]
    if a.mode != "instance" and rank < 3:
        raise ShapeError(
            f"mode {a.mode!r} needs at least 3 dimensions",
            where=g.node,
            got=f"rank {rank}",
            expected="(N, C, *spatial)",
        )
    square = g("Mul", data, data)
    total = g.reduce("Sum", square, axes, keepdims=True) if axes else square
    return g("Div", data, g("Sqrt", g("Add", total, a.eps)))


@dataclass(frozen=True, kw_only=True)
class LRNAttrs(Attrs):
    alpha: float = 1e-4
    beta: float = 0.75
    knorm: float = 2.0
    nsize: int


@op("LRN", "_npx_lrn", hidden_outputs=1, param_shapes=same_shape)
def lrn(g: Emit, a: LRNAttrs, data: Value) -> Value:
    """Local response normalization over ``nsize`` neighbouring channels (Krizhevsky et al., 2012).

    ``data / (knorm + alpha / nsize · sum of squares)^beta``. data (N, C, H, W). Of an even ``nsize`` MXNet sums
    ``nsize - 1`` channels, and still divides by ``nsize``.
    """
    size = a.nsize - 1 + a.nsize % 2
    alpha = a.alpha * size / a.nsize
    if float(a.knorm).is_integer():
        return g.in_float32("LRN", data, size=size, alpha=alpha, beta=a.beta, bias=a.knorm)
    # OpenVINO rounds a fractional knorm to an integer; the same in plain words.
    half = size // 2
    channels = g.dims(data)[1]
    square = g.reshape(g("Mul", data, data), [0, 1, g.size_of(data, [1]) if channels is None else channels, -1])
    mean = g.in_float32("AveragePool", square, kernel_shape=[size, 1], pads=[half, 0, half, 0], count_include_pad=1)
    mean = g.set_shape(g.reshape(mean, [g.size_of(data)]), data.shape or ())
    return g("Div", data, g("Pow", g("Add", g("Mul", mean, alpha), a.knorm), a.beta))
