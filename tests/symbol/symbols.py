"""Symbols composed by hand, for MXNet 1.9.1 and for requant alike.

This file runs on both sides: under MXNet's Python 3.8 (``record_symbols.py``) and in our tests. ``mx`` is ``mxnet``
there and ``requant.mx`` here. Every builder runs with a fresh name manager.
"""


class Composed:
    """One symbol to compare.

    build: makes it from ``mx``. shapes: what ``infer_shape`` is given; partial: what ``infer_shape_partial`` is given;
    types: what ``infer_type`` is given. None leaves that out.
    """

    def __init__(self, build, shapes=None, partial=None, types=None):
        self.build, self.shapes, self.partial, self.types = build, shapes, partial, types
        self.name = build.__name__


def perceptron(mx):
    x = mx.sym.var("data")
    x = mx.sym.FullyConnected(x, num_hidden=8)
    x = mx.sym.Activation(x, act_type="relu")
    x = mx.sym.FullyConnected(data=x, num_hidden=4, name="fc_out", no_bias=True)
    return mx.sym.SoftmaxOutput(x, name="softmax")


def lenet(mx):
    x = mx.sym.Variable("data")
    for filters in (6, 16):
        x = mx.sym.Convolution(x, kernel=(5, 5), num_filter=filters)
        x = mx.sym.Pooling(mx.sym.tanh(x), kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = mx.sym.Flatten(x)
    return mx.sym.softmax(mx.sym.FullyConnected(x, num_hidden=10))


def residual(mx):
    x = mx.sym.var("data")
    left = mx.sym.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=4, no_bias=True, name="conv")
    left = mx.sym.BatchNorm(left, fix_gamma=False, name="bn")
    return mx.sym.Activation(left + x, act_type="relu", name="out")


def batch_norm_statistics(mx):
    return mx.sym.BatchNorm(mx.sym.var("data"), output_mean_var=True)


def arithmetic(mx):
    a, b = mx.sym.var("a"), mx.sym.var("b")
    x = (a + b) * a - b / a
    x = 2 - x + 1.5
    x = 3 / x * 0.5
    x = x**2 - (2**a) % 3
    return -x + a**b


def comparisons(mx):
    a, b = mx.sym.var("a"), mx.sym.var("b")
    parts = [a == b, a != b, a > b, a >= 1, a < b, a <= 2.5, a == 0, a != 1, a > 0.5, a < 3]
    return mx.sym.Group(parts)


def broadcasting(mx):
    a, b = mx.sym.var("a"), mx.sym.var("b")
    x = mx.sym.broadcast_add(a, b)
    x = mx.sym.broadcast_mul(x, b) + mx.sym.broadcast_maximum(a, x)
    return mx.sym.broadcast_greater(x, a)


def functions_of_scalars(mx):
    a, b = mx.sym.var("a"), mx.sym.var("b")
    parts = [mx.sym.maximum(a, b), mx.sym.maximum(a, 2), mx.sym.minimum(3, a), mx.sym.pow(a, 2), mx.sym.pow(2, a)]
    return mx.sym.Group(parts + [mx.sym.hypot(a, b), mx.sym.add_n(a, b, a)])


def grouped(mx):
    x = mx.sym.var("data")
    a = mx.sym.relu(x)
    b = mx.sym.FullyConnected(a, num_hidden=3, name="fc")
    return mx.sym.Group([b, a, x, mx.sym.Group([b, mx.sym.sigmoid(b)])])


def split_outputs(mx):
    parts = mx.sym.split(mx.sym.var("data"), num_outputs=3, axis=1, name="parts")
    return mx.sym.Group([parts[2] + parts[0], parts[1], parts])


def split_by_name(mx):
    return mx.sym.split(mx.sym.var("data"), num_outputs=2)["split0_output1"]


def split_at(mx):
    return mx.sym.Group(list(mx.sym.split_v2(mx.sym.var("data"), (1, 3), axis=1)))


def concatenated(mx):
    x, y = mx.sym.var("x"), mx.sym.var("y")
    a = mx.sym.concat(x, y, dim=1)
    b = mx.sym.Concat(a, x, y, dim=-1, name="joined")
    return mx.sym.stack(b, b, axis=1)


def ordered(mx):
    x = mx.sym.var("data")
    both = mx.sym.topk(x, k=2, ret_typ="both", axis=1)
    value = mx.sym.topk(x, k=2, ret_typ="value", name="best")
    return mx.sym.Group([both, value, mx.sym.sort(x), mx.sym.argsort(x, dtype="int32")])


def described_variables(mx):
    x = mx.sym.var("data", shape=(0, 3, 8, 8), dtype="float16")
    w = mx.sym.var("w", lr_mult=0.5, wd_mult=0, init='["zero", {}]', attr={"__mine__": "yes"})
    return mx.sym.Convolution(x, weight=w, kernel=(1, 1), num_filter=2, attr={"__note__": "here"}, lr_mult=2)


