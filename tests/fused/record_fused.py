"""Record what MXNet 1.9.1's fused int8 nodes compute: ``python record_fused.py`` with a Python that has it.

Each network is fused, quantized and calibrated by MXNet's own passes. What is kept: the int8 symbol, its parameters,
one input, and every output of every node. ``MXNET_SUBGRAPH_BACKEND=NONE``, so that the graph is the one that is kept.
"""

import os
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
os.environ["MXNET_MKLDNN_QFC_DYNAMIC_PARAMS"] = "1"

import mxnet as mx
import numpy as np
from mxnet.contrib.quantization import _calibrate_quantized_sym, _quantize_params, _quantize_symbol

HERE = os.path.dirname(os.path.abspath(__file__))
S = mx.sym


def act(y, kind):
    if kind in ("relu", "sigmoid", "tanh", "softrelu"):
        return S.Activation(y, act_type=kind, name="act")
    if kind == "leaky":
        return S.LeakyReLU(y, act_type="leaky", slope=0.2, name="act")
    if kind in ("gelu", "elu"):
        return S.LeakyReLU(y, act_type=kind, slope=0.3, name="act")
    if kind == "clip":
        return S.clip(y, a_min=0.0, a_max=1.0, name="act")
    return S.abs(y, name="act") if kind == "abs" else y


