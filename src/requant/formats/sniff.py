"""Recognizing files that are often given in place of a model file, so that the message can say what they are."""

from __future__ import annotations

_IMAGE = "images go to a model as input or calibration data (--input, --data)"
_KNOWN: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run `git lfs pull` in its repository"),
    (b"\x1f\x8b", "a gzip archive", "unpack it, or give the .tar.gz itself as the model"),
    (b"PK\x03\x04", "a zip archive (.npz, .mar or a torch file)", "unpack it and give the model files"),
    (b"\x89HDF", "an HDF5 file (Keras)", "export the model to ONNX first"),
    (b"\x12\x01\x00\x00\x00\x00\x00\x00", "an MXNet .params file", "give it as the parameters, not as the model"),
    (b"\x89PNG", "a PNG image", _IMAGE),
    (b"\xff\xd8\xff", "a JPEG image", _IMAGE),
    (b"GIF8", "a GIF image", _IMAGE),
    (b"{", "JSON text", "give it as the symbol, not here"),
    (b"<", "HTML or XML text (a download page?)", "download the file itself"),
)


def recognize(start: bytes) -> tuple[str, str] | None:
    """What a file that begins with ``start`` is, and what to do with it; None if it is nothing known."""
    if not start:
        return "an empty file", "it was not fully written: copy or download it again"
    text = start.lstrip() or start
    return next(((what, advice) for magic, what, advice in _KNOWN if text.startswith(magic)), None)
