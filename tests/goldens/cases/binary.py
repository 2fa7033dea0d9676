"""Element-wise operators of two or more tensors."""

from case import Case, In

A = [[-7.5, -3.0, -1.0, 0.0], [0.5, 1.0, 2.0, 5.0], [7.0, 3.0, -2.0, 4.0]]
B = [[2.0, -2.0, -1.0, 2.0], [-0.75, 1.0, 3.0, -3.0], [2.0, 4.0, -5.0, 4.0]]
P = [[-7, -3, -1, 0], [6, 1, 2, 5], [7, 3, -2, 4]]
Q = [[2, -2, -1, 2], [-3, 1, 3, 2], [3, 4, 5, 4]]
BASE = [[0.1, 0.5, 1.0, 2.0], [3.5, 6.0, 2.0, 2.0], [1.5, 1.0, 0.25, 9.0]]
HALF = {"rtol": 2e-3, "atol": 1e-3}

EQUAL_SHAPES = (
    "elemwise_add elemwise_sub elemwise_mul elemwise_div _grad_add _scatter_elemwise_div _mod _maximum _minimum _hypot "
    "_equal _not_equal _greater _greater_equal _lesser _lesser_equal _logical_and _logical_or _logical_xor"
).split()
BROADCAST = (
    "broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_mod broadcast_maximum broadcast_minimum "
    "broadcast_hypot broadcast_equal broadcast_not_equal broadcast_greater broadcast_greater_equal broadcast_lesser "
    "broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor"
).split()
COMPARISONS = ("_npi_equal", "_npi_not_equal", "_npi_greater", "_npi_greater_equal", "_npi_less", "_npi_less_equal")


def array(values, dtype="float32"):
    import numpy as np

    return In(*np.shape(values), value=values, dtype=dtype)


def pair(dtype="float32", a=A, b=B):
    return [array(a, dtype), array(b, dtype)]


CASES = [Case("elemwise_add", [In(2, 3, 4, 5), In(2, 3, 4, 5)])]
for op in EQUAL_SHAPES:
    CASES += [Case(op, pair()), Case(op, pair("int32", P, Q))]
for op in ("elemwise_add", "elemwise_div", "_mod", "_hypot"):
    CASES += [Case(op, pair("float16"), **HALF), Case(op, pair("float64"))]
for op in BROADCAST:
    CASES += [
        Case(op, [array([[a] for a in A[1]]), array(B[1])]),
        Case(op, [array(P, "int32"), array(Q[2], "int32")]),
    ]
for op in (
    "elemwise_add",
    "elemwise_sub",
    "elemwise_mul",
    "elemwise_div",
    "_mod",
    "_maximum",
    "_equal",
    "_logical_and",
):
    CASES += [
        Case(op, [array([0, 1, 200, 7], "uint8"), array([3, 2, 100, 7], "uint8")]),
        Case(op, [array([0, 1, -100, 7], "int8"), array([3, -2, 100, 7], "int8")]),
    ]
