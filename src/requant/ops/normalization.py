"""Batch, layer, instance and group normalization, L2 normalization and LRN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, op


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


_STATS = ("gamma", "beta", "moving_mean", "moving_var")


def _bn_shapes(a: BatchNormAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    if data is None:
        return {}
    channels = dict.fromkeys(_STATS, (data[a.axis],)) if data[a.axis] else {}
    return {"data": data, **channels}


@op(
    "BatchNorm",
    "BatchNorm_v1",
    "CuDNNBatchNorm",
    "_npx_batch_norm",
    inputs=("data", *_STATS),
    aux=("moving_mean", "moving_var"),
    hidden_outputs=2,
    param_shapes=_bn_shapes,
    default_init={"moving_mean": '["zero", {}]', "moving_var": '["one", {}]'},
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_batch_norm",
)
def batch_norm(
    g: Emit, a: BatchNormAttrs, data: Value, gamma: Value, beta: Value, moving_mean: Value, moving_var: Value
) -> Value:
    """Batch normalization with the moving statistics, as at inference.

    ``fix_gamma`` (true by default!) takes gamma as 1, whatever the file holds. data (N, C, ...), the rest (C,).
    """
    if a.fix_gamma:
        known = g.value_of(gamma)
        one = g.const(1.0, gamma)
        gamma = g.const(np.ones(known.shape, known.dtype)) if known is not None else g("Expand", one, g.size_of(gamma))
    rank, axis = g.rank(data), g.axis(data, a.axis)
    if rank == 1:
        scale = g("Div", gamma, g("Sqrt", g("Add", moving_var, a.eps)))
        return g("Add", g("Mul", g("Sub", data, moving_mean), scale), beta)
    perm = list(range(rank))
    perm.insert(1, perm.pop(axis))
    moved = g.transpose(data, perm)
    out = g("BatchNormalization", moved, gamma, beta, moving_mean, moving_var, epsilon=a.eps)
    return g.transpose(out, [int(i) for i in np.argsort(perm)])
