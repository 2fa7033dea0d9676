"""``nd.save`` and ``nd.load``: MXNet's ``.params`` files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from requant.errors import InputError
from requant.formats.params import Param, read_params, write_params
from requant.formats.sparse import Csr, RowSparse
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.ndarray.sparse import CSRNDArray, RowSparseNDArray

Named = dict[str, Any]


def _wrap(param: Param) -> Any:
    if isinstance(param, Csr):
        return CSRNDArray(param)
    if isinstance(param, RowSparse):
        return RowSparseNDArray(param)
    return NDArray(np.empty(0, np.float32) if param is None else param)


def unwrap(value: Any) -> Param:
    """The array behind an NDArray, dense or sparse, as ``write_params`` takes it."""
    if isinstance(value, (CSRNDArray, RowSparseNDArray)):
        return value.stored
    if isinstance(value, NDArray):
        return value._data
    raise InputError("only NDArrays can be saved", got=type(value).__name__, next="mx.nd.array(x) makes one from x")


def _wrapped(found: dict[str, Param] | list[Param]) -> Named | list[Any]:
    if isinstance(found, dict):
        return {name: _wrap(p) for name, p in found.items()}
    return [_wrap(p) for p in found]


def load(fname: str | os.PathLike[str]) -> Named | list[Any]:
    """Read arrays that MXNet (or ``save``) wrote, of any version.

    Returns:
        A dict if they have names, else a list. Dense arrays are NDArrays, others CSRNDArray or RowSparseNDArray.
    Raises:
        FormatError: the file is truncated, corrupt, or something else.
    """
    return _wrapped(read_params(fname))


def load_frombuffer(buf: bytes) -> Named | list[Any]:
    """``load`` from the bytes of a file."""
    return _wrapped(read_params(bytes(buf)))


def save(fname: str | os.PathLike[str], data: NDArray | Iterable[Any] | Mapping[str, Any]) -> None:
    """Write one array, a list, or a dict by name, so that MXNet and ``load`` can read them.

    Raises:
        InputError: something that is no NDArray.
    """
    if isinstance(data, NDArray):
        data = [data]
    if isinstance(data, Mapping):
        write_params(fname, {str(k): unwrap(v) for k, v in data.items()})
    else:
        write_params(fname, [unwrap(v) for v in data])
