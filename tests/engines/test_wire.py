"""A model on its way to an engine: in one message, or with its weights in a file beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from requant.engines import get, wire
from requant.engines.base import EngineOptions

RNG = np.random.default_rng(0)
W = RNG.standard_normal((301, 700)).astype(np.float32)
V = RNG.integers(-128, 127, (700, 1501)).astype(np.int8)


def model() -> ir.Model:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n,301] x) => (float[n,1501] y)
    { h = MatMul (x, w) v8 = DequantizeLinear (v, scale) y = MatMul (h, v8) }"""
    proto = onnx.parser.parse_model(text)
    for name, array in {"w": W, "v": V, "scale": np.float32(0.01)}.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return ir.from_proto(proto)


def test_weights_apart_are_the_same_weights(tmp_path: Path) -> None:
    proto, large = wire.skeleton(model())
    assert len(large) == 2
    path = wire.write_apart(proto, large, tmp_path)
    assert path.stat().st_size < 1000
    read = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    np.testing.assert_array_equal(read["w"], W)
    np.testing.assert_array_equal(read["v"], V)
    places = [int(e.value) for t in onnx.load(path, load_external_data=False).graph.initializer for e in t.external_data
              if e.key == "offset"]  # fmt: skip
    assert all(place % 64 == 0 for place in places)


def test_one_message_holds_the_same_weights() -> None:
    read = onnx.load_from_string(wire.join(*wire.skeleton(model())))
    found = {t.name: onnx.numpy_helper.to_array(t) for t in read.graph.initializer}
    np.testing.assert_array_equal(found["w"], W)
    np.testing.assert_array_equal(found["v"], V)


@pytest.mark.parametrize("room", [True, False])
def test_openvino_computes_the_same_either_way(room: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path if room else None
    monkeypatch.setattr("requant.engines.openvino.memory_folder", lambda size: folder)
    x = RNG.standard_normal((3, 301)).astype(np.float32)
    (y,) = get("openvino").load(model(), EngineOptions()).run({"x": x})
    np.testing.assert_allclose(y, x @ W @ (V * np.float32(0.01)), rtol=1e-4, atol=1e-2)
    assert list(tmp_path.iterdir()) == []


def test_there_is_no_folder_for_more_than_the_memory_has() -> None:
    assert wire.memory_folder(2**62) is None
