"""Corners of the fusion and quantization passes, as small graphs that MXNet 1.9.1 and requant.mx both build.

Each case is a symbol and the options of the pass. Python 3.8, where MXNet runs.
"""


def _conv(mx, x, name, filters=4, act=None, **more):
    x = mx.sym.Convolution(x, kernel=(1, 1), num_filter=filters, no_bias=True, name=name, **more)
    return x if act is None else mx.sym.Activation(x, act_type=act, name=name + "_" + act)


def _pool(mx, x, name):
    return mx.sym.Pooling(x, kernel=(2, 2), pool_type="max", name=name)


def _cat(mx, *inputs, **more):
    return mx.sym.Concat(*inputs, dim=more.get("dim", 1), name=more["name"])


def dense_block(mx):
    a = _conv(mx, mx.sym.Variable("data"), "a")
    return _conv(mx, _cat(mx, a, _conv(mx, a, "b"), name="cat"), "z")


def pool_and_branch(mx):
    p = _pool(mx, _conv(mx, mx.sym.Variable("data"), "a"), "p")
    return _conv(mx, _cat(mx, _conv(mx, p, "b"), p, name="cat"), "z")


def nested_concat(mx):
    a, b, c, d = [_conv(mx, mx.sym.Variable("data"), n) for n in "abcd"]
    left, right = _pool(mx, _cat(mx, a, b, name="k1"), "p1"), _pool(mx, _cat(mx, c, d, name="k2"), "p2")
    return _conv(mx, _cat(mx, left, right, name="k3"), "z")


def concat_read_twice(mx):
    a, b, c = [_conv(mx, mx.sym.Variable("data"), n) for n in "abc"]
    k = _cat(mx, a, b, name="k1")
    return mx.sym.Group([_conv(mx, k, "y"), _conv(mx, _cat(mx, k, c, name="k2"), "z")])


def concat_of_input(mx):
    x, y = mx.sym.Variable("data"), mx.sym.Variable("data2")
    return _conv(mx, _cat(mx, x, _conv(mx, y, "a"), name="k"), "z")


def shared_producer(mx):
    a, b, c = [_conv(mx, mx.sym.Variable("data"), n) for n in "abc"]
    first, second = _cat(mx, a, b, name="k1"), _cat(mx, b, c, name="k2")
    return mx.sym.Group([_conv(mx, first, "y"), _conv(mx, second, "z")])


def same_twice(mx):
    a, b = [_conv(mx, mx.sym.Variable("data"), n) for n in "ab"]
    return _conv(mx, _cat(mx, a, a, b, name="k"), "z")


def add_into_concat(mx):
    x = mx.sym.Variable("data")
    a, b = _conv(mx, x, "a", act="relu"), _conv(mx, x, "b", act="relu")
    s = mx.sym.elemwise_add(_pool(mx, a, "p"), b, name="s")
    return _conv(mx, _cat(mx, s, _conv(mx, x, "c"), name="k"), "z")


def concat_axes(mx):
    x = mx.sym.Variable("data")
    a, b = _conv(mx, x, "a"), _conv(mx, x, "b")
    rows = _cat(mx, a, b, dim=2, name="rows")
    return _conv(mx, _cat(mx, rows, rows, dim=-1, name="last"), "z")


def dropouts(mx):
    x = mx.sym.Dropout(mx.sym.Variable("data"), name="d0")
    x = mx.sym.Dropout(_conv(mx, x, "a"), name="d1")
    x = mx.sym.identity(_conv(mx, x, "b", act="relu"), name="id")
    x = mx.sym.Dropout(_conv(mx, x, "c"), mode="always", name="kept")
    return mx.sym.FullyConnected(x, num_hidden=3, name="fc")


def attention(mx):
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=48, flatten=False, name="proj")
    s = mx.sym.contrib.interleaved_matmul_selfatt_qk(x, heads=4, name="qk")
    v = mx.sym.contrib.interleaved_matmul_selfatt_valatt(x, mx.sym.softmax(s, name="sm"), heads=4, name="va")
    return mx.sym.FullyConnected(v, num_hidden=8, flatten=False, name="out")


