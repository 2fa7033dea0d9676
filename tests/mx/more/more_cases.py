"""Recurrent cells of ``gluon.contrib``, estimators, operators written in Python, and tables of networks: the same cases
on both sides. Each is a function of mx that returns arrays, or text, by name."""

import contextlib
import io

import numpy as np


def values(name, shape):
    """A seeded parameter or input."""
    return np.random.RandomState(len(name) * 7 + sum(map(ord, name))).uniform(-0.6, 0.6, shape).astype(np.float32)


def fill(mx, net):
    for name, parameter in net.collect_params().items():
        short = name[len(net.prefix) :] if name.startswith(net.prefix) else name
        parameter.set_data(mx.nd.array(values(short, parameter.shape)))


def lstmp(mx):
    """An LSTM with projection: one step, a sequence, sequences of different lengths."""
    cell = mx.gluon.contrib.rnn.LSTMPCell(5, 3, prefix="cell_")
    cell.initialize()
    x = mx.nd.array(values("x", (2, 4, 6)))
    cell.unroll(4, x)
    fill(mx, cell)
    found = {"names": np.array(list(cell.collect_params().keys()))}
    out, states = cell(x[:, 0], cell.begin_state(2))
    found["step"], found["r"], found["c"] = out.asnumpy(), states[0].asnumpy(), states[1].asnumpy()
    out, states = cell.unroll(4, x, merge_outputs=True)
    found["out"], found["last r"], found["last c"] = out.asnumpy(), states[0].asnumpy(), states[1].asnumpy()
    out, states = cell.unroll(4, x, merge_outputs=True, valid_length=mx.nd.array([2, 4]))
    found["masked"], found["masked c"] = out.asnumpy(), states[1].asnumpy()
    return found


def variational(mx):
    """A cell below variational dropout, at inference."""
    cell = mx.gluon.contrib.rnn.VariationalDropoutCell(mx.gluon.rnn.LSTMCell(4, prefix="lstm_"), 0.3, 0.2, 0.1)
    cell.initialize()
    x = mx.nd.array(values("x", (2, 3, 5)))
    cell.unroll(3, x)
    fill(mx, cell.base_cell)
    out, states = cell.unroll(3, x, merge_outputs=True)
    return {"prefix": np.array(cell.prefix), "out": out.asnumpy(), "c": states[1].asnumpy()}


def interval(mx):
    """Samples at equal distances."""
    sampler = mx.gluon.contrib.data.IntervalSampler
    return {"rolls": np.array(list(sampler(13, 3))), "stops": np.array(list(sampler(13, 3, rollover=False)))}


def estimator(mx):
    """Evaluation of a network by an estimator."""
    net = mx.gluon.nn.Dense(3, prefix="dense_")
    net.initialize()
    x, y = values("data", (10, 4)), np.array([0, 1, 2, 1, 0, 2, 1, 1, 0, 2], np.float32)
    net(mx.nd.array(x))
    fill(mx, net)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    made = mx.gluon.contrib.estimator.Estimator(
        net, loss, val_metrics=[mx.metric.Accuracy(), mx.metric.TopKAccuracy(2)]
    )
    data = mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(x, y), 4)
    made.evaluate(data)
    return {"values": np.array([m.get()[1] for m in made.val_metrics])}


def custom(mx):
    """Operators written in Python."""

    class Scaled(mx.operator.CustomOp):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, is_train, req, in_data, out_data, aux):
            self.assign(out_data[0], req[0], in_data[0] * self.factor + in_data[1])
            self.assign(out_data[1], req[1], in_data[0].sum(axis=1))

    class ScaledProp(mx.operator.CustomOpProp):
        def __init__(self, factor):
            super().__init__(need_top_grad=False)
            self.factor = float(factor)

        def list_arguments(self):
            return ["data", "shift"]

        def list_outputs(self):
            return ["scaled", "total"]

        def infer_shape(self, in_shape):
            return in_shape, [in_shape[0], (in_shape[0][0],)], []

        def create_operator(self, ctx, shapes, dtypes):
            return Scaled(self.factor)

    mx.operator.register("more_scaled")(ScaledProp)
    x, shift = mx.nd.array(values("x", (3, 4))), mx.nd.array(values("shift", (3, 4)))
    a, b = mx.nd.Custom(x, shift, op_type="more_scaled", factor=2.5)
    return {"scaled": a.asnumpy(), "total": b.asnumpy()}


def network(mx):
    """A small network."""
    x = mx.sym.Variable("data")
    x = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, name="conv0")
    x = mx.sym.Activation(mx.sym.BatchNorm(x, name="bn0"), act_type="relu", name="relu0")
    y = mx.sym.Convolution(x, kernel=(1, 1), num_filter=4, name="conv1")
    x = mx.sym.Pooling(x + y, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool0")
    return mx.sym.SoftmaxOutput(
        mx.sym.FullyConnected(mx.sym.Flatten(x, name="flat"), num_hidden=5, name="fc0"), name="softmax"
    )


def summary(mx):
    """The table of a network."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        mx.viz.print_summary(network(mx), shape={"data": (1, 3, 10, 10)})
    return {"lines": np.array([line.rstrip() for line in written.getvalue().splitlines()])}


CASES = {
    "lstmp": lstmp,
    "variational dropout": variational,
    "interval": interval,
    "estimator": estimator,
    "custom": custom,
    "summary": summary,
}
