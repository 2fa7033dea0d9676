"""Calibration data as MXNet's quantization takes it: a ``DataIter``, or any iterable of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from requant.errors import CalibrationError
from requant.mx.io import DataBatch, DataDesc, DataIter
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray


def is_iterator(data: Any) -> bool:
    """Whether it has what the flow needs of a DataIter: batches, their shapes and their size."""
    return isinstance(data, DataIter) or all(hasattr(data, n) for n in ("provide_data", "batch_size", "reset"))


class IterableData(DataIter):
    """A ``DataLoader``, or any iterable of batches, as a DataIter.

    The first batch decides names: one array is ``data``, two are ``data`` and ``data0`` (mostly a label), more are
    ``data0``, ``data1``, ... Arrays of more than four dimensions have their first two merged, as videos do.

    Raises:
        CalibrationError: it cannot be iterated, or is empty.
    """

    def __init__(self, data: Iterable[Any]) -> None:
        try:
            first = next(iter(data))
        except TypeError as fault:
            raise CalibrationError("calib_data is not a valid iterator", got=type(data).__name__) from fault
        except StopIteration:
            raise CalibrationError("there is no calibration data", where="calib_data", got="no batch") from None
        arrays = _arrays(first)
        super().__init__(arrays[0].shape[0])
        self._data = data
        if len(arrays) >= 3:
            names = [f"data{i}" for i in range(len(arrays))]
        else:
            names = ["data", "data0"][: len(arrays)]
        self.names = names
        self._descs = [DataDesc(n, a.shape, a.dtype) for n, a in zip(names, arrays)]
        self.reset()

    @property
    def provide_data(self) -> list[DataDesc]:
        return list(self._descs)

    def reset(self) -> None:
        self._batches: Iterator[Any] = iter(self._data)

    def next(self) -> DataBatch:
        return DataBatch(_arrays(next(self._batches)))


def _arrays(batch: Any) -> list[NDArray]:
    given = list(batch) if isinstance(batch, (list, tuple)) else [batch]
    arrays = [a if isinstance(a, NDArray) else array(a) for a in given]
    if not arrays:
        raise CalibrationError("a batch holds no array", where="calib_data")
    if len(arrays[0].shape) > 4:
        arrays[0] = arrays[0].reshape((-1, *arrays[0].shape[2:]))
    return arrays
