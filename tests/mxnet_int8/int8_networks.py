"""Small networks that both MXNet 1.9.1 and requant.mx build, with seeded parameters and data.

Every function takes the ``mx`` module and returns a symbol. Written for Python 3.8, where MXNet runs.
"""

import numpy as np

SHAPE = (4, 3, 20, 20)
BATCHES = 2


def _conv(mx, x, filters, name, kernel=3, bn=False, act=None, **more):
    pad = kernel // 2
    x = mx.sym.Convolution(x, kernel=(kernel, kernel), pad=(pad, pad), num_filter=filters, name=name, **more)
    if bn:
        x = mx.sym.BatchNorm(x, fix_gamma=False, name=name + "_bn")
    if act is not None:
        x = mx.sym.Activation(x, act_type=act, name=name + "_" + act)
    return x


def _head(mx, x, classes=5):
    x = mx.sym.Pooling(x, global_pool=True, pool_type="avg", kernel=(1, 1), name="gap")
    return mx.sym.FullyConnected(mx.sym.Flatten(x, name="flat"), num_hidden=classes, name="fc")


def chain(mx):
    """Convolutions, pooling, two fully connected layers, softmax."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "conv0", act="relu")
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool0")
    x = _conv(mx, x, 16, "conv1", bn=True, act="relu")
    x = mx.sym.Pooling(x, kernel=(3, 3), stride=(2, 2), pool_type="max", pooling_convention="full", name="pool1")
    x = mx.sym.Flatten(x, name="flat")
    x = mx.sym.FullyConnected(x, num_hidden=24, name="fc0")
    x = mx.sym.Activation(x, act_type="relu", name="relu_fc0")
    x = mx.sym.Dropout(x, p=0.5, name="drop")
    x = mx.sym.FullyConnected(x, num_hidden=6, name="fc1")
    return mx.sym.SoftmaxOutput(x, name="softmax")


def residual(mx):
    """Residual blocks, one with a projection."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", bn=True, act="relu", no_bias=True)
    y = _conv(mx, x, 8, "a0", bn=True, act="relu", no_bias=True)
    y = _conv(mx, y, 8, "a1", bn=True, no_bias=True)
    x = mx.sym.Activation(x + y, act_type="relu", name="a_relu")
    y = _conv(mx, x, 16, "b0", bn=True, act="relu", no_bias=True)
    y = _conv(mx, y, 16, "b1", bn=True, no_bias=True)
    s = _conv(mx, x, 16, "proj", kernel=1, bn=True, no_bias=True)
    x = mx.sym.Activation(mx.sym.elemwise_add(y, s, name="b_add"), act_type="relu", name="b_relu")
    return _head(mx, x)


def preactivation(mx):
    """Residual blocks that normalize first (version 2)."""
    x = mx.sym.BatchNorm(mx.sym.Variable("data"), fix_gamma=True, name="data_bn")
    x = _conv(mx, x, 8, "stem", bn=True, act="relu", no_bias=True)
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool0")
    for i in range(2):
        name = f"u{i}"
        y = mx.sym.BatchNorm(x, fix_gamma=False, name=name + "_bn0")
        y = mx.sym.Activation(y, act_type="relu", name=name + "_relu0")
        y = _conv(mx, y, 8, name + "_c0", bn=True, act="relu", no_bias=True)
        y = _conv(mx, y, 8, name + "_c1", no_bias=True)
        x = mx.sym.elemwise_add(y, x, name=name + "_add")
    x = mx.sym.BatchNorm(x, fix_gamma=False, name="last_bn")
    x = mx.sym.Activation(x, act_type="relu", name="last_relu")
    return mx.sym.softmax(_head(mx, x), name="prob")


def depthwise(mx):
    """Depthwise and pointwise convolutions with ReLU6, an inverted residual."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", bn=True, no_bias=True)
    x = mx.sym.clip(x, 0, 6, name="stem_clip")
    y = _conv(mx, x, 16, "expand", kernel=1, bn=True, no_bias=True)
    y = mx.sym.clip(y, 0, 6, name="expand_clip")
    y = _conv(mx, y, 16, "dw", bn=True, no_bias=True, num_group=16)
    y = mx.sym.clip(y, 0, 6, name="dw_clip")
    y = _conv(mx, y, 8, "project", kernel=1, bn=True, no_bias=True)
    x = mx.sym.elemwise_add(x, y, name="add")
    x = mx.sym.clip(_conv(mx, x, 16, "last", kernel=1), 0, 6, name="last_clip")
    return _head(mx, x)


def concat(mx):
    """Branches joined, twice, with a pooling branch."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", bn=True, act="relu")
    for i in range(2):
        name = f"m{i}"
        a = _conv(mx, x, 4, name + "_a", kernel=1, act="relu")
        b = _conv(mx, _conv(mx, x, 4, name + "_b0", kernel=1, act="relu"), 6, name + "_b1", bn=True, act="relu")
        p = mx.sym.Pooling(x, kernel=(3, 3), pad=(1, 1), pool_type="avg", name=name + "_pool")
        c = _conv(mx, p, 4, name + "_c", kernel=1)
        x = mx.sym.Concat(a, b, c, p, dim=1, name=name + "_concat")
    x = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="pool")
    return _head(mx, _conv(mx, x, 8, "last", act="relu"))


