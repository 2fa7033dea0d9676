"""The mean of each channel of a tensor over calibration data: what bias correction needs (`requant.quant.bias`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from requant.errors import CalibrationError

F64 = npt.NDArray[np.float64]


@dataclass
class ChannelMean:
    """Sums over samples of each channel's mean.

    Attributes:
        count: samples seen.
        total: float64, shape (channels,).
    """

    kind: ClassVar[str] = "mean"
    count: int = 0
    total: F64 = field(default_factory=lambda: np.zeros(0))

    def observe(self, means: npt.ArrayLike) -> None:
        """Add samples: shape (samples, channels), each the mean of one sample's channel. NaN and Inf are left out."""
        rows = np.asarray(means, np.float64)
        rows = rows[np.isfinite(rows).all(axis=1)]
        self.merge(ChannelMean(len(rows), rows.sum(axis=0)))

    def merge(self, other: ChannelMean) -> None:
        """Add what another one has seen.

        Raises:
            CalibrationError: the numbers of channels differ.
        """
        if self.count and other.count and self.total.shape != other.total.shape:
            raise CalibrationError(
                "channel means of different widths", got=other.total.shape, expected=self.total.shape
            )
        if other.count:
            self.total = self.total + other.total if self.count else other.total.copy()
            self.count += other.count

    @property
    def mean(self) -> F64:
        """The mean of each channel, shape (channels,)."""
        return self.total / max(1, self.count)

    def state(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {"count": self.count, "mean": self.mean.astype(np.float32)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> ChannelMean:
        """What ``state`` returned.

        Raises:
            CalibrationError: it is something else.
        """
        count, mean = state.get("count"), state.get("mean")
        if not isinstance(count, int) or count < 0 or not isinstance(mean, np.ndarray) or not np.isfinite(mean).all():
            raise CalibrationError("not a mean of channels", got=repr(state)[:80])
        return cls(count, mean.astype(np.float64) * count)
