"""``DataLoader``: batches of a dataset, read ahead by workers."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError
from requant.mx.gluon.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Samples as a batch: arrays are stacked, tuples become lists of batches."""
    first = data[0]
    if isinstance(first, NDArray):
        return NDArray(np.stack([d._data for d in data]), first.context)
    if isinstance(first, tuple):
        return [default_batchify_fn(list(column)) for column in zip(*data)]
    stacked = np.asarray(data)
    return array(stacked, dtype=stacked.dtype if stacked.dtype.kind != "U" else None)


default_mp_batchify_fn = default_batchify_fn

Batchify = Callable[[Sequence[Any]], Any]

#: In a worker process: what it reads, and how it makes batches.
_worker: tuple[Any, Batchify] | None = None


def _start_worker(dataset: Any, batchify: Batchify) -> None:
    global _worker
    _worker = dataset, batchify


def _work_here(samples: Sequence[int]) -> Any:
    assert _worker is not None
    return _work(samples, _worker[1], _worker[0])


def _work(samples: Sequence[int], batchify: Batchify, dataset: Any) -> Any:
    return batchify([dataset[i] for i in samples])


def _processes(count: int, dataset: Any, batchify: Batchify) -> concurrent.futures.ProcessPoolExecutor:
    """Worker processes that are running already.

    They are forked where the system can, as in MXNet: then a dataset may hold functions that cannot be pickled, and a
    script needs no ``if __name__ == "__main__"``. Forking is safe here because workers only read samples: operators
    that transforms call run on sessions of one thread, which a fork takes with it.
    """
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    pool = concurrent.futures.ProcessPoolExecutor(count, context, _start_worker, (dataset, batchify))
    with warnings.catch_warnings():  # Python 3.12 and newer warn of any fork beside threads
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        pool.submit(int).result()
    return pool


class DataLoader:
    """Batches of a dataset.

    Args:
        dataset: what has ``__getitem__`` and ``__len__``.
        batch_size, shuffle, sampler, last_batch: how batches are formed; or ``batch_sampler`` instead of all four.
        batchify_fn: makes a batch of a list of samples; arrays are stacked by default.
        num_workers: workers that read ahead; 0 reads when a batch is asked for.
        thread_pool: workers are threads; otherwise processes, forked where the system can.
        prefetch: batches read ahead; twice the workers by default.
        timeout: seconds to wait for a batch.
        pin_memory, pin_device_id: accepted; there is no device to copy to.
    Raises:
        InputError: arguments that exclude each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Sampler | None = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Batchify | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float = 120,
        auto_reload: bool = False,
        **kwargs: Any,
    ) -> None:
        if batch_sampler is None:
            if batch_size is None:
                raise InputError("no batch_size", next="give batch_size, or a batch_sampler")
            if sampler is not None and shuffle:
                raise InputError("shuffle and sampler exclude each other")
            if sampler is None:
                sampler = RandomSampler(len(dataset)) if shuffle else SequentialSampler(len(dataset))
            batch_sampler = BatchSampler(sampler, batch_size, last_batch or "keep")
        elif batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise InputError("batch_sampler excludes batch_size, shuffle, sampler and last_batch")
        self._dataset, self._batch_sampler = dataset, batch_sampler
        self._batchify_fn = default_batchify_fn if batchify_fn is None else batchify_fn
        self._num_workers = max(0, num_workers)
        self._prefetch = max(0, 2 * self._num_workers if prefetch is None else prefetch)
        self._thread_pool, self._timeout = thread_pool, timeout
        self._pool: concurrent.futures.Executor | None = None

    def _workers(self) -> concurrent.futures.Executor:
        if self._pool is None:
            if self._thread_pool or os.name == "nt":
                self._pool = concurrent.futures.ThreadPoolExecutor(self._num_workers)
            else:
                self._pool = _processes(self._num_workers, self._dataset, self._batchify_fn)
        return self._pool

    def _submit(self, samples: Any) -> concurrent.futures.Future[Any]:
        pool = self._workers()
        if isinstance(pool, concurrent.futures.ThreadPoolExecutor):
            return pool.submit(_work, samples, self._batchify_fn, self._dataset)
        return pool.submit(_work_here, samples)

    def __iter__(self) -> Iterator[Any]:
        if not self._num_workers:
            for samples in self._batch_sampler:
                yield self._batchify_fn([self._dataset[i] for i in samples])
            return
        waiting: deque[concurrent.futures.Future[Any]] = deque()
        source = iter(self._batch_sampler)
        try:
            for samples in source:
                waiting.append(self._submit(samples))
                if len(waiting) > self._prefetch:
                    yield waiting.popleft().result(self._timeout)
            while waiting:
                yield waiting.popleft().result(self._timeout)
        finally:
            for future in waiting:
                future.cancel()

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __del__(self) -> None:
        pool = getattr(self, "_pool", None)
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


class _MultiWorkerIter:
    """The class that GluonCV derives its own loader's iterator from; ``DataLoader`` itself does not need it."""

    def __init__(
        self,
        worker_pool: Any,
        batchify_fn: Batchify,
        batch_sampler: Any,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        worker_fn: Callable[..., Any] = _work,
        prefetch: int = 0,
        dataset: Any = None,
        data_loader: Any = None,
        timeout: float = 120,
        **kwargs: Any,
    ) -> None:
        self._worker_pool, self._batchify_fn, self._batch_sampler = worker_pool, batchify_fn, batch_sampler
        self._worker_fn, self._dataset, self._timeout = worker_fn, dataset, timeout
        self._data_buffer: dict[int, Any] = {}
        self._rcvd_idx = self._sent_idx = 0
        self._iter = iter(batch_sampler)
        for _ in range(prefetch):
            self._push_next()

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def _push_next(self) -> None:
        samples = next(self._iter, None)
        if samples is None:
            return
        self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(
            self._worker_fn, (samples, self._batchify_fn, self._dataset)
        )
        self._sent_idx += 1

    def __next__(self) -> Any:
        self._push_next()
        if self._rcvd_idx == self._sent_idx:
            raise StopIteration
        found = self._data_buffer.pop(self._rcvd_idx).get(self._timeout)
        self._rcvd_idx += 1
        return found

    next = __next__

    def __iter__(self) -> _MultiWorkerIter:
        return self
