"""Scale arithmetic: MXNet ranges and ONNX scales, rounding, saturation, zero ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from requant import qmath
from requant.errors import QuantizationError
from requant.qmath import Range

F32 = np.float32
finite = st.floats(-(2.0**100), 2.0**100, width=32)


def test_limits() -> None:
    assert qmath.limits(np.int8) == (-128, 127)
    assert qmath.limits(np.int8, narrow=True) == (-127, 127)
    assert qmath.limits(np.int8, reduced=True) == (-64, 63)
    assert qmath.limits(np.int8, narrow=True, reduced=True) == (-63, 63)
    assert qmath.limits(np.uint8, narrow=True) == (0, 255)
    assert qmath.limits(np.uint8, reduced=True) == (0, 127)
    with pytest.raises(QuantizationError, match="not a quantized type"):
        qmath.limits(np.float32)


def test_reduced_range_cannot_overflow_16_bit_pair_sums() -> None:
    """The reason of the reduced range: u8 × s8 + u8 × s8 must fit int16 (vpmaddubsw)."""
    weight = qmath.limits(np.int8, narrow=True, reduced=True)
    assert 2 * 255 * max(-weight.min, weight.max) <= np.iinfo(np.int16).max
    assert np.iinfo(np.int16).max < 2 * 255 * 127


def test_round_half_even_and_saturation() -> None:
    p = qmath.QuantParams(F32(1), np.int8(0), np.dtype(np.int8))
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 1e9, -128.5, -1e9, np.inf, -np.inf, np.nan], F32)
    assert qmath.quantize(x, p).tolist() == [0, 2, 2, 0, -2, 126, 127, 127, -128, -128, 127, -128, 0]
    narrow = qmath.symmetric(-127, 127)
    assert qmath.quantize(x, narrow).tolist()[-4:] == [-127, 127, -127, 0]


def test_symmetric_formulas() -> None:
    p = qmath.symmetric(-2.0, 1.0, np.int8)
    assert p.scale == F32(2 / 127) and p.zero_point == 0 and p.limits == (-127, 127) and p.symmetric
    assert qmath.symmetric(0.0, 3.0, np.uint8).scale == F32(3 / 255)
    assert qmath.symmetric(-2.0, 1.0, np.int8, reduced=True).scale == F32(2 / 63)
    with pytest.raises(QuantizationError, match="negative values"):
        qmath.symmetric(-1.0, 3.0, np.uint8)


def test_per_channel() -> None:
    w = np.array([[1.0, -2.0], [0.0, 0.0], [0.5, 0.25]], F32)
    p = qmath.weight_params(w, 0)
    np.testing.assert_array_equal(p.scale, np.array([2 / 127, 1, 0.5 / 127], F32))
    np.testing.assert_array_equal(qmath.quantize(w, p), [[64, -127], [0, 0], [127, 64]])
    swapped = qmath.weight_params(w.T, 1)
    np.testing.assert_array_equal(swapped.scale, p.scale)
    np.testing.assert_array_equal(qmath.quantize(w.T, swapped), qmath.quantize(w, p).T)
    assert qmath.weight_params(w, None).scale == F32(2 / 127)
    assert qmath.weight_params(np.zeros((4, 0), F32), 0).scale.tolist() == [1, 1, 1, 1]


def test_bad_parameters_are_refused() -> None:
    for scale in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(QuantizationError, match="positive and finite"):
            qmath.QuantParams(F32(scale), np.int8(0), np.dtype(np.int8))
    with pytest.raises(QuantizationError, match="axis"):
        qmath.QuantParams(np.ones(3, F32), np.zeros(3, np.int8), np.dtype(np.int8))
    with pytest.raises(QuantizationError, match="outside its type"):
        qmath.QuantParams(F32(1), np.int64(300), np.dtype(np.uint8))
    with pytest.raises(QuantizationError, match="finite and ordered"):
        qmath.symmetric(np.nan, 1.0)
    with pytest.raises(QuantizationError, match="finite and ordered"):
        qmath.asymmetric(2.0, 1.0)
    with pytest.raises(QuantizationError, match="channel 1 of axis 0"):
        qmath.weight_params(np.array([[1.0], [np.inf]], F32), 0)


@given(finite, finite, st.sampled_from([np.int8, np.uint8]), st.booleans())
def test_asymmetric_invariants(a: float, b: float, dtype: type, reduced: bool) -> None:
    """Zero is exact, both ends are represented within half a step, the zero point is in the type."""
    low, high = min(a, b), max(a, b)
    p = qmath.asymmetric(low, high, dtype, reduced=reduced)
    assert qmath.fake_quantize(np.zeros(1, F32), p)[0] == 0.0
    bottom, top = qmath.represented(p)
    slack = float(p.scale) * 0.501
    assert bottom <= min(low, 0) + slack and top >= max(high, 0) - slack
    assert p.limits.min <= int(p.zero_point) <= p.limits.max


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=40), st.sampled_from(["s8", "u8", "s8a", "u8a"]))
def test_round_trip_error_is_half_a_step(values: list[float], kind: str) -> None:
    x = np.array(values, F32)
    dtype = np.int8 if kind[0] == "s" else np.uint8
    if kind == "u8":
        x = np.abs(x)
    make = qmath.asymmetric if kind.endswith("a") else qmath.symmetric
    p = make(x.min(), x.max(), dtype)
    error = np.abs(qmath.fake_quantize(x, p).astype(np.float64) - x)
    assert error.max() <= float(p.scale) * 0.5 * (1 + 1e-5) + 1e-30


@given(st.integers(-128, 127), finite.filter(lambda v: v > 1e-30), st.integers(-128, 127))
def test_quantize_inverts_dequantize(q: int, scale: float, zero: int) -> None:
    p = qmath.QuantParams(F32(scale), np.int8(zero), np.dtype(np.int8))
    real = qmath.dequantize(np.array([q], np.int8), p)
    assert qmath.quantize(real, p)[0] == q


def test_zero_and_tiny_ranges() -> None:
    for p in (qmath.symmetric(0.0, 0.0), qmath.asymmetric(0.0, 0.0), qmath.from_mxnet_range(0.0, 0.0, "int8")):
        assert p.scale == 1 and qmath.fake_quantize(np.zeros(3, F32), p).tolist() == [0, 0, 0]
    for tiny in (1e-7, 1e-12, 1e-37, 1e-44):
        x = np.array([tiny, -tiny, 0], F32)
        p = qmath.symmetric(-tiny, tiny)
        assert np.isfinite(p.scale) and p.scale > 0
        assert abs(qmath.fake_quantize(x, p) - x).max() <= max(float(p.scale), 1e-38)
        assert np.isfinite(qmath.mxnet_multiplier(-tiny, tiny, "int8"))
    assert abs(float(qmath.symmetric(-1e-7, 1e-7).scale) / (1e-7 / 127) - 1) < 1e-6  # not rounded to 6 decimals


def test_bias_params() -> None:
    a, w = qmath.asymmetric(-1, 2), qmath.symmetric([-1.0, -2.0], [1.0, 2.0], axis=0)
    p = qmath.bias_params(a, w)
    np.testing.assert_array_equal(p.scale, a.scale * w.scale)
    assert p.dtype == np.int32 and p.axis == 0
    b = np.array([0.3, 1e9], F32)
    assert qmath.quantize(b, p)[1] == np.iinfo(np.int32).max
    assert abs(qmath.fake_quantize(b, p)[0] - 0.3) <= p.scale[0]


def test_mxnet_levels_and_ranges() -> None:
    p = qmath.from_mxnet_range(-3.0, 2.0, "int8")
    assert p.scale == F32(F32(3) / F32(127.5)) and p.zero_point == 0
    assert qmath.from_mxnet_range(-3.0, 2.0, "uint8").scale == F32(F32(3) / F32(255.5))
    assert qmath.from_mxnet_range(0.0, 2.0, "uint8", "R7").scale == F32(F32(2) / F32(255))
    assert qmath.mxnet_auto_dtype(-0.0, 1.0) == np.uint8
    assert qmath.mxnet_auto_dtype(-1e-9, 1.0) == np.int8 == qmath.mxnet_auto_dtype(None, 1.0)
    with pytest.raises(QuantizationError, match="no such quantized type"):
        qmath.mxnet_levels(np.int16)
    with pytest.raises(QuantizationError, match="per tensor"):
        qmath.to_mxnet_range(qmath.weight_params(np.ones((2, 2), F32), 0))
    with pytest.raises(QuantizationError, match="must be finite"):
        qmath.from_mxnet_range(float("nan"), 1.0, "int8")


@given(st.floats(2.0**-60, 2.0**60, width=32), st.sampled_from(["int8", "uint8"]), st.sampled_from(["R7", "R8"]))
def test_mxnet_range_round_trip(high: float, dtype: str, levels: qmath.Levels) -> None:
    p = qmath.from_mxnet_range(-high if dtype == "int8" else 0.0, high, dtype, levels)
    low, back = qmath.to_mxnet_range(p, levels)
    assert abs(back / high - 1) <= 2.0**-22
    assert low == (-back if dtype == "int8" else 0.0)


def test_mxnet_quantize_is_one_float32_product() -> None:
    x = np.array([0.0, 1.0, -1.0, 2.0, 0.013, np.nan, np.inf, -np.inf], F32)
    for dtype, levels, count in (
        ("int8", "R8", 127.5),
        ("uint8", "R8", 255.5),
        ("int8", "R7", 127),
        ("uint8", "R7", 255),
    ):
        info = np.iinfo(dtype)
        with np.errstate(invalid="ignore"):
            expected = np.clip(np.rint(x * F32(F32(count) / F32(1.7))), info.min, info.max)
        expected[5] = 127 if dtype == "int8" else 0
        np.testing.assert_array_equal(qmath.mxnet_quantize(x, -1.7, 1.1, dtype, levels), expected.astype(dtype))
    assert qmath.mxnet_quantize(np.zeros(2, F32), 0, 0, "int8").tolist() == [0, 0]


def test_sqnr() -> None:
    a = np.array([3.0, 4.0], F32)
    assert qmath.sqnr(a, a) == np.inf
    assert qmath.sqnr(a, a + F32(0.5)) == pytest.approx(10 * np.log10(25 / 0.5))
    assert qmath.sqnr(np.zeros(2), a) == -np.inf
    with pytest.raises(QuantizationError, match="shape"):
        qmath.sqnr(a, np.zeros(3))


@settings(max_examples=50)
@given(st.floats(0, 1e6, width=32), st.floats(0, 1e6, width=32))
def test_range_absmax(a: float, b: float) -> None:
    assert Range(-a, b).absmax == max(a, b)


def test_parameters_are_frozen_and_comparable() -> None:
    p = qmath.symmetric(-1, 1)
    with pytest.raises(ValueError, match="read-only"):
        p.scale[...] = 2
    assert p.same_as(qmath.symmetric(-1, 1)) and not p.same_as(qmath.symmetric(-1, 2))
    assert not p.same_as(qmath.symmetric(-1, 1, narrow=False))
