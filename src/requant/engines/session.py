"""What a session is: a compiled graph that many threads may run, and the same contract whatever engine compiled it.

Which inputs there are, how they are checked, who owns the arrays, what happens with many threads: all that is here.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

import numpy as np

from requant.engines.tensors import Array, Feeds, TensorSpec
from requant.errors import EngineError, InputError, nearest

S = TypeVar("S", bound="Session")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class LayerProfile:
    """One layer as the engine executed it (after its own fusions).

    Args:
        name: the engine's name of the layer, as a rule that of the last ONNX node fused into it.
        op: the engine's word for the kind of layer.
        kernel: the implementation that ran, such as ``brgconv_avx512_amx_i8``.
        precision: what it computed in: ``f32``, ``bf16``, ``i8``, ``u8``, ...
        microseconds: mean time of one execution.
    """

    name: str
    op: str
    kernel: str
    precision: str
    microseconds: float


class Session(abc.ABC):
    """A graph compiled by an engine. All methods may be called from many threads at once.

    Subclasses implement ``_infer`` (arrays in input order → arrays in output order) and ``_layers``.
    """

    def __init__(self, engine: str, inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec], workers: int) -> None:
        self.engine = engine
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        #: runs that keep the machine busy; ``submit`` and ``stream`` have this many going
        self.workers = workers
        self._expected = [(s.name, s.dtype, s.shape, *s.demands()) for s in self.inputs]
        self._linked = _linked(self.inputs)
        self._closed = False
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pool_process = 0

    def run(self, feeds: Feeds) -> list[Array]:
        """Run the graph once.

        Args:
            feeds: an array for every input, by name. They are only read, and only until this returns.

        Returns:
            The outputs in the graph's order; the caller owns them.

        Raises:
            InputError: a name, dtype, rank or size that does not fit; the message lists the true inputs.
            EngineError: the engine failed, or the session is closed.
        """
        return self._infer(self._check(feeds))

    def look(self, feeds: Feeds, at: Callable[[list[Array]], T]) -> T:
        """Run the graph once and hand the outputs to ``at`` without copying them, which matters where they are large.

        Args:
            feeds: as ``run``.
            at: called with the outputs in the graph's order; they are valid until it returns, and only to be read.

        Returns:
            What ``at`` returned.

        Raises:
            InputError, EngineError: as ``run``.
        """
        return self._look(self._check(feeds), at)

    def look_many(self, feeds: Iterable[Feeds], at: Callable[[list[Array]], object]) -> None:
        """As ``look`` for many inputs: ``at`` gets the outputs of each, in order, in this thread; the next ones are
        computed meanwhile.

        Args:
            feeds: as ``run``; each is only read, and must stay as it is until ``at`` had its outputs. As many are taken
                ahead as there are ``workers``.
            at: as ``look``. If it raises, the runs under way are waited for, and forgotten.

        Raises:
            InputError, EngineError: as ``run``, after the outputs of all inputs before the one at fault.
        """
        for given in feeds:
            self.look(given, at)

    def submit(self, feeds: Feeds) -> Future[list[Array]]:
        """Run in the background. The feeds are copied before this returns, so their memory can be reused at once.

        Raises:
            InputError: the feeds do not fit (raised here, not by the future).
        """
        return self._enqueue(self._check(feeds))

    def stream(self, feeds: Iterable[Feeds]) -> Iterator[list[Array]]:
        """Run over many inputs with many runs in flight; results come in the order of the inputs.

        Feeds are copied when they are taken, so an iterable may yield the same memory again and again. At most
        ``2 * workers + 2`` inputs are taken ahead of the results that were consumed.

        Raises:
            InputError, EngineError: as ``run``, after the results of all inputs before the one at fault.
        """
        if self._closed:
            raise self._closed_error()
        return self._stream(feeds)

    def profile(self) -> list[LayerProfile]:
        """Every layer that was executed, in order, with its mean time over the runs so far.

        Raises:
            EngineError: the session was not loaded with ``EngineOptions(profile=True)``, or nothing was run yet.
        """
        if self._closed:
            raise self._closed_error()
        return self._layers()

    def close(self) -> None:
        """Free the engine's memory. Runs that are under way finish; later ones are an EngineError."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None and self._pool_process == os.getpid():
            pool.shutdown(wait=True)

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @abc.abstractmethod
    def _infer(self, arrays: list[Array]) -> list[Array]:
        """Run on checked arrays, one for each input, in order."""

    @abc.abstractmethod
    def _layers(self) -> list[LayerProfile]:
        """See ``profile``."""

    def _look(self, arrays: list[Array], at: Callable[[list[Array]], T]) -> T:
        return at(self._infer(arrays))

    def _start(self, arrays: list[Array]) -> Callable[[], list[Array]]:
        """Start a run on copies of checked arrays; the result waits for it. Engines with own queues do better."""
        return self._enqueue(arrays).result

    def _enqueue(self, arrays: list[Array]) -> Future[list[Array]]:
        copies = [a.copy() for a in arrays]
        return self._workers().submit(self._infer, copies)

    def _stream(self, feeds: Iterable[Feeds]) -> Iterator[list[Array]]:
        flying: deque[Callable[[], list[Array]]] = deque()
        source, fault = iter(feeds), None
        try:
            while True:
                try:
                    flying.append(self._start(self._check(next(source))))
                except StopIteration:
                    break
                except Exception as found:  # from the caller's iterable, too: what came before it is delivered first
                    fault = found
                    break
                if len(flying) >= 2 * self.workers + 2:  # so that no core waits for this thread to be woken
                    yield flying.popleft()()
            while flying:
                yield flying.popleft()()
            if fault is not None:
                raise fault
        finally:  # a consumer that stops early, or a failed run: leave nothing running behind
            for wait in flying:
                with contextlib.suppress(EngineError):
                    wait()

    def _workers(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._closed:
                raise self._closed_error()
            # After a fork (data loader workers) the parent's threads do not exist in the child.
            if self._pool is None or self._pool_process != os.getpid():
                self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix=f"requant-{self.engine}")
                self._pool_process = os.getpid()
            return self._pool

    def _check(self, feeds: Feeds) -> list[Array]:
        """The arrays in input order, if they are all there and fit."""
        if self._closed:
            raise self._closed_error()
        arrays = []
        try:
            for name, dtype, shape, rank, fixed in self._expected:
                array = feeds[name]
                if type(array) is not np.ndarray or array.dtype != dtype:
                    break
                if array.shape != shape and (array.ndim != rank or any(array.shape[i] != n for i, n in fixed)):
                    break
                arrays.append(array)
            else:
                if len(feeds) == len(arrays):
                    if self._linked:
                        self._check_links(arrays)
                    return arrays
        except (KeyError, TypeError, IndexError):
            pass
        return self._check_fully(feeds)  # subclasses of ndarray, and whatever is wrong

    def _check_fully(self, feeds: Feeds) -> list[Array]:
        expected = "; ".join(str(s) for s in self.inputs) or "no inputs"
        if not isinstance(feeds, Mapping):
            raise InputError("inputs must be given by name", got=type(feeds).__name__, expected=expected)
        names = [s.name for s in self.inputs]
        for name in feeds:
            if name not in names:
                raise InputError(
                    f"the model has no input {name!r}",
                    got=repr(name),
                    expected=expected,
                    next=nearest(str(name), names),
                )
        arrays = []
        for spec in self.inputs:
            if spec.name not in feeds:
                got = ", ".join(repr(n) for n in feeds) or "nothing"
                raise InputError(f"input {spec.name!r} is missing", got=got, expected=expected)
            array = feeds[spec.name]
            if not isinstance(array, np.ndarray):
                raise InputError("not a numpy array", where=spec.name, got=type(array).__name__, expected=expected)
            if array.dtype != spec.dtype and array.dtype.newbyteorder("=") == spec.dtype:
                array = array.astype(spec.dtype)  # the same numbers, in the byte order of another machine
            if array.dtype != spec.dtype:
                kind = repr(spec.dtype.name)
                todo = f"array.astype({kind})" if array.dtype.kind in "biufcV" else f"numpy.array(numbers, {kind})"
                raise InputError("wrong dtype", where=spec.name, got=array.dtype.name, expected=expected, next=todo)
            if not spec.accepts(array.shape):
                rank = spec.shape is not None and len(array.shape) != len(spec.shape)
                what = "wrong rank" if rank else "wrong shape"
                raise InputError(what, where=spec.name, got=array.shape, expected=expected)
            arrays.append(np.asarray(array))
        self._check_links(arrays)
        return arrays

    def _check_links(self, arrays: list[Array]) -> None:
        for name, places in self._linked.items():
            if len({arrays[i].shape[axis] for i, axis in places}) > 1:
                got = ", ".join(f"{arrays[i].shape[axis]} in {self.inputs[i].name!r}" for i, axis in places)
                expected = "; ".join(str(s) for s in self.inputs)
                raise InputError(f"dimension {name!r} has several sizes", got=got, expected=expected)

    def _closed_error(self) -> EngineError:
        return EngineError("the session is closed", where=self.engine, next="load the model again")


def _linked(inputs: Iterable[TensorSpec]) -> dict[str, list[tuple[int, int]]]:
    """Named dimensions that stand in several places, which therefore must have one size: (input, axis) of each."""
    places: dict[str, list[tuple[int, int]]] = {}
    for i, spec in enumerate(inputs):
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str):
                places.setdefault(dim, []).append((i, axis))
    return {name: where for name, where in places.items() if len(where) > 1}
