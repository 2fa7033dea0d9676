"""A hand-built quantized convolution, as people write it who bring int8 weights and scales from another framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant.mx as mx
from requant.mx import gluon
from requant.mx.gluon import nn
from requant.mx.gluon.nn.conv_layers import _infer_weight_shape

CHANNELS, FILTERS = 3, 4


class QuantizedConv(gluon.HybridBlock):
    """quantize → quantized_conv → requantize → dequantize → activation, with parameters set by hand."""

    def __init__(
        self,
        channels: int,
        kernel_size: tuple[int, int],
        in_channels: int,
        activation: str | None = None,
        padding: tuple[int, int] = (0, 0),
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        with self.name_scope():
            self._kwargs = {
                "kernel": kernel_size,
                "stride": (1, 1),
                "dilate": (1, 1),
                "pad": padding,
                "num_filter": channels,
                "num_group": 1,
                "no_bias": False,
                "layout": "NCHW",
                "cudnn_off": False,
                "cudnn_tune": None,
            }
            shape = list(_infer_weight_shape("Convolution", (0, in_channels, 0, 0), self._kwargs)[1])
            self.weight = self.params.get("weight", shape=shape, dtype="int8", init="zeros")
            self.bias = self.params.get("bias", shape=(channels,), dtype="int8", init="zeros")
            for name in ("weight_min", "weight_max", "bias_min", "bias_max"):
                setattr(self, name, self.params.get(name, shape=(1,), dtype="float32", init="zeros"))
            self.act = nn.Activation(activation, prefix=f"{activation}_") if activation else None

    def hybrid_forward(
        self,
        F: Any,
        x: Any,
        weight: Any,
        bias: Any,
        weight_min: Any,
        weight_max: Any,
        bias_min: Any,
        bias_max: Any,
    ) -> Any:
        q, low, high = F.contrib.quantize(x, x.min(), x.max(), out_type="uint8")
        y, y_low, y_high = F.contrib.quantized_conv(
            data=q,
            weight=weight,
            bias=bias,
            min_data=low,
            max_data=high,
            min_weight=weight_min,
            max_weight=weight_max,
            min_bias=bias_min,
            max_bias=bias_max,
            **self._kwargs,
        )
        y, y_low, y_high = F.contrib.requantize(y, y_low, y_high)
        y = F.contrib.dequantize(y, y_low, y_high)
        return y if self.act is None else self.act(y)


def quantized(values: np.ndarray) -> tuple[np.ndarray, float]:
    """int8 and the largest magnitude."""
    reach = float(np.abs(values).max())
    return np.rint(values * (127 / reach)).astype(np.int8), reach


@pytest.fixture
def weights() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.RandomState(3)
    weight = random.randn(FILTERS, CHANNELS, 3, 3).astype(np.float32)
    return weight, random.randn(FILTERS).astype(np.float32)


def block(weights: tuple[np.ndarray, np.ndarray], activation: str | None) -> QuantizedConv:
    made = QuantizedConv(FILTERS, (3, 3), CHANNELS, activation, padding=(1, 1), prefix="qconv_")
    made.initialize()
    for name, values in zip(("weight", "bias"), weights):
        integers, reach = quantized(values)
        getattr(made, name).set_data(mx.nd.array(integers, dtype="int8"))
        getattr(made, f"{name}_min").set_data(mx.nd.array([-reach]))
        getattr(made, f"{name}_max").set_data(mx.nd.array([reach]))
    return made


def same(ours: np.ndarray, theirs: np.ndarray) -> None:
    """The same integers, brought to float by different roundings: engines scale in another order."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-6 * np.abs(theirs).max())


def data() -> np.ndarray:
    return np.abs(np.random.RandomState(4).randn(2, CHANNELS, 9, 9)).astype(np.float32)


@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
def test_it_computes_the_convolution_imperatively_and_hybridized(
    weights: tuple[np.ndarray, np.ndarray], activation: str | None
) -> None:
    made, x = block(weights, activation), mx.nd.array(data())
    assert made.weight.data().dtype == np.int8 and made.weight.shape == (FILTERS, CHANNELS, 3, 3)
    before = made(x).asnumpy()
    made.hybridize()
    after = made(x).asnumpy()
    same(after, before)
    exact = mx.nd.Convolution(
        x, mx.nd.array(weights[0]), mx.nd.array(weights[1]), kernel=(3, 3), pad=(1, 1), num_filter=FILTERS
    )
    exact = exact if activation is None else mx.nd.Activation(exact, act_type=activation)
    # Two steps of 8 bits, of the data and of the result: the bias and the range are honoured (MXNet: B2, B3).
    assert 20 * np.log10(np.linalg.norm(exact.asnumpy()) / np.linalg.norm(exact.asnumpy() - before)) > 32


def test_it_is_composed_of_symbols(weights: tuple[np.ndarray, np.ndarray]) -> None:
    made = block(weights, "relu")
    symbol = made(mx.sym.var("data"))
    assert {"qconv_weight", "qconv_weight_min", "qconv_bias", "qconv_bias_max"} <= set(symbol.list_arguments())
    arguments = {n: p.data() for n, p in made.collect_params().items()}
    out = symbol.bind(mx.cpu(), {**arguments, "data": mx.nd.array(data())}).forward()[0]
    same(out.asnumpy(), made(mx.nd.array(data())).asnumpy())


def test_its_parameters_go_to_a_file_and_come_back(weights: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    made, x = block(weights, "relu"), mx.nd.array(data())
    made.hybridize()
    expected = made(x).asnumpy()
    made.export(str(tmp_path / "qconv"))
    read = gluon.SymbolBlock.imports(str(tmp_path / "qconv-symbol.json"), ["data"], str(tmp_path / "qconv-0000.params"))
    np.testing.assert_array_equal(read(x).asnumpy(), expected)
    made.save_parameters(str(tmp_path / "bare.params"))
    other = QuantizedConv(FILTERS, (3, 3), CHANNELS, "relu", padding=(1, 1))
    other.load_parameters(str(tmp_path / "bare.params"))
    assert other.weight.data().dtype == np.int8
    same(other(x).asnumpy(), expected)


def test_it_is_a_layer_among_others(weights: tuple[np.ndarray, np.ndarray]) -> None:
    net = nn.HybridSequential()
    net.add(block(weights, "relu"), nn.GlobalAvgPool2D(), nn.Dense(2))
    net.initialize(mx.init.One())
    for name in ("weight", "bias"):  # initialize() with force_reinit=False leaves what was set
        assert np.abs(getattr(net[0], name).data().asnumpy().astype(int)).max() > 1
    x = mx.nd.array(data())
    before = net(x).asnumpy()
    net.hybridize()
    np.testing.assert_allclose(net(x).asnumpy(), before, rtol=1e-5)
