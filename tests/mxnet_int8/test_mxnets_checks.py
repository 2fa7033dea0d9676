"""What MXNet's own tests of quantization check (its tests/python/quantization/test_quantization.py), checked of ours.

| MXNet's test | where its checks have a counterpart |
|---|---|
| quantize_float32_to_int8, calibrated_quantize_v2 | goldens of quantize and quantize_v2 (tests/ops/test_goldens.py) |
| dequantize, requantize, arrays and symbols, calibrated or not | goldens, each run both ways |
| quantized_conv, no_bias or not, int8 and uint8, 2-D, 3-D | tests/ops/test_quantized.py |
| quantized_fc (flatten or not), pooling (valid, full, global), flatten, act, bn | goldens; `test_what_moves_values…` |
| quantized_elemwise_add, elemwise_mul, embedding, concat | goldens, tests/ops/test_quantized.py |
| errors of native CPUs | there are none here: every engine computes them |
| quantize_params | `test_parameters_that_are_not_quantized_keep_their_names` |
| quantize_model (qsym calibrated, out_type, parameters) | `test_quantizers_have_the_type_that_was_asked_for` |
| quantize_model_with_forward, quantize_conv_with_forward | `test_a_module_runs_what_quantize_model_returns` |
| quantize_gluon_with_forward | `test_a_network_of_the_model_zoo`, test_api.py |
| quantize_sym_with_calib | `test_given_ranges_are_set` |
| optimal_threshold_adversarial_case, get_optimal_thresholds | test_api.py, tests/quant (58 recorded histograms) |
| quantized rnn, quantize_asym | tests/ops/test_quantized_rnn.py, goldens |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from int8_networks import NETWORKS, SHAPE, data, values

import requant.mx as mx
from requant.mx import gluon
from requant.mx.contrib import quantization
from requant.mx.symbol import Symbol

Network = tuple[Symbol, dict[str, Any], dict[str, Any]]
DTYPES = ("int8", "uint8", "auto")


def network(name: str) -> Network:
    with mx.name.NameManager():
        symbol = NETWORKS[name](mx)
    args, aux = values(symbol, name)
    return symbol, {n: mx.nd.array(a) for n, a in args.items()}, {n: mx.nd.array(a) for n, a in aux.items()}


def batches(name: str) -> mx.io.NDArrayIter:
    return mx.io.NDArrayIter(data(name)["data"], batch_size=SHAPE[0])


def forward(symbol: Symbol, args: dict[str, Any], aux: dict[str, Any], x: np.ndarray) -> list[np.ndarray]:
    """The outputs of a module bound for inference, as scripts run a quantized symbol."""
    labels = [n for n in symbol.list_arguments() if n.endswith("_label")]
    module = mx.mod.Module(symbol=symbol, label_names=labels or None, context=mx.cpu())
    module.bind(for_training=False, data_shapes=[("data", x.shape)])
    module.set_params(args, aux)
    module.forward(mx.io.DataBatch([mx.nd.array(x)], []), is_train=False)
    return [o.asnumpy() for o in module.get_outputs()]


def noise(ours: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(ours - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("dtype", ["int8", "auto"])
@pytest.mark.parametrize("calibrated", [False, True])
@pytest.mark.parametrize(
    ("name", "excluded"),
    [
        ("chain", ()),
        ("residual", ("fc", "a1")),
        ("residual", ("fc", "a1", "a_relu")),
        ("outputs", ("f0",)),
    ],
)
def test_a_module_runs_what_quantize_model_returns(
    name: str, excluded: tuple[str, ...], calibrated: bool, dtype: str
) -> None:
    symbol, args, aux = network(name)
    options = {"calib_mode": "naive", "calib_data": batches(name)} if calibrated else {"calib_mode": "none"}
    made, qargs, qaux = quantization.quantize_model(
        symbol,
        args,
        aux,
        excluded_sym_names=list(excluded),
        excluded_op_names=[] if calibrated else ["BatchNorm"],  # which needs a range, in MXNet too
        quantized_dtype=dtype,
        ctx=mx.cpu(),
        **options,
    )
    quantized = {n.removeprefix("quantized_") for n in made.attr_dict() if n.startswith("quantized_")}
    assert quantized and not quantized & set(excluded)
    x = data(name)["data"][: SHAPE[0]]
    wanted = forward(symbol, args, aux, x)
    found = forward(made, qargs, qaux, x)
    assert len(found) == len(wanted)
    for mine, exact in zip(found, wanted):
        assert mine.shape == exact.shape and noise(mine, exact) < 0.12


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_a_convolution_alone(dtype: str, calibrated: bool) -> None:
    symbol = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(1, 1), num_filter=16, name="conv0")
    rng = np.random.RandomState(3)
    args = {"conv0_weight": mx.nd.array(rng.normal(size=(16, 3, 1, 1))), "conv0_bias": mx.nd.array(rng.normal(size=16))}
    x = rng.uniform(0, 1, SHAPE).astype(np.float32)
    options: dict[str, Any] = {"calib_mode": "none"}
    if calibrated:
        options = {"calib_mode": "naive", "calib_data": mx.io.NDArrayIter(x, batch_size=SHAPE[0])}
    made, qargs, qaux = quantization.quantize_model(symbol, args, {}, quantized_dtype=dtype, **options)
    exact, mine = (forward(s, a, {}, x)[0] for s, a in ((symbol, args), (made, {**qargs, **qaux})))
    if dtype == "uint8":
        exact = np.maximum(exact, 0)  # the result of the convolution is uint8 as well, as it was asked for
    assert noise(mine, exact) < 0.02


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["chain", "residual", "outputs"])
def test_quantizers_have_the_type_that_was_asked_for(name: str, dtype: str) -> None:
    symbol, args, aux = network(name)
    for mode in ("none", "naive"):
        made, qargs, qaux = quantization.quantize_model(
            symbol, args, aux, quantized_dtype=dtype, calib_mode=mode, calib_data=batches(name)
        )
        attributes = made.attr_dict()
        quantizers = [a for n, a in attributes.items() if n.endswith("_quantize") and "out_type" in a]
        assert quantizers and all(a["out_type"] == dtype for a in quantizers)
        sums = [a for n, a in attributes.items() if n.startswith("requantize_")]
        assert sums and all(("min_calib_range" in a) == ("max_calib_range" in a) == (mode == "naive") for a in sums)
        assert set(qargs) | set(qaux) | {"data"} >= set(made.list_inputs()) - {"softmax_label"}
        assert {n: a.asnumpy().tolist() for n, a in qaux.items()} == {n: a.asnumpy().tolist() for n, a in aux.items()}


def test_parameters_that_are_not_quantized_keep_their_names() -> None:
    symbol, args, aux = network("residual")
    made, qargs, _ = quantization.quantize_model(symbol, args, aux, calib_mode="none", quantize_mode="full")
    for name, value in qargs.items():
        if name in args:
            np.testing.assert_array_equal(value.asnumpy(), args[name].asnumpy())
            assert name.endswith(("_gamma", "_beta"))
        else:
            assert "_quantize" in name and name.split("_quantize")[0] in args
    assert {n for n in made.list_arguments() if n.endswith("_gamma")} <= set(qargs)


def test_given_ranges_are_set() -> None:
    symbol, args, aux = network("chain")
    made, _, _, collector = quantization.quantize_graph(symbol, args, aux, calib_mode="naive", quantized_dtype="int8")
    rng = np.random.RandomState(0)
    given = {n: (-float(rng.uniform(100, 200)), float(rng.uniform(100, 200))) for n in collector.include_layer}
    collector.min_max_dict.update(given)
    done, _, _ = quantization.calib_graph(made, args, aux, collector, calib_mode="naive")
    attributes = done.attr_dict()
    sums = {n: a for n, a in attributes.items() if n.startswith("requantize_")}
    assert sums
    for name, found in sums.items():
        wanted = given[f"{name.removeprefix('requantize_')}_output"]
        assert float(found["min_calib_range"]) == pytest.approx(wanted[0], rel=1e-3)
        assert float(found["max_calib_range"]) == pytest.approx(wanted[1], rel=1e-3)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "auto"])
def test_a_network_of_the_model_zoo(dtype: str) -> None:
    """Calibrated from a loader, with layers left out by name and by part of a name."""
    net = gluon.model_zoo.vision.mobilenet0_25(classes=10)
    net.initialize(mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2))
    net.hybridize()
    rng = np.random.RandomState(0)
    x = mx.nd.array(rng.uniform(0, 1, (2, 3, 64, 64)).astype(np.float32))
    exact = net(x).asnumpy()
    loader = gluon.data.DataLoader(
        gluon.data.ArrayDataset(mx.nd.array(rng.uniform(0, 1, (8, 3, 64, 64)))), batch_size=4
    )
    made = quantization.quantize_net_v2(
        net, quantized_dtype=dtype, exclude_layers_match=["conv0_"], calib_data=loader, calib_mode="naive", ctx=mx.cpu()
    )
    mine = made(x).asnumpy()
    assert mine.shape == exact.shape
    if dtype != "uint8":  # negative numbers are lost in uint8, here as there
        assert noise(mine, exact) < 0.25


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("shape", [(10,), (10, 15), (10, 15, 18), (3, 4, 23, 23)])
def test_what_moves_values_moves_them_at_any_rank(shape: tuple[int, ...], kind: str) -> None:
    rng = np.random.RandomState(1)
    q = mx.nd.array(rng.randint(0 if kind == "uint8" else -127, 128, shape), dtype=kind)
    low, high = mx.nd.array([-1023.343]), mx.nd.array([2343.324275])
    flat, *ends = mx.nd.contrib.quantized_flatten(q, low, high)
    assert flat.shape == (shape[0], int(np.prod(shape[1:]))) and flat.dtype == q.dtype
    np.testing.assert_array_equal(flat.asnumpy().ravel(), q.asnumpy().ravel())
    assert [e.asscalar() for e in ends] == [low.asscalar(), high.asscalar()]
    positive, *ends = mx.nd.contrib.quantized_act(q, low, high, act_type="relu")
    np.testing.assert_array_equal(positive.asnumpy(), np.maximum(q.asnumpy(), 0))
    assert [e.asscalar() for e in ends] == [low.asscalar(), high.asscalar()]


@pytest.mark.parametrize("mode", ["none", "naive"])
def test_a_quantized_network_is_exported_and_imported(mode: str, tmp_path: Any) -> None:
    """Through Gluon's files, with int8 parameters in them, and through those of Module."""
    symbol, args, aux = network("residual")
    block = gluon.SymbolBlock(symbol, mx.sym.var("data"))
    for name, value in {**args, **aux}.items():
        block.collect_params()[name].set_data(value)
    made = quantization.quantize_net_v2(
        block,
        calib_mode=mode,
        calib_data=gluon.data.DataLoader(data("residual")["data"], batch_size=SHAPE[0]) if mode == "naive" else None,
        data_shapes=[mx.io.DataDesc("data", SHAPE)],
        quantized_dtype="int8",
        quantize_mode="full",
    )
    x = mx.nd.array(data("residual")["data"][: SHAPE[0]])
    wanted = made(x).asnumpy()
    made.export(str(tmp_path / "net"))
    stored = mx.nd.load(str(tmp_path / "net-0000.params"))
    assert {v.dtype.__name__ for v in stored.values()} == {"int8", "float32"}
    again = gluon.SymbolBlock.imports(str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params"))
    np.testing.assert_array_equal(again(x).asnumpy(), wanted)
    loaded = mx.model.load_checkpoint(str(tmp_path / "net"), 0)
    assert noise(forward(*loaded, x.asnumpy())[0], wanted) < 0.02  # kernels of an engine, which may round otherwise
