"""The steps of ``mx.contrib.quantization``: reading what scripts pass, calibrating, and MXNet's log lines."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from requant.errors import CalibrationError, InputError, ParameterError, QuantizationError, nearest
from requant.lower import needed_nodes
from requant.mx.context import Context
from requant.mx.contrib.collectors import LayerHistogramCollector, LayerOutputMinMaxCollector, Logger, caller
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.ndarray.saving import load as load_arrays
from requant.mx.symbol.create import load as load_symbol
from requant.mx.symbol.symbol import Symbol
from requant.pipeline.observe import SymbolObserver
from requant.rewrite.calibration import set_ranges
from requant.rewrite.quantize import Quantized, quantize_symbol
from requant.symbol import tree

log = logging.getLogger("requant.mx.contrib.quantization")  # as scripts know it

Params = Mapping[str, Any]


def say(logger: Logger, text: str, *args: object) -> None:
    """A line of MXNet's log: to the script's logger if it gave one, else to this module's."""
    (logger or log).info(text, *args)


def check(value: Any, known: Sequence[str], what: str, got: Any = None) -> None:
    """Raise QuantizationError, a ValueError, unless ``value`` is known."""
    if value not in known:
        shown = value if got is None else got
        raise QuantizationError(what, got=shown, expected=", ".join(known), next=nearest(str(shown), known))


def older_keywords(ctx: Context | None, older: dict[str, Any]) -> tuple[Context | None, Callable[[str], bool] | None]:
    """The context, and the layer filter, from keywords of other versions."""
    known = ("device", "calib_layer", "calib_quantize_op")
    for key in older:
        if key not in known:
            raise TypeError(f"unexpected keyword argument {key!r}; {nearest(key, known)}")
    context = older.get("device", ctx)
    if context is not None and not isinstance(context, Context):
        raise QuantizationError(f"currently only supports single ctx, while received {context}")
    return context, older.get("calib_layer")


def numbers(params: Params) -> dict[str, np.ndarray[Any, Any]]:
    """Parameters as numpy arrays."""
    return {n: v._data if isinstance(v, NDArray) else np.asarray(v) for n, v in params.items()}


def arrays(params: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, NDArray]:
    """Parameters as NDArrays."""
    return {n: NDArray(v) for n, v in params.items()}


def loaded(sym: Any, args: Any, aux: Any) -> tuple[Symbol, dict[str, Any], dict[str, Any]]:
    """Symbol and parameters, from objects or file names."""
    symbol = load_symbol(sym) if isinstance(sym, (str, os.PathLike)) else sym
    if not isinstance(symbol, tree.Symbol):
        raise QuantizationError("not a symbol", where="sym", got=type(sym).__name__, expected="a Symbol or a file name")
    found = []
    for prefix, given in (("arg:", args), ("aux:", aux)):
        if isinstance(given, (str, os.PathLike)):
            held = load_arrays(given)
            if not isinstance(held, dict):
                raise ParameterError("the arrays have no names", where=os.fspath(given))
            given = {n.removeprefix(prefix): v for n, v in held.items() if n.startswith(prefix) or ":" not in n}
        found.append(numbers(given or {}))
    return Symbol(symbol.entries), found[0], found[1]


def quantized(
    symbol: Symbol,
    args: Params,
    ctx: Context | None,
    names: Sequence[str] | None,
    ops: Sequence[str] | None,
    dtype: str,
    mode: str,
    granularity: str,
) -> Quantized:
    """The int8 symbol, from options that are checked here."""
    for what, given in (("excluded_sym_names", names), ("excluded_op_names", ops)):
        if given is not None and (isinstance(given, str) or not isinstance(given, Collection)):
            raise QuantizationError(
                f"{what} must be a list of strings representing the names that will not be quantized",
                got=type(given).__name__,
            )
    if granularity == "channel-wise" and ctx is not None and ctx.device_type == "gpu":
        raise QuantizationError("channel-wise quantization is of a CPU", where="quantize_granularity", got=ctx)
    return quantize_symbol(
        symbol,
        excluded_names=list(names or ()),
        excluded_ops=list(ops or ()),
        offline=list(args),
        dtype=dtype,
        mode=mode,
        granularity=granularity,
    )


