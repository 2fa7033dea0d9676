"""The contract of every engine: options, profiles, caches, and what is refused."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import numpy as np
import pytest
from engine_graphs import OPTIONS, conv_relu, conv_relu_by_hand, data, parse, two

from requant import engines
from requant.engines import Engine, EngineOptions
from requant.errors import EngineError, InputError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[N] x) => (float[N] y) { y = Frobnicate(x) }", "refuses the graph\n  got: .*Frobnicate"),
        ("g (float[2, 3] x, float[4, 5] z) => (float[2, 3] y) { y = Add(x, z) }", "refuses the graph\n  got: .*Add"),
        ("g (string[N] x) => (string[N] y) { y = Identity(x) }", "x: STRING tensors cannot cross"),
    ],
)
def test_a_graph_that_is_refused(engine: Engine, text: str, message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        engine.load(parse(text), OPTIONS)
    assert engine.name in str(caught.value)


def test_a_library_that_is_missing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, engine.name, None)
    found = engine.available()
    assert not found.ok and found.version is None and engine.name in found.why
    with pytest.raises(EngineError, match=f"engine '{engine.name}' is not available here\n  got:  .*{engine.name}"):
        engine.load(conv_relu(), OPTIONS)
    with pytest.raises(
        EngineError, match=rf"unknown engine\n  got:      'tpu'\n  expected: .*{engine.name} \(not available"
    ):
        engines.get("tpu")


def test_profile_names_what_ran(engine: Engine) -> None:
    loaded = engine.load(conv_relu(), EngineOptions(threads=1, profile=True))
    for _ in range(3):
        loaded.run({"data": data(1, 3, 8, 8)})
    layers = loaded.profile()
    convolution = [layer for layer in layers if "conv" in layer.op.lower()]
    assert len(convolution) == 1
    assert convolution[0].precision == "f32" and convolution[0].kernel
    assert all(layer.microseconds >= 0 for layer in layers) and sum(layer.microseconds for layer in layers) > 0
    assert [layer.name for layer in loaded.profile()] == [layer.name for layer in layers]
    loaded.close()


def test_profile_needs_the_option_and_a_run(engine: Engine) -> None:
    with pytest.raises(EngineError, match=r"not measured\n  next:     load with EngineOptions\(profile=True\)"):
        engine.load(conv_relu(), OPTIONS).profile()
    with pytest.raises(EngineError, match="nothing was run yet"):
        engine.load(conv_relu(), EngineOptions(threads=1, profile=True)).profile()


@pytest.mark.parametrize("end", ["profile", "close", "drop", "refuse"])
def test_profiling_leaves_no_files(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    options = EngineOptions(threads=1, profile=True)
    if end == "refuse":
        with pytest.raises(EngineError):
            engine.load(parse("g (float[N] x) => (float[N] y) { y = Frobnicate(x) }"), options)
    else:
        loaded = engine.load(conv_relu(), options)
        loaded.run({"data": data(1, 3, 8, 8)})
        if end == "profile":
            assert loaded.profile()
        if end in ("profile", "close"):
            loaded.close()
        del loaded
        gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_an_absurd_size_is_an_error_and_no_crash(engine: Engine) -> None:
    inner = "g (float[N] x) => (float[P, Q] y) <int64[2] s = {4000000000000, 4000000000000}> { y = ConstantOfShape(s) }"
    with pytest.raises(EngineError):
        engine.load(parse(inner), OPTIONS).run({"x": data(1)})
    outer = "g (float[4000000, 4000000, 4000] x) => (float[4000000, 4000000, 4000] y) { y = Neg(x) }"
    with pytest.raises((EngineError, InputError)):
        engine.load(parse(outer), OPTIONS).run({"x": data(1)})


def test_compiled_models_are_kept_on_disk(engine: Engine, tmp_path: Path) -> None:
    folder, x = tmp_path / "new" / "cache", data(1, 3, 8, 8)
    options = EngineOptions(threads=1, cache_dir=str(folder))
    expected = engine.load(conv_relu(), options).run({"data": x})[0]
    kept = sorted(p for p in folder.rglob("*") if p.is_file())
    assert kept
    again = engine.load(conv_relu(), options)
    np.testing.assert_array_equal(again.run({"data": x})[0], expected)
    assert sorted(p for p in folder.rglob("*") if p.is_file()) == kept
    engine.load(two(), options)
    assert len([p for p in folder.rglob("*") if p.is_file()]) > len(kept)


def test_a_damaged_cache_is_made_anew(engine: Engine, tmp_path: Path) -> None:
    options, x = EngineOptions(threads=1, cache_dir=str(tmp_path)), data(1, 3, 8, 8)
    expected = engine.load(conv_relu(), options).run({"data": x})[0]
    for file in tmp_path.rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:40])
    np.testing.assert_array_equal(engine.load(conv_relu(), options).run({"data": x})[0], expected)


def test_a_cache_folder_that_is_a_file(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match="cache folder cannot be used"):
        engine.load(conv_relu(), EngineOptions(cache_dir=str(tmp_path / "file")))


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_a_precision_is_granted_or_refused(engine: Engine, precision: str) -> None:
    try:
        loaded = engine.load(conv_relu(), EngineOptions(threads=1, precision=precision, profile=True))
    except EngineError as fault:
        assert precision in str(fault) and "precision" in str(fault)
        return
    x = data(1, 3, 8, 8)
    np.testing.assert_allclose(loaded.run({"data": x})[0], conv_relu_by_hand(conv_relu(), x), atol=0.1)
    assert precision in {layer.precision for layer in loaded.profile()}


def test_float32_is_float32_also_where_bfloat16_is_faster(engine: Engine) -> None:
    model, x = conv_relu(), data(4, 3, 8, 8)
    exact = conv_relu_by_hand(model, x.astype(np.float64))
    assert np.abs(engine.load(model, EngineOptions()).run({"data": x})[0] - exact).max() < 1e-5
