"""What some ONNX operators do on constants, for ``Emit.folding``: arithmetic on parameters and ranges."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir


def _reduced(reduce: Any) -> Any:
    def run(x: Any, axes: Any = None, keepdims: int = 1) -> Any:
        return reduce(x, axis=None if axes is None else tuple(int(a) for a in axes), keepdims=bool(keepdims))

    return run


def _sliced(x: Any, starts: Any, ends: Any, axes: Any) -> Any:
    index = [slice(None)] * x.ndim
    for start, end, axis in zip(starts, ends, axes):
        index[int(axis)] = slice(int(start), int(end))
    return x[tuple(index)]


#: Arithmetic on parameters and ranges, for ``Emit.folding``: what these ONNX operators do, as they are used there.
ON_CONSTANTS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Max": lambda *x: functools.reduce(np.maximum, x),
    "Min": lambda *x: functools.reduce(np.minimum, x),
    "Abs": np.abs,
    "Neg": np.negative,
    "Sqrt": np.sqrt,
    "Reciprocal": lambda x: np.divide(x.dtype.type(1), x),
    "Sign": np.sign,
    "Floor": np.floor,
    "Round": np.rint,
    "Equal": np.equal,
    "Where": np.where,
    "Clip": np.clip,
    "Cast": lambda x, to: x.astype(ir.DataType(to).numpy()),
    "Reshape": lambda x, shape: x.reshape([x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)]),
    "Transpose": lambda x, perm: x.transpose(perm),
    "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min),
    "ReduceSum": _reduced(np.sum),
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(int(a) for a in axes)),
    "Slice": _sliced,
}
