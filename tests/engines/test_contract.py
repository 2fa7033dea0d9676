"""One contract for every engine: whatever `requant.engines` finds is put through all of this."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from requant import engines
from requant.engines import Engine, EngineOptions, Session, TensorSpec
from requant.errors import EngineError, InputError

OPTIONS = EngineOptions(threads=1)


def parse(text: str, opset: int = 17, ir_version: int = 8) -> ir.Model:
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n'
    return ir.from_proto(onnx.parser.parse_model(header + text))


def conv_relu(batch: str = "N") -> ir.Model:
    """A convolution with weights on both sides of the size from which weights are written apart."""
    model = parse(
        f"""net (float[{batch}, 3, 8, 8] data) => (float[{batch}, 16, 8, 8] out)
        {{ c = Conv<pads = [1, 1, 1, 1]>(data, weight, bias)   out = Relu(c) }}"""
    )
    rng = np.random.default_rng(7)
    for name, shape in (("weight", (16, 3, 3, 3)), ("bias", (16,))):
        value = ir.Value(name=name, const_value=ir.tensor(rng.standard_normal(shape).astype(np.float32), name=name))
        model.graph.register_initializer(value)
        for node in model.graph:
            for i, old in enumerate(node.inputs):
                if old is not None and old.name == name:
                    node.replace_input_with(i, value)
    return model


def conv_relu_by_hand(model: ir.Model, data: np.ndarray) -> np.ndarray:
    weight = model.graph.initializers["weight"].const_value.numpy()
    bias = model.graph.initializers["bias"].const_value.numpy()
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None], 0)


TWO = """two (float[N, 4] a, float[N, 4] b) => (float[N, 4] sum, float[N, 4] product, float[N] total)
{ sum = Add(a, b)   product = Mul(a, b)   total = ReduceSum<keepdims = 0>(product, axes) }"""


def two() -> ir.Model:
    return parse(TWO.replace("total)\n{", "total)\n<int64[1] axes = {1}> {"))


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(params=engines.names())
def engine(request: pytest.FixtureRequest) -> Engine:
    found = engines.get(request.param)
    if not found.available().ok:
        pytest.skip(str(found.available().why))
    return found


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with engine.load(conv_relu(), OPTIONS) as loaded:
        yield loaded


def test_it_says_that_it_is_available(engine: Engine) -> None:
    found = engine.available()
    assert found.ok and found.why is None and found.version[0].isdigit()


def test_specs_say_what_the_graph_says(engine: Engine) -> None:
    loaded = engine.load(conv_relu(), OPTIONS)
    assert loaded.inputs == (TensorSpec("data", np.dtype(np.float32), ("N", 3, 8, 8)),)
    assert loaded.outputs == (TensorSpec("out", np.dtype(np.float32), ("N", 16, 8, 8)),)


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_any_batch_from_one_session(session: Session, batch: int) -> None:
    x = data(batch, 3, 8, 8)
    (out,) = session.run({"data": x})
    np.testing.assert_allclose(out, conv_relu_by_hand(conv_relu(), x), atol=1e-5)


def test_static_shapes(engine: Engine) -> None:
    loaded = engine.load(conv_relu(), OPTIONS, shapes={"data": (3, None, 8, 8)})
    assert loaded.inputs[0].shape == (3, 3, 8, 8)
    assert loaded.outputs[0].shape == (3, 16, 8, 8)
    x = data(3, 3, 8, 8)
    np.testing.assert_allclose(loaded.run({"data": x})[0], conv_relu_by_hand(conv_relu(), x), atol=1e-5)
    with pytest.raises(
        InputError, match=r"wrong shape\n  got:      \(1, 3, 8, 8\)\n  expected: data: float32 \(3, 3, 8, 8\)"
    ):
        loaded.run({"data": x[:1]})


def test_a_shape_fixes_the_same_name_everywhere(engine: Engine) -> None:
    loaded = engine.load(two(), OPTIONS, shapes={"a": (2, 4)})
    assert [s.shape for s in loaded.inputs] == [(2, 4), (2, 4)]
    assert [s.shape for s in loaded.outputs] == [(2, 4), (2, 4), (2,)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"dota": (1, 3, 8, 8)}, "no input\n  next:     did you mean 'data'"),
        ({"data": (1, 3, 8)}, "another rank"),
        ({"data": (1, 4, 8, 8)}, "axis 1 is fixed\n  got:      4\n  expected: 3"),
    ],
)
def test_shapes_that_do_not_fit(engine: Engine, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine.load(conv_relu(), OPTIONS, shapes=shapes)


def test_one_name_cannot_have_two_sizes(engine: Engine) -> None:
    with pytest.raises(InputError, match=r"b: axis 0 is fixed\n  got:      3\n  expected: 2 \(dimension 'N'"):
        engine.load(two(), OPTIONS, shapes={"a": (2, 4), "b": (3, 4)})


def test_outputs_come_in_the_graphs_order(engine: Engine) -> None:
    loaded = engine.load(two(), OPTIONS)
    a, b = data(5, 4), data(5, 4, seed=1)
    total, product, sums = reversed(loaded.run({"b": b, "a": a}))
    np.testing.assert_allclose(sums, a + b)
    np.testing.assert_allclose(product, a * b)
    np.testing.assert_allclose(total, (a * b).sum(1), rtol=1e-5)


def test_the_model_is_only_read(engine: Engine) -> None:
    model = conv_relu()
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    engine.load(model, OPTIONS, shapes={"data": (2, 3, 8, 8)})
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool"]
)
def test_dtypes(engine: Engine, dtype: str) -> None:
    onnx_name = {"float64": "double"}.get(dtype, dtype)
    loaded = engine.load(
        parse(f"g ({onnx_name}[N] x, int64[k] i) => ({onnx_name}[k] y) {{ y = Gather(x, i) }}"), OPTIONS
    )
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    x = np.array([0, 1, 1, 0, 1]).astype(kind)
    assert loaded.inputs[0].dtype == loaded.outputs[0].dtype == kind
    (y,) = loaded.run({"x": x, "i": np.array([3, 1])})
    assert y.dtype == kind and y.tolist() == [0, 1]


def test_integers_are_exact_or_refused(engine: Engine) -> None:
    loaded = engine.load(parse("g (int64[N] x) => (int64[N] y) { y = Neg(x) }"), OPTIONS)
    assert loaded.run({"x": np.array([2**31 - 1, -3])})[0].tolist() == [-(2**31) + 1, 3]
    try:
        (y,) = loaded.run({"x": np.array([2**40])})
    except InputError as fault:
        assert "1099511627776" in str(fault) and "onnxruntime" in str(fault)
    else:
        assert y.tolist() == [-(2**40)]


def test_scalars_and_empty_arrays(engine: Engine) -> None:
    loaded = engine.load(
        parse("g (float s, float[N, M] x) => (float t, float[N, M] y) { t = Neg(s) y = Add(x, s) }"), OPTIONS
    )
    t, y = loaded.run({"s": np.array(2, np.float32), "x": np.zeros((1, 0), np.float32)})
    assert t.shape == () and t == -2 and y.shape == (1, 0)


def test_any_memory_layout(session: Session) -> None:
    x = data(2, 3, 8, 8)
    expected = session.run({"data": x})[0]
    read_only, odd = x.copy(), np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
    read_only.flags.writeable, odd[...] = False, x
    for y in (np.asfortranarray(x), np.repeat(x, 2, axis=3)[..., ::2], read_only, odd, x[::-1][::-1]):
        np.testing.assert_array_equal(session.run({"data": y})[0], expected)


def test_inputs_are_only_read(engine: Engine) -> None:
    loaded = engine.load(parse("g (float[N] x) => (float[N] y) { a = Relu(x) y = Neg(a) }"), OPTIONS)
    x = data(100)
    before = x.copy()
    loaded.run({"x": x})
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[N] x) => (float[N] y) { y = Identity(x) }",
        "g (float[N] x) => (float[N] x) { }",
        "g (float[N] x) => (float[M] y) <int64[1] s = {-1}> { y = Reshape(x, s) }",
    ],
)
def test_identity_outputs_are_the_callers_own(engine: Engine, text: str) -> None:
    loaded = engine.load(parse(text), OPTIONS)
    x = data(6)
    first, second = loaded.run({"x": x})[0], loaded.run({"x": x + 1})[0]
    assert not np.shares_memory(first, x) and first.flags.writeable
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, x + 1)


def test_the_same_tensor_twice_among_outputs(engine: Engine) -> None:
    loaded = engine.load(
        parse("g (float[N] x) => (float[N] y, float[N] z, float[N] y) { y = Relu(x) z = Neg(y) }"), OPTIONS
    )
    first, middle, last = loaded.run({"x": np.array([-1, 2], np.float32)})
    assert first.tolist() == last.tolist() == [0, 2] and middle.tolist() == [0, -2]
    first[:] = 9
    assert last.tolist() == [0, 2]


def test_an_output_that_is_also_an_inner_tensor(engine: Engine) -> None:
    loaded = engine.load(parse("g (float[N] x) => (float[N] z, float[N] y) { y = Relu(x) z = Neg(y) }"), OPTIONS)
    z, y = loaded.run({"x": np.array([-1, 2], np.float32)})
    assert y.tolist() == [0, 2] and z.tolist() == [0, -2]


def test_a_weight_that_is_an_output_stays_whole(engine: Engine) -> None:
    loaded = engine.load(
        parse("g (float[N] x) => (float[2] c, float[N] y) <float[2] c = {1, 2}> { y = Neg(x) }"), OPTIONS
    )
    x = np.zeros(1, np.float32)
    loaded.run({"x": x})[0][:] = 7
    assert loaded.run({"x": x})[0].tolist() == [1, 2]


def test_an_input_that_nothing_needs(engine: Engine) -> None:
    loaded = engine.load(parse("g (float[N] x, float[M] unused) => (float[N] y) { y = Neg(x) }"), OPTIONS)
    assert [s.name for s in loaded.inputs] == ["x", "unused"]
    x = np.ones(2, np.float32)
    assert loaded.run({"x": x, "unused": x})[0].tolist() == [-1, -1]
    with pytest.raises(InputError, match="'unused' is missing"):
        loaded.run({"x": x})


def test_weights_that_are_inputs_need_not_be_fed(engine: Engine) -> None:
    """Models of IR version 3 list all weights among the inputs."""
    model = parse(
        "g (float[N] x, float[1] w) => (float[N] y) <float[1] w = {3}> { y = Mul(x, w) }", opset=8, ir_version=3
    )
    loaded = engine.load(model, OPTIONS)
    assert [s.name for s in loaded.inputs] == ["x"]
    assert loaded.run({"x": np.ones(2, np.float32)})[0].tolist() == [3, 3]


def test_external_weights(engine: Engine, tmp_path: Path) -> None:
    model = conv_relu()
    ir.save(model, tmp_path / "m.onnx", external_data="m.bin")
    loaded = engine.load(ir.load(tmp_path / "m.onnx"), OPTIONS)
    x = data(1, 3, 8, 8)
    np.testing.assert_allclose(loaded.run({"data": x})[0], conv_relu_by_hand(model, x), atol=1e-5)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        (
            {"dat": data(1, 3, 8, 8)},
            r"no input 'dat'(.|\n)*expected: data: float32 \(N, 3, 8, 8\)\n  next:     did you mean 'data'",
        ),
        ({}, r"'data' is missing\n  got:      nothing\n  expected: data: float32 \(N, 3, 8, 8\)"),
        ({"data": data(1, 3, 8, 8), "more": data(1)}, "no input 'more'"),
        (
            {"data": data(1, 3, 8, 8).astype(np.float64)},
            r"wrong dtype\n  got:      float64\n(.|\n)*astype\('float32'\)",
        ),
        ({"data": data(3, 8, 8)}, r"wrong rank\n  got:      \(3, 8, 8\)"),
        ({"data": data(1, 3, 8, 9)}, r"wrong shape\n  got:      \(1, 3, 8, 9\)"),
        ({"data": [1.0]}, "not a numpy array\n  got:      list"),
        ([data(1, 3, 8, 8)], "by name\n  got:      list"),
        (None, "by name\n  got:      NoneType"),
    ],
)
def test_inputs_that_do_not_fit(session: Session, feeds: dict[str, np.ndarray], message: str) -> None:
    for call in (session.run, session.submit, lambda f: next(session.stream([f]))):
        with pytest.raises(InputError, match=message):
            call(feeds)
    assert session.run({"data": data(1, 3, 8, 8)})[0].shape == (1, 16, 8, 8)


UNFIT = [
    (
        "g (float[A, B] a, float[C, D] b) => (float[E, F] y) { y = MatMul(a, b) }",
        {"a": (2, 4), "b": (4, 3)},
        {"a": (2, 4), "b": (3, 4)},
    ),
    (
        "g (float[A, B] a, float[C, D] b) => (float[E, F] y) { y = Add(a, b) }",
        {"a": (2, 4), "b": (2, 4)},
        {"a": (2, 4), "b": (3, 4)},
    ),
    (
        "g (float[N, H] x) => (float[M, 5] y) <int64[2] s = {-1, 5}> { y = Reshape(x, s) }",
        {"x": (2, 10)},
        {"x": (2, 4)},
    ),
    (
        "g (float[N, 3, H, W] x, float[4, 3, 5, 5] w) => (float[N, 4, P, Q] y) { y = Conv(x, w) }",
        {"x": (1, 3, 6, 6), "w": (4, 3, 5, 5)},
        {"x": (1, 3, 2, 2), "w": (4, 3, 5, 5)},
    ),
]


@pytest.mark.parametrize(("text", "good", "bad"), UNFIT)
def test_shapes_that_the_graph_cannot_take(
    engine: Engine, text: str, good: dict[str, tuple[int, ...]], bad: dict[str, tuple[int, ...]]
) -> None:
    """An error whatever the road, and the session is usable afterwards."""
    loaded = engine.load(parse(text), OPTIONS)
    right, wrong = ({n: data(*shape) for n, shape in shapes.items()} for shapes in (good, bad))
    expected = loaded.run(right)[0]
    assert expected.size
    for call in (loaded.run, lambda f: loaded.submit(f).result(), lambda f: next(loaded.stream([f]))):
        with pytest.raises((EngineError, InputError), match=r"failed while it ran|cannot be computed with inputs"):
            call(wrong)
        np.testing.assert_array_equal(loaded.run(right)[0], expected)


def test_a_named_dimension_has_one_size(engine: Engine) -> None:
    loaded = engine.load(two(), OPTIONS)
    with pytest.raises(InputError, match="'N' has several sizes\n  got:      2 in 'a', 3 in 'b'"):
        loaded.run({"a": data(2, 4), "b": data(3, 4)})


def test_eight_threads_share_a_session(engine: Engine) -> None:
    loaded = engine.load(parse("g (float[N] x) => (float[N] y, float[N] z) { y = Mul(x, x) z = Neg(x) }"), OPTIONS)
    start = threading.Barrier(8)

    def work(seed: int) -> bool:
        start.wait()
        right = True
        for i in range(60):
            x = np.full(50 + seed, seed * 1000 + i, np.float32)
            y, z = loaded.run({"x": x})
            right &= bool((y == x * x).all() and (z == -x).all())
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_stream_keeps_the_order_and_copies_feeds(engine: Engine, hint: str) -> None:
    loaded = engine.load(conv_relu(), EngineOptions(threads=2, hint=hint), shapes={"data": (1, 3, 8, 8)})
    buffer = np.empty((1, 3, 8, 8), np.float32)

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        for i in range(40):
            buffer[...] = i  # the same memory again and again, as data iterators do
            yield {"data": buffer}
        buffer[...] = -1

    results = [r[0] for r in loaded.stream(feeds())]
    expected = [loaded.run({"data": np.full((1, 3, 8, 8), i, np.float32)})[0] for i in range(40)]
    np.testing.assert_array_equal(np.stack(results), np.stack(expected))


def test_stream_takes_shapes_as_they_come(session: Session) -> None:
    batches = [data(n, 3, 8, 8, seed=n) for n in (4, 4, 1, 2)]
    for x, (out,) in zip(batches, session.stream({"data": x} for x in batches), strict=True):
        np.testing.assert_allclose(out, conv_relu_by_hand(conv_relu(), x), atol=1e-5)


def test_stream_takes_few_inputs_ahead(session: Session) -> None:
    taken = 0

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        nonlocal taken
        while taken < 1000:
            taken += 1
            yield {"data": data(1, 3, 8, 8)}

    results = session.stream(feeds())
    assert taken == 0
    next(results)
    assert 1 <= taken <= 2 * session.workers + 2
    results.close()
    assert session.run({"data": data(1, 3, 8, 8)})[0].shape == (1, 16, 8, 8)


def test_stream_delivers_what_came_before_a_fault(session: Session) -> None:
    def feeds() -> Iterator[dict[str, np.ndarray]]:
        yield {"data": data(1, 3, 8, 8)}
        yield {"data": data(2, 3, 8, 8)}
        raise OSError("disk gone")

    got = []
    with pytest.raises(OSError, match="disk gone"):
        for (out,) in session.stream(feeds()):
            got.append(len(out))
    assert got == [1, 2]


def test_submit_copies_feeds(session: Session) -> None:
    x = data(1, 3, 8, 8)
    expected = session.run({"data": x})[0]
    future = session.submit({"data": x})
    x[...] = 0
    np.testing.assert_array_equal(future.result(timeout=20)[0], expected)


def test_a_closed_session_says_so(engine: Engine) -> None:
    loaded = engine.load(conv_relu(), OPTIONS)
    feeds = {"data": data(1, 3, 8, 8)}
    future = loaded.submit(feeds)
    loaded.close()
    loaded.close()
    assert future.result(timeout=20)[0].shape == (1, 16, 8, 8)
    for call in (loaded.run, loaded.submit, loaded.stream, lambda _: loaded.profile()):
        with pytest.raises(EngineError, match="closed\n  next:     load the model again"):
            call(feeds)


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


FORKED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from test_contract import *
loaded = engines.get(sys.argv[1]).load(conv_relu(), EngineOptions(threads=2))
feeds = {"data": data(2, 3, 8, 8)}
expected = loaded.run(feeds)[0]
loaded.submit(feeds).result(), list(loaded.stream([feeds] * 3))
child = os.fork()
if child == 0:
    signal.alarm(20)
    results = [loaded.run(feeds), loaded.submit(feeds).result(), *loaded.stream([feeds] * 3)]
    os._exit(0 if all((r[0] == expected).all() for r in results) else 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="data loaders fork on Linux only")
def test_a_session_works_in_a_forked_process(engine: Engine) -> None:
    """Data loaders run transformations in forked workers, where the engine's threads do not exist."""
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", FORKED, engine.name, here], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stderr


