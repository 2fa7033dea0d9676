"""Element-wise operators of a tensor and a number."""

from case import Case, In

X = [[-3.5, -2.0, -1.0, -0.25], [0.0, 0.5, 1.0, 2.0], [2.5, 3.0, 4.75, 7.0]]
POSITIVE = [[0.1, 0.5, 1.0], [2.0, 3.5, 6.0]]
WHOLE = [[0, 1, -3, 5], [2, 7, -6, 4]]

ARITHMETIC = ("plus", "minus", "rminus", "mul", "div", "mod", "rmod", "maximum", "minimum", "hypot")
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
HALF = {"rtol": 2e-3, "atol": 1e-3}


def array(values, dtype="float32"):
    import numpy as np

    return In(*np.shape(values), value=values, dtype=dtype)


CASES = []
for name in ARITHMETIC:
    op = "_%s_scalar" % name
    CASES += [
        Case(op, [array(X)], {"scalar": 2.0}),
        Case(op, [array(X)], {"scalar": -1.5}),
        Case(op, [array(X, "float16")], {"scalar": 2.0}, **HALF),
        Case(op, [array(WHOLE, "int32")], {"scalar": 1.5}, note="truncated scalar"),
        Case(op, [array(WHOLE, "int32")], {"scalar": 1.5, "is_int": False}),
    ]
for name in COMPARISONS + LOGICAL:
    op = "_%s_scalar" % name
    CASES += [
        Case(op, [array(X)], {"scalar": 2.0}),
        Case(op, [array(WHOLE, "int32")], {"scalar": 1.5}, note="truncated scalar"),
        Case(op, [array(WHOLE, "int32")], {"scalar": 1.5, "is_int": False}),
    ]
for name in ("plus", "rminus", "mul", "mod", "maximum", "greater"):
    op = "_%s_scalar" % name
    CASES += [
        Case(op, [array([0, 1, 200, 7], "uint8")], {"scalar": 100}),
        Case(op, [array([0, 1, -100, 7], "int8")], {"scalar": -3}),
        Case(op, [array([True, False], "bool")], {"scalar": 2}),
    ]
for op in ("_div_scalar", "_mod_scalar"):
    CASES += [
        Case(op, [array([[7, -7, 6, -6, 0]], "int32")], {"scalar": -2}),
        Case(op, [array([[7, -7, 6, -6, 0]], "int64")], {"scalar": -1}),
        Case(op, [array([[7, 255, 6, 0]], "uint8")], {"scalar": 2}),
    ]
CASES += [
    Case("_mod_scalar", [array(X)], {"scalar": 0.0}),
    Case("_mod_scalar", [array(WHOLE, "int32")], {"scalar": 0}),
    Case("_rdiv_scalar", [array(POSITIVE)], {"scalar": 3.0}),
    Case("_rdiv_scalar", [array(X)], {"scalar": -2.0}, note="by zero"),
    Case("_rdiv_scalar", [array([1, -2, 3, 8], "int32")], {"scalar": 7}),
    Case("_power_scalar", [array(X)], {"scalar": 2}),
    Case("_power_scalar", [array(X)], {"scalar": 3}),
    Case("_power_scalar", [array(POSITIVE)], {"scalar": 0.5}),
    Case("_power_scalar", [array(POSITIVE)], {"scalar": -1.5}),
    Case("_power_scalar", [array(POSITIVE, "float16")], {"scalar": -1.5}, **HALF),
    Case("_power_scalar", [array(X, "float64")], {"scalar": 2}),
    Case("_power_scalar", [array(WHOLE, "int32")], {"scalar": 3}),
    Case("_power_scalar", [array([1, 2, -3, 4], "int32")], {"scalar": -1}),
    Case("_power_scalar", [array([1, 2, 3, 7], "uint8")], {"scalar": 2}),
    Case("_rpower_scalar", [array(X)], {"scalar": 2}),
    Case("_rpower_scalar", [array(X)], {"scalar": 0.5}),
    Case("_rpower_scalar", [array(WHOLE, "int32")], {"scalar": 3}),
    Case("_plus_scalar", [In(2, 3, 4, 5)], {"scalar": 1e-3}),
    Case("_plus_scalar", [In(2, 3)]),
    Case("_scatter_plus_scalar", [array(X)], {"scalar": 2.0}),
    Case("_scatter_minus_scalar", [array(X)], {"scalar": 2.0}),
]
for name in ("add", "subtract", "rsubtract", "multiply", "true_divide", "mod", "rmod"):
    op = "_npi_%s_scalar" % name
    CASES += [Case(op, [array(X)], {"scalar": 1.5}), Case(op, [array(WHOLE, "int32")], {"scalar": 2})]
