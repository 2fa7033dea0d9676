"""Lines of Python that MXNet 1.9.1 and ``requant.mx`` must answer alike.

This file runs on both sides: under MXNet's Python 3.8 (``record.py``) and in our tests. It needs numpy alone. Cases are
the lines of the files in ``spellings/``: statements, separated by ``;``, of which the last is an expression.
Known to them is what ``_names`` returns: a matrix ``m``, a vector ``v``, symbols ``a`` and ``b``, and more.
"""

import ast
import collections
import json
import os

import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "spellings")
#: One file of ``spellings/`` each.
GROUPS = sorted(name[: -len(".txt")] for name in os.listdir(FOLDER) if name.endswith(".txt"))


def cases(group):
    """The cases of a group."""
    with open(os.path.join(FOLDER, group + ".txt"), encoding="utf-8") as file:
        return [line for line in file.read().split("\n") if line]


def _names(mx):
    """What a case may use, made afresh for each."""
    nd, sym = mx.nd, mx.sym
    net = sym.FullyConnected(sym.Activation(sym.var("a"), act_type="relu"), num_hidden=2, name="fc")
    values = {"fc_weight": nd.array([[1, -2, 3], [0.5, 1, 0]]), "fc_bias": nd.array([0.1, -0.2])}

    def fill(executor):
        executor.copy_params_from(values)

    def ready(module):
        module.bind([("a", (2, 3))], [("softmax_label", (2,))], for_training=False)
        module.set_params(values, {})
        return module

    def iterator():
        data = np.random.RandomState(3).normal(0, 1, (5, 3))
        return mx.io.NDArrayIter({"a": data}, np.array([0, 1, 0, 1, 0]), batch_size=2)

    def rounds(last, size):
        it = mx.io.NDArrayIter({"x": np.arange(10).reshape(5, 2), "y": np.arange(5)}, None, size, False, last)
        found = []
        for _ in range(4):
            found.append([([d.asnumpy().tolist() for d in b.data], b.pad) for b in it])
            it.reset()
        return found

    def watched(symbol, monitor_all=False):
        seen = []
        executor = symbol.simple_bind(mx.cpu(), a=(2, 3))
        executor.set_monitor_callback(lambda name, x: seen.append(name), monitor_all=monitor_all)
        executor.forward()
        return [n.decode() if isinstance(n, bytes) else n for n in seen]

    def inside(manager, make):
        with manager:
            return make()

    def metric(name, label=None, pred=None, **kwargs):
        made = mx.metric.create(name, **kwargs)
        label = nd.array([1, 1, 0] if label is None else label)
        made.update([label], [nd.array([[0.3, 0.7], [0.6, 0.4], [0.2, 0.8]] if pred is None else pred)])
        return made.get()

    return {
        "mx": mx,
        "nd": nd,
        "sym": sym,
        "np": np,
        "m": nd.array([[1, 2], [3, 4]]),
        "v": nd.array([1, 2]),
        "i": nd.array([1, 2], dtype="int32"),
        "a": sym.var("a"),
        "b": sym.var("b"),
        "A": nd.array([[1, -1, 0.5], [2, 1, -3]]),
        "FC": net,
        "NET": sym.SoftmaxOutput(net, name="softmax"),
        "M": lambda: mx.mod.Module(sym.SoftmaxOutput(net, name="softmax"), data_names=["a"]),
        "IT": iterator,
        "fill": fill,
        "ready": ready,
        "rounds": rounds,
        "metric": metric,
        "watched": watched,
        "inside": inside,
        "ZEROS": {"fc_weight": nd.zeros((2, 3)), "fc_bias": nd.zeros((2,))},
        "PLAIN": collections.namedtuple("PLAIN", ["data"]),
        "batches": lambda it: [x.data[0].asnumpy().tolist() for x in it],
    }


def show(value, mx):
    """A result as JSON can hold it."""
    if isinstance(value, mx.nd.NDArray):
        return ["array", np.dtype(value.dtype).name, list(value.shape), value.asnumpy().reshape(-1).tolist()]
    if isinstance(value, mx.sym.Symbol):
        graph = json.loads(value.tojson())
        return [
            "symbol",
            [[n["op"], n["name"], n.get("attrs", {}), n["inputs"]] for n in graph["nodes"]],
            graph["heads"],
        ]
    if isinstance(value, mx.io.DataDesc):
        return ["desc", str(value)]
    if isinstance(value, (list, tuple)):
        return ["list", [show(v, mx) for v in value]]
    if isinstance(value, dict):
        return ["dict", [[k, show(v, mx)] for k, v in sorted(value.items())]]
    if isinstance(value, type):
        return ["type", value.__name__]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float, np.generic)):
        return float(value)
    return ["text", str(value)]


def answer(mx, line):
    """What ``mx`` answers: the value of the last expression, or the kind of error."""
    body = ast.parse(line).body
    with mx.name.NameManager():
        scope = _names(mx)
        try:
            exec(compile(ast.Module(body[:-1], []), "case", "exec"), scope)
            return show(eval(compile(ast.Expression(body[-1].value), "case", "eval"), scope), mx)
        except Exception as fault:
            kind = next(c.__name__ for c in type(fault).__mro__ if c.__module__ == "builtins")
            return ["error", kind, isinstance(fault, mx.MXNetError)]
