"""Data types: MXNet's integer codes, numpy dtypes and ONNX element types are one thing said three ways."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from requant.errors import DTypeError

#: MXNet's type flags (mshadow ``TypeFlag``), as they stand in ``.params`` files and ``__dtype__`` attributes.
MX_CODES: dict[int, np.dtype] = {
    0: np.dtype(np.float32),
    1: np.dtype(np.float64),
    2: np.dtype(np.float16),
    3: np.dtype(np.uint8),
    4: np.dtype(np.int32),
    5: np.dtype(np.int8),
    6: np.dtype(np.int64),
    7: np.dtype(np.bool_),
    8: np.dtype(np.int16),
    9: np.dtype(np.uint16),
    10: np.dtype(np.uint32),
    11: np.dtype(np.uint64),
    12: np.dtype(ml_dtypes.bfloat16),
}
_CODE_OF = {dtype: code for code, dtype in MX_CODES.items()}
_BY_NAME = {dtype.name: dtype for dtype in MX_CODES.values()}


def from_code(code: int, where: object | None = None) -> np.dtype:
    """The numpy dtype of an MXNet type flag.

    Raises:
        DTypeError: the flag is not one that MXNet writes.
    """
    if code not in MX_CODES:
        raise DTypeError("unknown MXNet type flag", where=where, got=code, expected=f"one of {sorted(MX_CODES)}")
    return MX_CODES[code]


def to_code(dtype: object) -> int:
    """The MXNet type flag of a dtype (given as numpy dtype, type or name)."""
    return _CODE_OF[as_dtype(dtype)]


def as_dtype(dtype: object, where: object | None = None) -> np.dtype:
    """A numpy dtype from a dtype, a scalar type, a name (``'float32'``, ``'bfloat16'``) or None (float32).

    Raises:
        DTypeError: it is none of MXNet's types.
    """
    if dtype is None:
        return MX_CODES[0]
    if isinstance(dtype, str) and dtype in _BY_NAME:
        return _BY_NAME[dtype]
    found: np.dtype[Any] | None
    try:  # numpy reads any text as a description of a record: only names are let through
        found = None if isinstance(dtype, str) and not dtype.isidentifier() else np.dtype(dtype)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        found = None
    if found is None or found not in _CODE_OF:
        raise DTypeError("not a type that MXNet has", where=where, got=str(dtype)[:80], expected=", ".join(_BY_NAME))
    known: np.dtype[Any] = found
    return known


def to_onnx(dtype: object) -> ir.DataType:
    """The ONNX element type of a dtype."""
    return ir.DataType.from_numpy(as_dtype(dtype))


def from_onnx(dtype: ir.DataType) -> np.dtype:
    """The numpy dtype of an ONNX element type."""
    return np.dtype(dtype.numpy())