for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
    op = "_npi_%s_scalar" % name
    CASES += [Case(op, [array(X)], {"scalar": 2.0}), Case(op, [array(WHOLE, "int32")], {"scalar": 2})]
    CASES += [Case(op, [array(WHOLE, "int32")], {"scalar": 1.5, "is_int": False})]
CASES += [
    Case("_npi_equal_scalar", [array([True, False], "bool")], {"scalar": 1}),
    Case("_npi_true_divide_scalar", [array([1, 2, 250], "uint8")], {"scalar": 4}),
    Case("_npi_true_divide_scalar", [array([True, False], "bool")], {"scalar": 4}),
    Case("_npi_rtrue_divide_scalar", [array(POSITIVE)], {"scalar": 3}),
    Case("_npi_rtrue_divide_scalar", [array([1, 2, 5], "int32")], {"scalar": 3}),
    Case("_npi_power_scalar", [array(POSITIVE)], {"scalar": 1.5}),
    Case("_npi_power_scalar", [array(WHOLE, "int32")], {"scalar": 2}),
    Case("_npi_rpower_scalar", [array(X)], {"scalar": 2}),
    Case("_npi_maximum_scalar", [array(X)], {"scalar": 0.5}),
    Case("_npi_minimum_scalar", [array(X)], {"scalar": 0.5}),
    Case("_npi_arctan2_scalar", [array(X)], {"scalar": 2.0}),
    Case("_npi_arctan2_scalar", [array(X)], {"scalar": -2.0}),
    Case("_npi_rarctan2_scalar", [array(X)], {"scalar": 1.5}),
    Case("_npi_copysign_scalar", [array(X)], {"scalar": -2.0}),
    Case("_npi_rcopysign_scalar", [array(X)], {"scalar": 2.0}),
    Case("_npi_ldexp_scalar", [array(X)], {"scalar": 3}),
    Case("_npi_ldexp_scalar", [array(WHOLE, "int32")], {"scalar": 3}),
    Case("_npi_rldexp_scalar", [array(X)], {"scalar": 3}),
    Case("_npi_bitwise_and_scalar", [array(WHOLE, "int32")], {"scalar": 6}),
    Case("_npi_bitwise_or_scalar", [array([0, 1, 200, 7], "uint8")], {"scalar": 9}),
    Case("_npi_bitwise_xor_scalar", [array([0, 1, -100, 7], "int8")], {"scalar": 9}),
    Case("_npi_bitwise_xor_scalar", [array([True, False], "bool")], {"scalar": 1}),
    Case("clip", [In(3, 4, scale=3.0)], {"a_min": -1, "a_max": 2.5}),
    Case("clip", [array(X, "float16")], {"a_min": 0, "a_max": 6}, **HALF),
    Case("clip", [array(X, "float64")], {"a_min": -1e3, "a_max": 0.75}),
    Case("clip", [array(WHOLE, "int32")], {"a_min": -1.5, "a_max": 2.7}),
    Case("clip", [array([0, 1, 200, 7], "uint8")], {"a_min": 1, "a_max": 100}),
    Case("clip", [array([0, 1, -100, 7], "int8")], {"a_min": -5, "a_max": 6}),
    Case("clip", [array([0, 1, -100, 7], "int64")], {"a_min": -5, "a_max": 6}),
    Case("_npi_clip", [array(X)], {"a_min": 0, "a_max": 3}),
    Case("smooth_l1", [array(X)], {"scalar": 1.0}),
    Case("smooth_l1", [array(X)], {"scalar": 2.0}),
    Case("smooth_l1", [array(X)], {"scalar": 0.5}),
    Case("smooth_l1", [array(X, "float16")], {"scalar": 1.0}, **HALF),
    Case("smooth_l1", [array(WHOLE, "int32")], {"scalar": 1.0}),
    Case("_npx_smooth_l1", [array(X)], {"scalar": 3.0}),
    Case("_contrib_quadratic", [array(X)], {"a": 2.0, "b": -0.5, "c": 1.5}),
    Case("_contrib_quadratic", [array(X)]),
    Case("_contrib_gradientmultiplier", [array(X)], {"scalar": -0.5}),
]
