"""Images to arrays: decoding through Pillow, and the preprocessing that a model's inputs went through in training.

Pillow is an extra (``pip install requant[image]``): a model that is fed arrays needs none of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from requant.errors import FormatError, InputError, counted

#: File name endings that are taken for images.
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm"})
#: Where a model's file keeps the preprocessing of its images.
METADATA_KEY = "requant.preprocess"
#: Larger images are refused before they are decoded (decompression bombs).
MAX_PIXELS = 200_000_000


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes an input array: resize, crop, ``(x / divide - mean) / std``, layout and colour order.

    Attributes:
        size: height and width of the result; None leaves the image as it is.
        crop: ``center`` cuts out the largest centred window of that shape and resizes it; ``stretch`` resizes all.
        ratio: share of the short side that a centre crop keeps (0.875 is ImageNet's usual one).
        divide: what pixels (0 to 255) are divided by before mean and std.
        mean, std: per channel, in the order of ``color``; one number serves all channels.
        layout: of the result.
        color: order of channels; ``gray`` has one.
    """

    size: tuple[int, int] | None = None
    crop: Literal["center", "stretch"] = "center"
    ratio: float = 1.0
    divide: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["rgb", "bgr", "gray"] = "rgb"

    def __post_init__(self) -> None:
        channels = 1 if self.color == "gray" else 3
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                raise InputError(
                    f"{name} has one number, or one per channel",
                    got=values,
                    expected=f"1 or {counted(channels, 'number')}",
                )
        if 0 in self.std or self.divide == 0:
            raise InputError("std and divide must not be zero", got=f"std {self.std}, divide {self.divide}")
        if not 0 < self.ratio <= 1:
            raise InputError("ratio is a share", got=self.ratio, expected="more than 0, at most 1")

    def to_json(self) -> str:
        """One line of JSON, as kept in a model's metadata."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Preprocess:
        """Read what ``to_json`` wrote.

        Raises:
            FormatError: it is something else.
        """
        try:
            raw = json.loads(text)
            for key in ("size", "mean", "std"):
                raw[key] = None if raw[key] is None else tuple(raw[key])
            return cls(**raw)
        except (ValueError, TypeError, KeyError) as fault:
            raise FormatError(
                "the preprocessing in the model's metadata cannot be read",
                got=text[:200],
                next="quantize the model again with the image options",
            ) from fault

    def describe(self) -> str:
        """In words, for logs and reports."""
        size = "as it is" if self.size is None else f"{self.crop} {self.size[0]}x{self.size[1]}"
        numbers = f"(x / {self.divide:g} - {_short(self.mean)}) / {_short(self.std)}"
        return f"{self.color.upper()}, {size}, {numbers}, {self.layout}"

    def ends(self) -> tuple[float, float]:
        """The smallest and largest value that a pixel of 0 to 255 can become."""
        mean, std = np.array(self.mean), np.array(self.std)
        both = [(np.array([x / self.divide]) - mean) / std for x in (0.0, 255.0)]
        return float(np.min(both)), float(np.max(both))

    def array(self, image: np.ndarray) -> np.ndarray:
        """One image (H, W, C) uint8 as RGB or grey, to (1, C, H, W) or (1, H, W, C) float32."""
        x: np.ndarray = self._resized(image).astype(np.float32)
        if self.color == "bgr":
            x = x[..., ::-1]
        if self.divide != 1.0:
            x = x / np.float32(self.divide)
        x = (x - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(x if self.layout == "NHWC" else x.transpose(2, 0, 1))[None]

    def _resized(self, image: np.ndarray) -> np.ndarray:
        if self.size is None or image.shape[:2] == self.size:
            return image
        pil = _pillow()
        height, width = self.size
        box = None
        if self.crop == "center":
            # The largest window of the wanted shape, scaled by ratio, around the centre.
            h, w = image.shape[:2]
            scale = min(h / height, w / width) * self.ratio
            dy, dx = (h - height * scale) / 2, (w - width * scale) / 2
            box = (dx, dy, dx + width * scale, dy + height * scale)
        flat = image[..., 0] if image.shape[-1] == 1 else image
        resized = pil.fromarray(np.ascontiguousarray(flat)).resize((width, height), pil.Resampling.BILINEAR, box=box)
        return np.asarray(resized).reshape(height, width, image.shape[-1])


def _short(values: tuple[float, ...]) -> str:
    return f"{values[0]:g}" if len(set(values)) == 1 else "(" + ", ".join(f"{v:g}" for v in values) + ")"


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as fault:
        raise InputError("reading images needs Pillow", next="pip install 'requant[image]'") from fault
    return Image


def is_image(path: str | os.PathLike[str]) -> bool:
    """Whether a file's name ends like an image's."""
    return Path(path).suffix.lower() in SUFFIXES


def read_image(path: str | os.PathLike[str] | BinaryIO, color: str = "rgb", where: object = None) -> np.ndarray:
    """Decode an image to (H, W, C) uint8, rotated as its EXIF data says; RGB (also for ``bgr``), or one grey channel.

    Raises:
        FileNotFoundError: there is no such file. FormatError: it is not an image, is truncated, or is absurdly large.
    """
    pil = _pillow()
    from PIL import ImageOps

    try:
        with pil.open(path) as image:
            if image.width * image.height > MAX_PIXELS:
                raise FormatError(
                    "the image is too large",
                    where=where or path,
                    got=f"{image.width} x {image.height} pixels",
                    next="make it smaller first: it is resized to the model's input in any case",
                )
            turned = ImageOps.exif_transpose(image) or image
            pixels = np.asarray(turned.convert("L" if color == "gray" else "RGB"))
    except FormatError:
        raise
    except Exception as fault:  # Pillow's decoders each raise types of their own
        if isinstance(fault, (FileNotFoundError, PermissionError)):
            raise
        raise FormatError(
            "not an image that can be decoded",
            where=where or path,
            got=str(fault),
            expected="a whole image file",
            next="replace or remove it; quantize leaves such files out with policy 'skip' (--skip-bad)",
        ) from fault
    return pixels[..., None] if pixels.ndim == 2 else pixels
