"""Activation, LeakyReLU, relu, sigmoid, softsign, hard_sigmoid."""

from case import Case, In

HALF = {"rtol": 5e-3, "atol": 5e-3}


def one(op, shape=(2, 3, 4), dtype="float32", note="", **attrs):
    loose = HALF if dtype == "float16" else {}
    return Case(op, [In(*shape, dtype=dtype, scale=3)], attrs, note=note, **loose)


def integers(op, dtype):
    low = 0 if dtype.startswith("u") else -20
    return Case(op, [In(3, 4, kind="ints", low=low, high=20, dtype=dtype)])


def prelu(data, gamma, dtype="float32"):
    return Case("LeakyReLU", [In(*data, dtype=dtype), In(*gamma, dtype=dtype)], {"act_type": "prelu"})


CASES = []
for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
    CASES += [
        one("Activation", act_type=kind),
        one("Activation", act_type=kind, dtype="float64"),
        one("Activation", act_type=kind, dtype="float16"),
        Case("Activation", [In(value=[-100, -20, -1e-3, 0, 1e-3, 20, 100])], {"act_type": kind}, note="extremes"),
    ]
CASES.append(one("Activation", act_type="relu", shape=(5,)))
for op in ("relu", "sigmoid", "softsign", "hard_sigmoid"):
    CASES += [one(op), one(op, dtype="float64"), one(op, dtype="float16")]
for dtype in ("int8", "uint8", "int32", "int64"):
    CASES.append(integers("relu", dtype))
CASES += [
    one("hard_sigmoid", alpha=0.5, beta=0.1),
    one("hard_sigmoid", alpha=1.0 / 6, beta=0.5),
    one("relu", shape=(2, 3, 4, 5)),
    one("LeakyReLU"),
    one("LeakyReLU", act_type="leaky", slope=0.1),
    one("LeakyReLU", act_type="leaky", slope=0.0),
    one("LeakyReLU", act_type="leaky", slope=0.1, dtype="float64"),
    one("LeakyReLU", act_type="leaky", slope=0.1, dtype="float16"),
    one("LeakyReLU", act_type="elu"),
    one("LeakyReLU", act_type="elu", slope=1.5),
    one("LeakyReLU", act_type="elu", slope=1.0, dtype="float64"),
    one("LeakyReLU", act_type="selu"),
    one("LeakyReLU", act_type="selu", dtype="float64"),
    one("LeakyReLU", act_type="gelu"),
    one("LeakyReLU", act_type="gelu", dtype="float64"),
    one("LeakyReLU", act_type="gelu", dtype="float16"),
    Case("LeakyReLU", [In(2, 3, 4, scale=3)], {"act_type": "rrelu"}, outputs=1),
    Case(
        "LeakyReLU",
        [In(2, 3, 4, scale=3)],
        {"act_type": "rrelu", "lower_bound": 0.1, "upper_bound": 0.7},
        outputs=1,
    ),
    prelu((2, 3, 4), (3,)),
    prelu((2, 3, 4, 5), (3,)),
    prelu((2, 3, 4, 5), (1,)),
    prelu((2, 3), (3,)),
    prelu((3,), (3,)),
    prelu((3,), (1,)),
    prelu((2, 3, 4), (3,), dtype="float64"),
]
