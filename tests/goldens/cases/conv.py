"""Convolution, Deconvolution, FullyConnected."""

from case import Case, In

#: MXNet's default build refuses 3-D convolutions ("IsDefaultData"); without oneDNN it computes them.
PLAIN = (("MXNET_MKLDNN_ENABLED", "0"),)


def conv(data, kernel, filters, op="Convolution", dtype="float32", note="", env=(), rtol=1e-4, **attrs):
    group = attrs.get("num_group", 1)
    weight = (filters, data[1] // group) + kernel
    inputs = [In(*data, dtype=dtype), In(*weight, dtype=dtype)]
    if not attrs.get("no_bias", False):
        inputs.append(In(filters, dtype=dtype))
    full = dict(attrs, kernel=kernel, num_filter=filters)
    return Case(op, inputs, full, note=note, env=env, rtol=rtol)


def deconv(data, kernel, filters, dtype="float32", note="", env=(), **attrs):
    weight = (data[1], filters // attrs.get("num_group", 1)) + kernel
    inputs = [In(*data, dtype=dtype), In(*weight, dtype=dtype)]
    if not attrs.get("no_bias", True):
        inputs.append(In(filters, dtype=dtype))
    return Case("Deconvolution", inputs, dict(attrs, kernel=kernel, num_filter=filters), note=note, env=env)


CASES = [
    # 1-D
    conv((2, 3, 9), (3,), 4),
    conv((2, 3, 9), (3,), 4, stride=(2,), pad=(1,), layout="NCW"),
    conv((2, 4, 9), (2,), 6, dilate=(3,), num_group=2, no_bias=True),
    conv((1, 4, 9), (5,), 4, stride=(3,), pad=(4,), num_group=4),
    # 2-D
    conv((2, 3, 7, 6), (3, 3), 4),
    conv((2, 3, 7, 6), (1, 1), 5, no_bias=True),
    conv((1, 3, 7, 6), (3, 3), 4, pad=(1, 1), layout="NCHW"),
    conv((1, 3, 8, 9), (3, 2), 4, pad=(2, 0), stride=(2, 3)),
    conv((1, 3, 9, 9), (3, 3), 4, pad=(2, 2), dilate=(2, 2)),
    conv((1, 3, 9, 11), (2, 3), 4, pad=(1, 3), dilate=(3, 2), stride=(2, 1), no_bias=True),
    conv((2, 4, 5, 5), (3, 3), 4, pad=(1, 1), num_group=4),
    conv((2, 4, 5, 5), (3, 3), 8, pad=(1, 1), num_group=4, no_bias=True),
    conv((1, 6, 5, 5), (3, 3), 4, num_group=2, stride=(2, 2)),
    conv((1, 2, 3, 3), (5, 5), 3, pad=(2, 2)),
    conv((1, 2, 4, 4), (4, 4), 3),
    conv((1, 2, 6, 6), (2, 2), 2, pad=(3, 3), stride=(4, 4)),
    conv((1, 3, 5, 5), (3, 3), 2, workspace=256, cudnn_tune="limited_workspace", cudnn_off=True),
    conv((1, 3, 5, 5), (3, 3), 2, dtype="float64"),
    # 3-D
    conv((1, 2, 5, 6, 4), (3, 3, 3), 3, env=PLAIN),
    conv((1, 2, 5, 6, 4), (2, 3, 1), 3, pad=(1, 0, 2), stride=(2, 1, 3), env=PLAIN, layout="NCDHW"),
    conv((1, 4, 5, 5, 5), (2, 2, 2), 4, dilate=(2, 1, 3), num_group=2, no_bias=True, env=PLAIN),
    # the operator of old files
    conv((1, 3, 5, 6), (3, 3), 4, op="Convolution_v1", pad=(1, 0)),
    conv((1, 4, 5, 6), (2, 2), 4, op="Convolution_v1", num_group=2, stride=(2, 1), no_bias=True),
    # Deconvolution, 1-D
    deconv((1, 3, 5), (3,), 4),
    deconv((2, 4, 5), (4,), 6, stride=(2,), pad=(1,), num_group=2, no_bias=False),
    deconv((1, 3, 5), (3,), 2, stride=(3,), adj=(2,)),
    # 2-D
    deconv((2, 3, 4, 5), (3, 3), 4),
    deconv((1, 3, 4, 5), (3, 2), 4, no_bias=False),
    deconv((1, 3, 4, 5), (4, 4), 3, stride=(2, 2), pad=(1, 1)),
    deconv((1, 3, 4, 5), (4, 4), 3, stride=(2, 2), pad=(1, 1), num_group=3, no_bias=True),
    deconv((1, 4, 4, 5), (3, 3), 6, stride=(2, 3), pad=(1, 0), num_group=2, no_bias=False),
    deconv((1, 2, 4, 3), (3, 3), 3, stride=(2, 2), pad=(1, 1), adj=(1, 1)),
    deconv((1, 2, 4, 3), (3, 3), 3, stride=(3, 2), adj=(2, 1), no_bias=False),
    deconv((1, 2, 4, 3), (2, 2), 3, stride=(3, 3), adj=(2, 1), note="the adjacent rows lie beyond every window"),
    deconv((1, 2, 4, 3), (3, 2), 3, stride=(2, 2), dilate=(2, 3), pad=(1, 2)),
    deconv((1, 2, 4, 3), (3, 3), 3, stride=(2, 2), target_shape=(8, 6), env=PLAIN),
    deconv((1, 2, 4, 3), (3, 3), 3, stride=(2, 2), target_shape=(7, 5), no_bias=False, env=PLAIN),
    deconv((1, 2, 4, 3), (4, 5), 3, stride=(2, 3), target_shape=(9, 9), pad=(1, 1), adj=(1, 1)),
    deconv((1, 2, 4, 3), (3, 3), 3, target_shape=(4, 3), env=PLAIN),
    deconv((1, 2, 4, 3), (3, 3), 2, stride=(2, 2), layout="NCHW", target_shape=(0, 0), adj=(0, 0)),
    deconv((1, 2, 4, 3), (3, 3), 2, stride=(2, 2), dtype="float64"),
    deconv((1, 2, 4, 3), (1, 1), 2, stride=(2, 2), no_bias=False),
    deconv((1, 2, 4, 3), (3, 3), 2, pad=(2, 2)),
    # 3-D
    deconv((1, 2, 3, 4, 2), (3, 2, 3), 3),
    deconv((1, 4, 3, 2, 2), (3, 3, 3), 4, stride=(2, 1, 2), pad=(1, 0, 1), num_group=2, no_bias=False),
    deconv((1, 2, 3, 2, 2), (3, 3, 3), 2, stride=(2, 2, 2), adj=(1, 0, 1)),
    # FullyConnected
    Case("FullyConnected", [In(3, 5), In(4, 5), In(4)], {"num_hidden": 4}),
    Case("FullyConnected", [In(3, 5), In(4, 5)], {"num_hidden": 4, "no_bias": True}),
    Case("FullyConnected", [In(2, 3, 2, 2), In(4, 12), In(4)], {"num_hidden": 4}),
    Case("FullyConnected", [In(2, 3, 4), In(4, 12)], {"num_hidden": 4, "no_bias": True, "flatten": True}),
    Case("FullyConnected", [In(2, 3, 5), In(4, 5), In(4)], {"num_hidden": 4, "flatten": False}),
    Case("FullyConnected", [In(2, 3, 2, 5), In(4, 5)], {"num_hidden": 4, "flatten": False, "no_bias": True}),
    Case("FullyConnected", [In(3, 5), In(4, 5), In(4)], {"num_hidden": 4, "flatten": False}),
    Case("FullyConnected", [In(1, 5), In(1, 5), In(1)], {"num_hidden": 1}),
    Case("FullyConnected", [In(5), In(1, 1), In(1)], {"num_hidden": 1}),
    Case("FullyConnected", [In(5), In(3, 5), In(3)], {"num_hidden": 3, "flatten": False}),
    Case(
        "FullyConnected",
        [In(3, 5, dtype="float64"), In(4, 5, dtype="float64"), In(4, dtype="float64")],
        {"num_hidden": 4},
    ),
]
