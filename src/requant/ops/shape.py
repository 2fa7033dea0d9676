"""Moving, adding and dropping dimensions: transpose, SwapAxis, expand_dims, squeeze, depth_to_space and diag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, op
from requant.ops.sizes import Size, reshape_to, sizes


@dataclass(frozen=True)
class TransposeAttrs(Attrs):
    axes: Ints | None = ()


def _permutation(axes: Ints | None, rank: int, where: str) -> list[int]:
    if not axes:
        return list(range(rank))[::-1]
    perm = [a % rank if -rank <= a < rank else rank for a in axes]
    if sorted(perm) != list(range(rank)):
        raise AttributeValueError(
            "axes must name every dimension once", where=where, got=axes, expected=f"a permutation of 0..{rank - 1}"
        )
    return perm


def _permuted_back(perm: list[int], shapes: Mapping[str, Shape | None], name: str) -> dict[str, Shape]:
    """The rule of a permutation: its input's shape from its output's."""
    out = shapes["output"]
    if out is None or shapes[name] is not None or len(perm) != len(out):
        return {}
    return {name: tuple(out[i] for i in np.argsort(perm))}


def _transpose_shapes(a: TransposeAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out, name = shapes["output"], next(iter(shapes))
    return {} if out is None else _permuted_back(_permutation(a.axes, len(out), "transpose"), shapes, name)


@op("transpose", param_shapes=_transpose_shapes)
def transpose(g: Emit, a: TransposeAttrs, data: Value) -> Value:
    """Permute the dimensions; no axes means to reverse them."""
    return g.transpose(data, _permutation(a.axes, g.rank(data), g.node))


@op("_np_transpose", "_npi_transpose", inputs=("a",), param_shapes=_transpose_shapes)
def np_transpose(g: Emit, attrs: TransposeAttrs, a: Value) -> Value:
    """Permute the dimensions; no axes means to reverse them."""
    return g.transpose(a, _permutation(attrs.axes, g.rank(a), g.node))


@dataclass(frozen=True)
class SwapAxisAttrs(Attrs):
    dim1: int = 0
    dim2: int = 0


def _swapped(a: SwapAxisAttrs, rank: int) -> list[int]:
    perm = list(range(rank))
    if -rank <= a.dim1 < rank and -rank <= a.dim2 < rank:
        perm[a.dim1], perm[a.dim2] = perm[a.dim2], perm[a.dim1]
    return perm


def _swap_shapes(a: SwapAxisAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out = shapes["output"]
    return {} if out is None else _permuted_back(_swapped(a, len(out)), shapes, "data")


@op("SwapAxis", "swapaxes", "_npi_swapaxes", param_shapes=_swap_shapes)
def swap_axis(g: Emit, a: SwapAxisAttrs, data: Value) -> Value:
    """Swap two dimensions."""
    for axis in (a.dim1, a.dim2):
        g.axis(data, axis)
    return g.transpose(data, _swapped(a, g.rank(data)))


@dataclass(frozen=True)
class MoveAxisAttrs(Attrs):
    source: Ints
    destination: Ints


@op("_np_moveaxis", "_npi_moveaxis", inputs=("a",))
def moveaxis(g: Emit, attrs: MoveAxisAttrs, a: Value) -> Value:
    """Move dimensions to new places; the others keep their order."""
    source = [g.axis(a, i) for i in attrs.source]
    target = [g.axis(a, i) for i in attrs.destination]
    if len(set(source)) != len(source) or len(set(target)) != len(target) or len(source) != len(target):
        raise AttributeValueError(
            "source and destination must name as many dimensions, each once", where=g.node, got=attrs
        )
    perm = [i for i in range(g.rank(a)) if i not in source]
    for place, axis in sorted(zip(target, source)):
        perm.insert(place, axis)
    return g.transpose(a, perm)


@dataclass(frozen=True)
class ExpandDimsAttrs(Attrs):
    axis: int


def _expand_shapes(a: ExpandDimsAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    out = shapes["output"]
    if out is None or shapes["data"] is not None or not -len(out) <= a.axis < len(out):
        return {}
    dims = list(out)
    del dims[a.axis]
    return {"data": tuple(dims)}


@op("expand_dims", "_npi_expand_dims", param_shapes=_expand_shapes)
def expand_dims(g: Emit, a: ExpandDimsAttrs, data: Value) -> Value:
    """Insert a dimension of size 1 at ``axis``."""
    rank = g.rank(data) + 1
    if not -rank <= a.axis < rank:
        raise ShapeError("axis out of range", where=g.node, got=a.axis, expected=f"-{rank} <= axis < {rank}")
    return g.unsqueeze(data, [a.axis % rank])


@dataclass(frozen=True)
class SqueezeAttrs(Attrs):
    axis: Ints | None = None


def _squeezed(g: Emit, axis: Ints | None, data: Value, keep_one: bool) -> Value:
    """Drop the named dimensions, or (static shapes alone can tell) all that are 1; perhaps not the last one."""
    if axis is None:
        axes = [i for i, d in enumerate(g.static(data)) if d == 1]
    else:
        axes = sorted({g.axis(data, i) for i in axis})
        for i in axes:
            if g.dims(data)[i] not in (1, None):
                raise ShapeError(
                    "a dimension that is not 1 cannot be squeezed", where=g.node, got=f"axis {i} of {g.dims(data)}"
                )
    if keep_one and axes and len(axes) == g.rank(data):
        axes = axes[1:]
    return g.squeeze(data, axes)


@op("squeeze")
def squeeze(g: Emit, a: SqueezeAttrs, data: Value) -> Value:
    """Drop dimensions of size 1: those of ``axis``, or all. At least one dimension is kept."""
    return _squeezed(g, a.axis, data, keep_one=True)


@op("_np_squeeze", "_npi_squeeze", inputs=("a",))
def np_squeeze(g: Emit, attrs: SqueezeAttrs, a: Value) -> Value:
    """Drop dimensions of size 1: those of ``axis``, or all (down to a scalar)."""
    return _squeezed(g, attrs.axis, a, keep_one=False)


@dataclass(frozen=True)
class BlockAttrs(Attrs):
    block_size: int


def _block(g: Emit, a: BlockAttrs, data: Value) -> int:
    if g.rank(data) != 4 or a.block_size < 1:
        raise ShapeError(
            "depth and space are exchanged in 4-D data, by blocks of 1 or more",
            where=g.node,
            got=f"rank {g.rank(data)}, block_size {a.block_size}",
        )
    return a.block_size


def _plain(g: Emit, data: Value) -> bool:
    """Whether some ONNX Runtime lacks DepthToSpace or SpaceToDepth for this dtype, so that they are spelled out."""
    return g.dtype(data).kind != "f"


@op("depth_to_space")
def depth_to_space(g: Emit, a: BlockAttrs, data: Value) -> Value:
    """(N, C·b², H, W) to (N, C, H·b, W·b); channel c of block (i, j) is channel (i·b + j)·C + c."""
    b = _block(g, a, data)
    if not _plain(g, data):
        return g("DepthToSpace", data, blocksize=b, mode="DCR")
    side = Size.number_of(b)
    n, c, h, w = sizes(g, data)
    blocks = reshape_to(g, data, [n, side, side, c / (side * side), h, w])
    return reshape_to(g, g.transpose(blocks, [0, 3, 4, 1, 5, 2]), [n, c / (side * side), h * side, w * side], (data,))


@op("space_to_depth")
def space_to_depth(g: Emit, a: BlockAttrs, data: Value) -> Value:
    """(N, C, H·b, W·b) to (N, C·b², H, W); the inverse of depth_to_space."""
    b = _block(g, a, data)
    if not _plain(g, data):
        return g("SpaceToDepth", data, blocksize=b)
    side = Size.number_of(b)
    n, c, h, w = sizes(g, data)
    blocks = reshape_to(g, data, [n, c, h / side, side, w / side, side])
    return reshape_to(g, g.transpose(blocks, [0, 3, 5, 1, 2, 4]), [n, c * side * side, h / side, w / side], (data,))


@dataclass(frozen=True)
class DiagAttrs(Attrs):
    k: int = 0
    axis1: int = 0
    axis2: int = 1


def _diagonal(g: Emit, data: Value, k: int, first: int, second: int) -> Value:
    """The k-th diagonal of the matrices that two dimensions span; it becomes the last dimension."""
    if first == second:
        raise ShapeError("a diagonal needs two different dimensions", where=g.node, got=f"axes {first} and {second}")
    rows, columns = g.dim(data, first), g.dim(data, second)
    length = min(rows + min(k, 0), columns - max(k, 0))
    if length <= 0:
        raise ShapeError("the diagonal lies outside of the matrix", where=g.node, got=f"k={k} of {rows} x {columns}")
    steps = np.arange(length, dtype=np.int64)
    places = (steps - min(k, 0)) * columns + steps + max(k, 0)
    others = [i for i in range(g.rank(data)) if i not in (first, second)]
    moved = g.transpose(data, [*others, first, second])
    have = sizes(g, moved)
    flat = reshape_to(g, moved, [*have[:-2], Size.number_of(rows * columns)])
    return g("Gather", flat, places, axis=len(others))


def _matrix(g: Emit, data: Value, k: int) -> Value:
    """A square matrix with ``data`` (n,) on its k-th diagonal and zeros elsewhere."""
    n = g.dim(data, 0)
    side = n + abs(k)
    g.count(side * side, "the matrix")
    steps = np.arange(n, dtype=np.int64)
    places = np.stack([steps - min(k, 0), steps + max(k, 0)], axis=1)
    zeros = g.const(np.zeros((side, side)), data)
    return g("ScatterND", zeros, places, data)


@op("diag")
def diag(g: Emit, a: DiagAttrs, data: Value) -> Value:
    """The k-th diagonal of matrices, or the matrix that has a vector on it."""
    if g.rank(data) == 1:
        return _matrix(g, data, a.k)
    return _diagonal(g, data, a.k, g.axis(data, a.axis1), g.axis(data, a.axis2))


@dataclass(frozen=True)
class NumpyDiagAttrs(Attrs):
    k: int = 0


@op("_np_diag", "_npi_diag")
def np_diag(g: Emit, a: NumpyDiagAttrs, data: Value) -> Value:
    """The k-th diagonal of a matrix, or the matrix that has a vector on it."""
    return _matrix(g, data, a.k) if g.rank(data) == 1 else _diagonal(g, data, a.k, 0, 1)


@dataclass(frozen=True)
class NumpyDiagonalAttrs(Attrs):
    offset: int = 0
    axis1: int = 0
    axis2: int = 1


@op("_np_diagonal", "_npi_diagonal")
def np_diagonal(g: Emit, a: NumpyDiagonalAttrs, data: Value) -> Value:
    """The diagonal of the matrices that two dimensions span, as the last dimension."""
    return _diagonal(g, data, a.offset, g.axis(data, a.axis1), g.axis(data, a.axis2))
