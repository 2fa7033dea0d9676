"""What an engine is: ONNX in, a session out, and the same contract for every one of them.

An engine lives in one file of this folder and is the only importer of its library. Everything that a caller can see
of it is here: which inputs there are, how they are checked, who owns the arrays, what happens with many threads.
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
from typing import Any, Literal, TypeVar

import numpy as np
import onnx_ir as ir

from requant.errors import EngineError, InputError, nearest, shown
from requant.scheme import Scheme

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Shape = tuple[int | str | None, ...]
Shapes = Mapping[str, tuple[int | None, ...]]

S = TypeVar("S", bound="Session")
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One input or output of a session.

    Args:
        name: its name in the ONNX graph.
        dtype: numpy dtype of the arrays.
        shape: a number where the size is fixed, a name or None where it is free; None if even the rank is unknown.
    """

    name: str
    dtype: np.dtype[Any]
    shape: Shape | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.dtype.name}, any shape"
        dims = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype.name} ({dims}{',' if len(self.shape) == 1 else ''})"

    def demands(self) -> tuple[int | None, tuple[tuple[int, int], ...]]:
        """The rank (None = any), and the fixed sizes by axis."""
        shape = self.shape or ()
        return None if self.shape is None else len(shape), tuple(
            (i, d) for i, d in enumerate(shape) if isinstance(d, int)
        )

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of that shape may be fed here."""
        rank, fixed = self.demands()
        return rank is None or (len(shape) == rank and all(shape[i] == n for i, n in fixed))


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """How a graph is compiled. The same words for every engine; a wish that an engine cannot grant is an error.

    Args:
        threads: threads for one run; None = all cores that this process may really use.
        hint: ``latency`` spends all threads on one run; ``throughput`` on several runs at a time.
        streams: how many runs at a time; None = what the hint and the machine suggest.
        precision: arithmetic of the float layers. ``f32`` means float32 also where the CPU has faster bfloat16 units.
        cache_dir: folder for compiled models, so that loading the same graph again is fast; None = no cache.
        split: a large batch of samples that have nothing to do with each other may run as several small ones, where
            that is faster (engines decide; ``latency`` without ``streams`` only).
        profile: measure every layer (``Session.profile``); costs some speed.

    Raises:
        EngineError: a value out of range.
    """

    threads: int | None = None
    hint: Literal["latency", "throughput"] = "latency"
    streams: int | None = None
    precision: Literal["f32", "bf16", "f16"] = "f32"
    cache_dir: str | None = None
    profile: bool = False
    split: bool = True

    def __post_init__(self) -> None:
        for key in ("threads", "streams"):
            value = getattr(self, key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise EngineError(
                    f"engine option {key!r} is out of range", got=repr(value), expected="1 or more, or None"
                )
        if self.cache_dir is not None and not isinstance(self.cache_dir, (str, os.PathLike)):
            raise EngineError("engine option 'cache_dir' is no folder", got=shown(self.cache_dir), expected="its name")
        for key, words in (("hint", ("latency", "throughput")), ("precision", ("f32", "bf16", "f16"))):
            if getattr(self, key) not in words:
                expected = " or ".join(repr(w) for w in words)
                raise EngineError(f"unknown engine option {key!r}", got=repr(getattr(self, key)), expected=expected)


@dataclasses.dataclass(frozen=True)
class Availability:
    """Whether an engine can be used here: its version, or why it cannot."""

    ok: bool
    version: str | None
    why: str | None


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


class Engine(abc.ABC):
    """An engine: turns ONNX models into sessions. Stateless and shareable."""

    #: how users name it, in lower case
    name: str
    #: activations lie channels-last in its memory: an output that is transposed so costs nothing, one that is not does
    channels_last: bool = False

    @property
    @abc.abstractmethod
    def scheme(self) -> Scheme:
        """The INT8 forms that it runs fast on this machine."""

    @abc.abstractmethod
    def available(self) -> Availability:
        """Whether its library is installed and loads here."""

    @abc.abstractmethod
    def load(self, model: ir.Model, options: EngineOptions, shapes: Shapes | None = None) -> Session:
        """Compile a model. The model is only read.

        Args:
            model: any ONNX model.
            options: see EngineOptions.
            shapes: sizes to fix, by input; a None stays as free or as fixed as it is in the model.

        Raises:
            EngineError: the library is missing, refuses the graph, or cannot grant an option. There is no switch to
                another engine, precision or kernel: the message says what to choose instead.
            InputError: ``shapes`` does not fit the model's inputs.
        """

    def demand(self) -> Availability:
        """Its availability, if it is available.

        Raises:
            EngineError: it is not; the message says why.
        """
        found = self.available()
        if not found.ok:
            raise EngineError(
                f"engine {self.name!r} is not available here",
                got=found.why,
                next="install it, or choose another engine by name; engines are never switched silently",
            )
        return found


def numpy_dtype(value: ir.Value, engine: str) -> np.dtype[Any]:
    """The dtype of a graph input or output, or an EngineError if sessions cannot carry it."""
    kind = value.dtype
    if kind is None or not isinstance(value.type, ir.TensorType):
        raise EngineError("an input of the graph has no tensor type", where=value.name, got=value.type)
    if kind == ir.DataType.STRING or kind.bitwidth < 8:
        raise EngineError(f"{kind.name} tensors cannot cross the border of a graph", where=f"{engine}: {value.name}")
    return kind.numpy()


def _dims(value: ir.Value) -> Shape | None:
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape)


def bind(model: ir.Model, shapes: Shapes | None, engine: str) -> tuple[tuple[TensorSpec, ...], dict[str, int]]:
    """The true inputs of a model once ``shapes`` are fixed, and the sizes of the named dimensions that this fixed.

    Raises:
        InputError: a name that is no input, a wrong rank, a size that the model fixes otherwise, or one dimension
            name with two sizes.
        EngineError: an input of a type that sessions cannot carry.
    """
    inputs = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    known = [str(v.name) for v in inputs]
    wanted = dict(shapes or {})
    for name in wanted:
        if name not in known:
            raise InputError(f"shape given for {name!r}, which is no input", next=nearest(name, known))
    sizes: dict[str, int] = {}
    for value in inputs:
        want, have = wanted.get(str(value.name)), _dims(value)
        if want is None or have is None:
            continue
        if len(want) != len(have):
            raise InputError("shape of another rank than the input", where=value.name, got=want, expected=have)
        for axis, (new, old) in enumerate(zip(want, have)):
            if new is None:
                continue
            if (isinstance(old, int) and old != new) or (isinstance(old, str) and sizes.get(old, new) != new):
                fixed = old if isinstance(old, int) else f"{sizes[old]} (dimension {old!r} of another input)"
                raise InputError(
                    f"axis {axis} is fixed",
                    where=value.name,
                    got=new,
                    expected=fixed,
                    next=f"the input takes {_said(have)}, and {_said(want)} was given",
                )
            if isinstance(old, str):
                sizes[old] = new
    specs = []
    for value in inputs:
        want, have = wanted.get(str(value.name)), _dims(value)
        base: Shape | None = have if have is not None else want
        if base is not None and want is not None:
            base = tuple(new if new is not None else old for new, old in zip(want, base))
        specs.append(TensorSpec(str(value.name), numpy_dtype(value, engine), fix(base, sizes)))
    return tuple(specs), sizes


def _said(shape: Shape) -> str:
    return "(" + ", ".join("?" if d is None else str(d) for d in shape) + ")"


def fix(shape: Shape | None, sizes: Mapping[str, int]) -> Shape | None:
    """A shape with the named dimensions replaced whose sizes are known."""
    return None if shape is None else tuple(sizes.get(d, d) if isinstance(d, str) else d for d in shape)


def output_shape(value: ir.Value, sizes: Mapping[str, int], known: Shape | None) -> Shape | None:
    """Shape of a graph output: what the engine knows to be fixed, else the model's own words."""
    said = fix(_dims(value), sizes)
    if known is None or said is None or len(known) != len(said):
        return said if known is None else known
    return tuple(k if isinstance(k, int) else s for k, s in zip(known, said))
