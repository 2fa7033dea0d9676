"""Golden cases of arithmetic on boxes."""

from case import Case, In

LHS = [[0, 0, 2, 2], [1, 1, 0, 0], [1, 1, 1, 1], [0.5, -1, 2.5, 0.5], [2, 0, 1, 3]]
RHS = [[1, 1, 3, 3], [0, 0, 2, 2], [5, 5, 4, 4], [1, 1, 1, 1], [-3, -3, 9, 9], [0, 1, 2, -1]]


def iou(*shapes, **attrs):
    return Case("_contrib_box_iou", [In(*s, kind="positive") for s in shapes], attrs)


def decode(batch, n, dtype="float32", **attrs):
    inputs = [In(batch, n, 4, dtype=dtype), In(1, n, 4, kind="positive", dtype=dtype)]
    return Case("_contrib_box_decode", inputs, attrs, rtol=1e-4 if dtype != "float16" else 5e-3)


def encode(batch, n, m):
    low, high = In(batch, n, 4, kind="positive"), In(batch, m, 4, kind="positive")
    return Case(
        "_contrib_box_encode",
        [
            In(batch, n, kind="ints", low=-1, high=2),
            In(batch, n, kind="ints", low=0, high=m),
            In(*low.shape, value=_corners(batch, n, 1)),
            In(*high.shape, value=_corners(batch, m, 2)),
            In(4, value=[0, 0.1, -0.1, 0.2]),
            In(4, value=[0.1, 0.1, 0.2, 0.3]),
        ],
    )


def _corners(batch, n, seed):
    import numpy as np

    rng = np.random.RandomState(seed)
    low = rng.uniform(0, 5, (batch, n, 2))
    return np.concatenate([low, low + rng.uniform(1, 5, (batch, n, 2))], axis=2).astype("float32").tolist()


def close(x, y, **attrs):
    return Case(
        "_contrib_allclose", [In(len(x), value=x), In(len(y), value=y)], attrs, note=(str(x) + str(y)).replace(" ", "")
    )


CASES = [
    Case("_contrib_box_iou", [In(5, 4, value=LHS), In(6, 4, value=RHS)], {}),
    Case("_contrib_box_iou", [In(5, 4, value=LHS), In(6, 4, value=RHS)], {"format": "center"}),
    Case("_contrib_box_iou", [In(5, 4, value=LHS, dtype="float64"), In(6, 4, value=RHS, dtype="float64")], {}),
    Case(
        "_contrib_box_iou", [In(5, 4, value=LHS, dtype="float16"), In(6, 4, value=RHS, dtype="float16")], {}, rtol=2e-3
    ),
    iou((2, 3, 4), (2, 5, 4)),
    iou((2, 3, 4), (5, 4), format="center"),
    iou((1, 4), (1, 2, 3, 4), format="center"),
    decode(2, 5),
    decode(1, 5, std0=0.1, std1=0.2, std2=0.3, std3=0.4),
    decode(3, 5, std0=0.1, std1=0.1, std2=0.2, std3=0.2, clip=0.1),
    decode(2, 5, std0=0.1, std1=0.1, std2=0.2, std3=0.2, format="corner"),
    decode(2, 5, std0=0.1, std1=0.1, std2=0.2, std3=0.2, format="corner", clip=0.05),
    decode(2, 3, "float64"),
    decode(2, 3, "float16", std0=0.1, std1=0.1, std2=0.2, std3=0.2),
    encode(1, 4, 2),
    encode(2, 7, 3),
    close([1.0, 2.0], [1.0, 2.00001]),
    close([1.0, 2.0], [1.0, 2.001]),
    close([1.0, 2.0], [1.0, 2.001], rtol=0.01),
    close([1.0, 0.0], [1.0, 0.001], atol=0.01),
    close([1e10, 1e-7], [1.00001e10, 1e-8]),
    close([1e10, 1e-8], [1.00001e10, 1e-9]),
    close([float("nan"), 1.0], [float("nan"), 1.0]),
    close([float("nan"), 1.0], [float("nan"), 1.0], equal_nan=False),
    close([float("inf"), 1.0], [float("inf"), 1.0]),
]
