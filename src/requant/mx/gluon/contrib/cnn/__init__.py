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
    _offset_first = True
    offset_weight: Any
    offset_bias: Any
    deformable_conv_weight: Any
    deformable_conv_bias: Any

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
        self.act: Any
        offset = ("offset", offsets, offset_use_bias, offset_weight_initializer, offset_bias_initializer)
        main = ("deformable_conv", channels, use_bias, weight_initializer, bias_initializer)
        with self.name_scope():
            # MXNet makes them in this order, which exported files show
            for name, rows, biased, w_init, b_init in (offset, main) if self._offset_first else (main, offset):
                shape = (rows, inner, *kernel)
                weight = get(f"{name}_weight", shape=shape, init=w_init, allow_deferred_init=True)
                setattr(self, f"{name}_weight", weight)
                bias = get(f"{name}_bias", shape=(rows,), init=b_init, allow_deferred_init=True) if biased else None
                setattr(self, f"{name}_bias", bias)
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
        return F.contrib.DeformableConvolution(data=x, offset=offset, weight=weight, **more, name="fwd", **self._kwargs)


class ModulatedDeformableConvolution(DeformableConvolution):
    """``DeformableConvolution`` that also weighs every sampling point (Zhu 2018)."""

    _per_point = 3
    _offset_first = False

    def _alias(self) -> str:
        return "modulated_deformable_conv"

    def _deformed(self, F: Any, x: Any, offset: Any, weight: Any, more: dict[str, Any]) -> Any:
        moves = F.slice_axis(offset, axis=1, begin=0, end=2 * self._points)
        mask = F.sigmoid(F.slice_axis(offset, axis=1, begin=2 * self._points, end=None)) * 2
        return F.contrib.ModulatedDeformableConvolution(
            data=x, offset=moves, mask=mask, weight=weight, **more, name="fwd", **self._kwargs
        )
