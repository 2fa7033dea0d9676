"""``mx.nd.image``: what is done to a picture before a network sees it. Layout (H, W, C) or (N, H, W, C)."""

from __future__ import annotations

from typing import Any

import numpy as np

from requant.errors import InputError, ShapeError
from requant.mx.generate import Namespace
from requant.mx.ndarray.call import function
from requant.mx.ndarray.ndarray import NDArray

_functions = Namespace(__name__, "image", function)


def _batched(data: NDArray, where: str) -> np.ndarray:
    if data.ndim not in (3, 4):
        raise ShapeError("an image has 3 dimensions, a batch 4", where=where, got=data.shape)
    return data._data


def to_tensor(data: NDArray, **kwargs: Any) -> NDArray:
    """(H, W, C) of 0..255 to (C, H, W) of 0..1, float32; batches likewise."""
    values = _batched(data, "to_tensor")
    axes = (2, 0, 1) if values.ndim == 3 else (0, 3, 1, 2)
    return NDArray(np.ascontiguousarray(values.transpose(axes), np.float32) / np.float32(255), data.context)


def normalize(data: NDArray, mean: Any = 0.0, std: Any = 1.0, **kwargs: Any) -> NDArray:
    """(x - mean) / std per channel of (C, H, W) or (N, C, H, W)."""
    values = _batched(data, "normalize")
    channels = values.shape[-3]
    per = []
    for name, given in (("mean", mean), ("std", std)):
        numbers = np.asarray(given, np.float32).reshape(-1)
        if len(numbers) not in (1, channels):
            raise InputError(f"{name} must have one number per channel", got=len(numbers), expected=f"1 or {channels}")
        per.append(numbers.reshape(-1, 1, 1))
    return NDArray((values - per[0]) / per[1], data.context)


def resize(data: NDArray, size: Any = 0, keep_ratio: bool = False, interp: int = 1, **kwargs: Any) -> NDArray:
    """Resize (H, W, C); ``size`` is one number or (width, height); ``interp`` 0 nearest, 1 bilinear, 2 bicubic.

    Needs Pillow (``pip install requant[image]``), whose resampling smooths when it shrinks, unlike OpenCV's in MXNet.
    """
    from PIL import Image

    values = _batched(data, "resize")
    if values.ndim == 4:
        return NDArray(np.stack([resize(NDArray(v), size, keep_ratio, interp)._data for v in values]), data.context)
    height, width = values.shape[:2]
    numbers = [int(n) for n in np.asarray(size).reshape(-1)]
    if len(numbers) == 1 and keep_ratio:
        scale = numbers[0] / min(height, width)
        numbers = [round(width * scale), round(height * scale)]
    wide, high = numbers * 2 if len(numbers) == 1 else numbers
    filters = {0: Image.Resampling.NEAREST, 1: Image.Resampling.BILINEAR, 2: Image.Resampling.BICUBIC}
    if values.dtype != np.uint8:
        planes = [Image.fromarray(p.astype(np.float32)) for p in np.moveaxis(values, -1, 0)]
        made = np.stack([np.asarray(p.resize((wide, high), filters[interp])) for p in planes], axis=-1)
        return NDArray(made.astype(values.dtype), data.context)
    picture = Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values)
    made = np.asarray(picture.resize((wide, high), filters[interp])).reshape(high, wide, -1)
    return NDArray(made.copy(), data.context)


def crop(data: NDArray, x: int, y: int, width: int, height: int) -> NDArray:
    """A rectangle of (H, W, C) or (N, H, W, C)."""
    values = _batched(data, "crop")
    if x < 0 or y < 0 or x + width > values.shape[-2] or y + height > values.shape[-3]:
        raise InputError("the rectangle is not inside the image", got=(x, y, width, height), expected=values.shape)
    return NDArray(np.ascontiguousarray(values[..., y : y + height, x : x + width, :]), data.context)


def flip_left_right(data: NDArray) -> NDArray:
    """(H, W, C) mirrored left to right."""
    return NDArray(np.ascontiguousarray(_batched(data, "flip")[..., ::-1, :]), data.context)


def flip_top_bottom(data: NDArray) -> NDArray:
    """(H, W, C) mirrored top to bottom."""
    return NDArray(np.ascontiguousarray(_batched(data, "flip")[..., ::-1, :, :]), data.context)


def __getattr__(name: str) -> Any:
    return _functions.get(name)
