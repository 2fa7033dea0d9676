"""`mx.contrib.quantization` as scripts call it: options, data, collectors, log lines, errors."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from int8_networks import NETWORKS, SHAPE, data, values

import requant.mx as mx
from requant.errors import CalibrationError, QuantizationError
from requant.mx import gluon
from requant.mx.contrib import quantization
from requant.mx.symbol import Symbol

Network = tuple[Symbol, dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def residual() -> Network:
    with mx.name.NameManager():
        symbol = NETWORKS["residual"](mx)
    args, aux = values(symbol, "residual")
    return symbol, {n: mx.nd.array(a) for n, a in args.items()}, {n: mx.nd.array(a) for n, a in aux.items()}


def batches(count: int = 2) -> mx.io.NDArrayIter:
    return mx.io.NDArrayIter(data("residual")["data"][: 4 * count], batch_size=SHAPE[0])


def ranges(symbol: Symbol) -> dict[str, str]:
    return {n: a["max_calib_range"] for n, a in symbol.attr_dict().items() if "max_calib_range" in a}


def run(network: Network, x: np.ndarray) -> np.ndarray:
    symbol, args, aux = network
    outputs = symbol.bind(mx.cpu(), {**args, "data": mx.nd.array(x)}, aux_states=aux).forward()
    return np.asarray(outputs[0].asnumpy())


def closeness(ours: np.ndarray, exact: np.ndarray) -> float:
    """Signal to noise in decibel."""
    return float(20 * np.log10(np.linalg.norm(exact) / np.linalg.norm(ours - exact)))


@pytest.mark.parametrize("dtype", ["int8", "auto"])
@pytest.mark.parametrize("api", ["quantize_model", "quantize_model_mkldnn"])
def test_what_it_returns_runs_and_is_close_to_float(residual: Network, api: str, dtype: str) -> None:
    x = data("residual")["data"][:4]
    made = getattr(quantization, api)(*residual, calib_mode="naive", calib_data=batches(), quantized_dtype=dtype)
    assert closeness(run(made, x), run(residual, x)) > 18


def test_aliases_are_the_same_module() -> None:
    assert mx.contrib.quant.quantize_model is mx.contrib.quantization.quantize_model
    assert quantization.quantize_model_onednn is quantization.quantize_model_mkldnn


def test_backends_that_do_not_exist_are_told_from_those_that_do(residual: Network) -> None:
    with pytest.raises(QuantizationError, match="MKLDNN_QUANTIZE"):
        residual[0].get_backend_symbol("MKLDNN_QUANTISE")
    one, other = (residual[0].get_backend_symbol(b).tojson() for b in ("ONEDNN_QUANTIZE", "MKLDNN_QUANTIZE"))
    assert one == other


def test_a_branch_and_an_output_end_a_fusion() -> None:
    # MXNet 1.9.1 fuses past both (B24), and computes another network.
    x = mx.sym.Variable("data")
    t = mx.sym.Convolution(x, kernel=(1, 1), num_filter=2, name="t")
    n = mx.sym.BatchNorm(t, name="n")
    y = mx.sym.Convolution(mx.sym.Activation(n, act_type="relu"), kernel=(1, 1), num_filter=2, name="c")
    fused = mx.sym.elemwise_add(y, t, name="s").get_backend_symbol("MKLDNN_QUANTIZE")
    assert [k.name for k in fused.nodes if k.op and k.op.name == "_sg_mkldnn_conv"] == [
        "sg_mkldnn_conv_0",
        "sg_mkldnn_conv_add_1",
    ]
    both = mx.sym.Group([t, mx.sym.Activation(t, act_type="relu", name="r")]).get_backend_symbol("MKLDNN")
    assert both.list_outputs() == ["sg_mkldnn_conv_0_output", "r_output"]


def test_an_output_that_is_read_by_a_float_node_too_has_one_dequantize() -> None:
    # MXNet 1.9.1 stacks a second one on the first, which has no outputs 1 and 2 (B12).
    f = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="f")
    symbol = mx.sym.Group([f, mx.sym.tanh(f, name="t")])
    args = {"f_weight": np.eye(4, dtype=np.float32), "f_bias": np.zeros(4, np.float32)}
    made, qargs, _ = quantization.quantize_model(symbol, args, {}, calib_mode="none", quantize_mode="full")
    assert made.list_outputs() == ["f_dequantize_output", "t_output"]
    x = mx.nd.array(np.linspace(-1, 1, 8).reshape(2, 4))
    first, second = made.bind(mx.cpu(), {**qargs, "data": x}).forward()
    np.testing.assert_allclose(first.asnumpy(), x.asnumpy(), atol=0.02)
    np.testing.assert_allclose(second.asnumpy(), np.tanh(first.asnumpy()), atol=1e-6)


def test_excluded_nodes_stay_float(residual: Network) -> None:
    made, qargs, _ = quantization.quantize_model_mkldnn(
        *residual, calib_mode="none", excluded_sym_names=["a0_bn"], excluded_op_names=["_sg_mkldnn_fully_connected"]
    )
    names = [n.name for n in made.nodes]
    assert "sg_mkldnn_conv_bn_act_1" in names and "sg_mkldnn_fully_connected_0" in names
    assert "quantized_sg_mkldnn_conv_bn_act_0" in names
    assert qargs["fc_weight"].dtype == np.float32


def test_calibration_stops_at_the_number_of_examples(residual: Network) -> None:
    found = [
        quantization.quantize_model(*residual, calib_mode="naive", calib_data=batches(n), num_calib_examples=limit)[0]
        for n, limit in ((1, None), (2, 3), (2, 5))
    ]
    assert ranges(found[0]) == ranges(found[1]) != ranges(found[2])


def test_older_keywords_are_taken(residual: Network) -> None:
    made, _, _ = quantization.quantize_model(
        *residual,
        calib_mode="naive",
        calib_data=batches(),
        calib_layer=lambda name: name.endswith("_output") and "conv" not in name,
        calib_quantize_op=True,
        device=mx.cpu(),
        quantize_mode="full",
    )
    assert "data_quantize" not in ranges(made) and "requantize_stem" in ranges(made)
    with pytest.raises(TypeError, match="calib_layer"):
        quantization.quantize_model(*residual, calib_layers=None, calib_mode="none")


def test_files_are_taken_for_symbol_and_parameters(residual: Network, tmp_path: Path) -> None:
    prefix = str(tmp_path / "net")
    mx.model.save_checkpoint(prefix, 0, *residual)
    files = f"{prefix}-symbol.json", f"{prefix}-0000.params", f"{prefix}-0000.params"
    one, other = (quantization.quantize_model(*given, calib_mode="none") for given in (files, residual))
    assert one[0].tojson() == other[0].tojson()
    assert one[1].keys() == other[1].keys() and one[2].keys() == other[2].keys()


class MyCollector:
    """Half of what was seen."""

    def __init__(self) -> None:
        self.include_layer = None
        self.min_max_dict: dict[str, tuple[float, float]] = {}
        self.names: set[str] = set()

    def collect(self, name: str, arr: mx.nd.NDArray) -> None:
        self.names.add(name)
        values_ = arr.asnumpy() / 2
        self.min_max_dict[name] = float(values_.min()), float(values_.max())


def test_a_collector_of_the_user_decides(residual: Network) -> None:
    symbol, args, aux = residual
    mine = MyCollector()
    qsym, _, _, collector = quantization.quantize_graph(
        symbol, args, aux, calib_mode="customize", LayerOutputCollector=mine
    )
    assert collector is mine and "data" in mine.include_layer
    module = mx.mod.Module(symbol, label_names=None)
    module.bind(batches().provide_data, for_training=False)
    module.set_params(args, aux)
    module._exec_group.execs[0].set_monitor_callback(mine.collect, monitor_all=True)
    module.forward(next(iter(batches(1))), is_train=False)
    made, _, _ = quantization.calib_graph(qsym, args, aux, mine, "customize")
    x = data("residual")["data"][:4]
    assert float(ranges(made)["data_quantize"]) == pytest.approx(float(x.max()) / 2, abs=1e-6)
    assert mine.names > set(mine.include_layer)


def test_collectors_of_mxnet_2_get_the_operator_too(residual: Network) -> None:
    class Collector(quantization.CalibrationCollector):
        def collect(self, name: str, op_name: str, arr: mx.nd.NDArray) -> None:
            ops.add(op_name)
            self.min_max_dict[name] = -1.0, 1.0

    ops: set[str] = set()
    network = symbol_block(residual)
    made = quantization.quantize_net_v2(
        network, calib_data=batches(), calib_mode="customize", LayerOutputCollector=Collector()
    )
    assert {"_sg_mkldnn_conv", "null"} <= ops
    assert set(ranges(made._symbol).values()) == {"1.000000"}


def symbol_block(residual: Network) -> Any:
    symbol, args, aux = residual
    return gluon.SymbolBlock(symbol, [mx.sym.var("data")], {**args, **aux})


@pytest.mark.parametrize("mode", ["none", "naive", "entropy"])
def test_a_gluon_network_is_quantized(residual: Network, mode: str) -> None:
    x = data("residual")["data"]
    loader = [(mx.nd.array(x[i : i + 4]), mx.nd.zeros((4,))) for i in (0, 4)]
    network = symbol_block(residual)
    exact = network(mx.nd.array(x)).asnumpy()
    made = quantization.quantize_net_v2(network, calib_data=loader, calib_mode=mode)
    assert closeness(made(mx.nd.array(x)).asnumpy(), exact) > 18
    assert any(n.name.startswith("quantized_") for n in made._symbol.nodes)


def test_layers_of_a_gluon_network_are_excluded_by_name_and_part(residual: Network) -> None:
    excluded = ["stem"]
    made = quantization.quantize_net_v2(
        symbol_block(residual),
        exclude_layers=excluded,
        exclude_layers_match=["fc"],
        exclude_operators=["Pooling"],
        data_shapes=[mx.io.DataDesc("data", SHAPE)],
    )
    names = {n.name for n in made._symbol.nodes}
    assert {"sg_mkldnn_conv_bn_act_0", "gap", "sg_mkldnn_fully_connected_0"} <= names
    assert excluded == ["stem"]  # MXNet writes into the caller's list (B29)


def test_quantize_net_is_deprecated_as_in_mxnet(residual: Network) -> None:
    shapes = [mx.io.DataDesc("data", SHAPE)]
    with pytest.warns(DeprecationWarning, match="quantize_net_v2"):
        quantization.quantize_net(symbol_block(residual), data_shapes=shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantization.quantize_net(symbol_block(residual), data_shapes=shapes, device=mx.cpu())


def test_log_lines_are_those_of_mxnet(residual: Network, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("a script")
    with caplog.at_level(logging.DEBUG, logger="a script"):
        quantization.quantize_model(*residual, calib_mode="entropy", calib_data=batches(), logger=logger)
        quantization.quantize_model(*residual, calib_mode="naive", calib_data=batches(), logger=logger)
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO and r.name == "a script"]
    assert lines == [
        "Quantizing symbol",
        "Create a layer output collector for entropy calibration.",
        "Collected statistics from 2 batches with batch_size=4",
        "Collected layer outputs from FP32 model using 8 examples",
        "Calculating optimal thresholds for quantization",
        "Calculating optimal thresholds for quantization using KL divergence with num_quantized_bins=255",
        "Quantizing parameters",
        "Quantizing symbol",
        "Create a layer output minmax collector for naive calibration",
        "Collected statistics from 2 batches with batch_size=4",
        "Collected layer output min/max values from FP32 model using 8 examples",
        "Quantizing parameters",
    ]
    debug = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG and r.name == "a script"]
    for start in (
        "Collecting layer data histogram of shape (4, 3, 20, 20)",
        "layer=data, min_val=-",
        "Collecting layer data min_range=-",
    ):
        assert any(line.startswith(start) for line in debug), start


def test_the_passes_say_what_they_did(residual: Network, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="requant.rewrite"):
        quantization.quantize_model(*residual, calib_mode="naive", calib_data=batches())
    lines = [r.getMessage() for r in caplog.records]
    assert "stem is quantized." in lines and "stem_relu is quantized." in lines
    assert "gap is NOT quantized." not in lines and "b_relu is quantized." in lines
    assert "Set calibration result to quantized symbol." in lines
    assert any(line.startswith("Set calibration result to data_quantize : min=-") for line in lines)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"calib_mode": "max"}, "unknown calibration mode"),
        ({"calib_mode": "customize"}, "unknown calibration mode"),
        ({"calib_mode": "naive"}, "calib_data must be provided when calib_mode=naive"),
        ({"calib_mode": "naive", "calib_data": [1]}, "calib_data must be of DataIter type"),
        ({"calib_mode": "none", "quantized_dtype": "int4"}, "quantized dtype"),
        ({"calib_mode": "none", "quantize_mode": "half"}, "unrecognized quantize mode"),
        ({"calib_mode": "none", "quantize_granularity": "row-wise"}, "granularity"),
        ({"calib_mode": "none", "excluded_sym_names": "stem"}, "excluded_sym_names must be a list"),
        ({"calib_mode": "none", "excluded_op_names": "Pooling"}, "excluded_op_names must be a list"),
        ({"calib_mode": "none", "ctx": [mx.cpu()]}, "single ctx"),
    ],
)
def test_bad_options_are_told(residual: Network, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        quantization.quantize_model(*residual, **options)


def test_other_mistakes_are_told(residual: Network) -> None:
    symbol, args, aux = residual
    with pytest.raises(QuantizationError, match="CPU"):
        quantization.quantize_model_mkldnn(*residual, ctx=mx.gpu(), calib_mode="none")
    with pytest.raises(CalibrationError, match="please set calibration mode"):
        quantization.calib_graph(symbol, args, aux, None, "none")
    with pytest.raises(QuantizationError, match="data_shapes required"):
        quantization.quantize_net_v2(symbol_block(residual))
    used = batches()
    assert len(list(used)) == 2
    with pytest.raises(CalibrationError, match="no calibration data"):
        quantization.quantize_model(*residual, calib_mode="naive", calib_data=used)
    poisoned = data("residual")["data"].copy()
    poisoned[0, 0, 0, 0] = np.nan
    for mode in ("naive", "entropy"):
        with pytest.raises(CalibrationError, match="NaN or Inf"):
            quantization.quantize_model(
                *residual, calib_mode=mode, calib_data=mx.io.NDArrayIter(poisoned, batch_size=4)
            )


def test_the_threshold_of_uniform_values_is_their_largest() -> None:
    values_ = np.random.RandomState(5).uniform(-10.532, 11.3432, (8, 3, 23, 23))
    collector = quantization.LayerHistogramCollector()
    collector.collect("layer1", values_)
    low, high = collector.thresholds("int8")["layer1"]
    assert -low == high == pytest.approx(np.abs(values_).max(), rel=0.01)


def test_values_at_one_edge_alone_keep_it() -> None:
    collector = quantization.LayerHistogramCollector(num_bins=5001)
    collector.collect("edge", np.full(1000, 2.0, np.float32))
    for dtype, low in (("int8", -2.0), ("uint8", 0.0)):
        assert collector.thresholds(dtype)["edge"] == pytest.approx((low, 2.0), abs=1e-5)
    assert collector.hist_dict["edge"][0].sum() == 1000


def test_quantized_parameters_are_within_half_a_step(residual: Network) -> None:
    made, qargs, _ = quantization.quantize_model(*residual, calib_mode="none", quantize_mode="full")
    assert set(qargs) == set(made.list_arguments()) - {"data"}
    quantized = [n for n in qargs if n.endswith("_quantize")]
    assert "fc_weight_quantize" in quantized and "fc_bias_quantize" in quantized
    for name in quantized:
        reach = float(qargs[f"{name}_max"].asnumpy()[0])
        assert float(qargs[f"{name}_min"].asnumpy()[0]) == -reach
        exact = residual[1][name.removesuffix("_quantize")].asnumpy()
        error = np.abs(qargs[name].asnumpy() * (reach / 127) - exact).max()
        assert error <= reach / 127 * 0.501
