"""Convolution, Deconvolution and FullyConnected: the operators with weights that quantization must take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError, counted
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, known, op, product

Layout = Literal["NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"]


@dataclass(frozen=True, kw_only=True)
class ConvolutionAttrs(Attrs):
    kernel: Ints
    stride: Ints = ()
    dilate: Ints = ()
    pad: Ints = ()
    num_filter: int
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
            expected=counted(rank, "number"),
        )
    return list(values)


def channels_last(layout: str | None) -> bool:
    """Whether a layout ends in the channel: NWC, NHWC, NDHWC."""
    return layout is not None and layout.endswith("C")


def channels_to_front(g: Emit, x: Value) -> Value:
    """(N, *spatial, C) to (N, C, *spatial)."""
    rank = g.rank(x)
    return g.transpose(x, [0, rank - 1, *range(1, rank - 1)])


def channels_to_back(g: Emit, x: Value) -> Value:
    """(N, C, *spatial) to (N, *spatial, C)."""
    return g.transpose(x, [0, *range(2, g.rank(x)), 1])


def check_rank(g: Emit, data: Value, kernel: Ints) -> None:
    """Raise ShapeError unless data has batch, channel and one dimension per number of the kernel."""
    if g.rank(data) != len(kernel) + 2:
        raise ShapeError(
            "the data has batch, channel and one dimension per kernel number",
            where=g.node,
            got=f"rank {g.rank(data)}",
            expected=f"rank {len(kernel) + 2} for kernel {kernel}",
        )


def check_channels(g: Emit, data: Value, channels: int | None, where: str) -> None:
    """Raise ShapeError if data (N, C, ...) has other channels than the weight was made for."""
    have = g.dims(data)[1]
    if have is not None and channels is not None and have != channels:
        raise ShapeError(
            "the data's channels are not those of the weight",
            where=g.node,
            got=counted(have, "channel"),
            expected=f"{channels}, {where}",
        )


def bias_names(a: ConvolutionAttrs | FullyConnectedAttrs | DeconvolutionAttrs) -> tuple[str, ...]:
    return ("data", "weight") if a.no_bias else ("data", "weight", "bias")


def _conv_shapes(a: ConvolutionAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out: dict[str, Shape] = {} if a.no_bias else {"bias": (a.num_filter,)}
    data, weight = shapes["data"], known(shapes, "weight")
    last = channels_last(a.layout)
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


@op("Convolution_v1", inputs=bias_names, param_shapes=_conv_shapes)
@op(
    "Convolution",
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
    check_rank(g, data, a.kernel)
    last = channels_last(a.layout)
    if last:
        data, weight = channels_to_front(g, data), channels_to_front(g, weight)
    inner = g.dims(weight)[1]
    check_channels(g, data, None if inner is None else inner * a.num_group, "weight's dimension 1 times num_group")
    pads = spatial(a.pad, n, 0, "pad", g.node)
    out = g.in_float32(
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
    return channels_to_back(g, out) if last else out


@dataclass(frozen=True, kw_only=True)
class DeconvolutionAttrs(Attrs):
    kernel: Ints
    stride: Ints = ()
    dilate: Ints = ()
    pad: Ints = ()
    adj: Ints = ()
    target_shape: Ints = ()
    num_filter: int
    num_group: int = 1
    workspace: int = 512
    no_bias: bool = True
    cudnn_tune: str | None = None
    cudnn_off: bool = False
    layout: Layout | None = None


def _deconv_shapes(a: DeconvolutionAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out: dict[str, Shape] = {} if a.no_bias else {"bias": (a.num_filter,)}
    data, weight = shapes["data"], known(shapes, "weight")
    last = channels_last(a.layout)
    per_group = a.num_filter // a.num_group
    if data is not None and len(data) == len(a.kernel) + 2:
        channels = data[-1] if last else data[1]
        if channels:
            out["weight"] = (channels, *a.kernel, per_group) if last else (channels, per_group, *a.kernel)
    elif weight is not None:
        unknown = (0,) * len(a.kernel)
        out["data"] = (0, *unknown, weight[0]) if last else (0, weight[0], *unknown)
    return out


def _deconv_pads(g: Emit, a: DeconvolutionAttrs, data: Value) -> tuple[list[int], list[int], list[int]]:
    """Pads before and after each spatial dimension, and what the output must grow by beyond that.

    MXNet's ``adj`` extends the end: it crops that much less there, and where there is less to crop than that, the rest
    is ONNX's ``output_padding``. ``target_shape`` replaces pad and adj by what it takes to get that size.
    """
    n = len(a.kernel)
    pad, adj = spatial(a.pad, n, 0, "pad", g.node), spatial(a.adj, n, 0, "adj", g.node)
    if any(a.target_shape):
        stride, dilate = spatial(a.stride, n, 1, "stride", g.node), spatial(a.dilate, n, 1, "dilate", g.node)
        for i, target in enumerate(spatial(a.target_shape, n, 0, "target_shape", g.node)):
            full = stride[i] * (g.dim(data, 2 + i) - 1) + dilate[i] * (a.kernel[i] - 1) + 1
            if full < target:
                raise ShapeError(
                    "the target shape of a deconvolution is too large",
                    where=g.node,
                    got=a.target_shape,
                    expected=f"at most {full} in dimension {2 + i}",
                )
            adj[i] = (full - target) % 2
            pad[i] = (full - target + 1) // 2
    after = [max(p - j, 0) for p, j in zip(pad, adj)]
    return pad, after, [max(j - p, 0) for p, j in zip(pad, adj)]


@op("Deconvolution", "_npx_deconvolution", inputs=bias_names, param_shapes=_deconv_shapes)
def deconvolution(g: Emit, a: DeconvolutionAttrs, data: Value, weight: Value, bias: Value | None = None) -> Value:
    """Transposed convolution, 1-D to 3-D.

    data (N, C, *spatial), weight (C, num_filter / num_group, *kernel), bias (num_filter,). The output's size is
    ``stride (size - 1) + dilate (kernel - 1) + 1 - 2 pad + adj``, or ``target_shape`` where that is given.
    """
    n = len(a.kernel)
    check_rank(g, data, a.kernel)
    last = channels_last(a.layout)
    if last:
        data, weight = channels_to_front(g, data), channels_to_front(g, weight)
    check_channels(g, data, g.dims(weight)[0], "weight's dimension 0")
    before, after, grow = _deconv_pads(g, a, data)
    out = g.in_float32(
        "ConvTranspose",
        data,
        weight,
        bias,
        kernel_shape=list(a.kernel),
        strides=spatial(a.stride, n, 1, "stride", g.node),
        dilations=spatial(a.dilate, n, 1, "dilate", g.node),
        pads=before + after,
        output_padding=grow if any(grow) else None,
        group=a.num_group,
    )
    return channels_to_back(g, out) if last else out


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
        weight, result = shapes.get("weight"), shapes.get("output")
        if len(inner) == 1 and weight is not None and len(weight) == 2:
            before = result[:-1] if result is not None and len(result) == len(data) else data[:-1]
            out["data"] = (*before, weight[1])
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
