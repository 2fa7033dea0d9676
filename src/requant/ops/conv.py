"""Convolution, Deconvolution and FullyConnected: the operators with weights that quantization must take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, known, op, product

Layout = Literal["NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"]


@dataclass(frozen=True)
class ConvolutionAttrs(Attrs):
    kernel: Ints
    num_filter: int
    stride: Ints = ()
    dilate: Ints = ()
    pad: Ints = ()
    num_group: int = 1
    workspace: int = 1024
    no_bias: bool = False
    cudnn_tune: str | None = None
    cudnn_off: bool = False
    layout: Layout | None = None


def spatial(values: Ints, rank: int, default: int, what: str, node: str) -> list[int]:
    """An attribute with one number per spatial dimension; empty means ``default`` everywhere.

    Raises:
        AttributeValueError: the count of numbers is not the kernel's.
    """
    if not values:
        return [default] * rank
    if len(values) != rank:
        raise AttributeValueError(
            f"{what} must have one number per dimension of the kernel",
            where=node,
            got=values,
            expected=f"{rank} numbers",
        )
    return list(values)


def bias_names(a: ConvolutionAttrs | FullyConnectedAttrs | DeconvolutionAttrs) -> tuple[str, ...]:
    return ("data", "weight") if a.no_bias else ("data", "weight", "bias")


def _conv_shapes(a: ConvolutionAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out: dict[str, Shape] = {} if a.no_bias else {"bias": (a.num_filter,)}
    data, weight = shapes["data"], known(shapes, "weight")
    last = a.layout is not None and a.layout.endswith("C")
    if data is not None and len(data) == len(a.kernel) + 2:
        channels = data[-1] if last else data[1]
        if channels:
            per_group = channels // a.num_group
            out["weight"] = (a.num_filter, *a.kernel, per_group) if last else (a.num_filter, per_group, *a.kernel)
    elif weight is not None:
        channels = (weight[-1] if last else weight[1]) * a.num_group
        unknown = (0,) * len(a.kernel)
        out["data"] = (0, *unknown, channels) if last else (0, channels, *unknown)
    return out


@op(
    "Convolution",
    "Convolution_v1",
    "_npx_convolution",
    inputs=bias_names,
    param_shapes=_conv_shapes,
    quant=Quant.MUST,
    quantized="_contrib_quantized_conv",
)
def convolution(g: Emit, a: ConvolutionAttrs, data: Value, weight: Value, bias: Value | None = None) -> Value:
    """N-dimensional convolution, 1-D to 3-D, with groups and dilation.

    data (N, C, *spatial), weight (num_filter, C / num_group, *kernel), bias (num_filter,). Layouts that end in C are
    transposed around the ONNX node.
    """
    n = len(a.kernel)
    if g.rank(data) != n + 2:
        raise ShapeError(
            "the data of a convolution has batch, channel and one dimension per kernel number",
            where=g.node,
            got=f"rank {g.rank(data)}",
            expected=f"rank {n + 2} for kernel {a.kernel}",
        )
    last = a.layout is not None and a.layout.endswith("C")
    if last:
        data = g.transpose(data, [0, n + 1, *range(1, n + 1)])
        weight = g.transpose(weight, [0, n + 1, *range(1, n + 1)])
    pads = spatial(a.pad, n, 0, "pad", g.node)
    out = g(
        "Conv",
        data,
        weight,
        bias,
        kernel_shape=list(a.kernel),
        strides=spatial(a.stride, n, 1, "stride", g.node),
        dilations=spatial(a.dilate, n, 1, "dilate", g.node),
        pads=pads + pads,
        group=a.num_group,
    )
    return g.transpose(out, [0, *range(2, n + 2), 1]) if last else out


@dataclass(frozen=True)
class DeconvolutionAttrs(Attrs):
    kernel: Ints
    num_filter: int
    stride: Ints = ()
    dilate: Ints = ()
    pad: Ints = ()
    adj: Ints = ()
    target_shape: Ints = ()
    num_group: int = 1
    workspace: int = 512
    no_bias: bool = True
    cudnn_tune: str | None = None
    cudnn_off: bool = False
    layout: Layout | None = None


@dataclass(frozen=True)
class FullyConnectedAttrs(Attrs):
    num_hidden: int
    no_bias: bool = False
    flatten: bool = True


def _fc_shapes(a: FullyConnectedAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out: dict[str, Shape] = {} if a.no_bias else {"bias": (a.num_hidden,)}
    data = shapes["data"]
    if data:
        inner = data[1:] if a.flatten else data[-1:]
        if all(inner):
            out["weight"] = (a.num_hidden, product(inner))
    return out


@op(
    "FullyConnected",
    "_npx_fully_connected",
    inputs=bias_names,
    param_shapes=_fc_shapes,
    quant=Quant.MUST,
    quantized="_contrib_quantized_fully_connected",
)
def fully_connected(g: Emit, a: FullyConnectedAttrs, data: Value, weight: Value, bias: Value | None = None) -> Value:
    """``data · weightᵀ + bias``. data (N, ...) flattened to (N, D), or (..., D) if not ``flatten``; weight (H, D)."""
    if a.flatten:
        flat = data if g.rank(data) == 2 else g("Flatten", data, axis=1)
        return g("Gemm", flat, weight, bias, transB=1)
    out = g("MatMul", data, g("Transpose", weight, perm=[1, 0]))
    return out if bias is None else g("Add", out, bias)
