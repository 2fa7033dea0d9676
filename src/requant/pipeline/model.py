"""The road from a file to an answer: load, compile, run, save."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.dtypes import as_dtype
from requant.engines.base import EngineOptions, LayerProfile, Session, TensorSpec
from requant.engines.cache import SessionCache
from requant.errors import (
    FormatError,
    InputError,
    ParameterError,
    RequantError,
    ShapeError,
    UnsupportedError,
    nearest,
)
from requant.formats import archive, onnx_file, symbol_file, tflite
from requant.formats.params import read_params, split_arg_aux, write_params
from requant.formats.sparse import Csr, RowSparse
from requant.formats.target import check_model
from requant.lower import Dims, Lowered, free_inputs, missing_parameters, needed_nodes, to_onnx
from requant.ops.emit import NeedsShape
from requant.passes.complete import complete
from requant.symbol.infer import infer
from requant.symbol.training import Cut, Inference, for_inference, state_variables
from requant.symbol.tree import Symbol

if TYPE_CHECKING:
    from requant.pipeline.live import Live

log = logging.getLogger(__name__)

Feeds = Mapping[str, Any]
#: What ``run`` takes: one array for a model with one input, a sequence in input order, or a mapping by name.
Data = np.ndarray | Sequence[np.ndarray] | Feeds

DEFAULT_ENGINE = "openvino"


class Model:
    """A loaded network. Immutable; ``compile`` binds it to an engine, ``run`` does so by itself.

    Made by ``requant.load``, ``Model.from_symbol`` or ``Model.from_onnx``.
    """

    def __init__(
        self,
        *,
        symbol: Symbol | None = None,
        params: Mapping[str, np.ndarray] | None = None,
        onnx: ir.Model | None = None,
        shapes: Mapping[str, Dims] | None = None,
        dtypes: Mapping[str, object] | None = None,
        source: str = "model",
        exact: bool = False,
    ) -> None:
        self.symbol, self.exact = symbol, exact
        self.params: dict[str, np.ndarray] = dict(params or {})
        self.source = source
        #: names of the outputs that were cut off, because training alone has what they need (labels)
        self.cut_outputs: tuple[str, ...] = ()
        self._labels: tuple[Cut, ...] = ()
        self._given = onnx
        self._shapes = dict(shapes or {})
        self._dtypes = dict(dtypes or {})
        self._lowered: Lowered | None = None
        self._special: dict[Any, Lowered] = {}
        self._compiled: dict[Any, Compiled] = {}
        self._lock = threading.RLock()
        self._told: set[str] = set()

    # -- making ----------------------------------------------------------------------------------------------------

    @classmethod
    def from_symbol(
        cls,
        symbol: Symbol,
        params: Mapping[str, np.ndarray],
        *,
        shapes: Mapping[str, Dims] | None = None,
        dtypes: Mapping[str, object] | None = None,
        source: str = "symbol",
        exact: bool = False,
    ) -> Model:
        """A model from a symbol and the values of its arguments and auxiliary states, by variable name.

        Args:
            shapes: dimensions of free inputs; a string or None is a dimension that stays open.
            exact: MXNet's quantized operators compute its very integers; see ``requant.load``.
        Raises:
            ParameterError: the symbol needs a parameter that is not there.
        """
        if params:
            missing_parameters(symbol, params, [*(shapes or {}), *(dtypes or {})], source)
        return cls(symbol=symbol, params=params, shapes=shapes, dtypes=dtypes, source=source, exact=exact)

    @classmethod
    def from_onnx(cls, model: ir.Model, *, source: str = "onnx model") -> Model:
        """A model from an ONNX graph."""
        return cls(onnx=model, source=source)

    def _note(self, found: Inference) -> None:
        """Keep and log what was cut off."""
        self._labels, self.cut_outputs = found.cut, found.outputs
        for cut in self.cut:
            log.info("cut %s: %s (%s) needs it in training alone", cut.variable, cut.node, cut.op)
        for name in self.cut_outputs:
            log.info("cut output %s: it cannot be computed without %s", name, ", ".join(c.variable for c in found.cut))

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def onnx(self) -> ir.Model:
        """The ONNX graph, dimension 0 of the inputs left open where the operators allow it.

        Raises:
            InputError: the shape of an input is needed, and neither file nor caller says it.
        """
        if self._given is not None:
            return self._given
        with self._lock:
            if self._lowered is None:
                assert self.symbol is not None
                try:
                    self._lowered = self._lower(self._shapes)
                except NeedsShape as fault:
                    raise InputError(
                        f"this network cannot be lowered with open dimensions: {fault.what}",
                        where=self.source,
                        expected="the full shape of each input: " + ", ".join(free_inputs(self.symbol, self.params)),
                        next="give shapes={'data': (1, 3, 224, 224)} or --shape data=1,3,224,224",
                    ) from fault
            return self._lowered.model

    def _lower(self, shapes: Mapping[str, Dims]) -> Lowered:
        assert self.symbol is not None
        return to_onnx(self.symbol, self.params, shapes, self._dtypes, name=self._graph_name, exact=self.exact)

    @property
    def _graph_name(self) -> str:
        return Path(self.source).name.replace("-symbol.json", "") or "model"

    def onnx_for(self, shapes: Mapping[str, Sequence[int]]) -> ir.Model:
        """The ONNX graph for inputs of these shapes: the open one where there is one, else one made for them."""
        if self._given is not None:
            return self._given
        assert self.symbol is not None
        key = tuple(sorted((n, tuple(s)) for n, s in shapes.items()))
        with self._lock:
            if self._lowered is not None:
                return self._lowered.model
            if key not in self._special:
                # Only the batch is left open: shapes that the caller feeds are facts, so every operator that needs
                # a size as a number gets it, and one graph still serves every batch size.
                # Dimension 0 of an input that has another size there (an RNN's state, a weight) is no batch.
                batch = next((s[0] for s in shapes.values() if len(s)), None)
                open_batch: dict[str, Dims] = {
                    n: ("N", *s[1:]) if len(s) and s[0] == batch else tuple(s) for n, s in shapes.items()
                }
                try:
                    self._special[key] = self._lower({**self._shapes, **open_batch})
                except NeedsShape:
                    self._special[key] = self._lower(dict(shapes))
                except ShapeError as fault:
                    raise self._misfit(shapes, fault) from fault
            return self._special[key].model

    def _misfit(self, shapes: Mapping[str, Sequence[int]], fault: ShapeError) -> InputError:
        """What to say where the network cannot take inputs of these shapes."""
        try:
            wanted = ", ".join(str(s) for s in self.inputs)
        except RequantError:
            wanted = "inputs " + ", ".join(self.input_names)
        return InputError(
            "the network does not take inputs of this shape",
            where=self.source,
            got=", ".join(f"{n}: {tuple(s)}" for n, s in shapes.items()) + f" ({fault.where or ''}: {fault.what})",
            expected=wanted,
        )

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The free inputs: name, dtype and shape (a string is an open dimension)."""
        return tuple(_spec(v) for v in self.onnx.graph.inputs if v.name not in self.onnx.graph.initializers)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs: name, dtype and shape (None is a dimension that only a run can tell)."""
        return tuple(_spec(v) for v in self.onnx.graph.outputs)

    @functools.cached_property
    def input_names(self) -> list[str]:
        """Names of the free inputs, in order."""
        if self.symbol is not None:
            return free_inputs(self.symbol, self.params)
        return [spec.name for spec in self.inputs]

    @functools.cached_property
    def output_names(self) -> list[str]:
        """Names of the outputs, in order."""
        if self.symbol is not None:
            return self.symbol.list_outputs()
        return [spec.name for spec in self.outputs]

    @property
    def cut(self) -> tuple[Cut, ...]:
        """Inputs that matter in training alone and were cut off (labels)."""
        return (*self._labels, *needed_nodes(self.symbol)[1]) if self.symbol is not None else ()

    @functools.cached_property
    def state_names(self) -> list[str]:
        """Names of the inputs that hold recurrent states at the begin; those that are not fed are zeros."""
        return state_variables(self.symbol, self.params) if self.symbol is not None else []

    def feeds(self, data: Data, extra: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Arrays by input name.

        Raises:
            InputError: a name is wrong or missing; the message lists the true inputs.
        """
        names = self.input_names
        if isinstance(data, Mapping):
            given = {**data, **(extra or {})}
        else:
            arrays = data if isinstance(data, (list, tuple)) else [data]
            takers = names if len(arrays) == len(names) else [n for n in names if n not in self.state_names]
            given = {**dict(zip(takers, arrays)), **(extra or {})}
            if len(arrays) > len(names):
                raise InputError(
                    "too many arrays", where=self.source, got=len(arrays), expected=f"{len(names)}: {names}"
                )
        for name in given:
            if name not in names:
                raise InputError(
                    "no input of that name", where=self.source, got=name, expected=names, next=nearest(name, names)
                )
        feeds = {n: _as_array(given[n], f"{self.source}: input {n!r}") for n in names if n in given}
        missing = [n for n in names if n not in given]
        if missing and all(n in self.state_names for n in missing):
            return self._with_states(feeds, missing)
        if missing:
            raise InputError("an input is missing", where=self.source, got=list(given), expected=names)
        return feeds

    def _with_states(self, feeds: dict[str, np.ndarray], states: Sequence[str]) -> dict[str, np.ndarray]:
        """The feeds with zeros for recurrent states that are not given, in the order of the inputs."""
        assert self.symbol is not None
        arrays = {**self.params, **feeds}
        variables = {n.name: n for n in self.symbol.variables()}
        shapes = {n: a.shape for n, a in arrays.items() if n in variables}
        types = {n: arrays[n].dtype for n in shapes}
        found = infer(self.symbol, shapes, types, partial=True)
        if any(found.shape(variables[n]) is None for n in states):  # of an unrolled cell: (batch, units)
            shapes.update({n: (0, 0) for n in states if found.shape(variables[n]) is None})
            found = infer(self.symbol, shapes, types, partial=True)
        for name in states:
            shape = found.shape(variables[name])
            if shape and not shape[0]:
                shape = (1, *shape[1:])  # the batch; sizes above 1 are told by the other inputs
            if shape is None or not all(shape):
                raise InputError(
                    "the begin state is not given, and its size cannot be told",
                    where=f"{self.source}: input {name!r}",
                    got=shape,
                    next=f"feed it: run(..., {name}=np.zeros(...))",
                )
            if name not in self._told:
                self._told.add(name)
                log.info("begin state %s is not given: zeros of shape %s", name, shape)
            feeds[name] = np.zeros(shape, found.dtype(variables[name]) or np.float32)
        return {n: feeds[n] for n in self.input_names}

    # -- running ---------------------------------------------------------------------------------------------------

    def compile(
        self,
        engine: str = DEFAULT_ENGINE,
        *,
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        dynamic: bool = False,
        threads: int | None = None,
        hint: str = "latency",
        streams: int | None = None,
        precision: str = "f32",
        cache_dir: str | None = None,
        cache_size: int = 8,
        profile: bool = False,
        split: bool = True,
        int8: Live | None = None,
    ) -> Compiled:
        """Bind the model to an engine.

        Args:
            engine: ``openvino`` or ``onnxruntime``; see ``requant doctor`` for what is installed.
            shapes: compile for these input shapes at once (None: an open dimension). Otherwise the first call does.
            dynamic: one session for all shapes, instead of one per shape (fastest) of which ``cache_size`` are kept.
            threads: CPU threads; None leaves it to the engine.
            hint: ``latency`` (one request at a time) or ``throughput`` (many).
            streams: how many requests run in parallel; None leaves it to the engine.
            precision: arithmetic of float layers: ``f32``, ``bf16`` or ``f16``.
            split: let a large batch run as several small ones side by side where samples do not depend on each other
                and that is faster.
            cache_dir: keep compiled models there, so that the next start is faster.
            int8: serve in float at first, calibrate on what is asked, and become INT8 meanwhile; see ``Live``.
        Raises:
            EngineError: the engine is unknown, not installed, or refuses the graph. There is no silent switch.
            InputError: ``shapes`` or ``int8`` is something else.
        """
        _check_shapes(shapes)
        options = EngineOptions(
            threads=threads,
            hint=hint,  # type: ignore[arg-type]
            streams=streams,
            precision=precision,  # type: ignore[arg-type]
            cache_dir=cache_dir,
            profile=profile,
            split=split,
        )
        compiled: Compiled
        if int8 is None:
            compiled = Compiled(self, engine, options, dynamic=dynamic, cache_size=cache_size)
        else:
            from requant.pipeline.live import (
                Live,
                LiveCompiled,
            )  # deferred: who runs a float model needs no calibrators

            if not isinstance(int8, Live):
                raise InputError(
                    "not a way to become INT8",
                    where="compile: int8",
                    got=repr(int8)[:80],
                    expected="a Live",
                    next="int8=Live(iters=32); or requant.quantize(model, data) gives an INT8 model at once",
                )

            compiled = LiveCompiled(self, engine, options, dynamic=dynamic, cache_size=cache_size, live=int8)
        if shapes is not None:
            compiled.prepare(shapes)
        return compiled

    def run(self, data: Data | None = None, /, engine: str = DEFAULT_ENGINE, **named: Any) -> list[np.ndarray]:
        """Run once: ``model.run(x)``, ``model.run({"data": x})`` or ``model.run(data=x)``.

        Returns:
            The outputs, in order.
        """
        with self._lock:
            if engine not in self._compiled:
                self._compiled[engine] = self.compile(engine)
        return self._compiled[engine].run(data, **named)

    __call__ = run

    def predict(self, batches: Iterable[Data], engine: str = DEFAULT_ENGINE) -> Iterator[list[np.ndarray]]:
        """Outputs of each batch, in order, with many requests under way at once."""
        return self.compile(engine, hint="throughput").stream(batches)

    # -- saving ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str], epoch: int = 0) -> list[str]:
        """Write the model: ``x.onnx``, or with any other name a prefix for MXNet files.

        Returns:
            The files written.
        Raises:
            FormatError: an ONNX model cannot be written as MXNet files.
            InputError: nothing can be written under that name, or it is that of another kind of file.
        """
        name = os.fspath(path)
        check_model(name)
        if name.endswith(".onnx"):
            onnx_file.write(self.onnx, name)
            return [name]
        if self.symbol is None:
            raise FormatError(
                "a model that came from ONNX cannot be written as MXNet files",
                where=name,
                next="give a name that ends in .onnx",
            )
        files = [f"{name}-symbol.json", f"{name}-{epoch:04d}.params"]
        symbol_file.save(self.symbol, files[0])
        aux = set(self.symbol.list_auxiliary_states())
        write_params(files[1], {f"{'aux' if n in aux else 'arg'}:{n}": p for n, p in self.params.items()})
        return files

    def __reduce__(self) -> NoReturn:
        raise _not_pickled(self)

    def __repr__(self) -> str:
        return f"<requant.Model {self.source}: {', '.join(self.input_names)} -> {', '.join(self.output_names)}>"


