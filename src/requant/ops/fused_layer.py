"""What fused int8 layers have in common: the forms of their result, whether parameters are constants or not."""

from __future__ import annotations

import abc
from typing import Protocol

import numpy as np

from requant.ops import ranges
from requant.ops.emit import Emit, Value
from requant.ops.nested import Chain
from requant.ops.ranges import UINT8, Triple


class MayBeFloat(Protocol):
    """Attributes of a fused operator."""

    @property
    def quantized(self) -> bool: ...

    @property
    def float_output(self) -> bool: ...


def outputs(a: MayBeFloat) -> tuple[str, ...]:
    """Names of the outputs: integers come with their range."""
    return ("output", "min_output", "max_output") if a.quantized and not a.float_output else ("output",)


class FusedLayer(abc.ABC):
    """A quantized layer that is being written: its sums, and the steps after them.

    Attributes:
        g: where it is written to.
        chain: the nested graph, read.
    """

    g: Emit
    chain: Chain

    def as_float(self) -> Value:
        """Real numbers."""
        return self._real() if self._known() else self._scaled(self.g.const(np.ones(1, np.float32)))

    def as_int8(self, kind: np.dtype, calib: tuple[float, float]) -> Triple:
        """Integers of a calibrated range."""
        g = self.g
        low, high = ranges.constant_range(g, calib)
        if self._known():
            last = self.chain.steps[-1] if self.chain.steps else None
            absorbed = kind == UINT8 and last is not None and last.slope == 0.0
            return ranges.integers(g, self._real(skip_last=absorbed), kind, low, high), low, high
        unit = ranges.multiplier(g, kind, low, high)
        if self._scales():
            return ranges.saturated(g, self._scaled(unit), kind), low, high
        one = g.const(np.ones(1, np.float32))
        return ranges.saturated(g, g("Mul", self._scaled(one), unit), kind), low, high

    @abc.abstractmethod
    def _known(self) -> bool:
        """Whether everything but the data is a constant of a graph."""

    @abc.abstractmethod
    def _scales(self) -> bool:
        """Whether MXNet brings the sums to the result's unit before the steps, and not after them."""

    @abc.abstractmethod
    def _scaled(self, unit: Value) -> Value:
        """The sums as float in ``1 / unit`` real numbers, and all steps applied."""

    @abc.abstractmethod
    def _real(self, skip_last: bool = False) -> Value:
        """The pattern for engines: all in real numbers, without the last step if what follows does it."""