def squeeze_excite(mx):
    """A channel gate: pooling, two small layers, sigmoid, product; and swish."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", bn=True)
    x = mx.sym.elemwise_mul(x, mx.sym.sigmoid(x, name="stem_sig"), name="stem_swish")
    y = _conv(mx, x, 8, "c0", bn=True, act="relu")
    g = mx.sym.Pooling(y, global_pool=True, pool_type="avg", kernel=(1, 1), name="squeeze")
    g = _conv(mx, g, 4, "reduce", kernel=1, act="relu")
    g = _conv(mx, g, 8, "expand", kernel=1)
    g = mx.sym.Activation(g, act_type="sigmoid", name="gate")
    y = mx.sym.broadcast_mul(y, g, name="scaled")
    x = mx.sym.elemwise_add(_conv(mx, y, 8, "c1"), x, name="add")
    return mx.sym.log_softmax(_head(mx, x), name="logp")


def detection(mx):
    """Heads on two scales, moved, flattened and joined; two outputs."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", bn=True, act="relu")
    scales = [mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="max", name="p0")]
    scales.append(_conv(mx, scales[0], 12, "down", act="relu", stride=(2, 2)))
    outs = {"cls": [], "box": []}
    for i, s in enumerate(scales):
        for kind, count in (("cls", 6), ("box", 8)):
            y = _conv(mx, s, count, f"{kind}{i}")
            y = mx.sym.transpose(y, axes=(0, 2, 3, 1), name=f"{kind}{i}_t")
            outs[kind].append(mx.sym.Flatten(y, name=f"{kind}{i}_f"))
    cls = mx.sym.Concat(*outs["cls"], dim=1, name="cls")
    box = mx.sym.Concat(*outs["box"], dim=1, name="box")
    cls = mx.sym.softmax(mx.sym.Reshape(cls, shape=(0, -1, 3), name="cls_r"), axis=-1, name="cls_p")
    return mx.sym.Group([cls, box])


def outputs(mx):
    """Several outputs: of a convolution, a pooling, a fully connected layer and an activation behind it."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", act="relu")
    a = _conv(mx, x, 8, "a")
    p = mx.sym.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="avg", name="pool")
    f = mx.sym.FullyConnected(mx.sym.Flatten(p, name="flat"), num_hidden=8, name="f0")
    t = mx.sym.tanh(f, name="t0")
    g = mx.sym.FullyConnected(t, num_hidden=4, name="f1")
    return mx.sym.Group([a, p, t, g])


def shared_weights(mx):
    """One weight in two layers, as in siamese networks and recurrent refinement."""
    w, b = mx.sym.Variable("w"), mx.sym.Variable("b")
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", act="relu")
    for i in range(2):
        x = mx.sym.Convolution(x, w, b, kernel=(3, 3), pad=(1, 1), num_filter=8, name=f"r{i}")
        x = mx.sym.Activation(x, act_type="relu", name=f"r{i}_relu")
    v = mx.sym.Variable("v")
    x = mx.sym.Flatten(mx.sym.Pooling(x, kernel=(4, 4), stride=(4, 4), pool_type="avg", name="pool"), name="flat")
    p = mx.sym.FullyConnected(x, v, no_bias=True, num_hidden=6, name="p")
    q = mx.sym.FullyConnected(mx.sym.negative(x, name="neg"), v, no_bias=True, num_hidden=6, name="q")
    return mx.sym.elemwise_add(p, q, name="sum")


def free_inputs(mx):
    """Two inputs that differ from run to run, of two shapes."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", bn=True, act="relu")
    y = _conv(mx, mx.sym.Variable("data2"), 8, "other", act="relu")
    z = mx.sym.elemwise_add(x, y, name="both")
    z = _conv(mx, z, 8, "joined", bn=True, act="relu")
    z = mx.sym.Concat(z, y, dim=1, name="cat")
    return _head(mx, _conv(mx, z, 8, "last"))


