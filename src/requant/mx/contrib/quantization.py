"""``mx.contrib.quantization``: MXNet's INT8 flow, with its names, signatures, log lines and results.

The symbols that it returns are MXNet 1.9.1's node for node (`requant.rewrite`); the float network runs on requant's
engines, and thresholds come from requant's calibrators on MXNet's own histogram. `requant.quantize` is the shorter way
to a faster model: it needs no names of layers, judges what it made, and writes ONNX.
"""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

from requant.errors import CalibrationError, QuantizationError
from requant.mx.context import Context
from requant.mx.contrib.calibration_data import IterableData, is_iterator
from requant.mx.contrib.collectors import (
    CalibrationCollector,
    LayerHistogramCollector,
    LayerOutputMinMaxCollector,
    Logger,
    _LayerHistogramCollector,
    _LayerOutputMinMaxCollector,
    ranges_of,
)
from requant.mx.contrib.quantization_steps import (
    Params,
    arrays,
    calibrated,
    check,
    collector_for,
    loaded,
    numbers,
    older_keywords,
    quantized,
    run,
    save_parameters,
    say,
    traced,
)
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.symbol.create import var
from requant.mx.symbol.symbol import Symbol
from requant.rewrite.calibration import quantize_params
from requant.rewrite.fuse import backend_symbol

__all__ = [
    "CalibrationCollector",
    "LayerHistogramCollector",
    "LayerOutputMinMaxCollector",
    "_LayerHistogramCollector",
    "_LayerOutputMinMaxCollector",
    "calib_graph",
    "quantize_graph",
    "quantize_model",
    "quantize_model_mkldnn",
    "quantize_model_onednn",
    "quantize_net",
    "quantize_net_v2",
]

Made = tuple[Symbol, dict[str, NDArray], dict[str, NDArray]]
BACKEND = "MKLDNN_QUANTIZE"
CALIB_MODES = ("none", "naive", "entropy", "customize")


def quantize_model(
    sym: Symbol | str,
    arg_params: Params | str,
    aux_params: Params | str,
    data_names: Sequence[str] = ("data",),
    label_names: Sequence[str] | None = ("softmax_label",),
    ctx: Context | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    excluded_op_names: Sequence[str] | None = None,
    calib_mode: str | None = "entropy",
    calib_data: Any = None,
    num_calib_examples: int | None = None,
    quantized_dtype: str = "int8",
    quantize_mode: str = "smart",
    quantize_granularity: str = "tensor-wise",
    logger: Logger = None,
    **older: Any,
) -> Made:
    """Quantize a network and calibrate it, without fusing anything (``quantize_model_mkldnn`` fuses).

    Args:
        sym: the float network, or the name of its file.
        arg_params, aux_params: its parameters, or the name of their file.
        data_names, label_names: names of the inputs that calibration data has.
        ctx: ``mx.cpu()``.
        excluded_sym_names, excluded_op_names: nodes and operators that stay float.
        calib_mode: ``none`` (ranges are found at run time), ``naive`` (minimum and maximum) or ``entropy``.
        calib_data: a ``DataIter``.
        num_calib_examples: stop after the batch that reaches this number.
        quantized_dtype: ``int8``, ``uint8`` or ``auto``.
        quantize_mode: ``smart`` or ``full``.
        quantize_granularity: ``tensor-wise`` or ``channel-wise`` (for fused fully connected layers).
        logger: gets the lines that MXNet logs.
        older: keywords of other versions: ``device`` for ctx; ``calib_layer``, a function that says which tensors are
            calibrated (1.4 and 1.5); ``calib_quantize_op`` (1.4), which means nothing any more.
    Returns:
        The int8 symbol, its arguments and its auxiliary states.
    Raises:
        QuantizationError, CalibrationError: an option or the data is not what it should be (both are ValueErrors).
    """
    ctx, layer = older_keywords(ctx, older)
    symbol, args, aux = loaded(sym, arg_params, aux_params)
    say(logger, "Quantizing symbol")
    mode = calib_mode or "none"
    if mode == "customize":
        mode = ""  # only quantize_graph and the net functions take collectors
    check(mode, CALIB_MODES[:3], "unknown calibration mode", got=calib_mode)
    made = quantized(
        symbol, args, ctx, excluded_sym_names, excluded_op_names, quantized_dtype, quantize_mode, quantize_granularity
    )
    ranges: dict[str, tuple[float, float]] = {}
    qsym = Symbol(made.symbol.entries)
    if mode != "none":
        points = [p for p in made.points if layer is None or layer(p)]
        collector = collector_for(mode, points, quantized_dtype, logger)
        if calib_data is None:
            raise CalibrationError(f"calib_data must be provided when calib_mode={calib_mode}")
        if not is_iterator(calib_data):
            raise CalibrationError(
                f"calib_data must be of DataIter type when calib_mode={calib_mode}",
                got=type(calib_data).__name__,
                next="mx.io.NDArrayIter(data, batch_size=32)",
            )
        examples = run(symbol, {**args, **aux}, calib_data, data_names, collector, num_calib_examples, logger)
        kept = "outputs" if mode == "entropy" else "output min/max values"
        say(logger, "Collected layer %s from FP32 model using %d examples", kept, examples)
        ranges = ranges_of(collector, mode, quantized_dtype, logger)
        qsym = calibrated(qsym, ranges)
    say(logger, "Quantizing parameters")
    return qsym, arrays(quantize_params(qsym, args, ranges)), arrays(aux)