CASES += [
    Case(op, [array([0, 1, -100, 7], "int64"), array([3, -2, 10, -1], "int64")]) for op in ("elemwise_div", "_mod")
]
CASES += [
    Case("broadcast_add", [In(2, 3, 4), In(4)], note="lower rank on the right"),
    Case("broadcast_sub", [In(4), In(2, 3, 4)], note="lower rank on the left"),
    Case("broadcast_mul", [In(2, 3, 1, 5), In(1, 3, 4, 1)], note="both sides"),
    Case("broadcast_mul", [In(2, 3, 4, 4), In(2, 3, 1, 1)], note="a gate per channel"),
    Case("broadcast_div", [In(2, 3), In(1, kind="positive")], note="rank 1 of one"),
    Case("_mod", pair(b=[[0.0, 2.0, 0.0, 1.0]] * 3), note="by zero"),
    Case("_power", pair(a=BASE)),
    Case("_power", pair("float16", a=BASE), **HALF),
    Case("_power", pair("float64", a=BASE)),
    Case("_power", [array([-3.0, 2.0, -2.0]), array([2.0, -2.0, 3.0])], note="negative base"),
    Case("_power", [array([-3, 2, 5, 7, 0], "int32"), array([3, 10, 2, 0, 2], "int32")]),
    Case("broadcast_power", [array(BASE), array([B[1]])]),
    Case("broadcast_power", [array([-3, 2, 5], "int32"), array([3], "int32")]),
    Case("_npi_add", [In(2, 3, 4), In(4)]),
    Case("_npi_add", [array(A), array(Q, "int32")], note="promoted"),
    Case("_npi_add", [array(Q, "int32"), array(A, "float16")], note="promoted", **HALF),
    Case("_npi_add", [array(A), array(A, "float64")], note="promoted"),
    Case("_npi_add", [array(P, "int32"), array(Q, "int64")], note="promoted"),
    Case("_npi_add", [array([True, False], "bool"), array([True, True], "bool")]),
    Case("_npi_add", [array([1, 2], "int32"), array([True, True], "bool")]),
    Case("_npi_subtract", [In(2, 3, 4), In(3, 1)]),
    Case("_npi_subtract", [array(A), array(Q, "int32")], note="promoted"),
    Case("_npi_multiply", [In(2, 3, 4), In(3, 1)]),
    Case("_npi_multiply", [array(A), array([[True, False, True, True]], "bool")], note="promoted"),
    Case("_npi_multiply", [array([True, False], "bool"), array([True, True], "bool")]),
    Case("_npi_true_divide", pair()),
    Case("_npi_true_divide", pair("int32", P, Q)),
    Case("_npi_true_divide", [array([1, 2, 250], "uint8"), array([4, 3, 7], "uint8")]),
    Case("_npi_true_divide", [array(P, "int32"), array(B)], note="promoted"),
    Case("_npi_mod", pair()),
    Case("_npi_mod", pair("int32", P, Q)),
    Case("_npi_power", pair(a=BASE)),
    Case("_npi_power", [array(BASE), array(Q, "int32")], note="promoted"),
    Case("_npi_maximum", pair()),
    Case("_npi_minimum", pair()),
    Case("_npi_hypot", pair()),
    Case("_npi_arctan2", pair()),
    Case("_npi_arctan2", [array([0.0, 0.0, 1.0, -1.0, 0.0]), array([0.0, -1.0, 0.0, 0.0, 1.0])], note="on the axes"),
    Case("_npi_copysign", pair()),
    Case("_npi_copysign", pair("int32", P, Q)),
    Case("_npi_ldexp", pair()),
    Case("_npi_bitwise_and", pair("int32", P, Q)),
    Case("_npi_bitwise_or", [array([0, 1, 200, 7], "uint8"), array([3, 2, 100, 7], "uint8")]),
    Case("_npi_bitwise_xor", [array([0, 1, -100, 7], "int8"), array([3, -2, 100, 7], "int8")]),
    Case("_npi_bitwise_xor", [array([True, False], "bool"), array([True, True], "bool")]),
    Case("add_n", [In(2, 3)], {"num_args": 1}),
    Case("add_n", [In(2, 3), In(2, 3)], {"num_args": 2}),
    Case("add_n", [In(2, 3, 4)] * 4, {"num_args": 4}),
    Case("add_n", [array(P, "int32")] * 3, {"num_args": 3}),
    Case("add_n", [array([100, 7], "int8")] * 3, {"num_args": 3}),
    Case("ElementWiseSum", [In(2, 3)] * 3, {"num_args": 3}),
]
for op in COMPARISONS:
    CASES += [
        Case(op, [array(A), array([B[2]])]),
        Case(op, [array(P, "int32"), array(Q, "int32")]),
        Case(op, [array([True, False], "bool"), array([True, True], "bool")]),
    ]