def activations(mx):
    """Every activation that is fused, and some that are not."""
    x = mx.sym.Variable("data")
    x = mx.sym.LeakyReLU(_conv(mx, x, 8, "c0"), act_type="leaky", slope=0.1, name="leaky")
    x = mx.sym.LeakyReLU(_conv(mx, x, 8, "c1"), act_type="gelu", name="gelu")
    x = mx.sym.LeakyReLU(_conv(mx, x, 8, "c2"), act_type="elu", name="elu")
    x = _conv(mx, x, 8, "c3", act="sigmoid")
    x = _conv(mx, x, 8, "c4", act="tanh")
    x = mx.sym.relu(_conv(mx, x, 8, "c5"), name="plain_relu")
    x = mx.sym.clip(_conv(mx, x, 8, "c6"), -1, 1, name="both_sides")
    x = mx.sym.broadcast_add(_conv(mx, x, 8, "c7"), x, name="badd")
    x = mx.sym.Flatten(mx.sym.Pooling(x, kernel=(5, 5), stride=(5, 5), pool_type="avg", name="pool"), name="flat")
    x = mx.sym.LeakyReLU(mx.sym.FullyConnected(x, num_hidden=8, name="f0"), act_type="elu", name="f_elu")
    x = mx.sym.abs(mx.sym.FullyConnected(x, num_hidden=8, name="f1"), name="f_abs")
    x = mx.sym.clip(mx.sym.FullyConnected(x, num_hidden=8, name="f2"), 0, 4, name="f_clip")
    return mx.sym.square(mx.sym.FullyConnected(x, num_hidden=4, name="f3"), name="f_square")


def mixed(mx):
    """Float operators between int8 ones: splitting, upsampling, transposed convolution, scaling, normalization."""
    x = _conv(mx, mx.sym.Variable("data"), 8, "stem", act="relu")
    halves = mx.sym.SliceChannel(x, num_outputs=2, axis=1, name="split")
    a = _conv(mx, halves[0], 8, "a", bn=True)
    b = _conv(mx, halves[1] * 2.0, 8, "b", act="relu")
    b = mx.sym.Deconvolution(b, kernel=(2, 2), stride=(2, 2), num_filter=8, no_bias=True, name="deconv")
    b = mx.sym.Pooling(b, kernel=(2, 2), stride=(2, 2), pool_type="avg", name="pool")
    x = mx.sym.BatchNorm(a + b, fix_gamma=True, name="bn")
    x = mx.sym.Activation(x, act_type="relu", name="relu")
    x = mx.sym.LRN(x, nsize=3, name="lrn")
    x = _conv(mx, x, 8, "c")
    x = mx.sym.mean(x, axis=(2, 3), name="mean")
    return mx.sym.FullyConnected(mx.sym.L2Normalization(x, name="l2"), num_hidden=4, name="fc")


NETWORKS = {
    f.__name__: f
    for f in (
        chain,
        residual,
        preactivation,
        depthwise,
        concat,
        squeeze_excite,
        detection,
        outputs,
        shared_weights,
        free_inputs,
        activations,
        mixed,
    )
}


def inputs(name):
    """Names of the inputs that differ from run to run."""
    return ("data", "data2") if name == "free_inputs" else ("data",)


def data(name):
    """Calibration data by input, for all batches: signed for most networks."""
    random = np.random.RandomState(7)
    shape = (SHAPE[0] * BATCHES,) + SHAPE[1:]
    values = {n: random.randn(*shape).astype(np.float32) for n in inputs(name)}
    return {n: np.abs(v) for n, v in values.items()} if name in ("chain", "concat") else values


def values(symbol, name):
    """Seeded parameters: arguments, auxiliary states."""
    fed = inputs(name)
    shapes, _, aux_shapes = symbol.infer_shape(**dict.fromkeys(fed, SHAPE))
    random = np.random.RandomState(11)
    args = {}
    for key, shape in zip(symbol.list_arguments(), shapes):
        if key in fed or key.endswith("label"):
            continue
        if key.endswith("gamma"):
            args[key] = random.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            fan = max(1, int(np.prod(shape[1:])))
            args[key] = (random.randn(*shape) * (2.0 / fan) ** 0.5).astype(np.float32)
    aux = {}
    for key, shape in zip(symbol.list_auxiliary_states(), aux_shapes):
        spread = random.uniform(0.5, 1.5, shape) if key.endswith("var") else random.randn(*shape) * 0.1
        aux[key] = spread.astype(np.float32)
    return args, aux