def quantize_model_mkldnn(
    sym: Symbol | str,
    arg_params: Params | str,
    aux_params: Params | str,
    data_names: Sequence[str] = ("data",),
    label_names: Sequence[str] | None = ("softmax_label",),
    ctx: Context | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    excluded_op_names: Sequence[str] | None = None,
    calib_mode: str | None = "entropy",
    calib_data: Any = None,
    num_calib_examples: int | None = None,
    quantized_dtype: str = "int8",
    quantize_mode: str = "smart",
    quantize_granularity: str = "tensor-wise",
    logger: Logger = None,
    **older: Any,
) -> Made:
    """``quantize_model`` between two fusions: convolutions take batch normalization, sums and activations with them.

    Arguments, results and errors are those of ``quantize_model``; another context than a CPU is refused.
    """
    context = older.get("device", ctx)
    if context is not None and not isinstance(context, Context):
        raise QuantizationError(f"currently only supports single ctx, while received {context}")
    if context is not None and context.device_type != "cpu":
        raise QuantizationError(
            "fused int8 operators run on a CPU alone", where="ctx", got=context, next="ctx=mx.cpu()"
        )
    symbol, args, aux = loaded(sym, arg_params, aux_params)
    made, qargs, qaux = quantize_model(
        Symbol(backend_symbol(symbol, BACKEND).entries),
        args,
        aux,
        data_names,
        label_names,
        ctx,
        excluded_sym_names,
        excluded_op_names,
        calib_mode,
        calib_data,
        num_calib_examples,
        quantized_dtype,
        quantize_mode,
        quantize_granularity,
        logger,
        **older,
    )
    return Symbol(backend_symbol(made, BACKEND).entries), qargs, qaux


quantize_model_onednn = quantize_model_mkldnn


