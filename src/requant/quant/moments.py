"""What the inputs of a compute node look like to its weight: means and covariances of what each weight element meets.

A convolution is a product of its weight with patches of its input. The moments of some thousand patches are enough to
choose how its weight is rounded (`requant.quant.rounding`); they are taken in blocks of input channels, so that their
size stays small next to the weight for any number of channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from requant.passes.rewrite import Array, attribute, ints
from requant.qmath import QuantParams
from requant.quant.rounding import rounded

F64 = npt.NDArray[np.float64]

#: Elements of a weight row that are rounded together, at most.
LARGEST_BLOCK = 640


@dataclass
class Moments:
    """Sums over patches.

    Attributes:
        count: patches seen.
        total: sum of each element, shape (blocks, k).
        products: sum of the products of each two elements of a block, shape (blocks, k, k).
        low, high: the ends of each input channel, shape (channels,), for depthwise convolutions; else None.
        rounded: weights that were rounded by them, by scale: a search applies many plans of one model.
    """

    count: int = 0
    total: F64 = field(default_factory=lambda: np.zeros((0, 0)))
    products: F64 = field(default_factory=lambda: np.zeros((0, 0, 0)))
    low: F64 | None = None
    high: F64 | None = None
    rounded: dict[bytes, Array] = field(default_factory=dict, repr=False)

    def observe(self, rows: npt.NDArray[np.float32]) -> None:
        """Add patches, shape (blocks, patches, k)."""
        if not self.count:
            blocks, _, k = rows.shape
            self.total, self.products = np.zeros((blocks, k)), np.zeros((blocks, k, k))
        self.total += rows.sum(axis=1, dtype=np.float64)
        self.products += rows.transpose(0, 2, 1) @ rows
        self.count += rows.shape[1]

    def reach(self, array: npt.NDArray[np.float32]) -> None:
        """Widen the ends of the channels by an input of shape (N, channels, ...)."""
        axes = tuple(i for i in range(array.ndim) if i != 1)
        low, high = array.min(axis=axes).astype(np.float64), array.max(axis=axes).astype(np.float64)
        self.low = low if self.low is None else np.minimum(self.low, low)
        self.high = high if self.high is None else np.maximum(self.high, high)

    @property
    def variance(self) -> F64:
        """Of what each block meets: of each channel, for depthwise convolutions."""
        count = max(1, self.count)
        mean = self.total.mean(axis=1) / count
        square = np.diagonal(self.products, axis1=1, axis2=2).mean(axis=1) / count
        return np.asarray(np.maximum(square - mean * mean, 0.0))

    @property
    def covariance(self) -> F64:
        """Shape (blocks, k, k): without the means, whose part a bias takes back, and drawn towards its diagonal where
        there are few patches for so many elements (else errors would hide where only these few do not look)."""
        count = max(1, self.count)
        mean = self.total / count
        found = self.products / count - mean[:, :, None] * mean[:, None, :]
        k = found.shape[-1]
        trust = count / (count + k)
        return np.asarray(found * (trust + (1 - trust) * np.eye(k)))


@dataclass(frozen=True)
class Layout:
    """How the weight of a node falls into blocks that meet inputs of their own.

    Attributes:
        op: the operator.
        groups: of the convolution.
        chunks: blocks that the input channels of a group are cut into.
        taps: elements of a row for each input channel.
    """

    op: str
    groups: int
    chunks: int
    taps: int
    flipped: bool = False

    def blocks(self, weight: Array) -> Array:
        """A weight as (blocks, rows, k)."""
        if self.op == "Conv":
            rows = weight.shape[0] // self.groups
            split = weight.reshape(self.groups, rows, self.chunks, -1)
        else:
            matrix = weight if self.flipped else weight.T
            split = matrix.reshape(1, matrix.shape[0], self.chunks, -1)
        return split.transpose(0, 2, 1, 3).reshape(self.groups * self.chunks, split.shape[1], -1)

    def weight(self, blocks: Array, like: Array) -> Array:
        """What `blocks` was made of."""
        split = blocks.reshape(self.groups, self.chunks, *blocks.shape[1:]).transpose(0, 2, 1, 3)
        if self.op == "Conv":
            return split.reshape(like.shape)
        matrix = split.reshape(split.shape[1], -1)
        return matrix if self.flipped else matrix.T


def layout(node: ir.Node, weight: Array) -> Layout | None:
    """The layout of a node's second input, or None if its patches are not told here (transposed, or 3-D)."""
    if node.op_type == "Conv" and weight.ndim in (3, 4):
        groups, channels, taps = int(attribute(node, "group", 1)), weight.shape[1], math.prod(weight.shape[2:])
        if weight.shape[0] % groups or str(attribute(node, "auto_pad", "NOTSET")) not in ("NOTSET", "VALID"):
            return None
        return Layout("Conv", groups, _chunks(channels, taps), taps)
    if node.op_type == "Gemm" and weight.ndim == 2 and not attribute(node, "transA", 0):
        flipped = bool(attribute(node, "transB", 0))
        return Layout("Gemm", 1, _chunks(weight.shape[1 if flipped else 0], 1), 1, flipped)
    if node.op_type == "MatMul" and weight.ndim == 2:
        return Layout("MatMul", 1, _chunks(weight.shape[0], 1), 1)
    return None