class Compiled:
    """A model on an engine. Safe to share between threads.

    Sessions are made for each input signature (names, shapes, dtypes) that comes, and the latest are kept.
    """

    def __init__(self, model: Model, engine: str, options: EngineOptions, *, dynamic: bool, cache_size: int) -> None:
        self.model, self.options, self.dynamic = model, options, dynamic
        self._engine = engines.get(engine)
        self._cache: SessionCache[Session] = SessionCache(cache_size)
        self._last: Session | None = None
        #: shapes and session of the latest call, which most often are those of the next
        self._latest: tuple[tuple[Any, ...], Session] | None = None
        self._names = tuple(model.input_names)

    @property
    def engine(self) -> str:
        return self._engine.name

    def prepare(self, shapes: Mapping[str, Sequence[int | None]]) -> Session:
        """Build the session for these shapes now, instead of at the first call."""
        fixed = {n: tuple(s) for n, s in shapes.items()}
        if any(d is None for s in fixed.values() for d in s):
            self.dynamic = True
            return self._cache.get((), lambda: self._load(self.model.onnx, fixed))
        return self._session({n: tuple(int(d or 0) for d in s) for n, s in fixed.items()})

    def _session(self, shapes: Mapping[str, tuple[int, ...]]) -> Session:
        if self.dynamic:
            return self._cache.get((), lambda: self._load(self.model.onnx_for(shapes), None))
        key, latest = tuple(shapes.items()), self._latest
        if latest is not None and latest[0] == key:
            return latest[1]

        def build() -> Session:
            return self._load(self.model.onnx_for(shapes), dict(shapes))

        session = self._cache.get(key, build)
        self._latest = key, session
        return session

    def _load(self, onnx: ir.Model, shapes: Mapping[str, tuple[int | None, ...]] | None) -> Session:
        return self._engine.load(complete(onnx, self._engine.scheme), self.options, shapes)

    def _feeds(self, data: Data | None, named: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if data is None:
            return self.model.feeds(named)
        return self.model.feeds(data, named)

    def _ready(self, data: Data | None, named: Mapping[str, Any]) -> tuple[Session, dict[str, np.ndarray]]:
        if isinstance(data, np.ndarray) and len(self._names) == 1 and not named:
            feeds = {self._names[0]: data}
        else:
            feeds = self._feeds(data, named)
        session = self._session({n: a.shape for n, a in feeds.items()})
        self._last = session  # for profile() alone: another thread may set its own at any moment
        return session, feeds

    def run(self, data: Data | None = None, /, **named: Any) -> list[np.ndarray]:
        """Run once. Returns the outputs, in order.

        Raises:
            InputError: names, dtypes or ranks do not fit; the message lists the true inputs.
        """
        session, feeds = self._ready(data, named)
        return session.run(feeds)

    __call__ = run

    def submit(self, data: Data | None = None, /, **named: Any) -> Future[list[np.ndarray]]:
        """Start a run and return at once."""
        session, feeds = self._ready(data, named)
        return session.submit(feeds)

    def stream(self, batches: Iterable[Data]) -> Iterator[list[np.ndarray]]:
        """Outputs of each batch, in order. Batches of equal shape run many at a time."""
        pending: list[dict[str, np.ndarray]] = []
        source = iter(batches)
        done = False
        while not done:
            session: Session | None = None

            def same_shape() -> Iterator[dict[str, np.ndarray]]:
                nonlocal session, done
                while True:
                    feeds = pending.pop() if pending else self._next(source)
                    if feeds is None:
                        done = True
                        return
                    found = self._session({n: a.shape for n, a in feeds.items()})
                    if session is not None and found is not session:
                        pending.append(feeds)
                        return
                    session = found
                    yield feeds

            group = same_shape()
            first = next(group, None)
            if first is None or session is None:
                continue
            yield from session.stream(_chain(first, group))

    def _next(self, source: Iterator[Data]) -> dict[str, np.ndarray] | None:
        for batch in source:
            return self._feeds(batch, {})
        return None

    def profile(self) -> list[LayerProfile]:
        """What the engine really executed, layer by layer, for the session used last. Needs ``profile=True``."""
        if self._last is None:
            raise InputError("nothing has run yet", where=repr(self.model), next="call run() first")
        return self._last.profile()

    def close(self) -> None:
        """Free the engine's memory."""
        self._latest = None
        self._cache.clear()

    def __reduce__(self) -> NoReturn:
        raise _not_pickled(self)

    def __repr__(self) -> str:
        return f"<requant.Compiled {self.model.source} on {self.engine}>"


def _not_pickled(what: object) -> UnsupportedError:
    return UnsupportedError(
        "a model cannot be pickled: it holds locks, and an engine's memory",
        where=repr(what),
        next="give other processes the file's name, and call requant.load there",
    )


def _check_shapes(shapes: object) -> None:
    """Raise InputError for shapes that are not sizes by input name."""
    if shapes is None:
        return
    if isinstance(shapes, Mapping):
        sizes = [s for s in shapes.values() if not isinstance(s, Sequence) or isinstance(s, str)]
        if not sizes:
            return
    raise InputError(
        "not shapes of inputs",
        where="compile: shapes",
        got=repr(shapes)[:80],
        expected="sizes by input name",
        next="shapes={'data': (1, 3, 224, 224)}",
    )


def _as_array(value: Any, where: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as fault:  # rows of several lengths
        raise InputError("not an array", where=where, got=str(fault).split("\n")[0], expected="a numpy array") from None


def _chain(first: dict[str, np.ndarray], rest: Iterator[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    yield first
    yield from rest


def _spec(value: ir.Value) -> TensorSpec:
    dtype = np.dtype(np.float32) if value.dtype is None else np.dtype(value.dtype.numpy())
    shape = () if value.shape is None else tuple(d if isinstance(d, int) else d.value for d in value.shape)
    return TensorSpec(str(value.name), dtype, shape)


def load(
    path: str | os.PathLike[str],
    params: str | os.PathLike[str] | None = None,
    *,
    epoch: int | None = None,
    shapes: Mapping[str, Dims] | None = None,
    dtypes: Mapping[str, object] | None = None,
    exact: bool = False,
) -> Model:
    """Load a model from files.

    Args:
        path: an MXNet symbol JSON (``net-symbol.json``), a prefix (``net``), an ``.onnx`` or ``.tflite`` file, a folder
            with one model, or a SageMaker ``model.tar.gz``.
        params: the ``.params`` file, where it does not follow from the name.
        epoch: which ``net-%04d.params``; the highest if not given.
        shapes: dimensions of inputs, for files that do not say them; a string or None leaves a dimension open.
        dtypes: dtypes of inputs; float32 otherwise.
        exact: MXNet's quantized operators compute its integers to the bit, with its own roundings and 32-bit sums; on
            OpenVINO by int8 kernels, on ONNX Runtime slowly. Otherwise they become quantizers around float operators,
            whose int8 kernels may round to another step.

    Losses that need labels are cut off; what they were computed from becomes the outputs where nothing else is left.
    ``Model.cut`` and ``Model.cut_outputs`` say what. A label that ``shapes`` or ``dtypes`` name is kept as an input.

    Raises:
        FileNotFoundError, FormatError: nothing there, or not a model. GraphError, UnknownOperatorError: the symbol.
        ParameterError: a parameter is missing; the message names it and the closest one in the file.
    """
    with archive.locate(path, params, epoch) as files:
        if files.kind == "onnx":
            return Model.from_onnx(onnx_file.read(files.symbol, shapes), source=os.fspath(path))
        if files.kind == "tflite":
            return Model.from_onnx(tflite.to_onnx(tflite.read(files.symbol)), source=os.fspath(path))
        symbol = symbol_file.load(files.symbol)
        values: dict[str, np.ndarray] = {}
        if files.params is not None:
            values = parameters(files.params, symbol)
        wanted = for_inference(symbol, values, keep={*(shapes or {}), *(dtypes or {})})
        model = Model.from_symbol(
            wanted.symbol,
            values,
            shapes=shapes,
            dtypes={n: as_dtype(t) for n, t in (dtypes or {}).items()},
            source=os.fspath(path),
            exact=exact,
        )
        model._note(wanted)
        return model


def parameters(path: str | os.PathLike[str], symbol: Symbol) -> dict[str, np.ndarray]:
    """Parameter values by variable name, from a ``.params`` file of any age and key style.

    Raises:
        FormatError: not a parameter file, or one without names.
        ParameterError: its names are structural (``features.0.weight``) and say nothing of this symbol.
    """
    found = read_params(path)
    if not found:
        return {}  # a network without parameters
    if not isinstance(found, dict):
        raise FormatError(
            "the file holds arrays without names",
            where=os.fspath(path),
            expected="named parameters",
            next="save a dict of arrays, or use requant.mx.nd.load for a plain list",
        )
    args, aux, bare = split_arg_aux(found)
    merged = {**bare, **args, **aux}
    dense = {n: _dense(v, f"{os.fspath(path)}: {n}") for n, v in merged.items() if v is not None}
    variables = set(symbol.list_inputs())
    if dense and not variables & set(dense):
        some = ", ".join(list(dense)[:3])
        structural = any("." in n for n in dense)
        raise ParameterError(
            "none of the parameters belongs to this symbol",
            where=os.fspath(path),
            got=f"names such as {some}",
            expected="names such as " + ", ".join(symbol.list_arguments()[1:4]),
            next="these are structural names, written by Block.save_parameters: load them into the Gluon block and "
            "export it, or use the .params file that export() wrote beside the symbol"
            if structural
            else "check that the symbol and the parameters belong together",
        )
    return dense


def _dense(value: Any, where: str) -> np.ndarray:
    if isinstance(value, (RowSparse, Csr)):
        return value.to_dense()
    return np.asarray(value)
