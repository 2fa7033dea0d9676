"""Pooling and resampling windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.ops.conv import Layout, spatial
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, op


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
    layout: Layout | None = None


@op(
    "Pooling",
    "Pooling_v1",
    "_npx_pooling",
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_pooling",
)
def pooling(g: Emit, a: PoolingAttrs, data: Value) -> Value:
    """Max, average, sum or Lp pooling. MXNet's ``full`` convention is ONNX ``ceil_mode=1``."""
    n = g.rank(data) - 2
    if a.global_pool:
        kinds = {"max": "GlobalMaxPool", "avg": "GlobalAveragePool"}
        return g(kinds[a.pool_type], data)
    pads = spatial(a.pad, n, 0, "pad", g.node)
    common = {
        "kernel_shape": list(a.kernel),
        "strides": spatial(a.stride, n, 1, "stride", g.node),
        "pads": pads + pads,
        "ceil_mode": int(a.pooling_convention == "full"),
    }
    if a.pool_type == "max":
        return g("MaxPool", data, **common)
    return g("AveragePool", data, count_include_pad=int(a.count_include_pad is not False), **common)


@dataclass(frozen=True)
class FlattenAttrs(Attrs):
    pass


@op("Flatten", "flatten", "_npx_batch_flatten", quant=Quant.SUPPORT, quantized="_contrib_quantized_flatten")
def flatten(g: Emit, a: FlattenAttrs, data: Value) -> Value:
    """(N, ...) to (N, everything else)."""
    return g("Flatten", data, axis=1)


@dataclass(frozen=True)
class PadAttrs(Attrs):
    mode: Literal["constant", "edge", "reflect"]
    pad_width: Ints
    constant_value: float = 0.0


def _pad_shapes(a: PadAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out = shapes["output"]
    if out is None or shapes["data"] is not None:
        return {}
    grown = [b + e for b, e in zip(a.pad_width[0::2], a.pad_width[1::2])]
    return {"data": tuple(max(d - n, 0) for d, n in zip(out, grown))}


@op("Pad", "pad", "_npx_pad", param_shapes=_pad_shapes)
def pad(g: Emit, a: PadAttrs, data: Value) -> Value:
    """Pad with a constant, the edge or a reflection; pad_width is (before, after) per dimension."""
    before, after = a.pad_width[0::2], a.pad_width[1::2]
    value = g.const(a.constant_value, data) if a.mode == "constant" else None
    return g("Pad", data, np.array(before + after, np.int64), value, mode=a.mode)
