"""Names of ``mxnet.base`` that scripts use."""

from __future__ import annotations

import numbers

import numpy as np

from requant.errors import RequantError

#: Every error that requant raises on purpose; scripts catch it under MXNet's name.
MXNetError = RequantError
#: The dtype of arrays for which none is given.
mx_real_t = np.float32
string_types = (str,)
numeric_types = (numbers.Number, np.generic)
integer_types = (int, np.integer)


class NotImplementedForSymbol(MXNetError, TypeError):
    """A method of arrays was called on a symbol, which is an expression without values."""
