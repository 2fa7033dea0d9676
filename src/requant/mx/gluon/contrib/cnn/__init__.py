"""``mx.gluon.contrib.cnn``: deformable convolutions."""

from __future__ import annotations

from typing import Any

from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.nn.activations import Activation
from requant.mx.gluon.nn.convolution import Size, sizes

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


class DeformableConvolution(HybridBlock):
    """Convolution whose sampling points are moved by offsets, which a convolution of its own computes (Dai 2017).

    Args:
        channels: number of filters.
        num_deformable_group: parts of the channels that have offsets of their own.
        in_channels: channels of the input; found out at the first run if 0.
    """

    #: numbers that the inner convolution gives for every kernel point
    _per_point = 2

    def __init__(
        self,
        channels: int,
        kernel_size: Size = (1, 1),
        strides: Size = (1, 1),
        padding: Size = (0, 0),
        dilation: Size = (1, 1),
        groups: int = 1,
        num_deformable_group: int = 1,
        layout: str = "NCHW",
        use_bias: bool = True,
        in_channels: int = 0,
        activation: str | None = None,
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        offset_weight_initializer: Any = "zeros",
        offset_bias_initializer: Any = "zeros",
        offset_use_bias: bool = True,
        op_name: str | None = None,
        adj: Size | None = None,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        kernel = sizes(kernel_size, 2)
        shared = {"kernel": kernel, "stride": sizes(strides, 2), "dilate": sizes(dilation, 2), "pad": sizes(padding, 2)}
        self._points = kernel[0] * kernel[1] * num_deformable_group
        offsets = self._per_point * self._points
        self._offset_kwargs: dict[str, Any] = {
            **shared, "num_filter": offsets, "num_group": groups, "no_bias": not offset_use_bias, "layout": layout,
        }  # fmt: skip
        self._kwargs: dict[str, Any] = {
            **shared, "num_filter": channels, "num_group": groups, "no_bias": not use_bias, "layout": layout,
            "num_deformable_group": num_deformable_group,
        }  # fmt: skip
        inner = in_channels // groups if in_channels else 0
        get = self.params.get
        self.offset_bias: Any
        self.deformable_conv_bias: Any
        self.act: Any
        with self.name_scope():
            self.offset_weight = get(
                "offset_weight", shape=(offsets, inner, *kernel), init=offset_weight_initializer,
                allow_deferred_init=True,
            )  # fmt: skip
            self.offset_bias = (
                get("offset_bias", shape=(offsets,), init=offset_bias_initializer, allow_deferred_init=True)
                if offset_use_bias
                else None
            )
            self.deformable_conv_weight = get(
                "deformable_conv_weight", shape=(channels, inner, *kernel), init=weight_initializer,
                allow_deferred_init=True,
            )  # fmt: skip
            self.deformable_conv_bias = (
                get("deformable_conv_bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True)
                if use_bias
                else None
            )
            self.act = Activation(activation, prefix=activation + "_") if activation else None

    def _alias(self) -> str:
        return "deformable_conv"

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        offset_weight: Any,
        deformable_conv_weight: Any,
        offset_bias: Any = None,
        deformable_conv_bias: Any = None,
    ) -> Any:
        biased = [] if offset_bias is None else [offset_bias]
        offset = F.Convolution(x, offset_weight, *biased, cudnn_off=True, **self._offset_kwargs)
        more = {} if deformable_conv_bias is None else {"bias": deformable_conv_bias}
        out = self._deformed(F, x, offset, deformable_conv_weight, more)
        return out if self.act is None else self.act(out)

    def _deformed(self, F: Any, x: Any, offset: Any, weight: Any, more: dict[str, Any]) -> Any:
        return F.contrib.DeformableConvolution(
            data=x, offset=offset, weight=weight, **more, name="fwd", **self._kwargs
        )


class ModulatedDeformableConvolution(DeformableConvolution):
    """``DeformableConvolution`` that also weighs every sampling point (Zhu 2018)."""

    _per_point = 3

    def _alias(self) -> str:
        return "modulated_deformable_conv"

    def _deformed(self, F: Any, x: Any, offset: Any, weight: Any, more: dict[str, Any]) -> Any:
        moves = F.slice_axis(offset, axis=1, begin=0, end=2 * self._points)
        mask = F.sigmoid(F.slice_axis(offset, axis=1, begin=2 * self._points, end=None)) * 2
        return F.contrib.ModulatedDeformableConvolution(
            data=x, offset=moves, mask=mask, weight=weight, **more, name="fwd", **self._kwargs
        )
