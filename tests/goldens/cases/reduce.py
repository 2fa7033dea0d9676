"""Reductions, norms, indices of extremes, moments, cumulative sums."""

from case import Case, In

NAN = float("nan")
GRID = [
    {},
    {"axis": 1},
    {"axis": (0, 2)},
    {"axis": -1, "keepdims": True},
    {"keepdims": True},
    {"axis": (0, 1, 2)},
    {"axis": 1, "exclude": True},
    {"axis": (-1, 0), "exclude": True, "keepdims": True},
]
HALF = {"rtol": 2e-3, "atol": 1e-3}
MKLDNN_OFF = (("MXNET_MKLDNN_ENABLED", "0"),)


def array(values, dtype="float32"):
    import numpy as np

    return In(*np.shape(values), value=values, dtype=dtype)


WHOLE = array([[1, 2, 3], [4, -6, 100]], "int32")
CASES = []
for op, grid in (("sum", GRID), ("mean", GRID[:5]), ("max", GRID[1:5]), ("min", GRID[1:4]), ("prod", GRID[1:4])):
    CASES += [Case(op, [In(2, 3, 4)], attrs) for attrs in grid]
    CASES += [
        Case(op, [In(2, 3, 4, dtype="float16")], {"axis": 1}, **HALF),
        Case(op, [WHOLE], {"axis": 1}),
        Case(op, [array([[1, 2, 3], [4, 6, 100]], "uint8")], {"axis": 1}),
    ]
for op in ("sum", "mean", "max"):
    CASES += [
        Case(op, [In(2, 3, 4, dtype="float64")], {"axis": (1, 2)}),
        Case(op, [array([[1, 2, 3], [4, 6, 100]], "int64")], {"axis": 0}),
        Case(op, [array([[1, 2, 3], [4, 6, -100]], "int8")]),
        Case(op, [array([[True, False], [False, False]], "bool")], {"axis": 1}),
    ]
for op in ("nansum", "nanprod"):
    values = [[[1.5, NAN, 2.0], [NAN, NAN, NAN]], [[-1.0, 0.5, 3.0], [NAN, 4.0, 0.25]]]
    CASES += [Case(op, [array(values)], attrs) for attrs in GRID[:4]]
    CASES += [Case(op, [WHOLE], {"axis": 1})]
CASES += [
    Case("sum", [In(2, 3)], {"axis": (0, 1), "exclude": True}, note="nothing to reduce"),
    Case("nansum", [array([[1.0, NAN]])], {"axis": (0, 1), "exclude": True}, note="nothing to reduce"),
    Case("sum", [In(5)], {"axis": 0}, note="vector"),
    Case("sum_axis", [In(2, 3)], {"axis": 0}),
    Case("max_axis", [In(2, 3)], {"axis": 0}),
    Case("min_axis", [In(2, 3)], {"axis": 0}),
    Case("mean", [In(2, 3, 4, 5)], {"axis": (2, 3)}, note="over the image"),
    Case("mean", [In(2, 3, 4, 5)], {"axis": (2, 3), "keepdims": True}, note="over the image"),
]
for order in (1, 2):
    CASES += [
        Case("norm", [In(2, 3, 4)], {"ord": order}),
        Case("norm", [In(2, 3, 4)], {"ord": order, "axis": 1}),
        Case("norm", [In(2, 3, 4)], {"ord": order, "axis": (0, 2)}),
        Case("norm", [In(2, 3, 4)], {"ord": order, "keepdims": True}),
        Case("norm", [In(2, 3, 4, dtype="float16")], {"ord": order, "axis": 1}, **HALF),
    ]
