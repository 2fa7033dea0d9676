"""Sparse arrays: as much of ``mx.nd.sparse`` as files need. Computing is done on dense arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from requant.dtypes import as_dtype
from requant.errors import InputError, ShapeError, UnsupportedError
from requant.formats.sparse import Csr, RowSparse
from requant.mx.context import Context, checked
from requant.mx.generate import Namespace
from requant.mx.ndarray.call import function
from requant.mx.ndarray.ndarray import NDArray

Array = np.ndarray[Any, Any]


class BaseSparseNDArray:
    """What both kinds share: facts, and conversion to dense arrays.

    Args:
        stored: the arrays as files hold them.
        ctx: the device in name.
    """

    stype = ""

    def __init__(self, stored: Csr | RowSparse, ctx: Context | None = None) -> None:
        self.stored = stored
        self.context = checked(ctx)

    @property
    def ctx(self) -> Context:
        return self.context

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.stored.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def dtype(self) -> type[np.generic]:
        return self.stored.data.dtype.type

    @property
    def data(self) -> NDArray:
        """The stored values."""
        return NDArray(self.stored.data, self.context)

    @property
    def indices(self) -> NDArray:
        """Rows of a row-sparse array, columns of a CSR matrix."""
        return NDArray(self.stored.indices, self.context)

    def asnumpy(self) -> Array:
        """The whole array, zeros included.

        Raises:
            ShapeError: that would take more than 4 GiB.
        """
        return self.stored.to_dense()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.asnumpy().astype(dtype, copy=False) if dtype is not None else self.asnumpy()

    def todense(self) -> NDArray:
        """The whole array as an NDArray."""
        return NDArray(self.asnumpy(), self.context)

    def tostype(self, stype: str) -> Any:
        """This array in another storage type."""
        return self if stype == self.stype else cast_storage(self.todense(), stype)

    def wait_to_read(self) -> None:
        """Does nothing: values are always there."""

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"\n<{type(self).__name__} {'x'.join(map(str, self.shape))} @{self.context}>"


class CSRNDArray(BaseSparseNDArray):
    """A matrix in compressed sparse rows."""

    stype = "csr"
    stored: Csr

    @property
    def indptr(self) -> NDArray:
        """Where each row starts among the stored values."""
        return NDArray(self.stored.indptr, self.context)


class RowSparseNDArray(BaseSparseNDArray):
    """An array of which only some rows are stored."""

    stype = "row_sparse"
    stored: RowSparse


def _values(x: Any, dtype: object = None) -> Array:
    made = x._data if isinstance(x, NDArray) else np.asarray(x)
    if dtype is None and not isinstance(x, NDArray):
        dtype = np.float32 if made.dtype.kind == "f" and made.dtype != np.float16 else made.dtype
    return made if dtype is None else made.astype(as_dtype(dtype))


def csr_matrix(
    arg1: Any, shape: tuple[int, int] | None = None, ctx: Context | None = None, dtype: object = None
) -> CSRNDArray:
    """A CSR matrix from a dense one, or from ``(data, indices, indptr)`` with its shape.

    Raises:
        InputError: something else. ShapeError: no matrix.
    """
    if isinstance(arg1, CSRNDArray):
        return arg1
    if isinstance(arg1, tuple) and len(arg1) == 3:
        data, indices, indptr = (_values(a) for a in arg1)
        rows = len(indptr) - 1
        columns = int(indices.max()) + 1 if len(indices) else 0
        made = Csr(_values(data, dtype), indptr.astype(np.int64), indices.astype(np.int64), shape or (rows, columns))
        return CSRNDArray(made, ctx)
    dense = _values(arg1, dtype)
    if dense.ndim != 2:
        raise ShapeError("a CSR array is a matrix", got=f"shape {dense.shape}", expected="2 dimensions")
    rows_at, columns_at = np.nonzero(dense)
    counts = np.bincount(rows_at, minlength=dense.shape[0])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return CSRNDArray(Csr(dense[rows_at, columns_at], indptr, columns_at.astype(np.int64), dense.shape), ctx)


def row_sparse_array(
    arg1: Any, shape: tuple[int, ...] | None = None, ctx: Context | None = None, dtype: object = None
) -> RowSparseNDArray:
    """A row-sparse array from a dense one, or from ``(data, indices)`` with its shape."""
    if isinstance(arg1, RowSparseNDArray):
        return arg1
    if isinstance(arg1, tuple) and len(arg1) == 2 and not np.isscalar(arg1[0]):
        data, indices = _values(arg1[0], dtype), _values(arg1[1]).astype(np.int64)
        rows = int(indices.max()) + 1 if len(indices) else 0
        return RowSparseNDArray(RowSparse(data, indices, shape or (rows, *data.shape[1:])), ctx)
    dense = _values(arg1, dtype)
    kept = np.flatnonzero(dense.reshape(dense.shape[0], -1).any(axis=1)).astype(np.int64)
    return RowSparseNDArray(RowSparse(dense[kept], kept, dense.shape), ctx)


def array(source_array: Any, ctx: Context | None = None, dtype: object = None) -> Any:
    """A sparse array from a sparse array, or from a scipy matrix (anything with ``tocsr``)."""
    if isinstance(source_array, BaseSparseNDArray):
        return source_array
    if hasattr(source_array, "tocsr"):
        found = source_array.tocsr()
        return csr_matrix((found.data, found.indices, found.indptr), found.shape, ctx, dtype)
    raise InputError("not a sparse array", got=type(source_array).__name__, next="mx.nd.array(x) for dense ones")


def zeros(stype: str, shape: tuple[int, ...], ctx: Context | None = None, dtype: object = None) -> Any:
    """An array of zeros of that storage type."""
    return cast_storage(NDArray(np.zeros(shape, as_dtype(dtype)), checked(ctx)), stype)


def cast_storage(data: Any, stype: str) -> Any:
    """The same values in storage type ``default``, ``csr`` or ``row_sparse``."""
    if isinstance(data, BaseSparseNDArray):
        return data.tostype(stype) if stype != "default" else data.todense()
    if stype == "default":
        return data
    if stype == "csr":
        return csr_matrix(data, ctx=data.context)
    if stype == "row_sparse":
        return row_sparse_array(data, ctx=data.context)
    raise UnsupportedError("unknown storage type", got=stype, expected="default, csr or row_sparse")


_functions = Namespace(__name__, "sparse", function)


def __getattr__(name: str) -> Any:
    return _functions.get(name)
