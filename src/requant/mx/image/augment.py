"""Augmenters: objects that change one picture (H, W, C), at random or not."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.mx.image import image as functions
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray

__all__ = [
    "Augmenter",
    "BrightnessJitterAug",
    "CastAug",
    "CenterCropAug",
    "ColorJitterAug",
    "ColorNormalizeAug",
    "ContrastJitterAug",
    "CreateAugmenter",
    "ForceResizeAug",
    "HorizontalFlipAug",
    "HueJitterAug",
    "LightingAug",
    "RandomCropAug",
    "RandomGrayAug",
    "RandomOrderAug",
    "RandomSizedCropAug",
    "ResizeAug",
    "SaturationJitterAug",
    "SequentialAug",
]

#: Rec. 601 luma of RGB.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


class Augmenter:
    """Base of augmenters: keeps its arguments for ``dumps``."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {
            k: (v.asnumpy().tolist() if isinstance(v, NDArray) else v.tolist() if isinstance(v, np.ndarray) else v)
            for k, v in kwargs.items()
        }

    def dumps(self) -> Any:
        """Its name and arguments as JSON text."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: NDArray) -> NDArray:
        """The changed picture."""
        raise NotImplementedError


class SequentialAug(Augmenter):
    """Augmenters one after another."""

    def __init__(self, ts: Sequence[Augmenter]) -> None:
        super().__init__()
        self.ts = list(ts)

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [t.dumps() for t in self.ts]]

    def __call__(self, src: NDArray) -> NDArray:
        for t in self.ts:
            src = t(src)
        return src


class RandomOrderAug(SequentialAug):
    """Augmenters one after another, in random order."""

    def __call__(self, src: NDArray) -> NDArray:
        for t in random.sample(self.ts, len(self.ts)):
            src = t(src)
        return src


class ResizeAug(Augmenter):
    """Resize so that the shorter side is ``size``."""

    def __init__(self, size: int, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return functions.resize_short(src, self.size, self.interp)


class ForceResizeAug(Augmenter):
    """Resize to ``size`` (w, h)."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        sizes = (*src.shape[:2], self.size[1], self.size[0])
        return functions.imresize(src, *self.size, interp=functions._get_interp_method(self.interp, sizes))


class RandomCropAug(Augmenter):
    """A random window of ``size`` (w, h)."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return functions.random_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """A window of random area and aspect ratio, resized to ``size``."""

    def __init__(
        self, size: tuple[int, int], area: Any, ratio: tuple[float, float], interp: int = 2, **kwargs: Any
    ) -> None:
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size, self.area, self.ratio, self.interp = size, area, ratio, interp

    def __call__(self, src: NDArray) -> NDArray:
        return functions.random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class CenterCropAug(Augmenter):
    """The window of ``size`` (w, h) in the middle."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return functions.center_crop(src, self.size, self.interp)[0]


