"""``mx.mod.Module``: a symbol with parameters, run over batches. Inference only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from requant.errors import InputError, ParameterError, RequantError, UnsupportedError, nearest
from requant.mx import metric as metrics
from requant.mx.context import Context, checked
from requant.mx.executor import Executor
from requant.mx.initializer import InitDesc
from requant.mx.io import DataBatch, DataDesc, DataIter, NDArrayIter, as_descs
from requant.mx.model import load_checkpoint, load_params, save_checkpoint
from requant.mx.monitor import Monitor
from requant.mx.ndarray.create import concatenate
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.symbol.symbol import Symbol
from requant.pipeline import LiveCompiled

log = logging.getLogger(__name__)

Params = Mapping[str, NDArray]
_NO_TRAINING = "requant runs and quantizes trained models; it does not train"


class ModuleError(RequantError, RuntimeError):
    """A module is used before it is ready: not bound, or without parameters."""


class Module:
    """A symbol with parameters.

    Args:
        symbol: the network.
        data_names: its data inputs. label_names: its labels, which inference does not need.
        context: the device in name; a list is accepted, and the first is taken.
        fixed_param_names, logger, work_load_list, state_names, group2ctxs, compression_params: for training; not used.
    Raises:
        InputError: a data name that is no argument of the symbol; the message lists those that are.
    """

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = None,
        context: Context | Sequence[Context] | None = None,
        work_load_list: Any = None,
        fixed_param_names: Any = None,
        state_names: Any = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
    ) -> None:
        self._symbol = symbol
        self.data_names, self.label_names = list(data_names or ()), list(label_names or ())
        self._ctx = checked(context if context is None or isinstance(context, Context) else context[0])
        arguments = symbol.list_arguments()
        for name in self.data_names:
            if name not in arguments:
                kinds = ("_weight", "_bias", "_gamma", "_beta")
                inputs = [a for a in arguments if not a.endswith(kinds)]
                raise InputError(
                    "the symbol has no argument of that name",
                    where="data_names",
                    got=name,
                    expected=f"one of {inputs}",
                    next="Module(symbol, data_names=[...])",
                )
        for name in self.label_names:
            if name not in arguments:
                log.warning("the symbol has no label %r; its arguments are %s", name, arguments)
        self._args: dict[str, NDArray] = {}
        self._aux: dict[str, NDArray] = {}
        self._executor: Executor | None = None
        self._data_shapes: list[DataDesc] = []
        self._label_shapes: list[DataDesc] | None = None
        self._monitor: tuple[Callable[[str, NDArray], None], bool] | None = None
        self.binded = self.params_initialized = self.for_training = False

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def symbol(self) -> Symbol:
        return self._symbol

    @property
    def output_names(self) -> list[str]:
        return self._symbol.list_outputs()

    @property
    def data_shapes(self) -> list[DataDesc]:
        self._bound()
        return self._data_shapes

    @property
    def label_shapes(self) -> list[DataDesc] | None:
        self._bound()
        return self._label_shapes

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the outputs for the bound inputs."""
        return [(n, o.shape) for n, o in self._bound().output_dict.items()]

    def _bound(self) -> Executor:
        if self._executor is None:
            raise ModuleError("the module is not bound", next="module.bind(data_shapes=[('data', (1, 3, 224, 224))])")
        return self._executor

    def _ready(self) -> Executor:
        executor = self._bound()
        if not self.params_initialized:
            raise ModuleError("the module has no parameters", next="module.set_params(arg_params, aux_params)")
        return executor

    @property
    def live_model(self) -> LiveCompiled | None:
        """See ``Executor.live_model``."""
        return self._bound().live_model

    @property
    def _exec_group(self) -> SimpleNamespace:
        """Where MXNet scripts find executors: ``module._exec_group.execs[0].set_monitor_callback(...)``."""
        return SimpleNamespace(execs=[self._bound()])

    # -- binding and parameters ------------------------------------------------------------------------------------

    def bind(
        self,
        data_shapes: Any,
        label_shapes: Any = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Module | None = None,
        grad_req: Any = "null",
    ) -> None:
        """Make arrays for inputs of these shapes.

        Args:
            data_shapes, label_shapes: DataDescs or ``(name, shape)`` pairs.
            for_training: what ``forward`` assumes if it is not told; see there.
            force_rebind: bind again if bound already, which is otherwise a no-op.
        Raises:
            InputError: data shapes for other names than ``data_names``. ShapeError: they do not fit the network.
        """
        if self.binded and not force_rebind:
            log.warning("already bound: bind() is ignored; force_rebind=True binds again")
            return
        if inputs_need_grad:
            raise UnsupportedError(_NO_TRAINING, where="inputs_need_grad")
        data, labels = as_descs(data_shapes), as_descs(label_shapes)
        if sorted(d.name for d in data) != sorted(self.data_names):
            raise InputError("shapes for other names", got=[d.name for d in data], expected=self.data_names)
        shapes = {d.name: d.shape for d in (*data, *labels) if d.name in self._symbol.list_arguments()}
        types = {d.name: d.dtype for d in data}
        self._executor = Executor.simple_bind(self._symbol, self._ctx, types, shapes)
        self._executor._runner.feed(*self.data_names)
        self._data_shapes, self._label_shapes = data, labels or None
        self.binded, self.for_training = True, for_training
        if shared_module is not None and shared_module.params_initialized:
            self._share(shared_module, self._executor)
        elif self.params_initialized:  # loaded, or bound before
            self.init_params(None, self._args, self._aux, force_init=True, allow_extra=True)
        if self._monitor is not None:
            self._executor.set_monitor_callback(*self._monitor)

    def _share(self, other: Module, executor: Executor) -> None:
        """Read the same parameter arrays as another module, where shapes agree."""
        for mine, theirs in ((executor.arg_dict, other._args), (executor.aux_dict, other._aux)):
            mine.update({n: a for n, a in theirs.items() if n in mine and mine[n].shape == a.shape})
        self._args, self._aux = other._args, other._aux
        self.params_initialized = True

    def _parameter_names(self) -> list[str]:
        inputs = {*self.data_names, *self.label_names, *self._bound()._runner.cut}
        return [n for n in self._symbol.list_arguments() if n not in inputs]

    def init_params(
        self,
        initializer: Any = None,
        arg_params: Params | None = None,
        aux_params: Params | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Take the given parameters; those missing are made by ``initializer(name, array)``, if there is one.

        Raises:
            ParameterError: one is missing and there is no initializer, or one is too many (unless allowed).
            ShapeError: a shape differs from the network's.
        """
        if self.params_initialized and not force_init:
            log.warning("parameters are there already: init_params() is ignored; force_init=True takes the new ones")
            return
        executor = self._bound()
        known = {*executor.arg_dict, *executor.aux_dict}
        given: tuple[dict[str, NDArray], ...] = (dict(arg_params or {}), dict(aux_params or {}))
        for name in (*given[0], *given[1]):
            # As in MXNet: where none may be missing, a misspelt name shows as such, and others do no harm.
            if name not in known and allow_missing and not allow_extra:
                raise ParameterError(
                    "the network has no parameter of that name",
                    got=name,
                    next=f"allow_extra=True ignores it; {nearest(name, known)}",
                )
        executor.copy_params_from(given[0], given[1], allow_extra_params=True)
        attrs = self._symbol.attr_dict()
        for names, values, targets in (
            (self._parameter_names(), given[0], executor.arg_dict),
            (list(executor.aux_dict), given[1], executor.aux_dict),
        ):
            for name in (n for n in names if n not in values):
                if initializer is not None:
                    initializer(InitDesc(name, attrs.get(name), initializer), targets[name])
                elif not allow_missing:
                    raise ParameterError(
                        "a parameter is missing", where=repr(name), next=f"allow_missing=True; {nearest(name, values)}"
                    )
        self._args = {n: executor.arg_dict[n] for n in self._parameter_names()}
        self._aux = dict(executor.aux_dict)
        self.params_initialized = True

    def set_params(
        self,
        arg_params: Params,
        aux_params: Params,
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Take these parameters; see ``init_params``."""
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of arguments and auxiliary states, by name."""
        self._ready()
        return {n: a.copy() for n, a in self._args.items()}, {n: a.copy() for n, a in self._aux.items()}

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Bind to other shapes; parameters stay."""
        executor = self._bound()
        self._data_shapes = as_descs(data_shapes)
        self._label_shapes = as_descs(label_shapes) or None
        self._executor = executor.reshape(True, True, **{d.name: d.shape for d in self._data_shapes})

    # -- files -----------------------------------------------------------------------------------------------------

    @staticmethod
    def load(prefix: str, epoch: int, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """A module from a checkpoint; parameters are taken when it is bound."""
        symbol, args, aux = load_checkpoint(prefix, epoch)
        made = Module(symbol, **kwargs)
        made._args, made._aux, made.params_initialized = args, aux, True
        return made

    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Write symbol and parameters."""
        save_checkpoint(prefix, epoch, self._symbol, *self.get_params(), remove_amp_cast=remove_amp_cast)

    def load_params(self, fname: str) -> None:
        """Take the parameters of a file."""
        prefix, _, epoch = fname.removesuffix(".params").rpartition("-")
        self.set_params(*load_params(prefix, int(epoch)))

    def save_params(self, fname: str) -> None:
        """Write the parameters alone."""
        prefix, _, epoch = fname.removesuffix(".params").rpartition("-")
        save_checkpoint(prefix, int(epoch), None, *self.get_params())

    # -- running ---------------------------------------------------------------------------------------------------

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Run one batch; a batch of another shape binds anew by itself.

        Args:
            is_train: None means what ``bind`` was told. A training run is refused, never replaced by another one.
        Raises:
            UnsupportedError: a training run.
        """
        executor = self._ready()
        if self.for_training if is_train is None else is_train:
            raise UnsupportedError(
                _NO_TRAINING,
                where="forward of a module that is bound for training" if is_train is None else "is_train=True",
                next="bind(..., for_training=False), or forward(batch, is_train=False)",
            )
        arrays = dict(zip(self._names(data_batch), data_batch.data or []))
        shapes = {n: tuple(a.shape) for n, a in arrays.items()}
        if shapes != {d.name: tuple(d.shape) for d in self._data_shapes}:
            self.reshape([DataDesc(d.name, shapes.get(d.name, d.shape), d.dtype, d.layout) for d in self._data_shapes])
            executor = self._bound()
        executor.forward(is_train=False, **arrays)

    def _names(self, batch: DataBatch) -> list[str]:
        # scripts pass named tuples that have data alone
        described = getattr(batch, "provide_data", None) or self._data_shapes
        names = [d[0] for d in described]
        if len(names) != len(batch.data or []):
            raise InputError("the batch has not one array per input", got=len(batch.data or []), expected=names)
        return names

    def get_outputs(self, merge_multi_context: bool = True) -> list[NDArray]:
        """The outputs of the last run."""
        return self._ready().outputs

    def iter_predict(
        self,
        eval_data: DataIter,
        num_batch: int | None = None,
        reset: bool = True,
        sparse_row_id_fn: Any = None,
    ) -> Iterator[tuple[list[NDArray], int, DataBatch]]:
        """Outputs (without padding), number and data of each batch."""
        if reset:
            eval_data.reset()
        for i, batch in enumerate(eval_data):
            if num_batch is not None and i >= num_batch:
                break
            self.forward(batch, is_train=False)
            pad = batch.pad or 0
            yield [o[: len(o) - pad] if pad else o for o in self.get_outputs()], i, batch

    def predict(
        self,
        eval_data: DataIter | NDArray | np.ndarray,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: Any = None,
    ) -> Any:
        """Outputs for all data.

        Returns:
            One NDArray, or a list if there are several outputs or ``always_output_list``; a list of lists, one for
            each batch, unless ``merge_batches``.
        """
        if isinstance(eval_data, (NDArray, np.ndarray)):
            eval_data = NDArrayIter(eval_data, batch_size=len(eval_data), data_name=self.data_names[0])
        found = [outputs for outputs, _, _ in self.iter_predict(eval_data, num_batch, reset)]
        if not found or not merge_batches:
            return found
        merged = [concatenate(list(parts)) for parts in zip(*found)]
        return merged[0] if len(merged) == 1 and not always_output_list else merged

    def score(
        self,
        eval_data: DataIter,
        eval_metric: Any,
        num_batch: int | None = None,
        batch_end_callback: Any = None,
        score_end_callback: Any = None,
        reset: bool = True,
        epoch: int = 0,
        sparse_row_id_fn: Any = None,
    ) -> list[tuple[str, float]]:
        """Names and values of metrics over the data. Samples that fill up the last batch count, as in MXNet."""
        if reset:
            eval_data.reset()
        measured = metrics.create(eval_metric)
        measured.reset()
        for i, batch in enumerate(eval_data):
            if num_batch is not None and i >= num_batch:
                break
            self.forward(batch, is_train=False)
            self.update_metric(measured, batch.label)
        return measured.get_name_value()

    def update_metric(self, eval_metric: metrics.EvalMetric, labels: Any, pre_sliced: bool = False) -> None:
        """Let a metric take in the outputs of the last run."""
        outputs = self.get_outputs()
        names = [d.name for d in self._label_shapes or []] or self.label_names
        eval_metric.update_dict(dict(zip(names, labels)), dict(zip(self.output_names, outputs)))

    def install_monitor(self, mon: Monitor | Callable[[str, NDArray], None], monitor_all: bool = False) -> None:
        """Show the outputs of all operators to a monitor or a function; see ``Executor.set_monitor_callback``."""
        if isinstance(mon, Monitor):
            mon.exes.append(self._bound())
        self._monitor = (mon.take, mon.monitor_all) if isinstance(mon, Monitor) else (mon, monitor_all)
        self._bound().set_monitor_callback(*self._monitor)

    # -- training: refused -----------------------------------------------------------------------------------------

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError(_NO_TRAINING)

    fit = backward = update = forward_backward = init_optimizer = get_input_grads = _refuse