def calibrated(qsym: Symbol, ranges: Mapping[str, tuple[float, float]]) -> Symbol:
    """The symbol with calibrated ranges as attributes."""
    return Symbol(set_ranges(qsym, ranges).entries)


def collector_for(mode: str, points: Sequence[str], dtype: str, logger: Logger, own: Any = None) -> Any:
    """The collector of a calibration mode."""
    if mode == "entropy":
        say(logger, "Create a layer output collector for entropy calibration.")
        return LayerHistogramCollector(include_layer=points, logger=logger, quantized_dtype=dtype)
    if mode == "naive":
        say(logger, "Create a layer output minmax collector for naive calibration")
        return LayerOutputMinMaxCollector(quantized_dtype=dtype, include_layer=points, logger=logger)
    say(logger, "Create a customize layer output minmax collector for calibration")
    if hasattr(own, "include_layer"):
        if own.include_layer is None:
            own.include_layer = points
        else:
            say(logger, "Custom collector has set include_layer attribute. Calibration layers not passed")
    return own


def run(
    symbol: Symbol,
    params: Params,
    data: Any,
    names: Sequence[str],
    collector: Any,
    limit: int | None,
    logger: Logger,
) -> int:
    """Run the float network over calibration data and hand its tensors to a collector. Returns the examples."""
    wanted = getattr(collector, "include_layer", None)
    observer = SymbolObserver(symbol, params, None if wanted is None else list(wanted))
    ops = {n: node.op.name for node in symbol.nodes if node.op is not None for n in node.output_names()}
    collect = caller(collector)
    batches = examples = 0
    for batch in data:
        feeds = {n: a.asnumpy() for n, a in zip(_names(data, names), batch.data)}
        for name, values in observer.observe(feeds):
            collect(name, ops.get(name, "null"), NDArray(values))
        batches += 1
        examples += int(data.batch_size)
        if limit is not None and examples >= limit:
            break
    if not batches:
        raise CalibrationError("there is no calibration data", where="calib_data", next="calib_data.reset()")
    say(logger, "Collected statistics from %d batches with batch_size=%d", batches, data.batch_size)
    return examples


def _names(data: Any, names: Sequence[str]) -> list[str]:
    """Names of a batch's arrays: the iterator's own, where they are the network's inputs, else in order."""
    own = [d[0] for d in data.provide_data]
    return own if set(names) <= set(own) else list(names)


def traced(
    network: Any, shapes: Sequence[Any]
) -> tuple[Symbol, dict[str, np.ndarray[Any, Any]], dict[str, np.ndarray[Any, Any]], list[str]]:
    """Symbol, parameters and input names of a block. Arrays that it does not take (labels) are left out, last first."""
    from requant.mx.model import load_checkpoint
    from requant.mx.ndarray.create import zeros

    network.hybridize()
    given = [zeros(s.shape, dtype=s.dtype) for s in shapes]
    while True:
        try:
            network(*given)
            break
        except (TypeError, InputError):
            if len(given) == 1:
                raise
            given.pop()
    with tempfile.TemporaryDirectory(prefix="requant-") as folder:
        prefix = os.path.join(folder, "float")
        network.export(prefix, epoch=0)
        symbol, args, aux = load_checkpoint(prefix, 0)
    made = Symbol(symbol.entries)
    both = numbers(args), numbers(aux)
    free = {n.name for n in needed_nodes(made)[0] if n.is_variable} - set(args) - set(aux)
    names = [n for n in made.list_inputs() if n in free]
    return made, *both, names


def save_parameters(path: str, symbol: Symbol, arrays: Mapping[str, NDArray]) -> None:
    from requant.mx.ndarray.saving import save

    aux = set(symbol.list_auxiliary_states())
    save(path, {f"{'aux' if n in aux else 'arg'}:{n}": a for n, a in arrays.items()})
