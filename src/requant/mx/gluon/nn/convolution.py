"""Convolution layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from requant.errors import InputError, counted
from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.nn.activations import Activation

Size = int | Sequence[int]


def sizes(value: Size, rank: int) -> tuple[int, ...]:
    """A size for each of ``rank`` dimensions."""
    if isinstance(value, int):
        return (value,) * rank
    found = tuple(int(v) for v in value)
    if len(found) != rank:
        raise InputError("not one size per dimension", got=found, expected=f"{counted(rank, 'number')}, or one")
    return found


class _Conv(HybridBlock):
    """A convolution of any rank: (N, C, ...) → (N, channels, ...).

    Args:
        channels: number of filters.
        kernel_size, strides, padding, dilation: numbers, or one for each dimension.
        groups: how many parts the channels are split into.
        layout: ``NCHW`` and the like.
        in_channels: channels of the input; found out at the first run if 0.
        op_name: ``Convolution`` or ``Deconvolution``. adj: output padding of the latter.
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size,
        padding: Size,
        dilation: Size,
        groups: int,
        layout: str,
        in_channels: int = 0,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        op_name: str = "Convolution",
        adj: Size | None = None,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        rank = len(layout) - 2
        kernel = sizes(kernel_size, rank)
        self._channels, self._in_channels, self._op_name = channels, in_channels, op_name
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": sizes(strides, rank),
            "dilate": sizes(dilation, rank),
            "pad": sizes(padding, rank),
            "num_filter": channels,
            "num_group": groups,
            "no_bias": not use_bias,
            "layout": layout,
        }
        if adj is not None:
            self._kwargs["adj"] = sizes(adj, rank)
        out, inner = (channels, in_channels // groups if in_channels else 0)
        if op_name == "Deconvolution":
            out, inner = in_channels, channels // groups
        shape = (out, inner, *kernel) if layout.find("C") == 1 else (out, *kernel, inner)
        self.bias: Any
        self.act: Any
        with self.name_scope():
            self.weight = self.params.get("weight", shape=shape, init=weight_initializer, allow_deferred_init=True)
            self.bias = None
            if use_bias:
                self.bias = self.params.get("bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True)
            self.act = Activation(activation, prefix=activation + "_") if activation is not None else None

    def _alias(self) -> str:
        return "conv"

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        op = getattr(F, self._op_name)
        if bias is None:
            out = op(x, weight, name="fwd", **self._kwargs)
        else:
            out = op(x, weight, bias, name="fwd", **self._kwargs)
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        k, shape = self._kwargs, self.weight.shape or (0, 0)
        rank = len(k["kernel"])
        text = f"{shape[1] or None} -> {shape[0]}, kernel_size={k['kernel']}, stride={k['stride']}"
        if any(k["pad"]):
            text += f", padding={k['pad']}"
        if k["dilate"] != (1,) * rank:
            text += f", dilation={k['dilate']}"
        if any(k.get("adj", ())):
            text += f", output_padding={k['adj']}"
        if k["num_group"] != 1:
            text += f", groups={k['num_group']}"
        if self.bias is None:
            text += ", bias=False"
        if self.act is not None:
            text += f", {self.act}"
        return f"{type(self).__name__}({text})"


def _layouts(given: str, rank: int, where: str) -> str:
    first = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank]
    last = "N" + first[2:] + "C"
    if given not in (first, last):
        raise InputError("unknown layout", where=where, got=given, expected=f"{first} or {last}")
    return given


class Conv1D(_Conv):
    """Convolution over sequences: (N, C, W)."""

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        layout: str = "NCW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        layout = _layouts(layout, 1, "Conv1D")
        super().__init__(
            channels, kernel_size, strides, padding, dilation, groups, layout, in_channels, activation, use_bias,
            weight_initializer, bias_initializer, **kwargs,
        )  # fmt: skip


class Conv2D(_Conv):
    """Convolution over images: (N, C, H, W)."""

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = (1, 1),
        padding: Size = (0, 0),
        dilation: Size = (1, 1),
        groups: int = 1,
        layout: str = "NCHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        layout = _layouts(layout, 2, "Conv2D")
        super().__init__(
            channels, kernel_size, strides, padding, dilation, groups, layout, in_channels, activation, use_bias,
            weight_initializer, bias_initializer, **kwargs,
        )  # fmt: skip


class Conv3D(_Conv):
    """Convolution over volumes or videos: (N, C, D, H, W)."""

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = (1, 1, 1),
        padding: Size = (0, 0, 0),
        dilation: Size = (1, 1, 1),
        groups: int = 1,
        layout: str = "NCDHW",
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        layout = _layouts(layout, 3, "Conv3D")
        super().__init__(
            channels, kernel_size, strides, padding, dilation, groups, layout, in_channels, activation, use_bias,
            weight_initializer, bias_initializer, **kwargs,
        )  # fmt: skip


class _Transposed(_Conv):
    _rank = 2

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        layout = _layouts(layout or {1: "NCW", 2: "NCHW", 3: "NCDHW"}[self._rank], self._rank, name)
        super().__init__(
            channels, kernel_size, strides, padding, dilation, groups, layout, in_channels, activation, use_bias,
            weight_initializer, bias_initializer, op_name="Deconvolution", adj=output_padding, **kwargs,
        )  # fmt: skip
        self.outpad = sizes(output_padding, self._rank)


class Conv1DTranspose(_Transposed):
    """Transposed convolution over sequences: (N, C, W)."""

    _rank = 1


class Conv2DTranspose(_Transposed):
    """Transposed convolution over images: (N, C, H, W)."""


class Conv3DTranspose(_Transposed):
    """Transposed convolution over volumes: (N, C, D, H, W)."""

    _rank = 3
