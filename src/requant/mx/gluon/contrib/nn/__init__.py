"""``mx.gluon.contrib.nn``: containers that concatenate, pixel shuffles, batch normalization over devices."""

from __future__ import annotations

from typing import Any

from requant.errors import InputError, counted
from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.nn.basic import Concatenate, Embedding, HybridConcatenate, Identity
from requant.mx.gluon.nn.normalization import BatchNorm

__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SparseEmbedding",
    "SyncBatchNorm",
]


class Concurrent(Concatenate):
    """The outputs of several blocks on one input, concatenated along ``axis``."""


class HybridConcurrent(HybridConcatenate):
    """``Concurrent``, compiled as a whole when hybridized."""


class SparseEmbedding(Embedding):
    """``Embedding``, whose gradients would be sparse."""


class SyncBatchNorm(BatchNorm):
    """Batch normalization whose statistics are shared between devices in training; at inference a ``BatchNorm``."""

    def __init__(
        self,
        in_channels: int = 0,
        num_devices: int | None = None,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        running_mean_initializer: Any = "zeros",
        running_variance_initializer: Any = "ones",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            1, momentum, epsilon, center, scale, use_global_stats, beta_initializer, gamma_initializer,
            running_mean_initializer, running_variance_initializer, in_channels, **kwargs,
        )  # fmt: skip
        self._kwargs = {
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
            "ndev": num_devices or 1,
            "key": self.prefix,
        }

    def hybrid_forward(self, F: Any, x: Any, gamma: Any, beta: Any, running_mean: Any, running_var: Any) -> Any:
        return F.contrib.SyncBatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)


class _PixelShuffle(HybridBlock):
    """Channels moved into space: (N, f1·f2·…·C, W…) → (N, C, W1·f1, …)."""

    _rank = 1

    def __init__(self, factor: int | tuple[int, ...]) -> None:
        super().__init__()
        self._factors = (int(factor),) * self._rank if isinstance(factor, int) else tuple(int(f) for f in factor)
        if len(self._factors) != self._rank:
            raise InputError(
                "not one factor per dimension", got=factor, expected=f"{counted(self._rank, 'number')}, or one"
            )

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        # One spatial dimension after the other: split its factor off the channels and merge it into the dimension.
        rank = self._rank
        rest = 1
        for f in self._factors:
            rest *= f
        x = F.reshape(x, shape=(0, -4, -1, rest) + (0,) * rank)
        for i, f in enumerate(self._factors):
            rest //= f
            lead = 2 if i == rank - 1 else 3  # dimensions before space: N, C, and the factors still to come
            if lead == 3:
                x = F.reshape(x, shape=(0, 0, -4, f, rest) + (0,) * rank)
            moved = [*range(lead + 1, lead + 2 + i), 2, *range(lead + 2 + i, lead + 1 + rank)]
            x = F.transpose(x, axes=(0, 1, *range(3, lead + 1), *moved))
            # the factor now stands behind its dimension
            x = F.reshape(x, shape=(0,) * (lead + i) + (-3,) + (0,) * (rank - i - 1))
        return x

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors if self._rank > 1 else self._factors[0]})"


class PixelShuffle1D(_PixelShuffle):
    """(N, f·C, W) → (N, C, W·f)."""


class PixelShuffle2D(_PixelShuffle):
    """(N, f1·f2·C, H, W) → (N, C, H·f1, W·f2) (Shi 2016)."""

    _rank = 2


class PixelShuffle3D(_PixelShuffle):
    """(N, f1·f2·f3·C, D, H, W) → (N, C, D·f1, H·f2, W·f3)."""

    _rank = 3