def embedding(mx):
    x = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=10, output_dim=8, name="emb")
    return mx.sym.FullyConnected(x, num_hidden=3, name="fc")


def norm_alone(mx):
    x = _conv(mx, mx.sym.Variable("data"), "a", act="relu")
    x = mx.sym.BatchNorm(_pool(mx, x, "p"), fix_gamma=False, name="bn")
    return _conv(mx, mx.sym.Activation(x, act_type="relu", name="r"), "z")


def both_operands_are_convs(mx):
    x = mx.sym.Variable("data")
    s = mx.sym.elemwise_add(_conv(mx, x, "a"), _conv(mx, x, "b", act="relu"), name="s1")
    t = mx.sym.elemwise_add(_pool(mx, s, "p"), _conv(mx, s, "c"), name="s2")
    return mx.sym.clip(t, 0, 6, name="c6")


def volumes(mx):
    x = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(1, 3, 3), num_filter=4, name="c3")
    x = mx.sym.Activation(x, act_type="relu", name="r3")
    x = mx.sym.Reshape(x, shape=(0, 0, -1), name="flat")
    return mx.sym.Convolution(x, kernel=(3,), num_filter=4, name="c1")


def float_readers(mx):
    x = _conv(mx, mx.sym.Variable("data"), "a", act="relu")
    t = mx.sym.tanh(x, name="t")
    return mx.sym.Group([_conv(mx, t, "b"), _conv(mx, mx.sym.sigmoid(x, name="sg"), "c"), _conv(mx, x, "d")])


def product(mx):
    x = _conv(mx, mx.sym.Variable("data"), "a")
    y = mx.sym.elemwise_mul(x, _conv(mx, mx.sym.Variable("data"), "b"), name="m")
    y = mx.sym.elemwise_mul(y, mx.sym.tanh(y, name="t"), name="m2")
    return mx.sym.Group([_conv(mx, y, "c")])


def dense_activations(mx):
    x = mx.sym.Variable("data")
    for i, act in enumerate(("relu", "sigmoid", "tanh")):
        x = mx.sym.FullyConnected(x, num_hidden=8, name=f"f{i}")
        x = mx.sym.Activation(x, act_type=act, name=f"a{i}")
    x = mx.sym.LeakyReLU(mx.sym.FullyConnected(x, num_hidden=8, no_bias=True, name="f3"), act_type="gelu", name="g")
    return mx.sym.exp(mx.sym.FullyConnected(x, num_hidden=8, name="f4"), name="e")


PLAIN = {"mode": "full", "dtype": "int8", "granularity": "tensor-wise", "names": [], "ops": [], "fuse": True}
CASES = {}
for _make in (
    dense_block,
    pool_and_branch,
    nested_concat,
    concat_read_twice,
    concat_of_input,
    shared_producer,
    same_twice,
    add_into_concat,
    concat_axes,
    dropouts,
    attention,
    embedding,
    norm_alone,
    both_operands_are_convs,
    volumes,
    float_readers,
    product,
    dense_activations,
):
    CASES[_make.__name__] = (_make, PLAIN)
    CASES[_make.__name__ + " smart"] = (_make, dict(PLAIN, mode="smart", dtype="auto"))
    CASES[_make.__name__ + " unfused"] = (_make, dict(PLAIN, fuse=False))
CASES["dense_activations channel-wise"] = (dense_activations, dict(PLAIN, granularity="channel-wise"))
CASES["float_readers without c"] = (float_readers, dict(PLAIN, names=["c"]))
CASES["float_readers without an inner node"] = (float_readers, dict(PLAIN, names=["a_relu"]))
CASES["nested_concat without poolings"] = (nested_concat, dict(PLAIN, ops=["Pooling", "Concat"]))
CASES["residual without fused convolutions"] = (both_operands_are_convs, dict(PLAIN, ops=["_sg_mkldnn_conv"]))


def ranges(points):
    """A range for each point: signed, and for every third one positive."""
    return {p: (0.0 if i % 3 == 2 else -i - 1.0, i + 1.25) for i, p in enumerate(sorted(set(points)))}
