"""``mx.image``: reading, resizing, cropping and augmenting pictures."""

from __future__ import annotations

from requant.mx.image.augment import *  # noqa: F403
from requant.mx.image.augment import __all__ as _augmenters
from requant.mx.image.detection import *  # noqa: F403
from requant.mx.image.detection import __all__ as _detection
from requant.mx.image.image import (
    center_crop,
    color_normalize,
    copyMakeBorder,
    fixed_crop,
    imdecode,
    imread,
    imresize,
    imrotate,
    random_crop,
    random_rotate,
    random_size_crop,
    resize_short,
    scale_down,
)
from requant.mx.image.iterator import ImageIter

__all__ = [
    *_augmenters,
    *_detection,
    "ImageIter",
    "center_crop",
    "color_normalize",
    "copyMakeBorder",
    "fixed_crop",
    "imdecode",
    "imread",
    "imresize",
    "imrotate",
    "random_crop",
    "random_rotate",
    "random_size_crop",
    "resize_short",
    "scale_down",
]