class HorizontalFlipAug(Augmenter):
    """Mirrored left to right with probability ``p``."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        return array(src._data[:, ::-1], dtype=src.dtype) if random.random() < self.p else src


class CastAug(Augmenter):
    """Another dtype."""

    def __init__(self, typ: str = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: NDArray) -> NDArray:
        return src.astype(self.typ)


class ColorNormalizeAug(Augmenter):
    """(x - mean) / std."""

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = None if mean is None else (mean if isinstance(mean, NDArray) else array(mean))
        self.std = None if std is None else (std if isinstance(std, NDArray) else array(std))

    def __call__(self, src: NDArray) -> NDArray:
        return functions.color_normalize(src, self.mean, self.std)


def _mixed(src: NDArray, other: Any, share: float) -> NDArray:
    made = src._data.astype(np.float32) * np.float32(share) + np.float32(1 - share) * other
    return NDArray(made.astype(np.float32), src.context)


class BrightnessJitterAug(Augmenter):
    """Times a random number around 1."""

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: NDArray) -> NDArray:
        return _mixed(src, np.float32(0), 1 + random.uniform(-self.brightness, self.brightness))


class ContrastJitterAug(Augmenter):
    """Further from, or nearer to, the mean luma."""

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast

    def __call__(self, src: NDArray) -> NDArray:
        mean = np.float32((src._data * _LUMA).sum() / (src.shape[0] * src.shape[1]))
        return _mixed(src, mean, 1 + random.uniform(-self.contrast, self.contrast))


class SaturationJitterAug(Augmenter):
    """Further from, or nearer to, gray."""

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation

    def __call__(self, src: NDArray) -> NDArray:
        gray = (src._data * _LUMA).sum(axis=2, keepdims=True)
        return _mixed(src, gray, 1 + random.uniform(-self.saturation, self.saturation))


class HueJitterAug(Augmenter):
    """Colours turned about the gray axis, in YIQ."""

    _to_yiq = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue

    def __call__(self, src: NDArray) -> NDArray:
        angle = random.uniform(-self.hue, self.hue) * np.pi
        turn = np.array([[1, 0, 0], [0, np.cos(angle), -np.sin(angle)], [0, np.sin(angle), np.cos(angle)]])
        matrix = np.linalg.inv(self._to_yiq) @ turn @ self._to_yiq
        return NDArray((src._data @ matrix.T).astype(np.float32), src.context)


class ColorJitterAug(RandomOrderAug):
    """Brightness, contrast and saturation, in random order; those that are 0 are left out."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        kinds = ((BrightnessJitterAug, brightness), (ContrastJitterAug, contrast), (SaturationJitterAug, saturation))
        super().__init__([kind(amount) for kind, amount in kinds if amount > 0])


class LightingAug(Augmenter):
    """Noise along the principal axes of colour (Krizhevsky 2012)."""

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, np.asarray(eigval), np.asarray(eigvec)

    def __call__(self, src: NDArray) -> NDArray:
        alpha = np.random.normal(0, self.alphastd, size=(3,))
        return src + array(np.dot(self.eigvec * alpha, self.eigval))


class RandomGrayAug(Augmenter):
    """Gray with probability ``p``."""

    _to_gray = np.array([[0.21, 0.21, 0.21], [0.72, 0.72, 0.72], [0.07, 0.07, 0.07]], np.float32)

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        return NDArray(src._data @ self._to_gray, src.context) if random.random() < self.p else src


def CreateAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """The usual list of augmenters for pictures that become ``data_shape`` (C, H, W).

    Args:
        mean, std: numbers per channel, or True for ImageNet's.
    """
    found: list[Augmenter] = []
    if resize > 0:
        found.append(ResizeAug(resize, inter_method))
    size = (int(data_shape[2]), int(data_shape[1]))
    if rand_resize:
        found.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    elif rand_crop:
        found.append(RandomCropAug(size, inter_method))
    else:
        found.append(CenterCropAug(size, inter_method))
    if rand_mirror:
        found.append(HorizontalFlipAug(0.5))
    return found + colour_augmenters(mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray)


def colour_augmenters(
    mean: Any,
    std: Any,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    pca_noise: float,
    rand_gray: float,
) -> list[Augmenter]:
    """What comes behind the cutting, in MXNet's order: float32, colours, normalization. See `CreateAugmenter`."""
    found: list[Augmenter] = [CastAug()]
    if brightness or contrast or saturation:
        found.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        found.append(HueJitterAug(hue))
    if pca_noise > 0:
        values = np.array([55.46, 4.794, 1.148])
        axes = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
        found.append(LightingAug(pca_noise, values, axes))
    if rand_gray > 0:
        found.append(RandomGrayAug(rand_gray))
    mean = np.array([123.68, 116.28, 103.53]) if mean is True else mean
    std = np.array([58.395, 57.12, 57.375]) if std is True else std
    if mean is not None or std is not None:
        found.append(ColorNormalizeAug(mean, std))
    return found
