"""Loss heads at inference."""

from case import Case, In

#: Of 4-D data MXNet's oneDNN path takes the softmax over the last axis; its own code takes it over all of a sample.
PLAIN = (("MXNET_MKLDNN_ENABLED", "0"),)


def head(op, data, label, dtype="float32", env=(), **attrs):
    return Case(op, [In(*data, dtype=dtype), In(*label, kind="ints", low=0, high=2, dtype=dtype)], attrs, env=env)


CASES = [
    head("SoftmaxOutput", (2, 3), (2,)),
    head("SoftmaxOutput", (2, 3), (2, 3)),
    head("SoftmaxOutput", (2, 3, 4), (2, 3)),
    head("SoftmaxOutput", (2, 3, 4), (2, 3), preserve_shape=True),
    head("SoftmaxOutput", (2, 3, 4), (2, 4), multi_output=True),
    head("SoftmaxOutput", (2, 3, 4, 5), (2, 20), multi_output=True),
    head("SoftmaxOutput", (2, 3, 4, 5), (2, 4, 5), multi_output=True, use_ignore=True, ignore_label=0),
    head("SoftmaxOutput", (2, 3), (2,), multi_output=True),
    head("SoftmaxOutput", (2, 3, 4, 5), (2, 3, 4), grad_scale=2.0, normalization="batch", env=PLAIN),
    head("SoftmaxOutput", (2, 3), (2,), normalization="valid", smooth_alpha=0.1, out_grad=True),
    head("SoftmaxOutput", (2, 3), (2,), dtype="float64"),
    head("LinearRegressionOutput", (2, 3), (2, 3), grad_scale=2.0),
    head("LinearRegressionOutput", (2, 1), (2,)),
    head("LogisticRegressionOutput", (2, 3), (2, 3)),
    head("LogisticRegressionOutput", (4, 1), (4,), grad_scale=0.5),
    head("MAERegressionOutput", (2, 3, 4), (2, 3, 4)),
    head("SVMOutput", (2, 3), (2,)),
    head("SVMOutput", (2, 3), (2,), margin=0.5, regularization_coefficient=0.1, use_linear=True),
    Case("MakeLoss", [In(2, 3)]),
    Case("MakeLoss", [In(2, 3)], {"grad_scale": 2.0, "normalization": "batch", "valid_thresh": 0.5}),
    Case("make_loss", [In(2, 3)]),
    Case("IdentityAttachKLSparseReg", [In(2, 3), In(3)]),
    Case("IdentityAttachKLSparseReg", [In(2, 3), In(3)], {"sparseness_target": 0.2, "penalty": 0.1, "momentum": 0.5}),
]
