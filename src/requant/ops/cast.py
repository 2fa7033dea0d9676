"""Casts: Cast, and those that MXNet's automatic mixed precision inserts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.dtypes import as_dtype, from_code
from requant.errors import AttributeValueError
from requant.ops import elementwise as ew
from requant.ops import ranges
from requant.ops.elementwise import BFLOAT16, FLOAT16, FLOAT32
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, same_shape


def named(g: Emit, name: str | None, default: np.dtype = FLOAT32) -> np.dtype:
    """The dtype of an attribute: a name, MXNet's type flag as a number, or None for ``default``.

    Raises:
        DTypeError: it is none of MXNet's types.
    """
    if name is None or name == "":
        return default
    if name.lstrip("-").isdigit():
        return default if name == "-1" else from_code(int(name), g.node or None)
    return as_dtype(name, g.node or None)


@dataclass(frozen=True)
class CastAttrs(Attrs):
    dtype: str


@op("Cast", "cast", "_npi_cast", "_npx_cast", param_shapes=same_shape)
def cast(g: Emit, a: CastAttrs, data: Value) -> Value:
    """To another dtype: floats are truncated towards zero to integers; all but 0 is True."""
    target = named(g, a.dtype)
    if target == ew.BOOL and ew.is_float(g.dtype(data)):
        return g("Not", g("Equal", data, 0))
    if target == FLOAT32 and g.dtype(data) == np.int32:
        known = ranges.as_float(g, data)  # sums of a quantized layer
        return g.cast(data, target) if known is None else known
    return g.cast(data, target)


_LOW = {FLOAT16, BFLOAT16}


@op("amp_cast", param_shapes=same_shape)
def amp_cast(g: Emit, a: CastAttrs, data: Value) -> Value:
    """A cast between float types of single and half precision; other dtypes pass unchanged."""
    return g.cast(data, named(g, a.dtype)) if g.dtype(data) in _LOW | {FLOAT32} else data


@dataclass(frozen=True)
class AmpMulticastAttrs(Attrs):
    num_outputs: int
    cast_narrow: bool = False


def _outputs(a: AmpMulticastAttrs) -> tuple[str, ...]:
    return tuple(f"output{i}" for i in range(a.num_outputs))


@op("amp_multicast", inputs=("data",), variadic="num_outputs", outputs=_outputs)
def amp_multicast(g: Emit, a: AmpMulticastAttrs, *data: Value) -> tuple[Value, ...]:
    """float16 and float32 inputs to the wider of their types, or to the narrower if ``cast_narrow``.

    Other dtypes pass unchanged.
    """
    if len(data) != a.num_outputs:
        raise AttributeValueError(
            "num_outputs must be the number of inputs", where=g.node or None, got=a.num_outputs, expected=len(data)
        )
    types = [g.dtype(x) for x in data]
    low = next((t for t in types if t in _LOW), None)
    if low is None or (FLOAT32 in types and not a.cast_narrow):
        target = FLOAT32
    else:
        target = low
    return tuple(g.cast(x, target) if t in _LOW or t == FLOAT32 else x for x, t in zip(data, types))
