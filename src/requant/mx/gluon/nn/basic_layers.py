"""``nn.basic_layers``: where MXNet keeps containers, dense layers and normalizations."""

from __future__ import annotations

from requant.mx.gluon.nn.activations import Activation
from requant.mx.gluon.nn.basic import (
    Concatenate,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    HybridConcatenate,
    HybridLambda,
    HybridSequential,
    Identity,
    Lambda,
    Sequential,
)
from requant.mx.gluon.nn.normalization import BatchNorm, BatchNormReLU, GroupNorm, InstanceNorm, LayerNorm

__all__ = [
    "Activation",
    "BatchNorm",
    "BatchNormReLU",
    "Concatenate",
    "Dense",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "HybridConcatenate",
    "HybridLambda",
    "HybridSequential",
    "Identity",
    "InstanceNorm",
    "Lambda",
    "LayerNorm",
    "Sequential",
]
