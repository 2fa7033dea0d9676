"""Datasets: samples by number."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from requant.errors import InputError
from requant.formats.recordio import MXIndexedRecordIO
from requant.mx.gluon.data.sampler import Sampler
from requant.mx.ndarray.ndarray import NDArray


class Dataset:
    """Base of datasets: subclasses write ``__getitem__`` and ``__len__``."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def filter(self, fn: Callable[[Any], bool]) -> Dataset:
        """Samples for which a function is true."""
        from requant.mx.gluon.data.sampler import FilterSampler

        return _Picked(self, list(FilterSampler(fn, self)))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part ``index`` of ``num_shards``; the first parts are one longer where it does not divide evenly.

        Raises:
            InputError: there is no such part.
        """
        if not 0 <= index < num_shards:
            raise InputError("no such shard", got=index, expected=f"0 to {num_shards - 1}")
        size, rest = divmod(len(self), num_shards)
        start = size * index + min(index, rest)
        return _Picked(self, range(start, start + size + (index < rest)))

    def take(self, count: int | None) -> Dataset:
        """The first ``count`` samples; all if None."""
        count = len(self) if count is None else min(count, len(self))
        return _Picked(self, range(count))

    def sample(self, sampler: Sampler) -> Dataset:
        """The samples that a sampler names, in its order."""
        return _Picked(self, list(sampler))

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Every sample through a function: when it is read, or (not ``lazy``) now."""
        made = _Transformed(self, fn)
        return made if lazy else SimpleDataset([made[i] for i in range(len(made))])

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """The first element of every sample through a function; labels stay as they are."""
        return self.transform(_First(fn), lazy)


class SimpleDataset(Dataset):
    """A list as a dataset."""

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data

    def __getitem__(self, idx: int) -> Any:
        return self._data[idx]

    def __len__(self) -> int:
        return len(self._data)


class _Picked(Dataset):
    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self._dataset, self._indices = dataset, indices

    def __getitem__(self, idx: int) -> Any:
        return self._dataset[self._indices[idx]]

    def __len__(self) -> int:
        return len(self._indices)


class _Transformed(Dataset):
    def __init__(self, dataset: Dataset, fn: Callable[..., Any]) -> None:
        self._dataset, self._fn = dataset, fn

    def __getitem__(self, idx: int) -> Any:
        item = self._dataset[idx]
        return self._fn(*item) if isinstance(item, tuple) else self._fn(item)

    def __len__(self) -> int:
        return len(self._dataset)


class _First:
    """A function of the first element alone. A class, so that workers in processes can have it."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, x: Any, *rest: Any) -> Any:
        return (self._fn(x), *rest) if rest else self._fn(x)


class ArrayDataset(Dataset):
    """Arrays of the same length, sample by sample: tuples if there are several.

    Raises:
        InputError: lengths differ.
    """

    def __init__(self, *args: Any) -> None:
        if not args:
            raise InputError("no arrays", expected="at least one")
        self._length = len(args[0])
        self._data: list[Any] = []
        for i, data in enumerate(args):
            if len(data) != self._length:
                raise InputError("arrays differ in length", where=f"array {i}", got=len(data), expected=self._length)
            self._data.append(data.asnumpy() if isinstance(data, NDArray) and data.ndim == 1 else data)

    def __getitem__(self, idx: int) -> Any:
        if len(self._data) == 1:
            return self._data[0][idx]
        return tuple(data[idx] for data in self._data)

    def __len__(self) -> int:
        return self._length


class RecordFileDataset(Dataset):
    """The records of a RecordIO file, as bytes; its index lies beside it (``.idx``)."""

    def __init__(self, filename: str | os.PathLike[str]) -> None:
        self.filename = os.fspath(filename)
        self.idx_file = os.path.splitext(self.filename)[0] + ".idx"
        self._record = MXIndexedRecordIO(self.idx_file, self.filename, "r")

    def __getitem__(self, idx: int) -> Any:
        return self._record.read_idx(self._record.keys[idx])

    def __len__(self) -> int:
        return len(self._record.keys)