def _chunks(channels: int, taps: int) -> int:
    """The fewest equal parts of the channels that make blocks small enough."""
    for parts in range(1, channels + 1):
        if channels % parts == 0 and channels // parts * taps <= LARGEST_BLOCK:
            return parts
    return channels


def patches(
    node: ir.Node, weight: Array, found: Layout, array: Array, places: int, rng: np.random.Generator
) -> Array | None:
    """Some of what the weight meets: shape (blocks, patches, k), or None if the array does not fit.

    Args:
        node, weight, found: the compute node, its weight and the weight's layout.
        array: float32, the node's input, samples along axis 0.
        places: patches that one sample gives, at most.
        rng: chooses them.
    """
    x = np.asarray(array, np.float32)
    if found.op != "Conv":
        rows: np.ndarray = x.reshape(-1, x.shape[-1]) if x.ndim >= 2 else x.reshape(1, -1)
        if rows.shape[1] != weight.shape[1 if found.flipped else 0]:
            return None
        if len(rows) > places * max(1, len(x)):
            rows = rows[np.sort(rng.choice(len(rows), places * len(x), replace=False))]
        return _blocks(rows[:, None, :, None], found)
    if x.ndim != weight.ndim or x.shape[1] != weight.shape[1] * found.groups:
        return None
    taken = _windows(node, weight, x, places, rng)
    if taken is None:
        return None
    split = taken.reshape(taken.shape[0], found.groups, weight.shape[1], -1)
    return _blocks(split, found)


def _blocks(rows: Array, found: Layout) -> Array:
    """(patches, groups, channels, taps) as (blocks, patches, k)."""
    split = rows.reshape(len(rows), found.groups * found.chunks, -1)
    return np.ascontiguousarray(split.transpose(1, 0, 2))


def _windows(node: ir.Node, weight: Array, x: Array, places: int, rng: np.random.Generator) -> Array | None:
    """Patches (patches, channels, taps) at random places of each sample."""
    kernel = weight.shape[2:]
    spatial = len(kernel)
    pads = ints(node, "pads") or [0] * (2 * spatial)
    strides, dilations = ints(node, "strides") or [1] * spatial, ints(node, "dilations") or [1] * spatial
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:])]) if any(pads) else x
    sizes = [(padded.shape[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(spatial)]
    if min(sizes) < 1 or not len(x):
        return None
    all_places = math.prod(sizes)
    count = min(places, all_places)
    at = np.sort(rng.choice(all_places, count, replace=False)) if count < all_places else np.arange(all_places)
    index = [
        np.asarray(p)[:, None] * strides[i] + np.arange(kernel[i])[None, :] * dilations[i]
        for i, p in enumerate(np.unravel_index(at, sizes))
    ]
    if spatial == 1:
        taken = padded[:, :, index[0]]  # (N, C, places, k)
    else:
        taken = padded[:, :, index[0][:, :, None], index[1][:, None, :]]  # (N, C, places, kh, kw)
    taken = taken.reshape(*taken.shape[:3], -1).transpose(0, 2, 1, 3)
    return taken.reshape(len(x) * count, x.shape[1], -1)


def round_weight(weight: Array, params: QuantParams, found: Layout, moments: Moments) -> Array:
    """The integers of a weight, rounded so that their errors cancel (`requant.quant.rounding`).

    Args:
        weight: float32.
        params: symmetric, per tensor or per channel.
        found, moments: its layout, and what its blocks meet.

    Returns:
        An array of ``params.dtype``, of the shape of ``weight``.
    """
    key = params.scale.tobytes()
    if key not in moments.rounded:
        scale = params.scale.astype(np.float64)
        if params.axis is not None:
            scale = scale.reshape([-1 if i == params.axis else 1 for i in range(weight.ndim)])
        whole = rounded(found.blocks(weight.astype(np.float64) / scale), moments.covariance, params.limits.max)
        moments.rounded[key] = np.ascontiguousarray(found.weight(whole, weight).astype(params.dtype))
    return moments.rounded[key]
