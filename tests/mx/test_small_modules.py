"""Small modules of ``mx`` that scripts import beside what they use: initializers, callbacks, names for training."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import requant.mx as mx
from requant.errors import InputError, ShapeError, UnsupportedError


def test_orthogonal_rows_or_columns() -> None:
    for shape in ((3, 8), (8, 3), (4, 2, 3, 3)):
        filled = mx.nd.zeros(shape)
        mx.init.Orthogonal(scale=2.0)("w_weight", filled)
        flat = filled.asnumpy().reshape(shape[0], -1)
        gram = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
        np.testing.assert_allclose(gram, 4 * np.eye(len(gram)), atol=1e-5)


def test_lstm_bias() -> None:
    cell = mx.gluon.rnn.LSTMCell(2, i2h_bias_initializer="lstmbias", input_size=3)
    cell.initialize()
    assert cell.i2h_bias.data().asnumpy().tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_mixed_takes_the_first_pattern() -> None:
    net = mx.gluon.nn.Dense(2, in_units=3, prefix="fc_")
    net.initialize(mx.init.Mixed(["fc_w", ".*"], [mx.init.One(), mx.init.Constant(3)]))
    assert (net.weight.data().asnumpy() == 1).all() and (net.bias.data().asnumpy() == 0).all()
    with pytest.raises(InputError, match="no pattern"):
        mx.init.Mixed(["a"], [mx.init.One()])("b_weight", mx.nd.zeros((1,)))
    with pytest.raises(InputError, match="one initializer for each"):
        mx.init.Mixed(["a"], [])


def test_load_from_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "x.params")
    mx.nd.save(path, {"arg:w": mx.nd.array([1, 2])})
    load = mx.init.Load(path, default_init=mx.init.One())
    w, other = mx.nd.zeros((2,)), mx.nd.zeros((2,))
    load("w", w)
    load("other_weight", other)
    assert w.asnumpy().tolist() == [1, 2] and other.asnumpy().tolist() == [1, 1]
    with pytest.raises(ShapeError, match="another shape"):
        load("w", mx.nd.zeros((3,)))
    with pytest.raises(InputError, match="no value of that name"):
        mx.init.Load(path)("v", w)


def test_callbacks_tell_and_write(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    metric = mx.metric.create("mae")
    metric.update([mx.nd.array([1.0])], [mx.nd.array([3.0])])
    param = SimpleNamespace(epoch=1, nbatch=5, eval_metric=metric)
    with caplog.at_level(logging.INFO):
        mx.callback.ProgressBar(10, length=4)(param)
        mx.callback.LogValidationMetricsCallback()(param)
        mx.callback.log_train_metric(5, auto_reset=True)(param)
    assert "[==--] 50%" in caplog.text
    assert "Epoch[1] Validation-mae=2" in caplog.text and "Iter[1] Batch[5] Train-mae=2" in caplog.text
    assert np.isnan(metric.get()[1]) and metric.get_global()[1] == 2
    write = mx.callback.do_checkpoint(str(tmp_path / "net"), period=2)
    for epoch in range(3):
        write(epoch, mx.sym.var("x") + 1, {"w": mx.nd.ones((1,))}, {})
    assert [f.name for f in sorted(tmp_path.glob("*.params"))] == ["net-0002.params"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.optimizer.RMSProp(),
        lambda: mx.optimizer.LAMB(learning_rate=1),
        lambda: mx.optimizer.get_updater(None),
        lambda: mx.lr_scheduler.CosineScheduler(3),
        lambda: mx.autograd.mark_variables([], []),
        lambda: mx.util.use_np(int),
        lambda: mx.np_shape(True),
        lambda: mx.gluon.Trainer({}, "sgd"),
        lambda: mx.kvstore.create("local"),
    ],
)
def test_training_names_raise_on_use(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnsupportedError):
        make()


def test_numpy_shapes_are_off() -> None:
    with mx.np_shape(False), mx.util.np_array(False):
        assert not mx.util.set_np_shape(False)


def test_a_function_runs_forward() -> None:
    class Double(mx.autograd.Function):
        def forward(self, x):  # type: ignore[no-untyped-def]
            self.save_for_backward(x)
            return x * 2

    double = Double()
    assert double(mx.nd.ones((2,))).asnumpy().tolist() == [2, 2] and len(double.saved_tensors) == 1
    with pytest.raises(UnsupportedError):
        double.backward(mx.nd.ones((2,)))


def test_features() -> None:
    features = mx.runtime.Features()
    assert features.is_enabled("mkldnn") and not features.is_enabled("CUDA") and not features.is_enabled("WHAT")
    assert "CUDA" in features and len(mx.runtime.feature_list()) == len(features)


def test_a_symbol_block_moves() -> None:
    x = mx.sym.var("x")
    net = mx.gluon.SymbolBlock(mx.sym.FullyConnected(x, num_hidden=2, name="fc"), x)
    net.initialize()
    net(mx.nd.ones((1, 3)))
    net.reset_ctx(mx.gpu(0))
    assert {p.list_ctx()[0] for p in net.collect_params().values()} == {mx.gpu(0)}


def test_monitor(caplog: pytest.LogCaptureFixture) -> None:
    x = mx.sym.var("data")
    net = mx.sym.FullyConnected(x, num_hidden=2, no_bias=True, name="fc")
    net = mx.sym.Activation(net, act_type="relu", name="act")
    module = mx.mod.Module(net, label_names=None)
    module.bind([("data", (1, 2))], for_training=False)
    module.set_params({"fc_weight": mx.nd.array([[3.0, 0.0], [0.0, -4.0]])}, {})
    monitor = mx.mon.Monitor(2, pattern="fc.*|act", sort=True)
    module.install_monitor(monitor)
    seen = []
    for _ in range(3):
        monitor.tic()
        module.forward(mx.io.DataBatch([mx.nd.ones((1, 2))]), is_train=False)
        seen.append(monitor.toc())
    names = ["act_output", "fc_output", "fc_weight"]
    assert [[name for _, name, _ in batch] for batch in seen] == [names, [], names]
    assert [batch[0][0] for batch in seen if batch] == [1, 3]
    figures = {name: float(text) for _, name, text in seen[0]}
    np.testing.assert_allclose(figures["act_output"], 3 / 2**0.5, rtol=1e-6)
    np.testing.assert_allclose(figures["fc_weight"], 5 / 2, rtol=1e-6)
    monitor.tic()
    monitor.tic()
    with caplog.at_level(logging.INFO):
        monitor.toc_print()
    assert "fc_weight" in caplog.text and "2.5" in caplog.text