def quantize_graph(
    sym: Symbol | str,
    arg_params: Params | str,
    aux_params: Params | str,
    ctx: Context | None = None,
    excluded_sym_names: Sequence[str] | None = None,
    excluded_op_names: Sequence[str] | None = None,
    calib_mode: str | None = "entropy",
    quantized_dtype: str = "int8",
    quantize_mode: str = "full",
    quantize_granularity: str = "tensor-wise",
    LayerOutputCollector: Any = None,
    logger: Logger = None,
    **older: Any,
) -> tuple[Symbol, dict[str, NDArray], dict[str, NDArray], Any]:
    """Quantize a network and make the collector with which the caller calibrates it (then ``calib_graph``).

    The collector is filled by ``executor.set_monitor_callback(collector.collect, monitor_all=True)`` of the float
    network, or by calling ``collector.collect(name, array)``.

    Args:
        LayerOutputCollector: the user's own, for ``calib_mode='customize'``; see ``CalibrationCollector``.
        Others are those of ``quantize_model``.
    Returns:
        The int8 symbol, its arguments, its auxiliary states, and the collector (None if nothing is calibrated).
    """
    ctx, _ = older_keywords(ctx, older)
    symbol, args, aux = loaded(sym, arg_params, aux_params)
    say(logger, "Quantizing graph")
    mode = calib_mode or "none"
    check(mode, CALIB_MODES, "unknown calibration mode", got=calib_mode)
    if mode == "customize" and LayerOutputCollector is None:
        raise CalibrationError("calib_mode='customize' needs a collector", where="LayerOutputCollector", got=None)
    made = quantized(
        symbol, args, ctx, excluded_sym_names, excluded_op_names, quantized_dtype, quantize_mode, quantize_granularity
    )
    collector = None
    if mode != "none":
        collector = collector_for(mode, made.points, quantized_dtype, logger, LayerOutputCollector)
        say(logger, "Collector created, please use set_monitor_callback to collect calibration information.")
    say(logger, "Quantizing parameters")
    return (
        Symbol(made.symbol.entries),
        arrays(quantize_params(made.symbol, args, {})),
        arrays(aux),
        collector,
    )


def calib_graph(
    qsym: Symbol,
    arg_params: Params,
    aux_params: Params,
    collector: Any,
    calib_mode: str | None = "entropy",
    quantized_dtype: str = "int8",
    logger: Logger = logging,
) -> Made:
    """Put the ranges that a collector found into a symbol of ``quantize_graph``.

    Args:
        arg_params: the *float* network's arguments, which are quantized here.
    Returns:
        The calibrated symbol, its arguments and its auxiliary states. Fuse it afterwards
        (``get_backend_symbol('MKLDNN_QUANTIZE')``) if the float network was fused before.
    Raises:
        CalibrationError: there is no mode, or the collector has no ranges.
    """
    mode = calib_mode or "none"
    if mode == "none":
        raise CalibrationError("please set calibration mode to naive or entropy.", where="calib_graph", got=calib_mode)
    check(mode, CALIB_MODES, "unknown calibration mode", got=calib_mode)
    ranges = ranges_of(collector, mode, quantized_dtype, logger)
    made = calibrated(qsym, ranges)
    say(logger, "Quantizing parameters")
    return made, arrays(quantize_params(made, numbers(arg_params), ranges)), arrays(numbers(aux_params))


