"""``transforms``: what is done to pictures (H, W, C) before a network sees them, as blocks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.errors import InputError
from requant.mx.gluon.block import Block, HybridBlock
from requant.mx.gluon.nn import HybridSequential, Sequential
from requant.mx.image import augment
from requant.mx.image import image as functions
from requant.mx.ndarray import image as nd_image
from requant.mx.ndarray.ndarray import NDArray

Size = int | tuple[int, int] | Sequence[int]


def _pair(size: Size) -> tuple[int, int]:
    if isinstance(size, (int, np.integer)):
        return int(size), int(size)
    wide, high = size
    return int(wide), int(high)


def _each(x: NDArray, function: Any) -> NDArray:
    """A function of one picture, on a picture or on each of a batch."""
    if x.ndim == 4:
        return NDArray(np.stack([function(NDArray(p, x.context))._data for p in x._data]), x.context)
    made: NDArray = function(x)
    return made


class Compose(Sequential):
    """Transforms one after another."""

    def __init__(self, transforms: Sequence[Block]) -> None:
        super().__init__()
        self.add(*transforms)


class HybridCompose(HybridSequential):
    """Transforms one after another."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        super().__init__()
        self.add(*transforms)


class Cast(HybridBlock):
    """Another dtype."""

    def __init__(self, dtype: str = "float32") -> None:
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.cast(x, self._dtype)


class ToTensor(HybridBlock):
    """(H, W, C) of 0..255 to (C, H, W) of 0..1, float32; batches likewise."""

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The tensor."""
        return nd_image.to_tensor(x) if isinstance(x, NDArray) else super().forward(x)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.to_tensor(x)


class Normalize(HybridBlock):
    """(x - mean) / std per channel of (C, H, W)."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0) -> None:
        super().__init__()
        self._mean, self._std = mean, std

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The normalized tensor."""
        return nd_image.normalize(x, self._mean, self._std) if isinstance(x, NDArray) else super().forward(x)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.image.normalize(x, self._mean, self._std)


class _Picture(Block):
    """A transform of one picture; batches are transformed picture by picture."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The transformed picture."""
        return _each(args[0], self._one)

    def _one(self, x: NDArray) -> NDArray:
        raise NotImplementedError


