"""Operators that hand on their input at inference: identity, BlockGrad, Dropout; and the scaling of attention."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import UnsupportedError
from requant.ops.elementwise import NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, same_shape


@op("BlockGrad", "stop_gradient", "_npx_stop_gradient", param_shapes=same_shape)
@op("_copy", "identity", "_np_copy", "_npx_identity", param_shapes=same_shape)
def identity(g: Emit, a: NoAttrs, data: Value) -> Value:
    """The input itself."""
    return data


@dataclass(frozen=True)
class DropoutAttrs(Attrs):
    p: float = 0.5
    mode: Literal["training", "always"] = "training"
    axes: Ints = ()
    cudnn_off: bool | None = False


@op("Dropout", "_npx_dropout", hidden_outputs=1, param_shapes=same_shape, by_mode=True)
def dropout(g: Emit, a: DropoutAttrs, data: Value) -> Value:
    """The input itself. ``mode="always"`` drops at inference as well, at random, and is refused."""
    if g.training and a.p > 0:
        raise UnsupportedError(
            "a Dropout in training mode is random",
            where=g.node,
            got=f"p={a.p}",
            next="requant runs trained models: leave train_mode(), or set p to 0",
        )
    if a.mode == "always" and a.p > 0:
        raise UnsupportedError(
            "a Dropout of mode 'always' is random at inference",
            where=g.node,
            got=f"mode=always, p={a.p}",
            expected="mode=training",
            next="set mode to 'training' in the symbol for the mean prediction",
        )
    return data


@op("_contrib_div_sqrt_dim", "_npx_div_sqrt_dim", param_shapes=same_shape)
def div_sqrt_dim(g: Emit, a: NoAttrs, data: Value) -> Value:
    """Data divided by the square root of its last dimension's size."""
    return g("Div", data, root_of_size(g, data, -1))


def root_of_size(g: Emit, data: Value, axis: int) -> Value:
    """The square root of one dimension's size, a scalar of data's dtype."""
    size = g.dims(data)[axis]
    if size is not None:
        return g.const(math.sqrt(size), data)
    return g.cast(g("Sqrt", g.cast(g.squeeze(g.size_of(data, [axis]), [0]), np.float32)), g.dtype(data))
