"""What a calibrator is: something that observes one tensor and says which range to represent.

A calibrator keeps a statistic (`requant.quant.histogram`), never the data, and turns it into a range when asked. So
observing is the same for all of them, and another calibrator can read the statistic later without any data.
Each one is a file in `requant.quant.calibrators`, found by listing that folder.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar, TypeVar

import numpy.typing as npt

from requant.errors import CalibrationError
from requant.qmath import Range
from requant.quant.histogram import Histogram, MinMax
from requant.quant.nonfinite import NonFiniteActivation, NonFiniteError, first_nonfinite
from requant.scheme import Scheme

Statistic = MinMax | Histogram
KINDS: dict[str, type[MinMax] | type[Histogram]] = {MinMax.kind: MinMax, Histogram.kind: Histogram}
#: MXNet's forms: non-negative tensors become uint8, the others int8, both symmetric around zero.
MXNET = Scheme("mxnet")
S = TypeVar("S", bound="Calibrator")


def statistic_of(kind: type[Statistic], tensor: str, values: npt.ArrayLike, like: Statistic | None = None) -> Statistic:
    """The statistic of one array.

    Args:
        kind: `MinMax` or `Histogram`.
        tensor: its name, for messages.
        values: any shape; axis 0 is taken for the batch in messages.
        like: the statistic it will be merged into.

    Raises:
        NonFiniteActivation: there is NaN or Inf; the message names the tensor and the sample.
        CalibrationError: the array is not numeric.
    """
    try:
        return kind.of(values, like)  # type: ignore[arg-type]
    except NonFiniteError as error:
        index = first_nonfinite(values)
        if index is None:
            raise
        raise NonFiniteActivation(tensor, values, index[0] if index else None, index) from error
    except CalibrationError as error:
        raise CalibrationError(
            error.what, where=f"tensor {tensor!r}", got=error.got, expected=error.expected, next=error.next
        ) from error


def merge(into: Statistic, other: Statistic, tensor: str) -> None:
    """Add ``other`` to ``into``.

    Raises:
        CalibrationError: one is a histogram and the other min/max only.
    """
    if type(into) is not type(other):
        raise CalibrationError(
            "statistics of different kinds cannot be merged",
            where=f"tensor {tensor!r}",
            got=f"{into.kind} and {other.kind}",
            next="collect both parts with the same calibrator",
        )
    into.merge(other)  # type: ignore[arg-type]


class Calibrator(abc.ABC):
    """Observes one tensor. Abstract: the final ones are in `requant.quant.calibrators`.

    Attributes:
        name: what users call it.
        needs: the kind of statistic that it reads.
        tensor: the tensor's name, for messages.
        statistic: what was seen.
        held_out: what was seen of held-out data; only `auto` reads it.
    """

    name: ClassVar[str]
    needs: ClassVar[type[Statistic]] = Histogram

    def __init__(
        self, tensor: str = "", *, statistic: Statistic | None = None, held_out: Statistic | None = None
    ) -> None:
        self.tensor = tensor
        self.statistic: Statistic = statistic if statistic is not None else self.needs()
        self.held_out = held_out
        if self.needs is Histogram and not isinstance(self.statistic, Histogram):
            raise CalibrationError(
                f"the calibrator {self.name!r} needs a histogram, and only min and max were kept",
                where=f"tensor {tensor!r}",
                next=f"calibrate again with {self.name!r} (or any calibrator but 'naive')",
            )

    def options(self) -> dict[str, float]:
        """The calibrator's own settings, as its constructor takes them."""
        return {}

    def observe(self, values: npt.ArrayLike, *, held_out: bool = False) -> None:
        """Add one array. If it raises, nothing was added.

        Args:
            values: any shape; axis 0 is taken for the batch in messages.
            held_out: keep it apart, to judge candidate ranges by.

        Raises:
            NonFiniteActivation: there is NaN or Inf; the message names the tensor and the sample.
            CalibrationError: the array is not numeric.
        """
        if held_out and self.held_out is None:
            self.held_out = self.needs()
        into = self.held_out if held_out and self.held_out is not None else self.statistic
        merge(into, statistic_of(type(into), self.tensor, values, into), self.tensor)

    def merge(self: S, other: S) -> None:
        """Add what another calibrator has seen of the same tensor. The order of merging does not matter.

        Raises:
            CalibrationError: the other one is of another kind.
        """
        if type(other) is not type(self) or other.options() != self.options():
            raise CalibrationError(
                "calibrators of different kinds cannot be merged",
                where=f"tensor {self.tensor!r}",
                got=f"{other.name!r} {other.options()}",
                expected=f"{self.name!r} {self.options()}",
                next="merge tables of one calibrator and its options",
            )
        merge(self.statistic, other.statistic, self.tensor)
        if other.held_out is not None:
            if self.held_out is None:
                self.held_out = self.needs()
            merge(self.held_out, other.held_out, self.tensor)

    def range(self, scheme: Scheme = MXNET) -> Range:
        """The range to represent under a scheme's integer forms.

        Non-negative tensors give (0, t) if the scheme stores them unsigned, the others (-t, t), or (low, high) if it
        moves the zero point. A tensor that is zero throughout gives (0, 0).

        Raises:
            CalibrationError: nothing was observed.
        """
        if not self.statistic.count:
            raise CalibrationError(
                "no value of this tensor was observed",
                where=f"tensor {self.tensor!r}",
                next="give calibration data; if all samples were skipped, look at the first error of that run",
            )
        seen = self.statistic.range
        return Range(0.0, 0.0) if seen.absmax == 0 else self._range(scheme)

    @abc.abstractmethod
    def _range(self, scheme: Scheme) -> Range:
        """`range`, when there are values and one of them is not zero."""

    def state(self) -> dict[str, Any]:
        """Plain numbers and arrays, enough for `from_state`. Equal data give equal states, however they came."""
        held_out = None if self.held_out is None else {"kind": self.held_out.kind, **self.held_out.state()}
        return {
            "calibrator": self.name,
            "tensor": self.tensor,
            "options": self.options(),
            "statistic": {"kind": self.statistic.kind, **self.statistic.state()},
            "held_out": held_out,
        }

    @classmethod
    def from_state(cls: type[S], state: dict[str, Any]) -> S:
        """The calibrator of a `state`.

        Raises:
            CalibrationError: the state is of another calibrator, or not one that `state` returns.
        """
        if state.get("calibrator") != cls.name:
            raise CalibrationError("the state of another calibrator", got=state.get("calibrator"), expected=cls.name)
        parts = {
            key: statistic_from_state(state[key], str(state.get("tensor")))
            for key in ("statistic", "held_out")
            if state.get(key) is not None
        }
        return cls(str(state.get("tensor", "")), **parts, **state.get("options", {}))


