"""Functions on single pictures: (H, W, C) NDArrays, RGB unless told otherwise. Decoding needs Pillow."""

from __future__ import annotations

import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np

from requant.errors import InputError, ShapeError
from requant.formats.image_codec import decode_image
from requant.formats.resample import resize
from requant.mx.context import checked
from requant.mx.ndarray.ndarray import NDArray

Size = tuple[int, int]


def _pixels(src: Any) -> np.ndarray:
    made = src._data if isinstance(src, NDArray) else np.asarray(src)
    if made.ndim not in (2, 3):
        raise ShapeError("a picture has shape (H, W, C)", got=made.shape)
    return made


def _wrap(pixels: np.ndarray) -> NDArray:
    return NDArray(np.ascontiguousarray(pixels), checked(None))


def imdecode(buf: Any, flag: int = 1, to_rgb: bool | int = True, out: NDArray | None = None) -> NDArray:
    """Decode the bytes of a picture file to (H, W, C) uint8.

    Args:
        flag: 1 for colour, 0 for gray (one channel).
        to_rgb: RGB; otherwise OpenCV's BGR.
    Raises:
        FormatError: no picture, or a truncated one.
    """
    data = buf.asnumpy().tobytes() if isinstance(buf, NDArray) else bytes(memoryview(buf))
    if not data:
        raise InputError("no bytes to decode")
    pixels = decode_image(data, int(flag))
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    if to_rgb and pixels.shape[2] == 3:
        pixels = pixels[:, :, ::-1]
    made = _wrap(pixels)
    return made if out is None else made.copyto(out)


def imread(filename: str | os.PathLike[str], flag: int = 1, to_rgb: bool | int = True) -> NDArray:
    """Read a picture file as (H, W, C) uint8; see ``imdecode``.

    Raises:
        FileNotFoundError: there is no such file. FormatError: it is no picture.
    """
    return imdecode(Path(filename).read_bytes(), flag, to_rgb)


def _get_interp_method(interp: int, sizes: tuple[int, ...] = ()) -> int:
    """The method for code 9 (by sizes: area to shrink, cubic to grow, else bilinear) and 10 (any); else the code."""
    if interp == 9:
        if not sizes:
            return 2
        old_h, old_w, new_h, new_w = sizes
        if new_h > old_h and new_w > old_w:
            return 2
        return 3 if new_h < old_h and new_w < old_w else 1
    if interp == 10:
        return random.randint(0, 4)
    if interp not in (0, 1, 2, 3, 4):
        raise InputError("unknown interpolation", got=interp, expected="0 to 4, 9 or 10")
    return interp


