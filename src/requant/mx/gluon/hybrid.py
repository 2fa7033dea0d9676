"""``HybridBlock``: a block written once for arrays and symbols, compiled as a whole when hybridized."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from requant.errors import InputError, RequantError, ShapeError
from requant.formats.params import write_params
from requant.mx import autograd, ndarray, symbol
from requant.mx import backend as backends
from requant.mx.gluon.block_base import Block, Hook
from requant.mx.gluon.parameter import DeferredInitializationError, Parameter
from requant.mx.gluon.parameter_dict import ParameterDict
from requant.mx.gluon.structure import Form, flatten, regroup
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.ndarray.saving import unwrap
from requant.mx.running import Runner
from requant.mx.symbol.create import Group, var
from requant.mx.symbol.symbol import Symbol
from requant.pipeline import LiveCompiled
from requant.symbol import infer, tree


@dataclass
class Graph:
    """A block traced with symbols for one structure of inputs.

    Attributes:
        inputs: names of its inputs, in the order of the flat arguments; None where an argument is None.
        symbol: what it computes.
        form: the structure of its outputs.
    """

    inputs: list[str | None]
    symbol: Symbol
    form: Form
    parameters: dict[str, Parameter] = field(default_factory=dict)
    runner: Runner | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fill_shapes(self, flat: list[Any]) -> None:
        """Tell parameters of unknown shape theirs, from the shapes of the inputs."""
        unknown = {n: p for n, p in self.parameters.items() if p._data is None}
        if not unknown:
            return
        known = set(self.symbol.list_inputs())
        shapes = {n: a.shape for n, a in zip(self.inputs, flat) if n in known}
        shapes.update({n: p.shape for n, p in self.parameters.items() if p.shape and all(p.shape)})
        dtypes = {n: a._data.dtype for n, a in zip(self.inputs, flat) if n in known}
        found = infer.infer(self.symbol, shapes, dtypes, partial=True)
        for node in self.symbol.variables():
            dims = found.shape(node)
            if node.name in unknown and dims is not None:
                unknown[node.name].shape = dims

    def values(self) -> dict[str, NDArray]:
        """Values of the parameters, by name."""
        return {n: p.data() for n, p in self.parameters.items()}


class HybridBlock(Block):
    """Base of blocks that write ``hybrid_forward(self, F, x, ...)``, with F either ``mx.nd`` or ``mx.sym``.

    Not hybridized, each operator runs at once. Hybridized, the block is traced once per structure of its inputs,
    lowered as a whole, and runs on the default engine.
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix, params)
        self._active = False
        self._flags: dict[str, Any] = {}
        self._graphs: dict[Any, Graph] = {}
        self._exported: Graph | None = None
        self._backend: backends.Backend | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, HybridBlock) and "_graphs" in self.__dict__:
            self._clear()

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Add a child, which must be a hybrid block, too.

        Raises:
            ValueError: it is not.
        """
        if not isinstance(block, HybridBlock):
            raise ValueError(
                f"children of a HybridBlock must be HybridBlocks, but {block!r} is a {type(block).__name__}: "
                "make it one, or derive from Block instead"
            )
        super().register_child(block, name)
        if "_graphs" in self.__dict__:
            self._clear()

    # -- tracing ---------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._graphs = {}
        self._exported = None

    def hybridize(self, active: bool = True, backend: str | None = None, clear: bool = True, **kwargs: Any) -> None:
        """Run as one compiled network from now on (``static_alloc`` and the like are accepted: it always is).

        Args:
            active: False goes back to one operator after the other.
            backend: what runs it, see ``optimize_for``; the default engine if not given.
            kwargs: with a backend, its options too.
        Raises:
            InputError: an unknown backend or option; the message lists those that exist.
        """
        chosen = None if backend is None else backends.backend(backend, kwargs)
        self._active = active
        self._flags = {k: v for k, v in kwargs.items() if chosen is None or k in backends.FLAGS}
        if clear or chosen != self._backend:
            self._clear()
        self._backend = chosen
        super().hybridize(active, **self._flags)

    def cast(self, dtype: object) -> None:
        """Change the type of all parameters; give inputs of that type then."""
        self._clear()
        super().cast(dtype)

    def optimize_for(self, x: Any, *args: Any, backend: str | None = None, clear: bool = False, **kwargs: Any) -> None:
        """Hybridize for a backend and compile for these inputs, without running them.

        With ``int8_mode=True`` and ``calibration_iters=N`` the block answers in float, calibrates on its first N
        batches, and then becomes INT8; ``live_model`` tells how far it is.

        Args:
            x, args: inputs, as for a call; only their shapes and types matter.
            backend: ``OpenVINO``, ``ONNXRuntime``, ``TensorRT``, ``MKLDNN`` or ``ONEDNN``.
            clear: accepted; the block is traced anew anyway.
            kwargs: options by name, or in a dict as ``backend_opts``; see ``requant.mx.backend.backend``.
        Raises:
            InputError: no backend, or an unknown one, or an unknown option; the message lists those that exist.
            EngineError: the backend's engine is not installed, or refuses the network.
        """
        if backend is None:
            raise InputError("optimize_for needs a backend", where=self.name, expected=", ".join(backends.BACKENDS))
        HybridBlock.hybridize(self, True, backend, True, **kwargs)
        graph, flat = self._graph((x, *args))
        runner = graph.runner or self._prepare(graph, flat, (x, *args))
        inputs = {n: v for n, v in zip(graph.inputs, flat) if n is not None}
        runner.prepare({**graph.values(), **inputs})

    @property
    def live_model(self) -> LiveCompiled | None:
        """The model that becomes INT8 while it runs, with its ``state``, ``wait`` and ``report``.

        None if the block was not optimized for INT8, or has not run yet.
        """
        found = [g.runner.live_model for g in self._graphs.values() if g.runner is not None]
        return next((f for f in found if f is not None), None)

    def _trace(self, form: Form, flat: list[Any]) -> Graph:
        names: list[str | None]
        names = ["data"] if len(flat) == 1 else [f"data{i}" for i in range(len(flat))]
        names = [None if v is None else n for n, v in zip(names, flat)]
        made = [None if n is None else var(n) for n in names]
        out = self._symbolic(regroup(made, form))
        outs, out_form = flatten(out, self.name)
        whole = Group([o for o in outs if o is not None])
        used = set(whole.list_inputs())
        parameters = {n: p for n, p in self.collect_params().items() if n in used}
        graph = Graph(names, whole, out_form, parameters)
        missing = used - set(parameters) - {n for n in names if n is not None}
        labels = {n.name for n in whole.variables() if n.name in missing}
        if labels:
            graph.parameters.update({p.name: p for p in self._foreign(labels)})
        return graph

    def _foreign(self, names: set[str]) -> list[Parameter]:
        """Parameters of those names that blocks below hold without listing them under their prefix."""
        found: dict[str, Parameter] = {}

        def look(block: Block) -> None:
            for parameter in block._reg_params.values():
                if parameter.name in names:
                    found.setdefault(parameter.name, parameter)

        self.apply(look)
        return list(found.values())

    def _symbolic(self, args: list[Any]) -> Any:
        with self.name_scope():
            parameters = {n: p.var() for n, p in self._reg_params.items()}
            return self.hybrid_forward(symbol, *args, **parameters)

    def _graph(self, args: tuple[Any, ...]) -> tuple[Graph, list[Any]]:
        flat: list[Any]
        if len(args) == 1 and isinstance(args[0], NDArray):
            flat, form = [args[0]], (0,)
        else:
            flat, form = flatten(args, self.name)
        found = self._graphs.get(form)
        if found is None:
            found = self._graphs[form] = self._trace(form, flat)
        return found, flat

    def infer_shape(self, *args: Any) -> None:
        """Tell parameters their shapes, from inputs.

        Raises:
            ShapeError: they cannot be told from these inputs.
        """
        graph, flat = self._graph(args)
        graph.fill_shapes(flat)

    def infer_type(self, *args: Any) -> None:
        """Tell parameters their dtype: that of the first input."""
        flat, _ = flatten(args, self.name)
        for parameter in self.collect_params().values():
            parameter.cast(flat[0].dtype)

    def _finish(self, args: tuple[Any, ...]) -> None:
        """Give values to parameters that waited for their shape."""
        try:
            self.infer_shape(*args)
        except RequantError as fault:
            raise ShapeError(
                "the shapes of parameters cannot be told from these inputs",
                where=self.name,
                got=str(fault),
                next="give in_units, in_channels and the like when the layers are made",
            ) from fault
        for parameter in self.collect_params().values():
            parameter.finish_deferred_init()

    # -- computing -------------------------------------------------------------------------------------------------

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Run on arrays, or compose with symbols."""
        first = x if isinstance(x, (NDArray, tree.Symbol)) else _first([x, *args])
        if isinstance(first, tree.Symbol):
            return self._symbolic_call(x, *args, **kwargs)
        if first is None:
            raise InputError(
                "an input must be an NDArray", where=self.name, got=type(x).__name__, next="mx.nd.array(x)"
            )
        if self._active and not kwargs and not autograd.is_training():
            return self._compiled_call((x, *args))
        try:
            parameters = {n: p.data() for n, p in self._reg_params.items()}
        except DeferredInitializationError:
            if kwargs:
                self._finish((x, *args, *kwargs.values()))
            else:
                self._finish((x, *args))
            parameters = {n: p.data() for n, p in self._reg_params.items()}
        return self.hybrid_forward(ndarray, x, *args, **kwargs, **parameters)

    def _symbolic_call(self, *args: Any, **kwargs: Any) -> Any:
        with self.name_scope():
            parameters = {n: p.var() for n, p in self._reg_params.items()}
            return self.hybrid_forward(symbol, *args, **kwargs, **parameters)

    def _compiled_call(self, args: tuple[Any, ...]) -> Any:
        graph, flat = self._graph(args)
        runner = graph.runner
        if runner is None:
            runner = self._prepare(graph, flat, args)
        first = next((v for v in flat if v is not None), None)
        ctx = first.context if first is not None else None
        inputs = {n: v for n, v in zip(graph.inputs, flat) if n is not None}
        outs = [NDArray(o, ctx) for o in runner.call(inputs, graph.values)]
        if graph.form == 0:
            return outs[0]
        return regroup(outs, graph.form)

    def _prepare(self, graph: Graph, flat: list[Any], args: tuple[Any, ...]) -> Runner:
        with graph.lock:
            if graph.runner is None:
                try:
                    for parameter in graph.parameters.values():
                        parameter.data()
                except DeferredInitializationError:
                    self._finish(args)
                names = [n for n in graph.inputs if n is not None]
                graph.runner = Runner(graph.symbol, names, self.name, self._backend)
                self._exported = graph
            return graph.runner

    def hybrid_forward(self, F: Any, *args: Any, **kwargs: Any) -> Any:
        """What the block computes; subclasses write it. F is ``mx.nd`` or ``mx.sym``."""
        raise NotImplementedError(f"{type(self).__name__} has no hybrid_forward")

    # -- files -----------------------------------------------------------------------------------------------------

    def export(self, path: str | os.PathLike[str], epoch: int = 0, remove_amp_cast: bool = True) -> tuple[str, str]:
        """Write ``<path>-symbol.json`` and ``<path>-<epoch>.params``, which MXNet and ``requant.load`` read.

        Returns:
            The two names.
        Raises:
            InputError: the block was not hybridized and run, so that its inputs are not known.
        """
        graph = self._exported or (next(iter(self._graphs.values())) if self._graphs else None)
        if graph is None:
            raise InputError(
                "the inputs of the block are not known yet",
                where=self.name,
                next="call hybridize(), run the block once, then export it",
            )
        files = f"{os.fspath(path)}-symbol.json", f"{os.fspath(path)}-{epoch:04d}.params"
        graph.symbol.save(files[0], remove_amp_cast=remove_amp_cast)
        aux = set(graph.symbol.list_auxiliary_states())
        arrays = {f"{'aux' if n in aux else 'arg'}:{n}": unwrap(p.data()) for n, p in graph.parameters.items()}
        write_params(files[1], arrays)
        return files

    def register_op_hook(self, callback: Callable[[str, str, Any], None], monitor_all: bool = False) -> None:
        """See ``Block.register_op_hook``."""
        super().register_op_hook(callback, monitor_all)

    def register_forward_hook(self, hook: Hook) -> Any:
        """Call ``hook(block, inputs, outputs)`` after each forward; inside a compiled network hooks see symbols."""
        return super().register_forward_hook(hook)


def _first(value: Any) -> Any:
    """The first array or symbol of nested arguments."""
    if isinstance(value, (NDArray, tree.Symbol)):
        return value
    if isinstance(value, (list, tuple)):
        return next((f for v in value if (f := _first(v)) is not None), None)
    return None