def conv(kind=None, bn=None, add=None, groups=1, bias=True, kernel=3, stride=1, dims=2, dilate=1):
    """conv0 → conv1 (→ batch normalization → sum → activation). add: "s8" or "u8", by the sign of what is added."""
    one, many = (1,) * dims, (kernel,) * dims
    first = S.Convolution(S.var("data"), kernel=one, num_filter=8, name="conv0", no_bias=True)
    y = S.Convolution(
        first,
        kernel=many,
        pad=tuple(kernel // 2 * dilate for _ in one),
        stride=(stride,) * dims,
        dilate=(dilate,) * dims,
        num_filter=8,
        num_group=groups,
        no_bias=not bias,
        name="conv1",
    )
    if bn is not None:
        y = S.BatchNorm(y, name="bn", fix_gamma=bn == "fixed", eps=1e-3)
    if add is not None:
        other = S.Convolution(first, kernel=one, num_filter=8, name="conv2", no_bias=True)
        y = S.elemwise_add(y, S.Activation(other, act_type="relu") if add == "u8" else other, name="sum")
    return act(y, kind)


def dense(kind=None, bias=True, flatten=True, positive=False):
    """fc0 (→ ReLU) → fc1 (→ activation)."""
    first = S.FullyConnected(S.var("data"), num_hidden=12, name="fc0", flatten=flatten)
    if positive:
        first = S.Activation(first, act_type="relu")
    y = S.FullyConnected(first, num_hidden=7, no_bias=not bias, flatten=flatten, name="fc1")
    return act(y, kind)


def attention():
    """Projections → scores → softmax → mix."""
    qkv = S.FullyConnected(S.var("data"), num_hidden=24, flatten=False, name="qkv")
    scores = S.contrib.interleaved_matmul_selfatt_qk(qkv, heads=2, name="qk")
    return S.contrib.interleaved_matmul_selfatt_valatt(qkv, S.softmax(scores, name="soft"), heads=2, name="mix")


def networks():
    """Name → (symbol, input shape, settings)."""
    image, rows = (2, 3, 6, 5), (4, 9)
    for name, keys in (
        ("plain", {}),
        ("no_bias", {"bias": False}),
        ("relu", {"kind": "relu"}),
        ("leaky", {"kind": "leaky"}),
        ("gelu", {"kind": "gelu"}),
        ("clip", {"kind": "clip"}),
        ("bn", {"bn": "free"}),
        ("bn_relu", {"bn": "free", "kind": "relu", "bias": False}),
        ("bn_fixed", {"bn": "fixed", "kind": "relu"}),
        ("sum_s8", {"add": "s8"}),
        ("sum_s8_relu", {"add": "s8", "kind": "relu"}),
        ("sum_u8_relu", {"add": "u8", "kind": "relu"}),
        ("sum_u8", {"add": "u8"}),
        ("sum_s8_leaky", {"add": "s8", "kind": "leaky"}),
        ("bn_sum_relu", {"bn": "free", "add": "u8", "kind": "relu"}),
        ("groups", {"groups": 4, "kind": "relu"}),
        ("depthwise", {"groups": 8, "kind": "relu", "bn": "free"}),
        ("strided", {"kernel": 1, "stride": 2, "kind": "relu"}),
        ("dilated", {"kernel": 3, "dilate": 2, "bias": False}),
    ):
        yield "conv_" + name, conv(**keys), image, {}
    for name, keys in (("plain", {}), ("relu", {"kind": "relu"}), ("sum", {"add": "s8", "kind": "relu"})):
        yield "conv_dynamic_" + name, conv(**keys), image, {"calib": False}
    for name, keys in (
        ("plain", {}),
        ("no_bias", {"bias": False}),
        ("relu", {"kind": "relu"}),
        ("leaky", {"kind": "leaky"}),
        ("tanh", {"kind": "tanh"}),
        ("sigmoid", {"kind": "sigmoid"}),
        ("elu", {"kind": "elu"}),
        ("gelu", {"kind": "gelu"}),
        ("abs", {"kind": "abs"}),
        ("u8", {"positive": True}),
        ("rows", {"flatten": False, "positive": True}),
    ):
        yield "dense_" + name, dense(**keys), rows, {}
        yield "dense_channels_" + name, dense(**keys), rows, {"granularity": "channel-wise"}
    yield "dense_dynamic", dense(), rows, {"calib": False}
    yield "dense_dynamic_relu", dense("relu", positive=True), rows, {"calib": False}
    yield "attention", attention(), (5, 2, 8), {}


def record(name, net, shape, calib=True, granularity="tensor-wise"):
    rs = np.random.RandomState(sum(map(ord, name)))
    fused = net.get_backend_symbol("MKLDNN_QUANTIZE")
    shapes, _, aux_shapes = fused.infer_shape(data=shape)
    args = {n: mx.nd.array(rs.normal(0, 0.5, s)) for n, s in zip(fused.list_arguments(), shapes)}
    aux = {n: mx.nd.array(rs.rand(*s) + 0.1) for n, s in zip(fused.list_auxiliary_states(), aux_shapes)}
    params = [n for n in args if n != "data"]
    qsym, layers = _quantize_symbol(
        fused, mx.cpu(), offline_params=params, quantized_dtype="auto", quantize_mode="full",
        quantize_granularity=granularity,
    )  # fmt: skip
    ranges = {}
    if calib:
        inner = fused.get_internals()
        outs = inner.bind(mx.cpu(), args, aux_states=aux, grad_req="null").forward()
        seen = dict(zip(inner.list_outputs(), outs))
        ranges = {n: (float(seen[n].min().asscalar()), float(seen[n].max().asscalar())) for n in layers}
        qsym = _calibrate_quantized_sym(qsym, ranges)
    qsym = qsym.get_backend_symbol("MKLDNN_QUANTIZE")
    qargs = _quantize_params(qsym, {n: a for n, a in args.items() if n != "data"}, ranges)
    inner = qsym.get_internals()
    outs = inner.bind(mx.cpu(), dict(qargs, data=args["data"]), aux_states=aux, grad_req="null").forward()
    arrays = {"symbol": np.frombuffer(qsym.tojson().encode(), np.uint8), "data": args["data"].asnumpy()}
    arrays.update({"param:" + n: a.asnumpy() for n, a in list(qargs.items()) + list(aux.items())})
    given = set(qsym.list_inputs())
    arrays.update({"out:" + n: o.asnumpy() for n, o in zip(inner.list_outputs(), outs) if n not in given})
    return {name + "|" + k: a for k, a in arrays.items()}


if __name__ == "__main__":
    kept = {}
    for name, net, shape, settings in networks():
        try:
            kept.update(record(name, net, shape, **settings))
        except Exception as fault:
            print("FAILED", name, str(fault).strip().split("\n")[-1])
    np.savez_compressed(os.path.join(HERE, "data", "fused.npz"), **kept)
    print(len(set(k.split("|")[0] for k in kept)), "networks")
    sys.exit()
