"""Batches, and iterators over arrays in memory."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from queue import Queue
from typing import Any

import numpy as np

from requant.errors import InputError, ShapeError
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray

_Desc = namedtuple("_Desc", ["name", "shape"])


class DataDesc(_Desc):
    """Name and shape of an input; equal to the tuple ``(name, shape)``.

    Attributes:
        dtype: scalar type. layout: meaning of the dimensions (``NCHW``).
    """

    dtype: Any
    layout: str

    def __new__(cls, name: str, shape: Sequence[int], dtype: Any = np.float32, layout: str = "NCHW") -> DataDesc:
        made = super().__new__(cls, name, tuple(shape))
        made.dtype, made.layout = dtype, layout
        return made

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Which dimension is the batch: where N stands in the layout, 0 without one."""
        return 0 if layout is None else layout.find("N")


def as_descs(shapes: Any) -> list[DataDesc]:
    """DataDescs from DataDescs or ``(name, shape)`` pairs."""
    return [d if isinstance(d, DataDesc) else DataDesc(*d) for d in shapes or []]


class DataBatch:
    """Arrays of one batch.

    Args:
        data, label: lists of NDArrays.
        pad: how many samples at the end only fill the batch up.
        index: numbers of the samples, if known.
    """

    def __init__(
        self,
        data: Sequence[NDArray] | None,
        label: Sequence[NDArray] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: Any = None,
        provide_label: Any = None,
    ) -> None:
        for what, arrays in (("data", data), ("label", label)):
            if arrays is not None and not isinstance(arrays, (list, tuple)):
                raise InputError(
                    f"{what} of a batch is a list of arrays", got=type(arrays).__name__, next=f"{what}=[x]"
                )
        self.data, self.label, self.pad, self.index = data, label, pad, index
        self.bucket_key, self.provide_data, self.provide_label = bucket_key, provide_data, provide_label

    def __str__(self) -> str:
        data = [d.shape for d in self.data or []]
        label = [d.shape for d in self.label] if self.label else None
        return f"{type(self).__name__}: data shapes: {data} label shapes: {label}"

    __repr__ = __str__


class DataIter:
    """Base of iterators over batches. A subclass gives ``provide_data``, ``provide_label``, ``reset`` and ``next``."""

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    @property
    def provide_data(self) -> list[DataDesc]:
        """Name, shape and dtype of each data array."""
        return []

    @property
    def provide_label(self) -> list[DataDesc]:
        """The same for labels."""
        return []

    def __iter__(self) -> Iterator[DataBatch]:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def reset(self) -> None:
        """Start again."""

    def next(self) -> DataBatch:
        """The next batch; StopIteration at the end."""
        if self.iter_next():
            return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())
        raise StopIteration

    def iter_next(self) -> bool:
        """Go to the next batch; False at the end."""
        raise NotImplementedError

    def getdata(self) -> list[NDArray]:
        """Data of the current batch."""
        raise NotImplementedError

    def getlabel(self) -> list[NDArray]:
        """Labels of the current batch."""
        raise NotImplementedError

    def getindex(self) -> Any:
        """Numbers of the samples, if known."""
        return None

    def getpad(self) -> int | None:
        """How many samples only fill the batch up."""
        return None


class MXDataIter(DataIter):
    """Base of iterators over record files, which scripts ask for with ``isinstance``."""


def _named_arrays(data: Any, default: str, what: str) -> list[tuple[str, np.ndarray]]:
    """Arrays with their names, as float32 unless they are NDArrays of another type."""
    if data is None:
        return []
    if isinstance(data, (np.ndarray, NDArray)):
        data = {default: data}
    elif isinstance(data, (list, tuple)):
        data = {default: data[0]} if len(data) == 1 else {f"_{i}_{default}": d for i, d in enumerate(data)}
    if not isinstance(data, Mapping):
        raise InputError(
            f"{what} must be arrays", got=type(data).__name__, expected="an array, a list of them, or a dict by name"
        )
    return [(name, d._data if isinstance(d, NDArray) else array(d)._data) for name, d in data.items()]