@pytest.mark.parametrize("options", [OPTIONS, EngineOptions(hint="throughput", streams=2)])
def test_many_are_looked_at_in_order(engine: Engine, options: EngineOptions) -> None:
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((2, 3, 8, 8)).astype(np.float32) for _ in range(9)]
    seen: list[np.ndarray] = []
    thread = threading.get_ident()

    def at(outs: list[np.ndarray]) -> None:
        assert threading.get_ident() == thread
        seen.append(outs[0].copy())

    with engine.load(conv_relu(), options) as loaded:
        loaded.look_many(({"data": b} for b in batches), at)
        loaded.look_many([], at)
        assert len(seen) == 9
        for array, batch in zip(seen, batches):
            np.testing.assert_allclose(array, loaded.run({"data": batch})[0], rtol=1e-5, atol=1e-5)


def test_a_fault_among_many_stops_the_looking(session: Session) -> None:
    good, seen = np.zeros((1, 3, 8, 8), np.float32), [0]

    def count(outs: list[np.ndarray]) -> None:
        seen[0] += 1

    with pytest.raises(InputError, match="wrong rank"):
        session.look_many([{"data": good}, {"data": good}, {"data": good[0]}], count)

    def fail(outs: list[np.ndarray]) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        session.look_many([{"data": good}] * 5, fail)
    seen[0] = 0
    session.look_many([{"data": good}] * 5, count)
    assert seen[0] == 5
