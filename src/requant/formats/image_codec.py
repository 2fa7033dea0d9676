"""Image files to arrays and back, through Pillow (``pip install requant[image]``), with OpenCV's conventions.

MXNet uses OpenCV; arrays are therefore **BGR**, not RGB, and gray images have no channel axis.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from requant.errors import FormatError, InputError, UnsupportedError, counted

#: Formats whose decoders are plain code over bytes; Pillow's EPS reader, for one, starts another program.
_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "PPM", "GIF")
_UNCHANGED, _GRAY, _COLOR = -1, 0, 1


def _pillow() -> Any:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise UnsupportedError(
            "images need Pillow, which is not installed", next="pip install 'requant[image]'"
        ) from None
    return Image, ImageOps


def _gray16(pixels: NDArray[Any], iscolor: int) -> NDArray[Any]:
    deep = pixels.astype(np.uint16, copy=False)
    if iscolor == _UNCHANGED:
        return deep
    gray = (deep >> 8).astype(np.uint8)
    return np.repeat(gray[:, :, None], 3, axis=2) if iscolor == _COLOR else gray


def _pixels(image: Any, iscolor: int) -> NDArray[Any]:
    if image.mode.startswith("I"):
        return _gray16(np.asarray(image), iscolor)
    if iscolor == _GRAY or (iscolor == _UNCHANGED and image.mode in ("1", "L")):
        return np.array(image.convert("L"))
    alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    if iscolor == _UNCHANGED and alpha:
        return np.ascontiguousarray(np.asarray(image.convert("RGBA"))[:, :, [2, 1, 0, 3]])
    return np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1])


def decode_image(data: bytes, iscolor: int = -1) -> NDArray[Any]:
    """Decode an image file as ``cv2.imdecode`` does.

    Args:
        data: the file's bytes: JPEG, PNG, BMP, WebP, TIFF, PPM or GIF.
        iscolor: 1 for BGR, 0 for gray (both turned upright by the EXIF orientation), -1 for what the file holds (BGR,
            BGRA or gray, not turned).

    Returns:
        uint8 of shape (H, W, 3), (H, W, 4) or (H, W). Gray files of 16 bits give uint16 with ``iscolor=-1``.

    Raises:
        FormatError: the bytes are no image, a truncated one, or one of absurd size.
        InputError: ``iscolor`` is none of -1, 0, 1.
        UnsupportedError: Pillow is not installed.
    """
    if iscolor not in (_UNCHANGED, _GRAY, _COLOR):
        raise InputError("unknown way to decode an image", got=f"iscolor={iscolor}", expected="-1, 0 or 1")
    pillow, ops = _pillow()
    try:
        with pillow.open(io.BytesIO(data), formats=_FORMATS) as image:
            if iscolor == _GRAY:
                image.draft("L", image.size)  # libjpeg then gives the luma itself, as OpenCV asks for it
            image.load()
            return _pixels(image if iscolor == _UNCHANGED else ops.exif_transpose(image), iscolor)
    except Exception as fault:  # Pillow's decoders raise many kinds for corrupt bytes
        raise FormatError(
            "an image cannot be decoded",
            got=f"{counted(len(data), 'byte')}, {bytes(data[:8])!r}...: {type(fault).__name__}: {fault}",
            expected="a whole " + ", ".join(_FORMATS) + " file",
        ) from fault


def encode_image(img: NDArray[Any], quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Encode an image as ``cv2.imencode`` does.

    Args:
        img: uint8, BGR of shape (H, W, 3), gray of shape (H, W) or (H, W, 1); BGRA of shape (H, W, 4) for PNG.
        quality: 1 to 100 for JPEG; the compression level, 0 to 9, for PNG.
        img_fmt: ``".jpg"``, ``".jpeg"`` or ``".png"``, in any case.

    Raises:
        InputError: the array, the quality or the format does not fit.
        UnsupportedError: Pillow is not installed.
    """
    kind = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG"}.get(img_fmt.lower())
    if kind is None:
        raise InputError("unknown image format", got=repr(img_fmt), expected="'.jpg' or '.png'")
    pixels = np.asarray(img)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or channels not in (1, 3, 4) or pixels.size == 0:
        raise InputError(
            "an array cannot be encoded as an image",
            got=f"shape {pixels.shape} of {pixels.dtype}",
            expected="uint8 of shape (H, W, 3) in BGR order, or (H, W)",
        )
    limit = (1, 100) if kind == "JPEG" else (0, 9)
    if not limit[0] <= quality <= limit[1]:
        raise InputError(f"the {kind} quality is out of range", got=quality, expected=f"{limit[0]} to {limit[1]}")
    if channels == 4 and kind == "JPEG":
        pixels, channels = pixels[:, :, :3], 3  # JPEG has no alpha; OpenCV drops it too
    order: list[int] = [2, 1, 0, 3][:channels]
    if channels > 1:
        pixels = pixels[:, :, order]
    pillow, _ = _pillow()
    out = io.BytesIO()
    options = {"quality": int(quality)} if kind == "JPEG" else {"compress_level": int(quality)}
    pillow.fromarray(np.ascontiguousarray(pixels)).save(out, kind, **options)
    return out.getvalue()
