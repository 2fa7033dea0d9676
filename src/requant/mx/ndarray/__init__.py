"""``mx.nd``: arrays, and every operator of requant as a function on them."""

from __future__ import annotations

from typing import Any

from requant.mx import methods
from requant.mx.generate import Function
from requant.mx.ndarray import _internal, contrib, image, linalg, op, random, sparse
from requant.mx.ndarray.arithmetic import (
    add,
    divide,
    equal,
    greater,
    greater_equal,
    hypot,
    lesser,
    lesser_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    modulo,
    multiply,
    not_equal,
    power,
    subtract,
    true_divide,
)
from requant.mx.ndarray.create import (
    arange,
    array,
    concatenate,
    empty,
    eye,
    from_numpy,
    full,
    histogram,
    linspace,
    moveaxis,
    ones,
    split_v2,
    waitall,
    zeros,
)
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.ndarray.saving import load, load_frombuffer, save
from requant.mx.ndarray.sparse import BaseSparseNDArray, CSRNDArray, RowSparseNDArray, cast_storage

methods.attach(NDArray, op._functions, split_v2)


def Custom(*data: NDArray, op_type: str, **kwargs: Any) -> Any:
    """Run an operator that ``mx.operator.register`` made known.

    Args:
        data: its inputs, then its auxiliary states; or by name. op_type: its name. kwargs: its own arguments.
    Returns:
        Its output, or a list.
    """
    from requant.mx.operator import run_custom

    return run_custom(op_type, data, kwargs)


def __getattr__(name: str) -> Function:
    # MXNet's older names: nd.random_uniform, nd.uniform
    plain = name.removeprefix("random_")
    if (plain != name or plain in ("uniform", "normal", "shuffle")) and plain in vars(random):
        found: Function = vars(random)[plain]
        return found
    return op._functions.get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *op._functions})


__all__ = [
    "BaseSparseNDArray",
    "CSRNDArray",
    "Custom",
    "NDArray",
    "RowSparseNDArray",
    "_internal",
    "add",
    "arange",
    "array",
    "cast_storage",
    "concatenate",
    "contrib",
    "divide",
    "empty",
    "equal",
    "eye",
    "from_numpy",
    "full",
    "greater",
    "greater_equal",
    "histogram",
    "hypot",
    "image",
    "lesser",
    "lesser_equal",
    "linalg",
    "linspace",
    "load",
    "load_frombuffer",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "modulo",
    "moveaxis",
    "multiply",
    "not_equal",
    "ones",
    "op",
    "power",
    "random",
    "save",
    "sparse",
    "split_v2",
    "subtract",
    "true_divide",
    "waitall",
    "zeros",
]
