"""NaN and Inf where numbers should be: which they are, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from requant.errors import CalibrationError


class NonFiniteError(CalibrationError):
    """NaN or Inf among the values. ``index`` is the flat position of the first one."""

    def __init__(self, what: str, index: int) -> None:
        super().__init__(what, got=f"at flat position {index}")
        self.index = index


class NonFiniteActivation(CalibrationError):
    """NaN or Inf in an activation. ``tensor`` is its name, ``sample`` the first bad one's place in the batch."""

    def __init__(self, tensor: str, values: npt.ArrayLike, sample: int | None, index: tuple[int, ...]) -> None:
        value = float(np.asarray(values)[index])
        self.tensor, self.sample, self.index = tensor, sample, index
        super().__init__(
            f"{'NaN' if math.isnan(value) else 'Inf'} in an activation",
            where=f"tensor {tensor!r}",
            got=f"{value} at {list(index)}" + ("" if sample is None else f": sample {sample} of the batch"),
            expected="finite numbers; a range with NaN or Inf in it would break the model silently",
            next="look at this sample and its preprocessing; policy 'skip' (--skip-bad) leaves such samples out",
        )


class NonFiniteEnds(CalibrationError):
    """NaN or Inf as the smallest or largest value of a tensor; which sample made it is not known."""

    def __init__(self, tensor: str, low: float, high: float) -> None:
        self.tensor = tensor
        super().__init__(
            "NaN or Inf in an activation",
            where=f"tensor {tensor!r}",
            got=f"smallest value {low}, largest {high}",
            expected="finite numbers",
            next="observe the batch itself to learn which sample it is",
        )


def first_nonfinite(values: npt.ArrayLike) -> tuple[int, ...] | None:
    """The index of the first NaN or Inf in row-major order, or None."""
    array = np.asarray(values)
    bad = _nonfinite(array)
    if not bad.any():
        return None
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), array.shape))


def bad_samples(arrays: Mapping[str, npt.NDArray[Any]], samples: int) -> tuple[int, ...]:
    """The places of the samples that have NaN or Inf in any tensor; all, where a tensor has no batch axis.

    Args:
        arrays: by tensor name; axis 0 is the batch.
        samples: how many samples the batch has.
    """
    bad = np.zeros(samples, bool)
    for array in arrays.values():
        wrong = _nonfinite(array)
        if array.ndim and array.shape[0] == samples:
            bad |= wrong.reshape(samples, -1).any(axis=1)
        elif wrong.any():
            bad[:] = True
    return tuple(int(i) for i in np.flatnonzero(bad))


def _nonfinite(array: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    with np.errstate(over="ignore"):
        return ~np.isfinite(array.astype(np.float32, copy=False))
