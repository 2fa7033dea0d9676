"""``Executor``: a symbol bound to arrays, run forward on the default engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from requant.dtypes import as_dtype
from requant.errors import InputError, ParameterError, ShapeError, UnsupportedError, nearest
from requant.mx.context import Context, checked
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.running import Runner
from requant.mx.symbol.optimized import OptimizedSymbol
from requant.mx.symbol.symbol import Symbol
from requant.pipeline import LiveCompiled
from requant.symbol import infer

Arrays = Mapping[str, NDArray] | Sequence[NDArray]
Monitor = Callable[[str, NDArray], None]


class Executor:
    """A symbol and the arrays that its variables read. Made by ``Symbol.bind`` and ``Symbol.simple_bind``.

    Labels that matter in training alone need no arrays.

    Attributes:
        arg_dict, aux_dict: the arrays by name; write into them (``[:] =``) to change them.
        grad_dict: empty, as gradients are not computed.
    """

    def __init__(
        self, symbol: Symbol, args: dict[str, NDArray], aux: dict[str, NDArray], ctx: Context, runner: Runner | None
    ) -> None:
        self._symbol, self._ctx = symbol, ctx
        self.arg_dict, self.aux_dict = args, aux
        self.grad_dict: dict[str, NDArray] = {}
        self._runner = _runner(symbol) if runner is None else runner
        self._outputs: list[NDArray] | None = None
        self._monitor: Monitor | None = None
        self._monitor_all = False
        self._watcher: Runner | None = None

    @classmethod
    def bind(cls, symbol: Symbol, args: Arrays, aux: Arrays | None, ctx: Context | None) -> Executor:
        """See ``Symbol.bind``."""
        runner = _runner(symbol)
        named = [
            _named(symbol.list_arguments(), args, runner, "argument"),
            _named(symbol.list_auxiliary_states(), aux if aux is not None else {}, runner, "auxiliary state"),
        ]
        return cls(symbol, named[0], named[1], checked(ctx), runner)

    @classmethod
    def simple_bind(
        cls,
        symbol: Symbol,
        ctx: Context | None,
        dtypes: Mapping[str, object] | None,
        shapes: Mapping[str, Sequence[int]],
    ) -> Executor:
        """See ``Symbol.simple_bind``."""
        known = {n: tuple(int(d) for d in s) for n, s in shapes.items()}
        types = {n: as_dtype(t) for n, t in (dtypes or {}).items()}
        arg_shapes, _, aux_shapes = infer.infer_shape(symbol, known)
        arg_types, _, aux_types = infer.infer_type(symbol, types)
        context = checked(ctx)

        def make(names: list[str], dims: list[Any], kinds: list[Any]) -> dict[str, NDArray]:
            return {n: NDArray(np.zeros(s, t), context) for n, s, t in zip(names, dims, kinds)}

        args = make(symbol.list_arguments(), arg_shapes, arg_types)
        aux = make(symbol.list_auxiliary_states(), aux_shapes, aux_types)
        return cls(symbol, args, aux, context, None)

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def arg_arrays(self) -> list[NDArray]:
        return list(self.arg_dict.values())

    @property
    def aux_arrays(self) -> list[NDArray]:
        return list(self.aux_dict.values())

    @property
    def grad_arrays(self) -> list[None]:
        return [None] * len(self.arg_dict)

    @property
    def outputs(self) -> list[NDArray]:
        """The outputs of the last run; zeros before the first."""
        if self._outputs is None:
            shapes = {n: a.shape for n, a in (*self.arg_dict.items(), *self.aux_dict.items())}
            found = infer.infer_shape(self._symbol, shapes, partial=True)[1]
            self._outputs = [NDArray(np.zeros(s or (), np.float32), self._ctx) for s in found]
        return self._outputs

    @property
    def output_dict(self) -> dict[str, NDArray]:
        return dict(zip(self._symbol.list_outputs(), self.outputs))

    @property
    def live_model(self) -> LiveCompiled | None:
        """The model that becomes INT8 while it runs, with its ``state``, ``wait`` and ``report``.

        None if the symbol was not optimized for INT8 (``Symbol.optimize_for``), or has not run yet.
        """
        return self._runner.live_model

    def get_optimized_symbol(self) -> Symbol:
        """The symbol itself: engines optimize their own form of it."""
        return self._symbol

    def debug_str(self) -> str:
        """The nodes as text."""
        return self._symbol.debug_str()

    # -- running ---------------------------------------------------------------------------------------------------

    def forward(self, is_train: bool = False, **kwargs: Any) -> list[NDArray]:
        """Run once.

        Args:
            is_train: must be False.
            kwargs: new values of arguments by name (NDArray or numpy); they are copied into ``arg_dict``.
        Raises:
            UnsupportedError: ``is_train``. InputError: no argument of that name. ShapeError: not the bound shape.
        """
        if is_train:
            raise UnsupportedError(
                "requant runs and quantizes trained models; it does not train", next="forward(is_train=False)"
            )
        for name, value in kwargs.items():
            if name not in self.arg_dict:
                raise InputError("no argument of that name", got=name, next=nearest(name, self.arg_dict))
            target = self.arg_dict[name]
            if tuple(value.shape) != target.shape:
                raise ShapeError(
                    "the shape is not the one that was bound",
                    where=f"argument {name!r}",
                    got=tuple(value.shape),
                    expected=target.shape,
                    next="executor.reshape(...) gives an executor for other shapes",
                )
            target[:] = value
        self._runner.feed(*kwargs)
        arrays = {**self.arg_dict, **self.aux_dict}
        if self._monitor is not None:
            self._watch(arrays)
        self._outputs = [NDArray(o, self._ctx) for o in self._runner.run(arrays)]
        return self._outputs

    def backward(self, out_grads: object = None, is_train: bool = True) -> None:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError("requant runs and quantizes trained models; it does not compute gradients")

    def copy_params_from(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray] | None = None,
        allow_extra_params: bool = False,
    ) -> None:
        """Copy values into the arguments and auxiliary states of the same names.

        Raises:
            ParameterError: a name that the symbol does not have, unless ``allow_extra_params``.
            ShapeError: a shape differs.
        """
        for values, targets in ((arg_params, self.arg_dict), (aux_params or {}, self.aux_dict)):
            for name, value in values.items():
                if name in targets:
                    if value.shape != targets[name].shape:
                        raise ShapeError(
                            "the shape differs",
                            where=f"parameter {name!r}",
                            got=value.shape,
                            expected=targets[name].shape,
                        )
                    targets[name][:] = value
                elif not allow_extra_params:
                    raise ParameterError("no parameter of that name", got=name, next=nearest(name, targets))

    def reshape(
        self, partial_shaping: bool = False, allow_up_sizing: bool = False, **kwargs: Sequence[int]
    ) -> Executor:
        """An executor for other input shapes. Arrays whose shape stays are shared, so parameters are.

        Raises:
            ShapeError: shapes contradict each other.
        """
        arg_shapes, _, aux_shapes = self._symbol.infer_shape_partial(**kwargs)

        def adapt(old: dict[str, NDArray], names: list[str], shapes: list[Any]) -> dict[str, NDArray]:
            wanted = {n: s for n, s in zip(names, shapes) if s and all(s)}
            return {
                n: a if wanted.get(n, a.shape) == a.shape else NDArray(np.zeros(wanted[n], a.dtype), self._ctx)
                for n, a in old.items()
            }

        args = adapt(self.arg_dict, self._symbol.list_arguments(), arg_shapes)
        aux = adapt(self.aux_dict, self._symbol.list_auxiliary_states(), aux_shapes)
        made = Executor(self._symbol, args, aux, self._ctx, self._runner)
        made._runner.feed(*kwargs)
        made._monitor, made._monitor_all = self._monitor, self._monitor_all
        return made

    # -- watching --------------------------------------------------------------------------------------------------

    def set_monitor_callback(self, callback: Monitor | None, monitor_all: bool = False) -> None:
        """Call ``callback(name, array)`` for the outputs of all operators at every run (None: no more).

        Args:
            monitor_all: also for their inputs, named ``<node>_<input>`` (``fc_data``), and for variables.
        """
        self._monitor, self._monitor_all = callback, monitor_all

    def _watch(self, arrays: Mapping[str, NDArray]) -> None:
        assert self._monitor is not None
        nodes = [n for n in self._symbol.nodes if n.op is not None]
        if self._watcher is None:
            entries = [(n, i) for n in nodes for i in range(len(n.output_names()))]
            self._watcher = Runner(Symbol(entries))
        values = iter(NDArray(o, self._ctx) for o in self._watcher.run(arrays))
        made: dict[tuple[int, int], NDArray] = {}
        for node in nodes:
            assert node.op is not None
            for name, (source, index) in zip(node.input_names, node.inputs):
                if not self._monitor_all:
                    break
                known = arrays.get(source.name) if source.is_variable else made[id(source), index]
                if known is None:
                    continue
                if source.is_variable and (id(source), 0) not in made:
                    made[id(source), 0] = known
                    self._monitor(source.name, known)
                self._monitor(f"{node.name}_{name}", known)
            for i, name in enumerate(node.output_names()):
                made[id(node), i] = next(values)
                self._monitor(name, made[id(node), i])


def _runner(symbol: Symbol) -> Runner:
    return Runner(symbol, backend=symbol.backend if isinstance(symbol, OptimizedSymbol) else None)


def _named(names: list[str], given: Arrays, runner: Runner, kind: str) -> dict[str, NDArray]:
    """The given arrays by name, in the order of ``names``."""
    if not isinstance(given, Mapping):
        values = list(given)
        if len(values) != len(names):
            raise ParameterError(
                f"one array is needed for each {kind}", got=len(values), expected=f"{len(names)}: {names}"
            )
        given = dict(zip(names, values))
    for name in names:
        if given.get(name) is None and name in runner.needed:
            raise ParameterError(f"an {kind} has no array", where=repr(name), next=nearest(name, given))
    return {n: given[n] for n in names if given.get(n) is not None}
