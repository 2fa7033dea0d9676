"""Pooling layers, and padding by reflection."""

from __future__ import annotations

from typing import Any

from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.nn.convolution import Size, sizes

_LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


class _Pooling(HybridBlock):
    """Pooling of any rank.

    Args:
        pool_size: window. strides: its steps; the window if None. padding: on each side.
        ceil_mode: whether windows may reach over the end.
        global_pool: one window over everything. pool_type: ``max`` or ``avg``.
        count_include_pad: whether padding counts in an average.
    """

    def __init__(
        self,
        pool_size: Size,
        strides: Size | None,
        padding: Size,
        ceil_mode: bool,
        global_pool: bool,
        pool_type: str,
        layout: str,
        count_include_pad: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        rank = len(layout) - 2
        if layout not in _LAYOUTS.get(rank, ()):
            raise ValueError(f"unknown layout {layout!r}: one of {_LAYOUTS.get(rank)}")
        self._kwargs: dict[str, Any] = {
            "kernel": sizes(pool_size, rank),
            "stride": sizes(pool_size if strides is None else strides, rank),
            "pad": sizes(padding, rank),
            "global_pool": global_pool,
            "pool_type": pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        k = self._kwargs
        ceil = k["pooling_convention"] == "full"
        return (
            f"{type(self).__name__}(size={k['kernel']}, stride={k['stride']}, padding={k['pad']}, ceil_mode={ceil}, "
            f"global_pool={k['global_pool']}, pool_type={k['pool_type']}, layout={k['layout']})"
        )


class _Max(_Pooling):
    _rank = 2

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        layout: str | None = None,
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        layout = layout or _LAYOUTS[self._rank][0]
        super().__init__(pool_size, strides, padding, ceil_mode, False, "max", layout, **kwargs)


class MaxPool1D(_Max):
    """Maximum over windows of (N, C, W)."""

    _rank = 1


class MaxPool2D(_Max):
    """Maximum over windows of (N, C, H, W)."""


class MaxPool3D(_Pooling):
    """Maximum over windows of (N, C, D, H, W)."""

    def __init__(
        self,
        pool_size: Size = (2, 2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, ceil_mode, False, "max", layout, **kwargs)


class AvgPool1D(_Pooling):
    """Mean over windows of (N, C, W)."""

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class AvgPool2D(_Pooling):
    """Mean over windows of (N, C, H, W)."""

    def __init__(
        self,
        pool_size: Size = (2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str = "NCHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class AvgPool3D(_Pooling):
    """Mean over windows of (N, C, D, H, W)."""

    def __init__(
        self,
        pool_size: Size = (2, 2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        count_include_pad: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(pool_size, strides, padding, ceil_mode, False, "avg", layout, count_include_pad, **kwargs)


class _Global(_Pooling):
    _rank = 2
    _type = "avg"

    def __init__(self, layout: str | None = None, **kwargs: Any) -> None:
        ones = (1,) * self._rank
        super().__init__(ones, None, 0, True, True, self._type, layout or _LAYOUTS[self._rank][0], **kwargs)


class GlobalMaxPool1D(_Global):
    """Maximum over all of W."""

    _rank, _type = 1, "max"


class GlobalMaxPool2D(_Global):
    """Maximum over all of H and W."""

    _rank, _type = 2, "max"


class GlobalMaxPool3D(_Global):
    """Maximum over all of D, H and W."""

    _rank, _type = 3, "max"


class GlobalAvgPool1D(_Global):
    """Mean over all of W."""

    _rank, _type = 1, "avg"


class GlobalAvgPool2D(_Global):
    """Mean over all of H and W."""

    _rank, _type = 2, "avg"


class GlobalAvgPool3D(_Global):
    """Mean over all of D, H and W."""

    _rank, _type = 3, "avg"


class ReflectionPad2D(HybridBlock):
    """(N, C, H, W) with its borders mirrored; ``padding`` pixels on each side."""

    def __init__(self, padding: int | tuple[int, ...] = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._padding = (0, 0, 0, 0, padding, padding, padding, padding) if isinstance(padding, int) else padding

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.pad(x, mode="reflect", pad_width=self._padding)
