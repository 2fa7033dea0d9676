"""The integer form of a tensor under a scheme."""

from __future__ import annotations

import numpy as np

from requant import qmath
from requant.qmath import QuantParams, Range
from requant.scheme import Scheme


def activation_params(scheme: Scheme, observed: Range) -> QuantParams:
    """The parameters that a scheme uses for a tensor of this range."""
    if observed.min >= 0 and scheme.unsigned:
        return qmath.symmetric(0.0, observed.max, np.uint8)
    if scheme.symmetric(observed.min, observed.max):
        return qmath.symmetric(observed.min, observed.max, np.int8, narrow=False)
    dtype = np.int8 if scheme.signed == "int8_asymmetric" else np.uint8
    return qmath.asymmetric(observed.min, observed.max, dtype)
