"""What every calibrator promises. New files in the calibrators' folder are tested without being named here."""

from __future__ import annotations

import pkgutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import requant.quant.calibrators as folder
from requant import qmath
from requant.errors import CalibrationError
from requant.quant.calibrator import MXNET, Calibrator
from requant.quant.calibrators import calibrators, make
from requant.quant.forms import activation_params
from requant.quant.nonfinite import NonFiniteActivation
from requant.scheme import ONNXRUNTIME, OPENVINO, TENSORRT, Scheme

F32 = np.float32
NAMES = sorted(calibrators())
SCHEMES = {"mxnet": MXNET, "openvino": OPENVINO, "onnxruntime": ONNXRUNTIME, "tensorrt": TENSORRT}
each = pytest.mark.parametrize("name", NAMES)
each_scheme = pytest.mark.parametrize("scheme", list(SCHEMES.values()), ids=list(SCHEMES))


def equal(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def activations(seed: int, size: int) -> np.ndarray:
    r = np.random.RandomState(seed)
    x = [r.randn(size), np.maximum(r.randn(size), 0), r.laplace(size=size) + 1, np.zeros(size)][seed % 4]
    return x.astype(F32)


def test_every_file_is_a_calibrator_of_its_name() -> None:
    files = {entry.name for entry in pkgutil.iter_modules(folder.__path__)}
    assert files == set(NAMES) and {"naive", "entropy", "percentile", "mse", "auto"} <= files


@each
def test_it_is_documented_and_final(name: str) -> None:
    kind = calibrators()[name]
    assert issubclass(kind, Calibrator) and kind.name == name and kind.__doc__
    assert getattr(kind, "__final__", True)


@each
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 3000), max_size=4), order=st.randoms())
def test_merge_equals_whole(name: str, seed: int, cuts: list[int], order) -> None:
    x = activations(seed, 3000)
    whole = make(name, "t")
    whole.observe(x)
    parts = []
    for piece in np.split(x, sorted(cuts)):
        part = make(name, "t")
        part.observe(piece)
        parts.append(part)
    order.shuffle(parts)
    for part in parts[1:]:
        parts[0].merge(part)
    assert equal(parts[0].state(), whole.state())
    assert parts[0].range() == whole.range()


@each
def test_uneven_last_batch(name: str) -> None:
    """4, 4, 1 gives the same as 9 x 1 and as one batch of 9."""
    x = np.random.RandomState(0).randn(9, 8, 5, 5).astype(F32)
    states = []
    for sizes in ([4, 4, 1], [1] * 9, [9]):
        c = make(name, "t")
        for batch in np.split(x, np.cumsum(sizes)[:-1]):
            c.observe(batch)
        states.append(c.state())
    assert equal(states[0], states[1]) and equal(states[0], states[2])


@each
@each_scheme
def test_state_round_trip(name: str, scheme: Scheme) -> None:
    c = make(name, "conv0")
    c.observe(activations(2, 5000))
    c.observe(activations(5, 500), held_out=True)
    again = calibrators()[name].from_state(c.state())
    assert equal(again.state(), c.state()) and again.range(scheme) == c.range(scheme) and again.tensor == "conv0"
    again.observe(activations(1, 100))
    c.observe(activations(1, 100))
    assert equal(again.state(), c.state())
    with pytest.raises(CalibrationError, match="another calibrator"):
        calibrators()[name].from_state({**c.state(), "calibrator": "other"})


@each
@each_scheme
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), exponent=st.integers(-30, 60))
def test_ranges_are_ones_that_the_scheme_can_use(name: str, scheme: Scheme, seed: int, exponent: int) -> None:
    x = activations(seed, 2000) * F32(2.0**exponent)
    c = make(name, "t")
    c.observe(x)
    low, high = c.range(scheme)
    assert low <= high and np.isfinite([low, high]).all()
    assert max(-low, high) <= np.abs(x).max()
    if x.min() >= 0 and scheme.unsigned:
        assert low >= 0
    params = activation_params(scheme, c.range(scheme))
    # Most of the signal survives: whatever is cut off, the error stays far below the values themselves.
    assert qmath.sqnr(x, qmath.fake_quantize(x, params)) > 15 or not x.any()


@each
@each_scheme
@pytest.mark.parametrize("values", [[0.7], [-0.7], [0.7] * 5000, [-0.7] * 5000, [1e-7] * 10, [0.0, 1.0] * 500])
def test_constants_and_single_values_survive(name: str, scheme: Scheme, values: list[float]) -> None:
    x = np.array(values, F32)
    c = make(name, "t")
    c.observe(x)
    params = activation_params(scheme, c.range(scheme))
    np.testing.assert_allclose(qmath.fake_quantize(x, params), x, rtol=0.01)


@each
@each_scheme
def test_all_zero_then_not(name: str, scheme: Scheme) -> None:
    c = make(name, "t")
    c.observe(np.zeros((2, 50), F32))
    assert c.range(scheme) == (0, 0)
    x = np.random.RandomState(1).randn(2000).astype(F32)
    c.observe(x)
    plain = make(name, "t")
    plain.observe(x)
    assert c.range(scheme).absmax > 0.5 * plain.range(scheme).absmax


@each
def test_a_dead_channel_changes_nothing_but_zeros(name: str) -> None:
    x = np.random.RandomState(2).randn(4, 8, 100).astype(F32)
    x[:, 3] = 0
    c = make(name, "t")
    c.observe(x)
    assert 2 < c.range().absmax < 6


@each
def test_tiny_ranges_keep_their_size(name: str) -> None:
    """MXNet writes ranges with six decimals, so that anything below 5e-7 becomes zero."""
    x = np.random.RandomState(3).randn(5000).astype(F32) * F32(1e-8)
    c = make(name, "t")
    c.observe(x)
    assert 2e-8 < c.range().absmax < 6e-8


@each
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nonfinite_names_tensor_and_sample_and_adds_nothing(name: str, bad: float) -> None:
    c = make(name, "conv3_output")
    x = np.random.RandomState(4).randn(5, 3, 4).astype(F32)
    c.observe(x)
    before = c.state()
    broken = x.copy()
    broken[3, 1, 2] = bad
    with pytest.raises(NonFiniteActivation, match="sample 3 of the batch") as error:
        c.observe(broken)
    assert error.value.tensor == "conv3_output" and error.value.sample == 3 and "conv3_output" in str(error.value)
    assert equal(c.state(), before)


@each
def test_nothing_observed_is_an_error(name: str) -> None:
    with pytest.raises(CalibrationError, match="no value of this tensor was observed"):
        make(name, "t").range()
    c = make(name, "t")
    c.observe(np.zeros((0, 3), F32))
    with pytest.raises(CalibrationError, match="no value"):
        c.range()


@each
def test_an_outlier_a_thousand_times_the_rest_is_survived(name: str) -> None:
    x = np.random.RandomState(5).randn(200000).astype(F32)
    c = make(name, "t")
    c.observe(np.append(x, F32(4000)))
    low, high = c.range()
    assert np.isfinite([low, high]).all() and 3 < max(-low, high) <= 4000


@each
def test_different_calibrators_do_not_merge(name: str) -> None:
    other = make("naive" if name != "naive" else "mse", "t")
    with pytest.raises(CalibrationError, match="cannot be merged"):
        make(name, "t").merge(other)


def test_unknown_names_and_options() -> None:
    with pytest.raises(CalibrationError, match="did you mean 'entropy'"):
        make("entrpy")
    with pytest.raises(CalibrationError, match="no such option"):
        make("entropy", percentile=3)