def statistic_from_state(state: dict[str, Any], tensor: str) -> Statistic:
    """The statistic of a state that says its kind.

    Raises:
        CalibrationError: the kind is unknown or the numbers are impossible; the message names the tensor.
    """
    kind = KINDS.get(str(state.get("kind")))
    if kind is None:
        raise CalibrationError(
            "unknown kind of statistic", where=f"tensor {tensor!r}", got=state.get("kind"), expected=sorted(KINDS)
        )
    try:
        return kind.from_state(state)
    except (CalibrationError, ValueError, TypeError, OverflowError) as error:
        what = error.what if isinstance(error, CalibrationError) else f"not a statistic: {error}"
        raise CalibrationError(what, where=f"tensor {tensor!r}", next="collect the table again") from error


def is_unsigned(scheme: Scheme, seen: Range) -> bool:
    """A tensor of this range is stored without a sign, with zero point 0."""
    return scheme.unsigned and seen.min >= 0


def is_symmetric(scheme: Scheme, seen: Range) -> bool:
    """A tensor of this range is stored with zero point 0."""
    return scheme.symmetric(seen.min, seen.max)


def around_zero(threshold: float, scheme: Scheme, seen: Range) -> Range:
    """The range of a threshold: (0, t) for unsigned storage, (-t, t) for signed; a moving zero point needs no more than
    what was seen."""
    threshold = min(threshold, seen.absmax)
    if is_unsigned(scheme, seen):
        return Range(0.0, threshold)
    if is_symmetric(scheme, seen):
        return Range(-threshold, threshold)
    return Range(max(-threshold, min(seen.min, 0.0)), min(threshold, max(seen.max, 0.0)))
