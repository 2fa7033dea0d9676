"""Resizing pictures with OpenCV's conventions (which MXNet uses): pixel centres at half, no smoothing when shrinking.

Separable: each axis has a table of source pixels and weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from requant.errors import InputError

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)

_Table = tuple[NDArray[np.int64], NDArray[np.float32]]


def _cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys' kernel with OpenCV's a = -0.75."""
    a, x = -0.75, np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _lanczos(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Windowed sinc over 8 pixels."""
    return np.where(np.abs(x) < 4, np.sinc(x) * np.sinc(x / 4), 0.0)


def _kernel_table(
    size: int, target: int, taps: int, kernel: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> _Table:
    centre = (np.arange(target) + 0.5) * (size / target) - 0.5
    first = np.floor(centre).astype(np.int64) - taps // 2 + 1
    index = first[:, None] + np.arange(taps)
    weight = kernel(centre[:, None] - index)
    weight /= weight.sum(axis=1, keepdims=True)
    return np.clip(index, 0, size - 1), weight.astype(np.float32)


def _area_table(size: int, target: int) -> _Table:
    """Shares of source pixels that a target pixel covers."""
    scale = size / target
    taps = int(np.ceil(scale)) + 1
    low = np.arange(target) * scale
    index = np.floor(low).astype(np.int64)[:, None] + np.arange(taps)
    covered = np.minimum(index + 1, (low + scale)[:, None]) - np.maximum(index, low[:, None])
    weight = np.clip(covered, 0, None) * (index < size)
    return np.clip(index, 0, size - 1), (weight / weight.sum(axis=1, keepdims=True)).astype(np.float32)


def _growing_area_table(size: int, target: int) -> _Table:
    """OpenCV's bilinear weights for the method area where a picture grows: each source pixel keeps its own area."""
    grown = target / size
    at = np.arange(target)
    index = np.floor(at / grown).astype(np.int64)
    share = (at + 1) - (index + 1) * grown
    share = np.where(share <= 0, 0, share - np.floor(share))
    index = np.stack([index, index + 1], axis=1)
    return np.clip(index, 0, size - 1), np.stack([1 - share, share], axis=1).astype(np.float32)


def _table(size: int, target: int, method: int, grows: bool) -> _Table:
    if method == AREA:
        return _growing_area_table(size, target) if grows else _area_table(size, target)
    if method == LINEAR:
        return _kernel_table(size, target, 2, lambda x: np.clip(1 - np.abs(x), 0, None))
    return _kernel_table(size, target, 4, _cubic) if method == CUBIC else _kernel_table(size, target, 8, _lanczos)


def _along(pixels: NDArray[np.float32], axis: int, table: _Table) -> NDArray[np.float32]:
    index, weight = table
    shape = [1] * pixels.ndim
    shape[axis] = -1
    made = np.take(pixels, index[:, 0], axis=axis) * weight[:, 0].reshape(shape)
    for k in range(1, index.shape[1]):
        made += np.take(pixels, index[:, k], axis=axis) * weight[:, k].reshape(shape)
    return made


def resize(image: np.ndarray, width: int, height: int, method: int = LINEAR) -> np.ndarray:
    """Resize (H, W) or (H, W, C); the dtype is kept, integers are rounded.

    Args:
        method: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos over 8 x 8 pixels. Area, where an axis grows, is
            bilinear with weights of its own, as in OpenCV.
    Raises:
        InputError: an unknown method, or a size below 1.
    """
    if method not in range(5):
        raise InputError("unknown interpolation", got=method, expected="0 to 4")
    if width < 1 or height < 1 or 0 in image.shape[:2]:
        raise InputError("a picture has at least one pixel", got=f"{image.shape} to {width} x {height}")
    high, wide = image.shape[:2]
    if (wide, high) == (width, height):
        return image.copy()
    if method == NEAREST:
        rows = np.minimum((np.arange(height) * (high / height)).astype(np.int64), high - 1)
        columns = np.minimum((np.arange(width) * (wide / width)).astype(np.int64), wide - 1)
        nearest: np.ndarray = image[rows][:, columns]
        return nearest
    grows = width > wide or height > high
    made = image.astype(np.float32)
    if wide != width:
        made = _along(made, 1, _table(wide, width, method, grows))
    if high != height:
        made = _along(made, 0, _table(high, height, method, grows))
    if image.dtype.kind in "iu":
        info = np.iinfo(image.dtype)
        made = np.clip(np.rint(made), info.min, info.max)
    return made.astype(image.dtype)