def imresize(src: NDArray, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """Resize to ``w`` x ``h``; ``interp`` 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos."""
    made = _wrap(resize(_pixels(src), int(w), int(h), int(interp)))
    return made if out is None else made.copyto(out)


def copyMakeBorder(
    src: NDArray, top: int, bot: int, left: int, right: int, type: int = 0, value: float = 0.0, values: Any = ()
) -> NDArray:
    """A border around a picture: of a constant (type 0), the edge repeated (1), or mirrored (2 with the edge, 4
    without).
    """
    pixels = _pixels(src)
    width = ((top, bot), (left, right), (0, 0))[: pixels.ndim]
    modes = {1: "edge", 2: "symmetric", 4: "reflect"}
    if type in modes:
        return _wrap(np.pad(pixels, width, mode=modes[type]))  # type: ignore[call-overload]
    made = np.empty(tuple(n + a + b for n, (a, b) in zip(pixels.shape, width)), pixels.dtype)
    made[...] = np.asarray(values if len(np.atleast_1d(values)) else value, pixels.dtype)
    made[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
    return _wrap(made)


def scale_down(src_size: Size, size: Size) -> Size:
    """A crop size (w, h) scaled down so that it fits into a picture of ``src_size``."""
    w, h = size
    sw, sh = src_size
    if sh < h:
        w, h = w * sh / h, sh  # type: ignore[assignment]
    if sw < w:
        w, h = sw, h * sw / w  # type: ignore[assignment]
    return int(w), int(h)


def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """Resize so that the shorter side is ``size``."""
    h, w = _pixels(src).shape[:2]
    new_h, new_w = (size * h // w, size) if h > w else (size, size * w // h)
    return imresize(src, new_w, new_h, _get_interp_method(interp, (h, w, new_h, new_w)))


def fixed_crop(src: NDArray, x0: int, y0: int, w: int, h: int, size: Size | None = None, interp: int = 2) -> NDArray:
    """The window at (x0, y0), resized to ``size`` (w, h) if that differs."""
    out = _wrap(_pixels(src)[y0 : y0 + h, x0 : x0 + w])
    if size is not None and (w, h) != tuple(size):
        out = imresize(out, *size, interp=_get_interp_method(interp, (h, w, size[1], size[0])))
    return out


def random_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """A random window of ``size``, and where it is: (x0, y0, w, h)."""
    h, w = _pixels(src).shape[:2]
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def center_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """The window of ``size`` in the middle, and where it is: (x0, y0, w, h)."""
    h, w = _pixels(src).shape[:2]
    new_w, new_h = scale_down((w, h), size)
    x0, y0 = int((w - new_w) / 2), int((h - new_h) / 2)
    return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)


def random_size_crop(
    src: NDArray, size: Size, area: Any, ratio: tuple[float, float], interp: int = 2, **kwargs: Any
) -> tuple[NDArray, tuple[int, int, int, int]]:
    """A window of random area and aspect ratio, resized to ``size``; the middle if none fits in 10 tries."""
    h, w = _pixels(src).shape[:2]
    shares = (area, 1.0) if isinstance(area, (int, float)) else tuple(area)
    for _ in range(10):
        target = random.uniform(*shares) * h * w
        aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_w, new_h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < new_w <= w and 0 < new_h <= h:
            x0, y0 = random.randint(0, w - new_w), random.randint(0, h - new_h)
            return fixed_crop(src, x0, y0, new_w, new_h, size, interp), (x0, y0, new_w, new_h)
    return center_crop(src, size, interp)


def color_normalize(src: NDArray, mean: Any, std: Any = None) -> NDArray:
    """(src - mean) / std."""
    out = src - mean if mean is not None else src
    return out / std if std is not None else out


def imrotate(src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """(C, H, W) float32, or a batch of them, turned about the middle, bilinear; corners become 0.

    Args:
        rotation_degrees: one number, or an NDArray with one for each picture.
        zoom_in: scale so that no corner is empty. zoom_out: so that nothing is cut off.
    """
    if zoom_in and zoom_out:
        raise InputError("zoom_in and zoom_out exclude each other")
    single = src.ndim == 3
    batch = src._data[None] if single else src._data
    if batch.ndim != 4 or batch.dtype != np.float32:
        raise InputError("expected (C, H, W) or (N, C, H, W) of float32", got=f"{src.shape} of {batch.dtype}")
    degrees = np.broadcast_to(
        rotation_degrees._data if isinstance(rotation_degrees, NDArray) else np.float32(rotation_degrees),
        batch.shape[:1],
    )
    made = np.stack([_rotated(p, float(d), zoom_in, zoom_out) for p, d in zip(batch, degrees)])
    return _wrap(made[0] if single else made)


def _rotated(pixels: np.ndarray, degrees: float, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    _, h, w = pixels.shape
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    scale = 1.0
    if zoom_in or zoom_out:
        hh, ww = abs(h * cos) + abs(w * sin), abs(w * cos) + abs(h * sin)
        scale = max(hh / h, ww / w) if zoom_out else 1 / max(hh / h, ww / w)
    y, x = np.meshgrid(np.arange(h) - (h - 1) / 2, np.arange(w) - (w - 1) / 2, indexing="ij")
    sx = (x * cos - y * sin) * scale + (w - 1) / 2
    sy = (x * sin + y * cos) * scale + (h - 1) / 2
    x0, y0 = np.floor(sx).astype(int), np.floor(sy).astype(int)
    made = np.zeros_like(pixels)
    for dy in (0, 1):
        for dx in (0, 1):
            xi, yi = x0 + dx, y0 + dy
            weight = (1 - np.abs(sx - xi)) * (1 - np.abs(sy - yi)) * ((xi >= 0) & (xi < w) & (yi >= 0) & (yi < h))
            made += pixels[:, np.clip(yi, 0, h - 1), np.clip(xi, 0, w - 1)] * weight.astype(np.float32)
    return made


def random_rotate(
    src: NDArray, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """``imrotate`` by a random angle between the limits, in degrees."""
    if src.ndim == 3:
        return imrotate(src, random.uniform(*angle_limits), zoom_in, zoom_out)
    angles = np.random.uniform(*angle_limits, size=src.shape[0]).astype(np.float32)
    return imrotate(src, _wrap(angles), zoom_in, zoom_out)
