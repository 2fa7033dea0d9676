"""``optimize_for`` and ``hybridize(backend=...)``: the forms of MXNet's TensorRT INT8 page, with backends of today."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant
import requant.mx as mx
from requant import engines
from requant.errors import EngineError, InputError, RequantError
from requant.mx import backend as backends
from requant.pipeline import verify

DIGITS = Path(__file__).resolve().parents[1] / "digits"
READY = "The executor with {} INT8 engines is ready!"


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Less time for measuring speed: no figure of it is looked at here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "SECONDS", 0.02)
        yield


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.load(DIGITS / "digits.npz")["x"].astype(np.float32) / 16


def checkpoint() -> tuple[Any, Any, Any]:
    found: tuple[Any, Any, Any] = mx.model.load_checkpoint(str(DIGITS / "digits"), 0)
    return found


def block() -> Any:
    return mx.gluon.SymbolBlock.imports(
        str(DIGITS / "digits-symbol.json"), ["data"], str(DIGITS / "digits-0000.params")
    )


def right(scores: list[np.ndarray], size: int) -> float:
    labels = np.load(DIGITS / "digits.npz")["y"]
    return float((np.concatenate(scores).argmax(1) == labels[: size * len(scores)]).mean())


@pytest.mark.parametrize("backend", ["OpenVINO", "ONNXRuntime"])
def test_symbolic(x: np.ndarray, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "requant")
    sym, arg_params, aux_params = checkpoint()
    calibration_iters = 10
    optimized = sym.optimize_for(
        backend, args=arg_params, aux=aux_params, ctx=mx.cpu(0), int8_mode=True, calibration_iters=calibration_iters
    )
    executor = optimized.simple_bind(
        ctx=mx.cpu(0), data=(8, 1, 8, 8), softmax_label=(8,), grad_req="null", force_rebind=True
    )
    executor.copy_params_from(arg_params, aux_params)
    floating = sym.simple_bind(ctx=mx.cpu(0), data=(8, 1, 8, 8), softmax_label=(8,), grad_req="null")
    floating.copy_params_from(arg_params, aux_params)
    assert executor.live_model is None
    for i in range(calibration_iters):
        data = mx.nd.array(x[8 * i : 8 * i + 8])
        scores = executor.forward(is_train=False, data=data)[0].asnumpy()
        if backend == "OpenVINO":
            assert np.array_equal(scores, floating.forward(is_train=False, data=data)[0].asnumpy())
    assert executor.live_model.wait(300) and str(executor.live_model.state) == "int8"
    assert READY.format(backend) in caplog.messages
    assert executor.live_model.report.executed["int8"] > 0
    assert executor.live_model.engine == backend.lower()
    after = [executor.forward(is_train=False, data=mx.nd.array(x[8 * i : 8 * i + 8]))[0].asnumpy() for i in range(50)]
    assert right(after, 8) > 0.95
    assert not np.array_equal(after[0], floating.forward(is_train=False, data=mx.nd.array(x[:8]))[0].asnumpy())


@pytest.mark.parametrize("options", [{"int8_mode": True}, {"precision": "int8"}, {"precision": "fp32_int8"}])
def test_gluon(x: np.ndarray, options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "requant")
    net, floating = block(), block()
    first = mx.nd.array(x[:8])
    net.optimize_for(
        first,
        backend="OpenVINO",
        static_alloc=True,
        static_shape=True,
        backend_opts={**options, "calibration_iters": 6},
    )
    assert str(net.live_model.state) == "float"  # compiled, and nothing ran
    for i in range(6):
        data = mx.nd.array(x[8 * i : 8 * i + 8])
        assert np.array_equal(net(data).asnumpy(), floating(data).asnumpy())
    assert net.live_model.wait(300) and str(net.live_model.state) == "int8"
    assert caplog.messages.count(READY.format("OpenVINO")) == 1
    scores = net(first).asnumpy()
    assert scores.shape == (8, 10) and not np.array_equal(scores, floating(first).asnumpy())
    assert np.array_equal(net(mx.nd.array(x[:3])).asnumpy().argmax(1), floating(first).asnumpy()[:3].argmax(1))


def test_hybridize_with_a_backend(x: np.ndarray) -> None:
    mx.random.seed(3)
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(16, 3), mx.gluon.nn.Activation("relu"), mx.gluon.nn.Conv2D(8, 3), mx.gluon.nn.Dense(5))
    net.initialize()
    data = mx.nd.array(x[:4])
    wanted = net(data).asnumpy()
    net.hybridize(backend="OpenVINO", static_alloc=True, int8_mode=True, calibration_iters="3", calibrator="naive")
    for _ in range(3):
        np.testing.assert_allclose(net(data).asnumpy(), wanted, atol=1e-5)
    assert net.live_model.wait(300) and str(net.live_model.state) == "int8"
    net.hybridize()  # back to the default engine, in float
    np.testing.assert_allclose(net(data).asnumpy(), wanted, atol=1e-5)
    assert net.live_model is None
    net.hybridize(backend="ONNXRuntime")
    np.testing.assert_allclose(net(data).asnumpy(), wanted, atol=1e-5)
    assert net.live_model is None


def test_bind_and_module(x: np.ndarray) -> None:
    sym, arg_params, aux_params = checkpoint()
    optimized = sym.optimize_for("OpenVINO", int8_mode=True, calibration_iters=4)
    arrays = {"data": mx.nd.array(x[:4]), "softmax_label": mx.nd.zeros((4,)), **arg_params}
    executor = optimized.bind(mx.cpu(), arrays, aux_states=aux_params)
    module = mx.mod.Module(optimized)
    module.bind(for_training=False, data_shapes=[("data", (4, 1, 8, 8))])
    module.set_params(arg_params, aux_params)
    for size in (4, 4, 2, 5):  # a module binds anew for another size, and goes on calibrating
        module.forward(mx.io.DataBatch([mx.nd.array(x[:size])]), is_train=False)
        assert module.get_outputs()[0].shape == (size, 10)
        executor.forward(is_train=False, data=mx.nd.array(x[:4]))
    assert module.live_model.wait(300) and str(module.live_model.state) == "int8"
    assert executor.live_model.wait(300) and str(executor.live_model.state) == "int8"


def test_other_parameters_are_another_model(x: np.ndarray) -> None:
    sym, arg_params, aux_params = checkpoint()
    optimized = sym.optimize_for("OpenVINO", int8_mode=True, calibration_iters=50)
    executor = optimized.simple_bind(data=(4, 1, 8, 8))
    executor.copy_params_from(arg_params, aux_params)
    executor.forward(data=mx.nd.array(x[:4]))
    before = executor.live_model
    executor.arg_dict["fc_bias"][:] = 1.0
    executor.forward(data=mx.nd.array(x[:4]))
    assert executor.live_model is not before
    before._life.join(300)
    assert not before._life._thread.is_alive()  # it calibrated on parameters that are no more


def test_table_starts_the_next_in_int8(x: np.ndarray, tmp_path: Path) -> None:
    sym, arg_params, aux_params = checkpoint()
    table = str(tmp_path / "t.json")

    def run(**options: Any) -> Any:
        optimized = sym.optimize_for("OpenVINO", precision="int8", calibration_table=table, **options)
        executor = optimized.simple_bind(data=(4, 1, 8, 8))
        executor.copy_params_from(arg_params, aux_params)
        for _ in range(4):
            executor.forward(data=mx.nd.array(x[:4]))
        assert executor.live_model.wait(300)
        return executor

    with pytest.raises(InputError, match="calibration_iters"):
        run()
    first = run(calibration_iters=4)
    second = run()
    assert (
        second.live_model.state.phase == "int8"
        and second.live_model.state.seen == 0
        and second.live_model._life._thread is None
    )
    wanted, got = (e.forward(data=mx.nd.array(x[:4]))[0].asnumpy() for e in (first, second))
    assert np.array_equal(wanted, got)


def test_precision_without_int8(x: np.ndarray) -> None:
    sym, arg_params, aux_params = checkpoint()
    executor = sym.optimize_for("ONNXRuntime", precision="fp32").simple_bind(data=(4, 1, 8, 8))
    executor.copy_params_from(arg_params, aux_params)
    [scores] = executor.forward(data=mx.nd.array(x[:4]))
    assert np.array_equal(scores.asnumpy(), requant.load(DIGITS / "digits").run(x[:4], engine="onnxruntime")[0])
    assert executor.live_model is None
    made = backends.backend("openvino", {"precision": "bf16_int8", "calibration_iters": 3})
    assert (made.name, made.precision, made.int8 is not None) == ("OpenVINO", "bf16", True)


def test_best_must_be_faster_and_an_order_need_not() -> None:
    best = backends.backend("OpenVINO", {"precision": "best", "calibration_iters": 3}).int8
    order = backends.backend("OpenVINO", {"precision": "int8", "calibration_iters": 3}).int8
    stated = backends.backend("OpenVINO", {"int8_mode": 1, "calibration_iters": 3, "min_speedup": 1.2}).int8
    assert best is not None and order is not None and stated is not None
    assert (best.min_speedup, order.min_speedup, stated.min_speedup) == (1.0, None, 1.2)


def test_onednn_is_both(x: np.ndarray) -> None:
    """Without options it partitions the graph, as MXNet does; with options it is the default engine."""
    sym, _, _ = checkpoint()
    assert sym.optimize_for("MKLDNN").tojson() == sym.get_backend_symbol("MKLDNN").tojson()
    assert sym.optimize_for("ONEDNN_QUANTIZE").tojson() == sym.get_backend_symbol("MKLDNN_QUANTIZE").tojson()
    made = sym.optimize_for("MKLDNN", int8_mode=True, calibration_iters=2)
    assert made.backend.engine == engines.DEFAULT and made.tojson() == sym.tojson()


@pytest.mark.parametrize(
    ("backend", "options", "words"),
    [
        ("TensorTR", {}, ["TensorRT", "OpenVINO", "ONNXRuntime"]),
        ("OpenVINO", {"int8_mod": True}, ["int8_mode", "calibration_table"]),
        ("OpenVINO", {"int8_mode": True}, ["`calibration_iters` has to be set when using `int8_mode`"]),
        ("OpenVINO", {"precision": "int7"}, ["int8", "fp32"]),
        ("OpenVINO", {"precision": "fp16_bf16"}, ["one precision"]),
        ("OpenVINO", {"calibration_iters": 3}, ["int8_mode=True"]),
        ("OpenVINO", {"int8_mode": True, "calibration_iters": "many"}, ["many"]),
        ("OpenVINO", {"int8_mode": "perhaps", "calibration_iters": 3}, ["True or False"]),
        ("OpenVINO", {"int8_mode": False, "precision": "int8", "calibration_iters": 3}, ["contradicts"]),
        ("OpenVINO", {"int8_mode": True, "calibration_iters": 3, "quantize_mode": "smrt"}, ["smart", "full"]),
        ("OpenVINO", {"int8_mode": True, "calibration_iters": 3, "calibrator": "entropie"}, ["entropy"]),
        ("OpenVINO", {"backend_opts": 3}, ["dict"]),
        ("OpenVINO", {"int8_mode": True, "calibration_iters": 3, "on_ready": 3}, ["function"]),
    ],
)
def test_what_is_unknown_is_refused(x: np.ndarray, backend: str, options: dict[str, Any], words: list[str]) -> None:
    sym, _, _ = checkpoint()
    net = block()
    for call in (
        lambda: sym.optimize_for(backend, **options),
        lambda: net.optimize_for(mx.nd.array(x[:1]), backend=backend, **options),
        lambda: net.hybridize(backend=backend, **options),
    ):
        with pytest.raises(RequantError) as fault:
            call()
        assert all(w in str(fault.value) for w in words)
    assert net(mx.nd.array(x[:1])).shape == (1, 10)  # as it was


def test_a_backend_is_needed(x: np.ndarray) -> None:
    with pytest.raises(InputError, match="OpenVINO"):
        block().optimize_for(mx.nd.array(x[:1]))


def test_tensorrt_says_what_is_missing() -> None:
    """Where there is no such device; with one, the backend is accepted."""
    sym, _, _ = checkpoint()
    if "tensorrt" in engines.names() and engines.get("tensorrt").available().ok:
        assert sym.optimize_for("TensorRT", int8_mode=True, calibration_iters=2).backend.engine == "tensorrt"
        return
    with pytest.raises(EngineError, match="tensorrt"):
        sym.optimize_for("TensorRT", int8_mode=True, calibration_iters=2)
