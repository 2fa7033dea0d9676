"""Symbols of `mx.contrib.quantization` beside those that MXNet 1.9.1 returned (``record_symbols.py``)."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from golden import compact, differences, equally_good, load, ranges
from int8_networks import NETWORKS, SHAPE, data, inputs, values

import requant.mx as mx
from requant.mx.contrib import quantization
from requant.mx.symbol import Symbol

APIS = ("quantize_model", "quantize_model_mkldnn")
COMBINATIONS = list(itertools.product(APIS, ("full", "smart"), ("none", "naive", "entropy"), ("int8", "uint8", "auto")))
#: Variables that MXNet quantizes but gives no value, because their names end neither in weight nor in bias (B19).
NO_VALUE = {"shared_weights": {"w", "b", "v"}}


@functools.cache
def network(name: str) -> tuple[Symbol, dict[str, np.ndarray], dict[str, np.ndarray]]:
    with mx.name.NameManager():
        symbol = NETWORKS[name](mx)
    return symbol, *values(symbol, name)


@functools.cache
def golden(name: str) -> dict[str, Any]:
    return load(name)


def iterator(name: str) -> mx.io.NDArrayIter:
    label = np.zeros(8, np.float32) if name == "chain" else None
    return mx.io.NDArrayIter(data(name), label, batch_size=SHAPE[0])


@functools.cache
def collected(name: str, api: str, calibration: str) -> tuple[Symbol, Any]:
    """The float network, and a collector that saw all calibration data of it, for both modes."""
    symbol, args, aux = network(name)
    if api == "quantize_model_mkldnn":
        symbol = symbol.get_backend_symbol("MKLDNN_QUANTIZE")
    points: set[str] = set()
    for mode in ("full", "smart"):
        collector = quantization.quantize_graph(symbol, args, aux, calib_mode=calibration, quantize_mode=mode)[3]
        points |= set(collector.include_layer)
    collector.include_layer = points
    quantization.run(symbol, {**args, **aux}, iterator(name), inputs(name), collector, None, None)
    return symbol, collector


@functools.cache
def thresholds(name: str, api: str, dtype: str) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = collected(name, api, "entropy")[1].thresholds(dtype)
    return found


class Found:
    """A user's collector whose work is done."""

    def __init__(self, ranges_: dict[str, tuple[float, float]]) -> None:
        self.min_max_dict = ranges_

    def collect(self, name: str, arr: Any) -> None:
        raise AssertionError("everything was collected")


@pytest.mark.parametrize("name", NETWORKS)
def test_float_and_fused_symbols_are_those_of_mxnet(name: str) -> None:
    symbol, _, _ = network(name)
    assert differences(compact(symbol), golden(name)["float"]) == []
    for backend in ("MKLDNN", "MKLDNN_QUANTIZE"):
        assert differences(compact(symbol.get_backend_symbol(backend)), golden(name)[backend]) == []


@pytest.mark.parametrize("name", NETWORKS)
def test_int8_symbols_are_those_of_mxnet(name: str) -> None:
    _, args, aux = network(name)
    for api, mode, calibration, dtype in COMBINATIONS:
        key = "/".join((api, mode, calibration, dtype))
        symbol, collector = collected(name, api, "naive" if calibration == "none" else calibration)
        made, qargs, qaux, _ = quantization.quantize_graph(
            symbol, args, aux, calib_mode="none", quantized_dtype=dtype, quantize_mode=mode
        )
        if calibration != "none":
            found = collector
            if calibration == "entropy":
                found = Found(thresholds(name, api, "int8" if dtype == "int8" else "auto"))
            made, qargs, qaux = quantization.calib_graph(made, args, aux, found, "customize", dtype)
        if api == "quantize_model_mkldnn":
            made = made.get_backend_symbol("MKLDNN_QUANTIZE")
        check(name, key, made, qargs, qaux)


def check(name: str, key: str, made: Symbol, qargs: dict[str, Any], qaux: dict[str, Any]) -> None:
    """Compare an int8 network with the recorded one."""
    expected = golden(name)[key]
    assert "error" not in expected, f"{key}: {expected}"
    assert differences(compact(made), expected["symbol"]) == [], key
    check_ranges(name, key, ranges(compact(made)), ranges(expected["symbol"]))
    extra = {f"{n}_quantize{end}" for n in NO_VALUE.get(name, ()) for end in ("", "_min", "_max")}
    assert set(qargs) - extra == set(expected["args"]), key
    assert sorted(qaux) == expected["aux"], key
    for parameter, (total, dtype) in expected["args"].items():
        array = qargs[parameter].asnumpy()
        assert array.dtype.name == dtype, (key, parameter)
        np.testing.assert_allclose(np.abs(array.astype(np.float64)).sum(), total, rtol=1e-6, err_msg=parameter)


def check_ranges(
    name: str, key: str, ours: dict[str, tuple[float, float]], theirs: dict[str, tuple[float, float]]
) -> None:
    """Ranges are equal within 1e-5, or as good as MXNet's where entropy has several winners."""
    api, _, calibration, dtype = key.split("/")
    assert ours.keys() == theirs.keys(), key
    for node, pair in ours.items():
        if np.allclose(pair, theirs[node], rtol=1e-5, atol=2e-6):
            continue
        assert calibration == "entropy", (key, node, pair, theirs[node])
        histograms = collected(name, api, "entropy")[1].histograms
        bins = 511 if theirs[node][0] == 0 and dtype != "int8" else 255
        again = [
            h
            for h in histograms.values()
            if np.isclose(h.range("int8" if bins == 255 else "auto").max, pair[1], rtol=1e-5)
        ]
        assert any(equally_good(h, pair[1], theirs[node][1], bins) for h in again), (key, node, pair, theirs[node])


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_whole_flow_returns_what_mxnet_returns(name: str) -> None:
    symbol, args, aux = network(name)
    for api, mode, calibration, dtype in COMBINATIONS:
        made = getattr(quantization, api)(
            symbol,
            args,
            aux,
            data_names=inputs(name),
            calib_mode=calibration,
            calib_data=None if calibration == "none" else iterator(name),
            quantized_dtype=dtype,
            quantize_mode=mode,
        )
        check(name, "/".join((api, mode, calibration, dtype)), *made)
