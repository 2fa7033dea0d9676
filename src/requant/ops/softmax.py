"""Softmax in its variants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs
from requant.dtypes import as_dtype
from requant.errors import DTypeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, op, same_shape


@dataclass(frozen=True)
class SoftmaxAttrs(Attrs):
    axis: int = -1
    temperature: float | None = None
    dtype: str | None = None
    use_length: bool | None = False


def _inputs(a: SoftmaxAttrs) -> tuple[str, ...]:
    return ("data", "length") if a.use_length else ("data",)


def _shapes(a: SoftmaxAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"] or shapes["output"]
    if data is None or not -len(data) <= a.axis < len(data):
        return {}
    axis = a.axis % len(data)
    return {"data": data, "length": data[:axis] + data[axis + 1 :]}


def _scores(g: Emit, a: SoftmaxAttrs, data: Value) -> tuple[Value, np.dtype]:
    """Data divided by the temperature, in the wider of its own and the wanted dtype, and the wanted dtype."""
    own = g.dtype(data)
    if own.kind != "f" and own.name != "bfloat16":
        raise DTypeError("softmax takes real numbers", where=g.node, got=own, next="cast the data to float32")
    wanted = own if a.dtype is None else as_dtype(a.dtype, g.node)
    if wanted.itemsize > own.itemsize:
        data = g.cast(data, wanted)
    if a.temperature is not None and a.temperature != 1.0:
        data = g("Div", data, a.temperature)
    return data, wanted


def _within(g: Emit, data: Value, length: Value, axis: int) -> Value:
    """Which places lie before ``length`` along ``axis``; broadcasts to data."""
    size = g.dims(data)[axis]
    if size is None:
        n = g.squeeze(g.size_of(data, [axis]), [0])
        place = g("Range", g.const(np.int64(0)), n, g.const(np.int64(1)))
    else:
        place = g.const(np.arange(size))
    place = g.unsqueeze(place, list(range(1, g.rank(data) - axis)))
    return g("Less", place, g.unsqueeze(g.cast(length, np.int64), [axis]))


def _softmax(g: Emit, a: SoftmaxAttrs, data: Value, length: Value | None) -> Value:
    axis = g.axis(data, a.axis)
    data, wanted = _scores(g, a, data)
    if length is None:
        return g.cast(g("Softmax", data, axis=axis), wanted)
    inside = _within(g, data, length, axis)
    lowest = float(np.finfo(g.dtype(data)).min)
    out = g("Softmax", g("Where", inside, data, g.const(lowest, data)), axis=axis)
    out = g.set_shape(g("Where", inside, out, g.const(0.0, data)), data.shape or ())
    return g.cast(out, wanted)


@op("softmax", "_npx_softmax", inputs=_inputs, param_shapes=_shapes)
def softmax(g: Emit, a: SoftmaxAttrs, data: Value, length: Value | None = None) -> Value:
    """``e^(x / temperature)`` normalized along ``axis``.

    With ``use_length`` only the first ``length`` places count and the others are 0; length has data's shape without
    ``axis``, an integer dtype. ``dtype`` is the result's.
    """
    return _softmax(g, a, data, length)


@op("softmin", "_npx_softmin", param_shapes=same_shape)
def softmin(g: Emit, a: SoftmaxAttrs, data: Value) -> Value:
    """softmax of ``-x``."""
    return _softmax(g, a, g("Neg", data), None)


@op("log_softmax", "_npx_log_softmax", param_shapes=same_shape)
def log_softmax(g: Emit, a: SoftmaxAttrs, data: Value) -> Value:
    """The logarithm of softmax, without its loss of precision."""
    axis = g.axis(data, a.axis)
    data, wanted = _scores(g, a, data)
    return g.cast(g("LogSoftmax", data, axis=axis), wanted)


@dataclass(frozen=True)
class SoftmaxActivationAttrs(Attrs):
    mode: Literal["instance", "channel"] = "instance"


@op("SoftmaxActivation", "_npx_softmax_activation", param_shapes=same_shape)
def softmax_activation(g: Emit, a: SoftmaxActivationAttrs, data: Value) -> Value:
    """Softmax over the last axis (``instance``) or over channels (``channel``, data (N, C, ...))."""
    return g("Softmax", data, axis=1 if a.mode == "channel" else -1)
