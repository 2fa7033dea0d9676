"""What goldens cannot show of element-wise operators, reductions, creation: refusals, hostile values, open batches."""

from __future__ import annotations

import math

import numpy as np
import pytest

from requant import eager, engines
from requant.engines.base import EngineOptions
from requant.errors import AttributeValueError, DTypeError, RequantError, ShapeError, UnsupportedError
from requant.lower import to_onnx
from requant.ops import registry
from requant.ops.binary import paired_shapes
from requant.ops.emit import Emit
from requant.symbol.tree import apply, variable


def run(name: str, *arrays: np.ndarray, **attrs: object) -> np.ndarray:
    return eager.invoke(registry.get(name), {k: str(v) for k, v in attrs.items()}, arrays)[0]


def lowered(name: str, **attrs: object) -> Emit:
    op = registry.get(name)
    g = Emit("op")
    op.lower(g, op.parse({k: str(v) for k, v in attrs.items()}))
    return g


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("_Plus", "elemwise_add"),
        ("_plus", "elemwise_add"),
        ("_Minus", "elemwise_sub"),
        ("_Mul", "elemwise_mul"),
        ("_Div", "elemwise_div"),
        ("_PlusScalar", "_plus_scalar"),
        ("_RMinusScalar", "_rminus_scalar"),
        ("_RDivScalar", "_rdiv_scalar"),
        ("_PowerScalar", "_power_scalar"),
        ("_Greater_Equal", "_greater_equal"),
        ("_LesserEqualScalar", "_lesser_equal_scalar"),
        ("ElementWiseSum", "add_n"),
        ("broadcast_plus", "broadcast_add"),
        ("broadcast_minus", "broadcast_sub"),
        ("sum_axis", "sum"),
        ("cast", "Cast"),
        ("linalg_gemm2", "_linalg_gemm2"),
        ("cumsum", "_np_cumsum"),
        ("_npx_batch_dot", "batch_dot"),
        ("_npi_full", "_full"),
        ("_npx_arange_like", "_contrib_arange_like"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    assert registry.get(alias).name == name


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["elemwise_add", "broadcast_mul", "_equal", "dot", "batch_dot", "_npi_matmul"])
def test_dtypes_do_not_mix(name: str) -> None:
    with pytest.raises(DTypeError, match="float32 and int32") as caught:
        run(name, np.ones((2, 2, 2), np.float32), np.ones((2, 2, 2), np.int32))
    assert "Cast" in str(caught.value)


def test_equal_shapes_are_a_must() -> None:
    op = registry.get("elemwise_add")
    g = Emit("sum0")
    g.mx_op = "elemwise_add"
    a, b, c = (g.input(n, d, np.float32) for n, d in (("a", [2, 3]), ("b", [2, 4]), ("c", [3])))
    for other in (b, c):
        with pytest.raises(ShapeError, match="elemwise_add must have equal shapes") as caught:
            op.lower(g, op.parse({}), lhs=a, rhs=other)
        assert "broadcast_" in str(caught.value) and "sum0" in str(caught.value)


@pytest.mark.parametrize("scalar", ["inf", "-inf", "nan"])
def test_infinite_scalars_do_not_meet_integers(scalar: str) -> None:
    with pytest.raises(DTypeError, match="does not fit"):
        run("_plus_scalar", np.ones(2, np.int32), scalar=scalar)


@pytest.mark.parametrize(("scalar", "want"), [(1e30, 1), (2.0**32 + 5, 6), (-1.5, 0)])
def test_scalars_wrap_around_in_integers(scalar: float, want: int) -> None:
    assert run("_plus_scalar", np.ones(1, np.int32), scalar=scalar).tolist() == [want]


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("_zeros", {"shape": (1 << 40, 1 << 40)}),
        ("_ones", {"shape": (-3, 2)}),
        ("_full", {"shape": (1 << 62,) * 40, "value": 1}),
        ("_arange", {"start": 0, "stop": 1e300}),
        ("_arange", {"start": 0, "stop": 1e9, "repeat": 1 << 40}),
        ("_arange", {"start": 0, "stop": 5, "step": 0}),
        ("_arange", {"start": 0, "stop": 5, "step": -1}),
        ("_arange", {"start": 0, "stop": "nan"}),
        ("_arange", {"start": 0, "stop": "inf"}),
        ("_arange", {"start": 0, "stop": 5, "repeat": 0}),
        ("_linspace", {"start": 0, "stop": 1, "num": 1 << 50}),
        ("_linspace", {"start": 0, "stop": 1, "num": -2}),
        ("_linspace", {"start": "nan", "stop": 1, "num": 3}),
        ("_eye", {"N": 1 << 40}),
        ("_eye", {"N": -1}),
        ("_npi_identity", {"shape": (2, 3)}),
        ("_npi_indices", {"dimensions": (1 << 30, 1 << 30)}),
        ("_zeros", {"shape": (2,), "dtype": "float31"}),
        ("_zeros", {"shape": (2,), "dtype": "77"}),
    ],
)
def test_what_cannot_be_created(name: str, attrs: dict[str, object]) -> None:
    with pytest.raises(RequantError):
        lowered(name, **attrs)