class Resize(_Picture):
    """Resize to ``size``: (w, h), or one number for both, or (``keep_ratio``) for the shorter side."""

    def __init__(self, size: Size, keep_ratio: bool = False, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._keep, self._interpolation = size, keep_ratio, interpolation

    def _one(self, x: NDArray) -> NDArray:
        h, w = x.shape[:2]
        if self._keep and isinstance(self._size, (int, np.integer)):
            size = int(self._size)
            wide, high = (size, int(h * size / w)) if w < h else (int(w * size / h), size)
        else:
            wide, high = _pair(self._size)
        method = functions._get_interp_method(self._interpolation, (h, w, high, wide))
        return functions.imresize(x, wide, high, method)


class CenterCrop(_Picture):
    """The window of ``size`` (w, h) in the middle; a smaller picture is enlarged."""

    def __init__(self, size: Size, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._interpolation = _pair(size), interpolation

    def _one(self, x: NDArray) -> NDArray:
        return functions.center_crop(x, self._size, self._interpolation)[0]


class RandomResizedCrop(_Picture):
    """A window of random area and aspect ratio, resized to ``size``."""

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: int = 1,
    ) -> None:
        super().__init__()
        self._args = (_pair(size), scale, ratio, interpolation)

    def _one(self, x: NDArray) -> NDArray:
        return functions.random_size_crop(x, *self._args)[0]


class RandomCrop(_Picture):
    """A random window of ``size`` (w, h), after padding each side by ``pad`` zeros."""

    def __init__(self, size: Size, pad: int | None = None, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._pad, self._interpolation = _pair(size), pad, interpolation

    def _one(self, x: NDArray) -> NDArray:
        if self._pad:
            x = functions.copyMakeBorder(x, self._pad, self._pad, self._pad, self._pad)
        return functions.random_crop(x, self._size, self._interpolation)[0]


class CropResize(_Picture):
    """The window at (x, y), resized to ``size`` if one is given."""

    def __init__(
        self, x: int, y: int, width: int, height: int, size: Size | None = None, interpolation: int | None = None
    ) -> None:
        super().__init__()
        self._window = (x, y, width, height)
        self._size, self._interpolation = None if size is None else _pair(size), interpolation

    def _one(self, x: NDArray) -> NDArray:
        out = nd_image.crop(x, *self._window)
        return out if self._size is None else functions.imresize(out, *self._size, self._interpolation or 1)


class RandomApply(Sequential):
    """A transform with probability ``p``."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, x: Any, *args: Any) -> Any:
        """The transformed picture, or the picture."""
        return self.transforms(x) if random.random() < self.p else x


class HybridRandomApply(RandomApply):
    """A transform with probability ``p``."""


class RandomFlipLeftRight(_Picture):
    """Mirrored left to right, half of the time."""

    def _one(self, x: NDArray) -> NDArray:
        return nd_image.flip_left_right(x) if random.random() < 0.5 else x


class RandomFlipTopBottom(_Picture):
    """Mirrored top to bottom, half of the time."""

    def _one(self, x: NDArray) -> NDArray:
        return nd_image.flip_top_bottom(x) if random.random() < 0.5 else x


class _Jitter(_Picture):
    """Augmenters of ``mx.image``; the dtype of the picture is kept."""

    def __init__(self, *augmenters: augment.Augmenter) -> None:
        super().__init__()
        self._augmenters = augmenters

    def _one(self, x: NDArray) -> NDArray:
        made = x
        for change in random.sample(self._augmenters, len(self._augmenters)):
            made = change(made)
        if x._data.dtype == np.uint8:
            return NDArray(np.clip(made._data, 0, 255).astype(np.uint8), x.context)
        return made.astype(x.dtype, copy=False)


class RandomBrightness(_Jitter):
    """Brightness times a random number around 1."""

    def __init__(self, brightness: float) -> None:
        super().__init__(augment.BrightnessJitterAug(brightness))


class RandomContrast(_Jitter):
    """Contrast times a random number around 1."""

    def __init__(self, contrast: float) -> None:
        super().__init__(augment.ContrastJitterAug(contrast))


class RandomSaturation(_Jitter):
    """Saturation times a random number around 1."""

    def __init__(self, saturation: float) -> None:
        super().__init__(augment.SaturationJitterAug(saturation))


class RandomHue(_Jitter):
    """Colours turned by a random angle."""

    def __init__(self, hue: float) -> None:
        super().__init__(augment.HueJitterAug(hue))


class RandomColorJitter(_Jitter):
    """Brightness, contrast, saturation and hue in random order."""

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0) -> None:
        kinds = (
            (augment.BrightnessJitterAug, brightness),
            (augment.ContrastJitterAug, contrast),
            (augment.SaturationJitterAug, saturation),
            (augment.HueJitterAug, hue),
        )
        super().__init__(*(kind(amount) for kind, amount in kinds if amount > 0))


class RandomLighting(_Jitter):
    """Noise along ImageNet's principal axes of colour (Krizhevsky 2012)."""

    def __init__(self, alpha: float) -> None:
        axes = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
        super().__init__(augment.LightingAug(alpha, np.array([55.46, 4.794, 1.148]), axes))


class RandomGray(_Jitter):
    """Gray with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(augment.RandomGrayAug(p))


class Rotate(Block):
    """(C, H, W) float32 turned by an angle in degrees."""

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__()
        self._args = rotation_degrees, zoom_in, zoom_out

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The turned picture."""
        return functions.imrotate(args[0], *self._args)


class RandomRotation(Block):
    """(C, H, W) float32 turned by a random angle, with some probability.

    Raises:
        InputError: a probability outside 0 to 1.
    """

    def __init__(
        self,
        angle_limits: tuple[float, float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ) -> None:
        super().__init__()
        if not 0 <= rotate_with_proba <= 1:
            raise InputError("a probability is 0 to 1", got=rotate_with_proba)
        self._args, self._proba = (angle_limits, zoom_in, zoom_out), rotate_with_proba

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The turned picture."""
        return functions.random_rotate(args[0], *self._args) if random.random() < self._proba else args[0]