class NDArrayIter(DataIter):
    """Batches of arrays in memory.

    Args:
        data: an array, a list, or a dict by name; dimension 0 is the sample. numpy arrays become float32.
        label: likewise.
        batch_size: samples per batch.
        shuffle: take the samples in random order (numpy's global generator), drawn once.
        last_batch_handle: ``pad`` fills the last batch with samples from the start and says how many; ``discard``
            leaves it out; ``roll_over`` keeps its samples for the next round.
    Raises:
        InputError: not arrays, or an unknown way with the last batch. ShapeError: numbers of samples differ.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        super().__init__(batch_size)
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise InputError("unknown last_batch_handle", got=last_batch_handle, expected="pad, discard or roll_over")
        if batch_size < 1:
            raise InputError("batch_size is at least 1", got=batch_size)
        self.data = _named_arrays(data, data_name, "data")
        self.label = _named_arrays(label, label_name, "label")
        if not self.data:
            raise InputError("there is no data", expected="an array, a list of them, or a dict by name")
        self.num_data = len(self.data[0][1])
        for name, values in (*self.data, *self.label):
            if len(values) != self.num_data:
                raise ShapeError("numbers of samples differ", where=name, got=len(values), expected=self.num_data)
        if not self.num_data:
            raise InputError("there are no samples", where=self.data[0][0])
        self.shuffle, self.last_batch_handle = shuffle, last_batch_handle
        self.idx: np.ndarray = np.arange(self.num_data)
        if shuffle:
            np.random.shuffle(self.idx)  # MXNet's generator: scripts seed it
        self._cursor = 0
        self._left: np.ndarray = np.empty(0, np.int64)
        self._current, self._pad = self._left, 0

    def _descs(self, arrays: list[tuple[str, np.ndarray]]) -> list[DataDesc]:
        return [DataDesc(n, (self.batch_size, *a.shape[1:]), a.dtype.type) for n, a in arrays]

    @property
    def provide_data(self) -> list[DataDesc]:
        return self._descs(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:
        return self._descs(self.label)

    def hard_reset(self) -> None:
        """Start again and forget what was kept for the next round."""
        self._left = self._left[:0]
        self._cursor = 0

    def reset(self) -> None:
        if self.last_batch_handle == "roll_over":
            rest = self.idx[self._cursor :]
            self._left = rest if 0 < len(rest) < self.batch_size else rest[:0]
        self._cursor = 0

    def iter_next(self) -> bool:
        kept, self._left = self._left, self._left[:0]
        wanted = self.batch_size - len(kept)
        fresh = self.idx[self._cursor : self._cursor + wanted]
        short = wanted - len(fresh)
        if not len(fresh) or (short and self.last_batch_handle != "pad"):
            return False
        self._cursor += len(fresh)
        self._pad = len(kept) or short  # MXNet counts rolled-over samples as padding too
        self._current = np.concatenate([kept, fresh, np.resize(self.idx, short)])
        return True

    def getdata(self) -> list[NDArray]:
        return [NDArray(a[self._current]) for _, a in self.data]

    def getlabel(self) -> list[NDArray]:
        return [NDArray(a[self._current]) for _, a in self.label]

    def getpad(self) -> int:
        return self._pad


class ResizeIter(DataIter):
    """Another iterator with another number of batches per round; it starts again where it is too short.

    Args:
        data_iter: the iterator. size: batches per round. reset_internal: reset it with this one.
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        super().__init__(data_iter.batch_size)
        self.data_iter, self.size, self.reset_internal = data_iter, size, reset_internal
        self._done = 0

    @property
    def provide_data(self) -> list[DataDesc]:
        return self.data_iter.provide_data

    @property
    def provide_label(self) -> list[DataDesc]:
        return self.data_iter.provide_label

    def reset(self) -> None:
        self._done = 0
        if self.reset_internal:
            self.data_iter.reset()

    def next(self) -> DataBatch:
        if self._done >= self.size:
            raise StopIteration
        self._done += 1
        try:
            return self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            return self.data_iter.next()


class PrefetchingIter(DataIter):
    """Takes batches of other iterators in a background thread, one ahead.

    Args:
        iters: an iterator, or a list whose batches are joined.
    """

    def __init__(self, iters: DataIter | Sequence[DataIter]) -> None:
        self.iters: list[DataIter] = [iters] if isinstance(iters, DataIter) else list(iters)
        super().__init__(self.iters[0].batch_size)
        self._start()

    @property
    def provide_data(self) -> list[DataDesc]:
        return [d for i in self.iters for d in i.provide_data]

    @property
    def provide_label(self) -> list[DataDesc]:
        return [d for i in self.iters for d in i.provide_label]

    def _start(self) -> None:
        queue: Queue[Any] = Queue(maxsize=1)
        stop = threading.Event()

        def fill() -> None:
            while not stop.is_set():
                try:
                    found: Any = [i.next() for i in self.iters]
                except BaseException as fault:  # handed to whoever asks for the next batch
                    queue.put(fault)
                    return
                queue.put(found)

        self._queue, self._stop = queue, stop
        self._thread = threading.Thread(target=fill, name="requant-prefetch", daemon=True)
        self._thread.start()
        self._ended = False

    def reset(self) -> None:
        self._stop.set()
        while self._thread.is_alive():  # it may wait for room
            while not self._queue.empty():
                self._queue.get()
            self._thread.join(0.01)
        for one in self.iters:
            one.reset()
        self._start()

    def next(self) -> DataBatch:
        if self._ended:
            raise StopIteration
        found = self._queue.get()
        if isinstance(found, BaseException):
            self._ended = True
            raise found
        data = [d for b in found for d in b.data or []]
        label = [d for b in found for d in b.label or []]
        return DataBatch(data, label, found[0].pad, found[0].index)
