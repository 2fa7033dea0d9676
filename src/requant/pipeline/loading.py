"""From the files of a model to the model: what ``requant.load`` does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from requant.dtypes import as_dtype
from requant.errors import FormatError, ParameterError
from requant.formats import archive, onnx_file, symbol_file, tflite
from requant.formats.params import read_params, split_arg_aux
from requant.formats.sparse import Csr, RowSparse
from requant.lower import Dims
from requant.pipeline.given import check_sizes, check_types
from requant.pipeline.model import Model
from requant.symbol.training import for_inference
from requant.symbol.tree import Symbol


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
        InputError: an argument is of another kind than said here.
        FileNotFoundError, FormatError: nothing there, or not a model. GraphError, UnknownOperatorError: the symbol.
        ParameterError: a parameter is missing; the message names it and the closest one in the file.
    """
    check_sizes(shapes, "load: shapes")
    check_types(dtypes, "load: dtypes")
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
        model.note_cut(wanted)
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
