"""softmax, softmin, log_softmax, SoftmaxActivation."""

from case import Case, In


def one(op, shape=(2, 3, 4), dtype="float32", loose=False, **attrs):
    tolerance = {"rtol": 1e-2, "atol": 5e-3} if "float16" in (dtype, attrs.get("dtype")) or loose else {}
    return Case(
        op,
        [In(*shape, dtype=dtype, scale=2)],
        {("dtype" if k == "to" else k): v for k, v in attrs.items()},
        **tolerance,
    )


def masked(shape, length, axis=-1, dtype="int32", **attrs):
    return Case(
        "softmax",
        [In(*shape, scale=2), In(value=length, dtype=dtype)],
        dict(attrs, axis=axis, use_length=True),
        note="length %s" % str(length).replace(" ", ""),
    )


CASES = []
for op in ("softmax", "softmin", "log_softmax"):
    CASES += [
        one(op),
        one(op, axis=0),
        one(op, axis=1),
        one(op, axis=-2),
        one(op, shape=(5,)),
        one(op, shape=(2, 3, 4, 5), axis=1, temperature=2.5),
        one(op, temperature=0.5),
        one(op, temperature=1.0),
        one(op, dtype="float64"),
        one(op, dtype="float16"),
        one(op, dtype="float16", to="float32", loose=True),
        one(op, dtype="float32", to="float16", loose=True),
        one(op, dtype="float64", to="float32"),
        one(op, dtype="float32", to="float64"),
        Case(op, [In(value=[[1e4, 0, -1e4], [300, 301, 302]])], note="large"),
    ]
CASES += [
    masked((2, 3), [1, 2]),
    masked((2, 3), [3, 0]),
    masked((2, 3), [1, 3], dtype="int64"),
    masked((2, 3, 4), [[1, 2, 3], [0, 4, 2]]),
    masked((2, 3, 4), [[1, 2, 3, 0], [3, 3, 1, 2]], axis=1),
    masked((2, 3, 4), [[1, 2, 3, 0], [3, 3, 1, 2]], axis=1, temperature=2.0),
    masked((2, 3), [1, 2, 0], axis=0),
    one("SoftmaxActivation"),
    one("SoftmaxActivation", shape=(2, 3)),
    one("SoftmaxActivation", shape=(2, 3, 4, 5)),
    one("SoftmaxActivation", mode="instance", shape=(2, 3, 2, 2, 2)),
    one("SoftmaxActivation", mode="channel"),
    one("SoftmaxActivation", mode="channel", shape=(2, 3, 4, 5)),
]