def quantize_net_v2(
    network: Any,
    quantized_dtype: str = "auto",
    quantize_mode: str = "full",
    quantize_granularity: str = "tensor-wise",
    exclude_layers: Sequence[str] | None = None,
    exclude_layers_match: Sequence[str] | None = None,
    exclude_operators: Sequence[str] | None = None,
    calib_data: Any = None,
    data_shapes: Sequence[Any] | None = None,
    calib_mode: str | None = "none",
    num_calib_examples: int | None = None,
    ctx: Context | None = None,
    LayerOutputCollector: Any = None,
    logger: Logger = None,
    **older: Any,
) -> Any:
    """Quantize a Gluon network: trace, fuse, quantize, calibrate, fuse again.

    Args:
        network: a HybridBlock with parameters.
        exclude_layers: names of nodes that stay float. exclude_layers_match: parts of such names.
        exclude_operators: operators that stay float.
        calib_data: a ``DataIter``, a ``DataLoader``, or any iterable of batches.
        data_shapes: ``DataDesc`` of each input; needed if there is no calibration data.
        LayerOutputCollector: the user's own, for ``calib_mode='customize'``.
        Others are those of ``quantize_model``.
    Returns:
        A ``SymbolBlock`` of the int8 network, with its parameters.
    Raises:
        QuantizationError, CalibrationError: an option or the data is not what it should be (both are ValueErrors).
    """
    from requant.mx.gluon import SymbolBlock

    ctx, _ = older_keywords(ctx, older)
    mode = calib_mode or "none"
    check(mode, CALIB_MODES, "unknown calibration mode", got=calib_mode)
    if calib_data is not None and not is_iterator(calib_data):
        calib_data = IterableData(calib_data)
    if mode != "none" and calib_data is None:
        raise CalibrationError(f"calib_data must be provided when calib_mode={calib_mode}")
    shapes = list(data_shapes or (() if calib_data is None else calib_data.provide_data))
    if not shapes:
        raise QuantizationError(
            "data_shapes required", where="quantize_net", next="data_shapes=[DataDesc('data', ...)]"
        )
    say(logger, "Export HybridBlock")
    symbol, args, aux, names = traced(network, shapes)
    excluded = list(exclude_layers or ())
    for part in exclude_layers_match or ():
        excluded += [n.name for n in symbol.nodes if part in n.name]
    say(logger, "These layers have been excluded %s", excluded)
    fuses = ctx is None or ctx.device_type == "cpu"
    if fuses:
        symbol = Symbol(backend_symbol(symbol, BACKEND).entries)
    qsym, qargs, qaux, collector = quantize_graph(
        symbol,
        args,
        aux,
        ctx,
        excluded,
        list(exclude_operators or ()),
        calib_mode,
        quantized_dtype,
        quantize_mode,
        quantize_granularity,
        LayerOutputCollector,
        logger,
    )
    if mode != "none":
        examples = run(symbol, {**args, **aux}, calib_data, names, collector, num_calib_examples, logger)
        say(logger, "Collected layer output values from FP32 model using %d examples", examples)
        qsym, qargs, qaux = calib_graph(qsym, args, aux, collector, calib_mode, quantized_dtype, logger)
    if fuses:
        qsym = Symbol(backend_symbol(qsym, BACKEND).entries)
    block = SymbolBlock(qsym, [var(n) for n in names])
    with tempfile.TemporaryDirectory(prefix="requant-") as folder:
        path = os.path.join(folder, "int8.params")
        save_parameters(path, qsym, {**qargs, **qaux})
        # As in MXNet: parameters keep the types that they have in the file.
        block.collect_params().load(path, cast_dtype=True, dtype_source="saved")
    return block


def quantize_net(
    network: Any,
    quantized_dtype: str = "auto",
    quantize_mode: str = "full",
    exclude_layers: Sequence[str] | None = None,
    exclude_layers_match: Sequence[str] | None = None,
    exclude_operators: Sequence[str] | None = None,
    calib_data: Any = None,
    data_shapes: Sequence[Any] | None = None,
    calib_mode: str | None = "none",
    num_calib_examples: int | None = None,
    ctx: Context | None = None,
    logger: Logger = None,
    **newer: Any,
) -> Any:
    """``quantize_net_v2`` under its older name; MXNet 2.0 gives that name to what is ``quantize_net_v2`` here.

    Keywords of 2.0 (``device``, ``quantize_granularity``, ``LayerOutputCollector``) are taken, too.
    """
    if not newer:
        warnings.warn(
            "quantize_net is deprecated in MXNet, please use quantize_net_v2", DeprecationWarning, stacklevel=2
        )
    return quantize_net_v2(
        network,
        quantized_dtype=quantized_dtype,
        quantize_mode=quantize_mode,
        quantize_granularity=newer.pop("quantize_granularity", "tensor-wise"),
        exclude_layers=exclude_layers,
        exclude_layers_match=exclude_layers_match,
        exclude_operators=exclude_operators,
        calib_data=calib_data,
        data_shapes=data_shapes,
        calib_mode=calib_mode,
        num_calib_examples=num_calib_examples,
        ctx=ctx,
        logger=logger,
        **newer,
    )