def test_ranges_without_an_end() -> None:
    with pytest.raises(UnsupportedError, match="give stop"):
        lowered("_arange", start=0, infer_range=True)


def test_large_fills_are_not_stored() -> None:
    g = lowered("_zeros", shape=(1 << 14, 1 << 14))
    assert [n.op_type for n in g.nodes] == ["Expand"]
    assert all(v.const_value is None or v.const_value.size < 10 for v in g.initializers.values())


def test_reductions_check_axes() -> None:
    x = np.ones((2, 3), np.float32)
    for axis in ((2,), (-3,), (0, 0), (1, -1)):
        with pytest.raises(ShapeError):
            run("sum", x, axis=axis)
    with pytest.raises(AttributeValueError, match="needs axes"):
        run("moments", x)
    with pytest.raises(AttributeValueError):
        run("norm", x, ord=3)


def test_amp_multicast_counts_its_inputs() -> None:
    op = registry.get("amp_multicast")
    g = Emit("op")
    with pytest.raises(AttributeValueError, match="num_outputs"):
        op.lower(g, op.parse({"num_outputs": "3"}), g.input("a", [2], np.float32))


# -- values that engines stumble over -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "dtype"),
    [
        ("onnxruntime", np.int8),
        ("onnxruntime", np.int32),
        ("onnxruntime", np.int64),
        ("openvino", np.int8),
        ("openvino", np.int32),
    ],
)
def test_integer_division_never_fails(engine: str, dtype: type) -> None:
    """By zero, and of the lowest integer by -1, where processors trap. Only what is defined is compared."""
    low = np.iinfo(dtype).min
    a = np.array([5, low, -7, 7, low], dtype)
    b = np.array([0, -1, 2, -2, 0], dtype)
    for name, want in (("elemwise_div", [None, None, -3, -3, None]), ("_mod", [0, 0, 1, -1, 0])):
        op = registry.get(name)
        model, used = eager.lower_one(op, op.parse({}), [(a.dtype, [5]), (b.dtype, [5])])
        (got,) = engines.get(engine).load(model, EngineOptions(threads=1), None).run({"in0": a, "in1": b})
        assert used == [0, 1]
        assert got.dtype == np.dtype(dtype)
        assert [g for g, w in zip(got.tolist(), want) if w is not None] == [w for w in want if w is not None]


def test_hypot_of_float16_does_not_overflow() -> None:
    x = np.array([300.0, 30000.0], np.float16)
    np.testing.assert_allclose(run("_hypot", x, x), np.hypot(x, x), rtol=2e-3)


def test_rounding_just_below_a_half() -> None:
    """floor(x + 0.5) would give 1: the sum rounds up."""
    x = np.array([np.nextafter(np.float32(0.5), np.float32(0)), 8388609.0, -8388609.0], np.float32)
    for name in ("round", "rint"):
        np.testing.assert_array_equal(run(name, x), [0, 8388609, -8388609])


def test_norm_of_integers() -> None:
    """MXNet 1.9.1 gives 6 for this norm of √91 = 9.54: the sum of squares is lost. We truncate the right value."""
    assert run("norm", np.array([[1, 2, 3], [4, 5, 6]], np.int32)).tolist() == [9]


