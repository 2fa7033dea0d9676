"""Sampling grids: GridGenerator, BilinearSampler, SpatialTransformer (Jaderberg et al., 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, op


@dataclass(frozen=True)
class GridGeneratorAttrs(Attrs):
    transform_type: Literal["affine", "warp"]
    target_shape: Ints = (0, 0)


def _target(g: Emit, shape: Ints) -> tuple[int, int]:
    if len(shape) != 2 or min(shape) < 1:
        raise AttributeValueError(
            "target_shape is (height, width)", where=g.node, got=shape, expected="two positive numbers"
        )
    return shape[0], shape[1]


def _affine_grid(g: Emit, theta: Value, height: int, width: int) -> Value:
    """theta (N, 6), rows (x, y) of an affine map, to the grid (N, 2, height, width) of mapped places in [-1, 1]."""
    g.count(height * width, "the target shape")
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    if height == 1:
        y = np.full_like(y, -1.0)
    if width == 1:
        x = np.full_like(x, -1.0)
    places = np.stack([x.ravel(), y.ravel(), np.ones(height * width)])
    mapped = g("MatMul", g.reshape(theta, [-1, 2, 3]), g.const(places, theta))
    assert theta.shape is not None
    return g.set_shape(g.reshape(mapped, [0, 2, height, width]), [theta.shape[0], 2, height, width])


def _places(g: Emit, x: Value, axis: int) -> Value:
    """0, 1, ... along one dimension of x, in x's dtype."""
    size = g.dims(x)[axis]
    if size is not None:
        return g.const(np.arange(size), x)
    n = g.squeeze(g.size_of(x, [axis]), [0])
    return g.cast(g("Range", g.const(np.int64(0)), n, g.const(np.int64(1))), g.dtype(x))


def _half_span(g: Emit, x: Value, axis: int) -> Value:
    """(size - 1) / 2 of one dimension, in x's dtype."""
    size = g.dims(x)[axis]
    if size is not None:
        return g.const((size - 1) / 2, x)
    return g("Mul", g("Sub", g.cast(g.squeeze(g.size_of(x, [axis]), [0]), g.dtype(x)), 1.0), 0.5)


def _warp_grid(g: Emit, flow: Value) -> Value:
    """flow (N, 2, H, W) in pixels, added to each pixel's own place, to a grid in [-1, 1]."""
    parts = []
    for channel, axis in ((0, 3), (1, 2)):
        own = _places(g, flow, axis)
        own = own if axis == 3 else g.unsqueeze(own, [1])
        moved = g("Add", g.slice(flow, [channel], [channel + 1], [1]), own)
        parts.append(g("Sub", g("Div", moved, _half_span(g, flow, axis)), 1.0))
    return g("Concat", *parts, axis=1)


@op("GridGenerator", "_npx_grid_generator", hidden_outputs=1)
def grid_generator(g: Emit, a: GridGeneratorAttrs, data: Value) -> Value:
    """A sampling grid (N, 2, H, W), channels (x, y) in [-1, 1].

    ``affine``: from theta (N, 6) for ``target_shape``. ``warp``: from a flow (N, 2, H, W) in pixels.
    """
    if a.transform_type == "affine":
        return _affine_grid(g, data, *_target(g, a.target_shape))
    if g.rank(data) != 4:
        raise ShapeError("a flow is (N, 2, H, W)", where=g.node, got=f"rank {g.rank(data)}", expected="rank 4")
    return _warp_grid(g, data)


def _sample(g: Emit, data: Value, grid: Value) -> Value:
    """Bilinear interpolation of data (N, C, H, W) at the places of grid (N, 2, h, w); zeros beyond the border."""
    places = g.transpose(grid, [0, 2, 3, 1])
    # The mode is left to the default: "linear" is what OpenVINO 2025 still calls "bilinear".
    return g.in_float32("GridSample", data, places, padding_mode="zeros", align_corners=1)


@dataclass(frozen=True)
class BilinearSamplerAttrs(Attrs):
    cudnn_off: bool | None = None


def _sampler_shapes(a: BilinearSamplerAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data, grid = shapes["data"], shapes["grid"]
    return {} if data is None or grid is not None else {"grid": (data[0], 2, 0, 0)}


@op(
    "BilinearSampler",
    "_npx_bilinear_sampler",
    inputs=("data", "grid"),
    hidden_outputs=1,
    param_shapes=_sampler_shapes,
)
def bilinear_sampler(g: Emit, a: BilinearSamplerAttrs, data: Value, grid: Value) -> Value:
    """data (N, C, H, W) sampled at grid (N, 2, h, w), whose channels are (x, y) in [-1, 1]."""
    return _sample(g, data, grid)


@dataclass(frozen=True, kw_only=True)
class SpatialTransformerAttrs(Attrs):
    target_shape: Ints = (0, 0)
    transform_type: Literal["affine"]
    sampler_type: Literal["bilinear"]
    cudnn_off: bool | None = None


def _loc_shapes(a: SpatialTransformerAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"]
    return {} if data is None else {"loc": (data[0], 6)}


@op(
    "SpatialTransformer",
    "_npx_spatial_transformer",
    inputs=("data", "loc"),
    hidden_outputs=2,
    param_shapes=_loc_shapes,
)
def spatial_transformer(g: Emit, a: SpatialTransformerAttrs, data: Value, loc: Value) -> Value:
    """data (N, C, H, W) sampled through the affine maps loc (N, 6), to ``target_shape``."""
    return _sample(g, data, _affine_grid(g, loc, *_target(g, a.target_shape)))
