"""Joining samples of one size, and what is said where they differ."""

from __future__ import annotations

import numpy as np
import pytest

from requant.errors import InputError
from requant.formats.samples import joined


def test_samples_are_joined_in_order() -> None:
    parts = [np.full((n, 3), n, np.float32) for n in (2, 1, 3)]
    assert joined(parts, "data")[:, 0].tolist() == [2, 2, 1, 3, 3, 3]
    assert joined(parts[:1], "data") is parts[0]


def test_samples_of_two_sizes_are_refused() -> None:
    parts = [np.zeros((1, 3, 8, 8)), np.zeros((2, 3, 8, 8)), np.zeros((1, 3, 9, 8))]
    with pytest.raises(InputError, match=r"photos: the samples differ(.|\n)*\(3, 9, 8\) after \(3, 8, 8\)"):
        joined(parts, "photos")