def test_float16_ranges_keep_their_fractions() -> None:
    """MXNet 1.9.1 truncates start and step of float16 ranges to integers, so that 0, 0.5, 1 becomes 0, 0, 0."""
    like = run("_contrib_arange_like", np.zeros(3, np.float16), step=0.5)
    np.testing.assert_array_equal(like, np.array([0, 0.5, 1], np.float16))
    op = registry.get("_arange")
    made = eager.invoke(op, {"start": "0.5", "stop": "2", "step": "0.5", "dtype": "float16"}, [])[0]
    np.testing.assert_array_equal(made, np.array([0.5, 1, 1.5], np.float16))


@pytest.mark.parametrize("name", ["gamma", "gammaln", "erfinv", "log1p", "expm1", "erf", "cbrt"])
def test_special_functions_keep_single_precision(name: str) -> None:
    """Against values to 64 bits, over the whole range; tolerance a few float32 roundings of the argument."""
    rng = np.random.default_rng(7)
    exact = {
        "gamma": (rng.uniform(-5.4, 30, 200), math.gamma, 3e-5),
        "gammaln": (rng.uniform(-6.4, 3000, 200), math.lgamma, 3e-6),
        "erfinv": (rng.uniform(-0.9999, 0.9999, 200), None, 3e-6),
        "log1p": (rng.uniform(-0.9, 9, 200) ** 5, math.log1p, 3e-6),
        "expm1": (rng.uniform(-2, 2, 200) ** 5, math.expm1, 3e-6),
        "erf": (rng.uniform(-4, 4, 200), math.erf, 3e-6),
        "cbrt": (rng.uniform(-9, 9, 200) ** 3, np.cbrt, 3e-6),
    }
    x, function, rtol = exact[name]
    x = x.astype(np.float32)
    got = run(name, x)
    if function is None:  # erfinv: put the result back in
        back = np.array([math.erf(float(v)) for v in got])
        np.testing.assert_allclose(back, x, rtol=rtol, atol=1e-6)
        return
    np.testing.assert_allclose(got, [float(function(float(v))) for v in x], rtol=rtol, atol=3e-6)


# -- open batches -------------------------------------------------------------------------------------------------


def test_shape_rule_leaves_an_open_batch_open() -> None:
    assert paired_shapes(None, {"lhs": (0, 5), "rhs": (1, 5), "output": None}) == {"lhs": (0, 5), "rhs": (1, 5)}
    assert paired_shapes(None, {"lhs": (0, 0), "rhs": (4, 5), "output": None}) == {"lhs": (4, 5), "rhs": (4, 5)}
    assert paired_shapes(None, {"lhs": None, "rhs": (1, 5), "output": None}) == {"lhs": (1, 5), "rhs": (1, 5)}
    assert paired_shapes(None, {"lhs": (2,), "rhs": (1, 5), "output": None}) == {}


@pytest.mark.parametrize("batch", [1, 3])
def test_zero_state_broadcasts_to_the_batch(batch: int) -> None:
    """A recurrent cell's first state is ``_zeros`` of shape (0, n): 0 is the batch, which a symbol does not know."""
    state = apply("_zeros", shape=(0, 4))
    total = apply("elemwise_add", apply("_plus_scalar", variable("data"), scalar=1), state)
    model = to_onnx(total, {}, {"data": ("N", 4)}).model
    x = np.arange(4 * batch, dtype=np.float32).reshape(batch, 4)
    for engine in ("onnxruntime", "openvino"):
        (got,) = engines.get(engine).load(model, EngineOptions(threads=1), None).run({"data": x})
        np.testing.assert_array_equal(got, x + 1)


def test_creation_follows_an_open_batch() -> None:
    for name, attrs in (("zeros_like", {}), ("_contrib_arange_like", {}), ("shape_array", {}), ("size_array", {})):
        made = apply(name, variable("data"), **attrs)
        model = to_onnx(made, {}, {"data": ("N", 4)}).model
        session = engines.get("onnxruntime").load(model, EngineOptions(threads=1), None)
        for batch in (1, 3):
            x = np.ones((batch, 4), np.float32)
            (got,) = session.run({"data": x})
            want = {
                "zeros_like": np.zeros((batch, 4)),
                "_contrib_arange_like": np.arange(4 * batch).reshape(batch, 4),
                "shape_array": [batch, 4],
                "size_array": [4 * batch],
            }[name]
            np.testing.assert_array_equal(got, want)
