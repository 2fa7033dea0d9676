"""Weights of MXNet files: float numbers that MXNet rounds to the integers of the int8 model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import requant
import requant.mx as mx
from requant.passes import optimize
from requant.pipeline.model import Model
from requant.pipeline.quantization import QuantizedModel, quantize
from requant.rewrite.layers import Layer, layers, rounded_alike, with_layers

F = np.float32


def as_mxnet_rounds(weight: np.ndarray) -> np.ndarray:
    """MXNet's own integers of a float weight: 127.5 levels for each channel's largest magnitude, in float32."""
    flat = weight.reshape(len(weight), -1)
    scale = F(127.5) / np.abs(flat).max(1, keepdims=True)
    return np.clip(np.rint(flat * scale), -128, 127).astype(np.int8).reshape(weight.shape)


def layer(q: np.ndarray, scale: np.ndarray, **more: Any) -> Layer:
    zeros = np.zeros(len(q), F)
    source = q * scale.reshape(-1, *[1] * (q.ndim - 1))
    return Layer(q, scale, more.get("bias", zeros), more.get("source", source), more.get("source_bias", zeros))


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_come_back(sign: int) -> None:
    """Whatever the scale, and whether the largest element of a channel is positive or negative."""
    rng = np.random.default_rng(0)
    q = rng.integers(-126, 127, (2000, 5, 3, 3)).astype(np.int8)
    q[:, 2, 1, 1] = 127 * sign
    scale = rng.uniform(1e-4, 2e-4, len(q)).astype(F) * 2.0 ** rng.integers(-20, 20, len(q)).astype(F)
    weight, _ = rounded_alike(layer(q, scale))
    assert weight.dtype == F
    apart = as_mxnet_rounds(weight).astype(int) - q
    hard = np.frexp(scale)[0] < 0.503  # where no magnitude of -127.5 scales rounds to -127
    assert not apart[~hard if sign < 0 else slice(None)].any()
    assert set(apart[hard].ravel()) <= {0, -1} and (apart != 0).sum(axis=(1, 2, 3)).max() <= 1
    np.testing.assert_allclose(weight, q * scale[:, None, None, None], rtol=0.005)


def test_both_ends_of_a_channel_may_be_used() -> None:
    q = np.array([[-127, 127, 5, -127], [-127, -127, 0, 3], [127, 1, 127, -64]], np.int8)
    weight, _ = rounded_alike(layer(q, np.array([0.01, 0.3, 7.7], F)))
    np.testing.assert_array_equal(as_mxnet_rounds(weight), q)


def test_a_channel_without_large_integers_keeps_its_float_weights() -> None:
    q = np.array([[3, -2, 1], [126, 5, -9], [0, 0, 0]], np.int8)
    source = np.array([[0.31, -0.2, 0.1], [1.26, 0.05, -0.09], [0, 0, 0]], F)
    bias, before = np.array([1, 2, 3], F), np.array([4, 5, 6], F)
    weight, kept = rounded_alike(layer(q, np.full(3, 0.01, F), source=source, bias=bias, source_bias=before))
    np.testing.assert_array_equal(weight[[0, 2]], source[[0, 2]])
    assert kept.tolist() == [4, 2, 6]
    assert as_mxnet_rounds(weight[1:2]).tolist() == [[127, 5, -9]]


def network(shared: bool = False) -> tuple[Any, dict[str, np.ndarray]]:
    """Two convolutions (the first with batch normalization) and a fully connected layer."""
    x = mx.sym.Variable("data")
    w = mx.sym.Variable("w")
    own = {"weight": w} if shared else {}
    x = mx.sym.Convolution(x, num_filter=8, kernel=(3, 3), no_bias=True, name="c0", **own)
    x = mx.sym.BatchNorm(x, fix_gamma=False, name="n0")
    x = mx.sym.Activation(x, act_type="relu", name="r0")
    x = mx.sym.Convolution(x, num_filter=8, kernel=(3, 3), name="c1", **own)
    x = mx.sym.Activation(x, act_type="relu", name="r1")
    x = mx.sym.FullyConnected(x, num_hidden=5, name="f")
    rng = np.random.default_rng(1)
    shapes, _, aux = x.infer_shape(data=(1, 8, 12, 12))
    args = dict(zip(x.list_arguments(), shapes))
    found = {n: rng.normal(0, 0.3, s).astype(F) for n, s in args.items() if n != "data"}
    found |= {n: rng.uniform(0.5, 1.5, s).astype(F) for n, s in zip(x.list_auxiliary_states(), aux)}
    found["n0_gamma"] = rng.uniform(0.5, 1.5, 8).astype(F)
    return x, found


def quantized(shared: bool = False) -> QuantizedModel:
    symbol, params = network(shared)
    data = np.random.default_rng(2).uniform(0, 1, (32, 8, 12, 12)).astype(F)
    return quantize(Model.from_symbol(symbol, params, shapes={"data": ("n", 8, 12, 12)}), data, check=False)


@pytest.mark.parametrize("shared", [False, True])
def test_a_file_holds_the_integers_of_the_model(shared: bool) -> None:
    int8 = quantized(shared)
    assert int8._floating is not None
    held = layers(int8.onnx, optimize(int8._floating.onnx), int8.plan)
    assert {"c0", "n0", "c1", "f"} <= set(held)
    made = int8.to_symbol()
    names = set(made.params)
    assert not any(n.startswith("n0_") for n in names)  # batch normalization is in the weight
    weights = {"c0": "c0_weight", "c1": "c1_weight", "f": "f_weight"}
    for node, weight in weights.items():
        stored = made.params[weight]
        np.testing.assert_array_equal(as_mxnet_rounds(stored), held[node].weight, err_msg=node)
    np.testing.assert_array_equal(made.params["c0_bias"], held["c0"].bias)
    assert all(v.dtype == F for v in made.params.values())


def test_what_the_file_computes(tmp_path: Any) -> None:
    int8 = quantized()
    x = np.random.default_rng(3).uniform(0, 1, (16, 8, 12, 12)).astype(F)
    int8.save(str(tmp_path / "net"))
    mine = Model.run(int8, x)[0]
    read = {exact: requant.load(str(tmp_path / "net"), exact=exact).run(x)[0] for exact in (False, True)}
    exact = requant.Model.from_symbol(*network(), shapes={"data": ("n", 8, 12, 12)}).run(x)[0]
    for found in read.values():
        assert np.linalg.norm(found - exact) / np.linalg.norm(exact) < 0.03
        assert np.linalg.norm(found - mine) / np.linalg.norm(exact) < 0.03


def test_a_layer_that_something_else_was_folded_into_stays_as_it_is() -> None:
    symbol, params = network()
    q = np.full((8, 8, 3, 3), 127, np.int8)
    other = layer(q, np.full(8, 0.01, F))
    made, values = with_layers(symbol, params, {"c0": other, "c1": other})
    assert [n.name for n in made.nodes] == [n.name for n in symbol.nodes]
    assert all(values[n] is params[n] for n in params) and set(values) == set(params)
