"""Normalization layers."""

from __future__ import annotations

from typing import Any

from requant.dtypes import as_dtype
from requant.mx.gluon.hybrid import HybridBlock


class _BatchNorm(HybridBlock):
    _with_relu = False

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs: dict[str, Any] = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        self._axis, self._in_channels = axis, in_channels
        for attribute, init, learned in (
            ("gamma", gamma_initializer, scale),
            ("beta", beta_initializer, center),
            ("running_mean", running_mean_initializer, False),
            ("running_var", running_variance_initializer, False),
        ):
            made = self.params.get(
                attribute,
                grad_req="write" if learned else "null",
                shape=(in_channels,),
                init=init,
                allow_deferred_init=True,
                differentiable=learned,
            )
            setattr(self, attribute, made)

    gamma: Any
    beta: Any
    running_mean: Any
    running_var: Any

    def cast(self, dtype: object) -> None:
        """Change the type of its parameters; they stay float32 beside half precision, as MXNet has it."""
        super().cast("float32" if as_dtype(dtype).name == "float16" else dtype)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        op = F.contrib.BatchNormWithReLU if self._with_relu else F.BatchNorm
        return op(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        channels = (self.gamma.shape or (0,))[0]
        text = ", ".join(f"{k}={v!r}" for k, v in self._kwargs.items())
        return f"{type(self).__name__}({text}, in_channels={channels or None})"


class BatchNorm(_BatchNorm):
    """(x − mean) / √(variance + epsilon) · gamma + beta per channel, with the running statistics (Ioffe 2015).

    Args:
        axis: that of channels.
        center, scale: whether beta and gamma take part.
        in_channels: number of channels; found out at the first run if 0.
    """


class BatchNormReLU(_BatchNorm):
    """``BatchNorm`` with a ReLU after it."""

    _with_relu = True


class _Affine(HybridBlock):
    """Normalizations whose result is scaled by gamma and moved by beta."""

    gamma: Any
    beta: Any
    _kwargs: dict[str, Any]

    def _gamma_and_beta(self, size: int, scale: bool, center: bool, gamma_init: Any, beta_init: Any) -> None:
        for name, learned, init in (("gamma", scale, gamma_init), ("beta", center, beta_init)):
            made = self.params.get(
                name, grad_req="write" if learned else "null", shape=(size,), init=init, allow_deferred_init=True
            )
            setattr(self, name, made)

    def __repr__(self) -> str:
        text = ", ".join(f"{k}={v!r}" for k, v in self._kwargs.items())
        return f"{type(self).__name__}({text}, in_channels={(self.gamma.shape or (0,))[0]})"


class InstanceNorm(_Affine):
    """Normalization of every channel of every sample by its own statistics (Ulyanov 2016)."""

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis, self._epsilon = axis, epsilon
        self._gamma_and_beta(in_channels, scale, center, gamma_initializer, beta_initializer)

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any) -> Any:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        moved = x.swapaxes(1, self._axis)
        return F.InstanceNorm(moved, gamma, beta, name="fwd", eps=self._epsilon).swapaxes(1, self._axis)


class LayerNorm(_Affine):
    """Normalization over one axis of every sample (Ba 2016)."""

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis, self._epsilon = axis, epsilon
        self._gamma_and_beta(in_channels, scale, center, gamma_initializer, beta_initializer)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.LayerNorm(data, gamma=gamma, beta=beta, axis=self._axis, eps=self._epsilon)


class GroupNorm(_Affine):
    """Normalization of groups of channels of every sample (Wu 2018); one gamma and beta per group, as in MXNet 1.9."""

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._kwargs = {"eps": epsilon, "num_groups": num_groups, "center": center, "scale": scale}
        self._num_groups, self._epsilon = num_groups, epsilon
        self._gamma_and_beta(num_groups, scale, center, gamma_initializer, beta_initializer)

    def hybrid_forward(self, F: Any, data: Any, gamma: Any, beta: Any) -> Any:
        return F.GroupNorm(data, gamma=gamma, beta=beta, num_groups=self._num_groups, eps=self._epsilon)

    def __repr__(self) -> str:
        text = ", ".join(f"{k}={v!r}" for k, v in self._kwargs.items())
        return f"{type(self).__name__}({text})"
