"""One contract for every engine: whatever `requant.engines` finds is put through all of this.

Here: what a graph says, and what one run gives. ``test_contract_many.py`` and ``test_contract_options.py`` go on.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from engine_graphs import OPTIONS, conv_relu, conv_relu_by_hand, data, parse, two

from requant.engines import Engine, Session, TensorSpec
from requant.errors import EngineError, InputError


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
