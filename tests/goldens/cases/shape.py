"""Moving, adding and dropping dimensions."""

from case import Case, In

_DTYPES = ["float64", "float16", "uint8", "int8", "int32", "int64"]


def _typed(op, dims, attrs):
    return [Case(op, [In(*dims, kind="ints", low=0, high=100, dtype=d)], attrs) for d in _DTYPES]


CASES = (
    [
        Case("transpose", [In(2, 3, 4)]),
        Case("transpose", [In(5)]),
        Case("transpose", [In(2, 3, 4)], {"axes": (1, 2, 0)}),
        Case("transpose", [In(2, 3, 4)], {"axes": (0, 1, 2)}),
        Case("transpose", [In(2, 3, 4, 5)], {"axes": (0, 2, 3, 1)}),
        Case("transpose", [In(2, 3, 4, 5)], {"axes": (0, 3, 1, 2)}),
        Case("transpose", [In(2, 3, 1, 2, 2)], {"axes": (4, 0, 2, 1, 3)}),
        Case("_np_transpose", [In(2, 3, 4)]),
        Case("_np_transpose", [In(2, 3, 4)], {"axes": (0, 2, 1)}),
        Case("_np_transpose", [In(2, 3, 4)], {"axes": (-1, 0, -2)}),
        Case("SwapAxis", [In(2, 3, 4)], {"dim1": 0, "dim2": 2}),
        Case("SwapAxis", [In(2, 3, 4)], {"dim1": -1, "dim2": 1}),
        Case("SwapAxis", [In(2, 3, 4, 2)], {"dim1": 1, "dim2": 2}),
        Case("_np_moveaxis", [In(2, 3, 4)], {"source": (0,), "destination": (-1,)}),
        Case("_np_moveaxis", [In(2, 3, 4, 5)], {"source": (0, -1), "destination": (2, 0)}),
        Case("expand_dims", [In(2, 3)], {"axis": 0}),
        Case("expand_dims", [In(2, 3)], {"axis": 1}),
        Case("expand_dims", [In(2, 3)], {"axis": 2}),
        Case("expand_dims", [In(2, 3)], {"axis": -1}),
        Case("expand_dims", [In(2, 3)], {"axis": -3}),
        Case("squeeze", [In(1, 3, 1, 4)]),
        Case("squeeze", [In(1, 3, 1, 4)], {"axis": 0}),
        Case("squeeze", [In(1, 3, 1, 4)], {"axis": -2}),
        Case("squeeze", [In(1, 3, 1, 4)], {"axis": (0, 2)}),
        Case("squeeze", [In(1, 1, 1)]),
        Case("squeeze", [In(2, 3)]),
        Case("_np_squeeze", [In(1, 3, 1, 4)]),
        Case("_np_squeeze", [In(1, 3, 1, 4)], {"axis": (2,)}),
        Case("depth_to_space", [In(1, 8, 2, 3)], {"block_size": 2}),
        Case("depth_to_space", [In(2, 18, 2, 2)], {"block_size": 3}),
        Case("space_to_depth", [In(1, 2, 4, 6)], {"block_size": 2}),
        Case("space_to_depth", [In(2, 1, 6, 3)], {"block_size": 3}),
        Case("diag", [In(4)]),
        Case("diag", [In(3)], {"k": 2}),
        Case("diag", [In(3)], {"k": -1}),
        Case("diag", [In(3, 3)]),
        Case("diag", [In(3, 5)], {"k": 1}),
        Case("diag", [In(4, 3)], {"k": -2}),
        Case("diag", [In(2, 3, 4)]),
        Case("diag", [In(2, 3, 4)], {"axis1": 1, "axis2": 2}),
        Case("diag", [In(2, 3, 4)], {"axis1": -1, "axis2": 0, "k": 1}),
        Case("_np_diag", [In(3, 4)], {"k": 1}),
        Case("_np_diagonal", [In(2, 3, 4)], {"axis1": 1, "axis2": 2, "offset": -1}),
        Case("Flatten", [In(2, 3, 4)]),
        Case("Flatten", [In(3, 2)]),
    ]
    + _typed("transpose", (2, 3, 4), {"axes": (2, 0, 1)})
    + _typed("squeeze", (1, 3, 1), {"axis": 2})
    + _typed("expand_dims", (3, 2), {"axis": 1})
    + _typed("diag", (3,), {})[:4]
    + _typed("depth_to_space", (1, 4, 2, 2), {"block_size": 2})
    + _typed("space_to_depth", (1, 1, 4, 2), {"block_size": 2})
)
