"""``mx.lr_scheduler``: the base class of learning-rate schedules, for scripts that import it."""

from __future__ import annotations

from typing import Any

from requant.errors import UnsupportedError


class LRScheduler:
    """A learning rate by number of updates; subclasses write ``__call__``."""

    def __init__(
        self,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ) -> None:
        self.base_lr = base_lr
        self.warmup_steps, self.warmup_begin_lr, self.warmup_final_lr = warmup_steps, warmup_begin_lr, base_lr
        self.warmup_mode = warmup_mode

    def __call__(self, num_update: int) -> float:
        """The learning rate after so many updates."""
        raise NotImplementedError


class FactorScheduler(LRScheduler):
    """Raises UnsupportedError when it is made, as all schedules of MXNet here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("requant runs and quantizes trained models; it has no learning rates to schedule")


class MultiFactorScheduler(FactorScheduler):
    """A name alone."""


class PolyScheduler(FactorScheduler):
    """A name alone."""


class CosineScheduler(FactorScheduler):
    """A name alone."""
