"""A loaded network: its graph, its inputs and outputs; compile, run, save."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.tensors import TensorSpec, dims, true_inputs
from requant.errors import FormatError, InputError, RequantError, ShapeError
from requant.formats import onnx_file, symbol_file
from requant.formats.params import write_params
from requant.formats.target import check_epoch, check_model, model_files
from requant.lower import Dims, Lowered, free_inputs, missing_parameters, needed_nodes, to_onnx
from requant.ops.emit import NeedsShape
from requant.pipeline.compiled import Compiled, not_pickled
from requant.pipeline.feeds import Data, Feeds, begin_states, by_name
from requant.pipeline.given import check_engine, check_kind, check_sizes
from requant.symbol.training import Cut, Inference, state_variables
from requant.symbol.tree import Symbol

if TYPE_CHECKING:
    from requant.pipeline.live import Live

log = logging.getLogger(__name__)


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
            InputError: it is no symbol.
        """
        check_kind(symbol, Symbol, "from_symbol", "a path or prefix goes to requant.load")
        if params:
            missing_parameters(symbol, params, [*(shapes or {}), *(dtypes or {})], source)
        return cls(symbol=symbol, params=params, shapes=shapes, dtypes=dtypes, source=source, exact=exact)

    @classmethod
    def from_onnx(cls, model: ir.Model, *, source: str = "onnx model") -> Model:
        """A model from an ONNX graph.

        Raises:
            InputError: it is something else, such as a path or a protobuf message.
        """
        check_kind(model, ir.Model, "from_onnx", "a path goes to requant.load, a message through onnx_ir.from_proto")
        return cls(onnx=model, source=source)

    def note_cut(self, found: Inference) -> None:
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
        return tuple(_spec(v) for v in true_inputs(self.onnx))

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

    def feeds(self, data: Data, extra: Feeds | None = None) -> dict[str, np.ndarray]:
        """Arrays by input name.

        Raises:
            InputError: a name is wrong or missing; the message lists the true inputs.
        """
        names = self.input_names
        feeds = by_name(data, extra, names, self.state_names, self.source)
        absent = [n for n in names if n not in feeds]
        if not absent:
            return feeds
        assert self.symbol is not None  # else it has no states
        zeros = begin_states(self.symbol, {**self.params, **feeds}, absent, self.source)
        for name, array in zeros.items():
            if name not in self._told:
                self._told.add(name)
                log.info("begin state %s is not given: zeros of shape %s", name, array.shape)
        return {n: zeros[n] if n in zeros else feeds[n] for n in names}

    # -- running ---------------------------------------------------------------------------------------------------

    def compile(
        self,
        engine: str = engines.DEFAULT,
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
        check_sizes(shapes, "compile: shapes", named=False)
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

    def run(self, data: Data | None = None, /, engine: str = engines.DEFAULT, **named: Any) -> list[np.ndarray]:
        """Run once: ``model.run(x)``, ``model.run({"data": x})`` or ``model.run(data=x)``.

        Returns:
            The outputs, in order.
        Raises:
            InputError: a second array stands in the place of the engine's name.
        """
        check_engine(engine, f"{self.source}: run")
        with self._lock:
            if engine not in self._compiled:
                self._compiled[engine] = self.compile(engine)
        return self._compiled[engine].run(data, **named)

    __call__ = run

    def predict(self, batches: Iterable[Data], engine: str = engines.DEFAULT) -> Iterator[list[np.ndarray]]:
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
        check_model(path)
        check_epoch(epoch, "save", "leave it out for 0")
        name = os.fspath(path)
        if name.endswith(".onnx"):
            onnx_file.write(self.onnx, name)
            return [name]
        if self.symbol is None:
            raise FormatError(
                "a model that came from ONNX cannot be written as MXNet files",
                where=name,
                next="give a name that ends in .onnx",
            )
        files = model_files(name, epoch)
        symbol_file.save(self.symbol, files[0])
        aux = set(self.symbol.list_auxiliary_states())
        write_params(files[1], {f"{'aux' if n in aux else 'arg'}:{n}": p for n, p in self.params.items()})
        return files

    def __reduce__(self) -> NoReturn:
        raise not_pickled(self)

    def __repr__(self) -> str:
        return f"<requant.Model {self.source}: {', '.join(self.input_names)} -> {', '.join(self.output_names)}>"


def _spec(value: ir.Value) -> TensorSpec:
    dtype = np.dtype(np.float32) if value.dtype is None else np.dtype(value.dtype.numpy())
    return TensorSpec(str(value.name), dtype, dims(value) or ())