def scoped_attributes(mx):
    x = mx.sym.var("data")
    with mx.AttrScope(ctx_group="dev1", __stage__="a"):
        x = mx.sym.FullyConnected(x, num_hidden=2)
        with mx.AttrScope(__stage__="b"):
            x = mx.sym.BatchNorm(x)
            y = mx.sym.var("free")
    return mx.sym.elemwise_add(x, y, name="sum")


def prefixed_names(mx):
    x = mx.sym.var("data")
    with mx.name.Prefix("net_"):
        x = mx.sym.FullyConnected(x, num_hidden=2)
        x = mx.sym.FullyConnected(x, num_hidden=2, name="named")
        with mx.name.NameManager():
            x = mx.sym.relu(x)
        x = mx.sym.relu(x)
    return mx.sym.relu(x)


def equal_names(mx):
    x = mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=2, name="same")
    return mx.sym.FullyConnected(x, num_hidden=2, name="same")


def shared_weight(mx):
    x, w = mx.sym.var("data"), mx.sym.var("w")
    a = mx.sym.FullyConnected(x, weight=w, num_hidden=5, no_bias=True)
    return mx.sym.FullyConnected(a, weight=w, num_hidden=5, no_bias=True)


def composed_by_name(mx):
    inner = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="inner")
    outer = mx.sym.FullyConnected(mx.sym.var("input"), num_hidden=2, name="outer")
    return outer(input=inner, name="whole")


def composed_twice(mx):
    f = mx.sym.var("a") * mx.sym.var("b")
    once = f(a=mx.sym.relu(mx.sym.var("x")))
    return once(b=f(a=mx.sym.var("y"), name="second"))


def some_internals(mx):
    net = lenet(mx).get_internals()
    return mx.sym.Group([net["pooling0_output"], net["convolution1_weight"], net[len(net.list_outputs()) - 1]])


def parametric_activations(mx):
    x = mx.sym.LeakyReLU(mx.sym.var("data"), act_type="prelu", name="p")
    x = mx.sym.LeakyReLU(x, act_type="leaky", slope=0.1)
    return mx.sym.LeakyReLU(x, act_type="elu")


def normalized(mx):
    x = mx.sym.LayerNorm(mx.sym.var("data"))
    x = mx.sym.InstanceNorm(x, eps=0.01)
    x = mx.sym.L2Normalization(x, mode="channel")
    return mx.sym.Dropout(mx.sym.LRN(x, nsize=3), p=0.25)


def upsampled(mx):
    x = mx.sym.Deconvolution(mx.sym.var("data"), kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=3)
    y = mx.sym.UpSampling(mx.sym.var("data"), scale=2, sample_type="nearest")
    return mx.sym.Concat(x, y, mx.sym.slice_like(y, x, axes=(2, 3)))


def recurrent(mx):
    tokens, lengths = mx.sym.var("tokens"), mx.sym.var("lengths")
    x = mx.sym.Embedding(tokens, input_dim=20, output_dim=6, name="embed")
    x = mx.sym.SequenceMask(x, lengths, use_sequence_length=True, value=-1)
    return mx.sym.SequenceLast(x, use_sequence_length=True, name="last")


def reshaped(mx):
    x = mx.sym.var("data")
    x = mx.sym.reshape(x, shape=(0, -4, 2, -1, -2))
    x = mx.sym.transpose(x, axes=(0, 2, 1, 3, 4))
    x = x.reshape((0, -3, -2)).slice_axis(axis=1, begin=1, end=None)
    return x.flatten().expand_dims(axis=0).squeeze()


def constants(mx):
    x = mx.sym.var("data")
    x = mx.sym.broadcast_add(x, mx.sym.ones((1, 3))) + mx.sym.zeros((2, 3), dtype="float32")
    return mx.sym.broadcast_mul(x, mx.sym.arange(3))


def cast_about(mx):
    x = mx.sym.cast(mx.sym.var("data"), dtype="float16")
    x = mx.sym.FullyConnected(x, num_hidden=2)
    return mx.sym.Group([mx.sym.Cast(x, dtype="float32"), mx.sym.argmax(x, axis=1), mx.sym.one_hot(x, 3, dtype="int8")])


def mixed_precision(mx):
    x = mx.sym.amp_cast(mx.sym.var("data"), dtype="float16")
    x = mx.sym.FullyConnected(x, num_hidden=2, name="fc")
    return mx.sym.amp_cast(x, dtype="float32")


def regression(mx):
    x = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1)
    a = mx.sym.LinearRegressionOutput(x, name="linear")
    b = mx.sym.LogisticRegressionOutput(data=x, label=mx.sym.var("truth"))
    return mx.sym.Group([a, b, mx.sym.MakeLoss(mx.sym.mean(mx.sym.square(x))), mx.sym.BlockGrad(x)])