CASES += [
    Case("norm", [In(2, 3)]),
    Case(
        "norm",
        [In(2, 3, dtype="float16")],
        {"out_dtype": "float32", "axis": 1},
        env=(("MXNET_SAFE_ACCUMULATION", "1"),),
        **HALF,
    ),
]
for op in ("argmax", "argmin"):
    CASES += [
        Case(op, [In(2, 3, 4)]),
        Case(op, [In(2, 3, 4)], {"axis": 0}),
        Case(op, [In(2, 3, 4)], {"axis": -1, "keepdims": True}),
        Case(op, [In(2, 3, 4)], {"keepdims": True}),
        Case(op, [array([[1.0, 3.0, 3.0], [2.0, 1.0, 1.0]])], {"axis": 1}, note="ties"),
        Case(op, [In(2, 5, dtype="float16")], {"axis": 1}),
        Case(op, [In(2, 5, dtype="float64")], {"axis": 1}),
        Case(op, [WHOLE], {"axis": 1}),
        Case(op, [array([[1, 200, 3], [4, 6, 0]], "uint8")], {"axis": 1}),
        Case(op, [array([[1, 200, 3], [4, 6, 0]], "int64")], {"axis": 1}),
        Case("_npi_" + op, [In(2, 3, 4)]),
        Case("_npi_" + op, [In(2, 3, 4)], {"axis": 1}),
        Case("_npi_" + op, [In(2, 3, 4)], {"axis": -1, "keepdims": True}),
        Case("_npi_" + op, [In(2, 3, 4)], {"keepdims": True}),
        Case("_npi_" + op, [WHOLE], {"axis": 1}),
    ]
CASES += [
    Case("argmax_channel", [In(2, 5)]),
    Case("argmax_channel", [In(2, 5, 3)]),
    Case("argmax_channel", [In(2, 5, 3, 2)]),
    Case("moments", [In(2, 3, 4)], {"axes": 1}),
    Case("moments", [In(2, 3, 4)], {"axes": (0, 2)}),
    Case("moments", [In(2, 3, 4)], {"axes": (0, -1), "keepdims": True}),
    Case("moments", [In(2, 3, 4)], {"axes": (0, 1, 2)}),
    Case("moments", [In(2, 3, 4, dtype="float16")], {"axes": 1}, **HALF),
    Case("_np_cumsum", [In(2, 3)]),
    Case("_np_cumsum", [In(2, 3, 4)], {"axis": 1}),
    Case("_np_cumsum", [In(2, 3, 4)], {"axis": 0}),
    Case("_np_cumsum", [In(2, 3, dtype="float16")], {"axis": 1}, **HALF),
    Case("_np_cumsum", [In(2, 3, dtype="float64")], {"axis": 1}),
    Case("_np_cumsum", [WHOLE], {"axis": 1}),
    Case("_np_cumsum", [WHOLE], {"axis": 1, "dtype": "float64"}),
    Case("_np_cumsum", [array([[100, 20, 3]], "int8")], {"axis": 1}),
    Case("_np_cumsum", [array([[True, False, True]], "bool")], {"axis": 1}),
    Case("cumsum", [In(2, 3)], {"axis": 0}),
]
for op in ("_np_sum", "_npi_mean", "_np_max", "_np_min", "_np_prod"):
    CASES += [
        Case(op, [In(2, 3, 4)]),
        Case(op, [In(2, 3, 4)], {"axis": (0, -1), "keepdims": True}),
        Case(op, [WHOLE], {"axis": 1}),
        Case(op, [array([[True, False], [True, True]], "bool")], {"axis": 1}),
    ]
CASES += [
    Case("_np_sum", [In(2, 3)], {"axis": 1, "dtype": "float64"}),
    Case("_npi_mean", [In(2, 3)], {"axis": 1, "dtype": "float64"}),
    Case("_np_any", [array([[0.0, 0.5, 0.0], [0.0, 0.0, 0.0]])], {"axis": 1}),
    Case("_np_any", [array([[0, 1], [0, 0]], "int32")]),
    Case("_np_all", [array([[1.0, 0.5, -1.0], [2.0, 0.0, 1.0]])], {"axis": 1, "keepdims": True}),
    Case("_np_all", [array([[True, True], [False, True]], "bool")], {"axis": 0}),
]
for op in ("_npi_std", "_npi_var"):
    CASES += [
        Case(op, [In(2, 3, 4)]),
        Case(op, [In(2, 3, 4)], {"axis": 1}),
        Case(op, [In(2, 3, 4)], {"axis": (0, 2), "ddof": 1, "keepdims": True}),
    ]
