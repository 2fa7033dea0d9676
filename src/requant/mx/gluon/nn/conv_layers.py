"""``nn.conv_layers``: where MXNet keeps convolutions and pooling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from requant.mx import symbol
from requant.mx.gluon.nn.convolution import (
    Conv1D,
    Conv1DTranspose,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
)
from requant.mx.gluon.nn.pooling import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
    ReflectionPad2D,
)

__all__ = [
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "Conv1D",
    "Conv1DTranspose",
    "Conv2D",
    "Conv2DTranspose",
    "Conv3D",
    "Conv3DTranspose",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "ReflectionPad2D",
]


def _infer_weight_shape(op_name: str, data_shape: Sequence[int], kwargs: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Shapes of data, weight and bias of a layer that computes ``op_name``; 0 is a dimension that is not known.

    Private in MXNet, but scripts that write their own convolution layers import it.
    """
    made = getattr(symbol, op_name)(symbol.var("data", shape=tuple(data_shape)), **kwargs)
    shapes: list[tuple[int, ...]] = made.infer_shape_partial()[0]
    return shapes