def plain_variable(mx):
    return mx.sym.var("alone")


ALL = [
    Composed(perceptron, {"data": (5, 7)}, {"data": (0, 7)}, {"data": "float32"}),
    Composed(lenet, {"data": (2, 1, 28, 28)}, {"data": (0, 1, 28, 28)}, {"data": "float64"}),
    Composed(residual, {"data": (2, 4, 6, 5)}, {"data": (0, 4, 0, 0)}, {"data": "float16"}),
    Composed(batch_norm_statistics, {"data": (2, 3, 4)}, {}, {"data": "float16"}),
    Composed(arithmetic, {"a": (2, 3)}, {"a": (0, 3)}, {"a": "float64", "b": "float64"}),
    Composed(comparisons, {"a": (2, 3), "b": (2, 3)}, {}, {"a": "float32", "b": "float32"}),
    Composed(broadcasting, {"a": (2, 3), "b": (1, 3)}, {}, {"a": "float32"}),
    Composed(functions_of_scalars, {"a": (2, 3)}, {"b": (2, 0)}, {"a": "float32"}),
    Composed(grouped, {"data": (4, 6)}, {"fc_weight": (3, 6)}, {"data": "float16"}),
    Composed(split_outputs, {"data": (2, 6)}, {"data": (0, 6)}, {"data": "int32"}),
    Composed(split_by_name, {"data": (2, 6)}, None, {"data": "float32"}),
    Composed(split_at, {"data": (2, 6)}, None, {"data": "float32"}),
    Composed(concatenated, {"x": (2, 3), "y": (2, 1)}, {"x": (0, 3)}, {"x": "float32"}),
    Composed(ordered, {"data": (2, 6)}, None, {"data": "float64"}),
    Composed(described_variables, {"data": (2, 3, 8, 8)}, {}, {}),
    Composed(scoped_attributes, {"data": (2, 3)}, {}, {"data": "float16"}),
    Composed(prefixed_names, {"data": (2, 3)}, {}, {"data": "float32"}),
    Composed(equal_names, None, None, None),
    Composed(shared_weight, {"data": (2, 5)}, {}, {"w": "float64"}),
    Composed(composed_by_name, {"data": (2, 3)}, {}, {"data": "float32"}),
    Composed(composed_twice, {"x": (2, 3)}, {}, {"x": "float16"}),
    Composed(some_internals, {"data": (2, 1, 28, 28)}, None, {"data": "float32"}),
    Composed(parametric_activations, {"data": (2, 3, 4)}, {"data": (0, 3, 0)}, {"data": "float16"}),
    Composed(normalized, {"data": (2, 3, 4, 4)}, None, {"data": "float32"}),
    Composed(upsampled, {"data": (1, 3, 4, 5)}, None, {"data": "float32"}),
    Composed(recurrent, {"tokens": (7, 2)}, None, {"tokens": "float16"}),
    Composed(reshaped, {"data": (3, 8, 4, 5)}, None, {"data": "float32"}),
    Composed(constants, {"data": (2, 3)}, None, {"data": "float32"}),
    Composed(cast_about, {"data": (2, 3)}, {}, {"data": "float32"}),
    Composed(mixed_precision, {"data": (2, 3)}, {}, {"data": "float64"}),
    Composed(regression, {"data": (2, 3)}, {}, {"data": "float64"}),
    Composed(plain_variable, {"alone": (2,)}, {}, {"alone": "int8"}),
]


def facts(mx, case):
    """All that is compared, as plain JSON values."""
    with mx.name.NameManager():
        symbol = case.build(mx)
    children = symbol.get_children()
    found = {
        "name": symbol.name,
        "list_arguments": symbol.list_arguments(),
        "list_outputs": symbol.list_outputs(),
        "list_auxiliary_states": symbol.list_auxiliary_states(),
        "list_inputs": symbol.list_inputs(),
        "get_internals": symbol.get_internals().list_outputs(),
        "get_children": None if children is None else children.list_outputs(),
        "attr_dict": symbol.attr_dict(),
        "list_attr": symbol.list_attr() if symbol.name is not None else None,
        "length": len(symbol),
        "tojson": symbol.tojson(),
    }
    if case.shapes is not None:
        found["infer_shape"] = _listed(symbol.infer_shape(**case.shapes))
    if case.partial is not None:
        found["infer_shape_partial"] = _listed(symbol.infer_shape_partial(**case.partial))
    if case.types is not None:
        found["infer_type"] = _typed(symbol.infer_type(**case.types))
    return found


def _listed(parts):
    return [None if part is None else [None if s is None else list(s) for s in part] for part in parts]


def _typed(parts):
    return [None if part is None else [None if t is None else t.__name__ for t in part] for part in parts]
