"""MXNet's sparse arrays as they stand in ``.params`` files."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import ShapeError, counted

_DENSE_LIMIT = 4 << 30


@dataclasses.dataclass(frozen=True, eq=False)
class RowSparse:
    """A matrix of which only some rows are stored (MXNet's ``row_sparse``).

    Args:
        data: the stored rows, shape ``(len(indices), *shape[1:])``.
        indices: int64, the strictly ascending numbers of the stored rows.
        shape: shape of the whole.
    """

    data: NDArray[Any]
    indices: NDArray[Any]
    shape: tuple[int, ...]

    def to_dense(self, max_bytes: int = _DENSE_LIMIT) -> NDArray[Any]:
        """The whole array, zeros included.

        Raises:
            ShapeError: it would take more than ``max_bytes`` bytes (a file may declare any shape).
        """
        dense = _zeros(self.shape, self.data.dtype, max_bytes)
        dense[self.indices] = self.data
        return dense


@dataclasses.dataclass(frozen=True, eq=False)
class Csr:
    """A compressed sparse row matrix (MXNet's ``csr``).

    Args:
        data: the stored values, shape ``(n,)``.
        indptr: int64, shape ``(rows + 1,)``: row ``r`` holds ``data[indptr[r]:indptr[r + 1]]``.
        indices: int64, shape ``(n,)``: the column of each value.
        shape: ``(rows, columns)``.
    """

    data: NDArray[Any]
    indptr: NDArray[Any]
    indices: NDArray[Any]
    shape: tuple[int, ...]

    def to_dense(self, max_bytes: int = _DENSE_LIMIT) -> NDArray[Any]:
        """The whole matrix, zeros included.

        Raises:
            ShapeError: it would take more than ``max_bytes`` bytes (a file may declare any shape).
        """
        dense = _zeros(self.shape, self.data.dtype, max_bytes)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr))
        dense[rows, self.indices] = self.data
        return dense


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any], max_bytes: int) -> NDArray[Any]:
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > max_bytes:
        raise ShapeError(
            "the dense form of a sparse array is too large",
            got=f"shape {shape} of {dtype}, {counted(nbytes, 'byte')}",
            expected=f"at most {max_bytes} bytes",
            next="keep it sparse, or give a larger max_bytes",
        )
    return np.zeros(shape, dtype)
