"""Broadcasting to given shapes, and repeating."""

from case import Case, In

_DTYPES = ["float64", "float16", "uint8", "int8", "int32", "int64"]


def _ints(*dims, **kw):
    return In(*dims, kind="ints", low=0, high=100, **kw)


CASES = (
    [
        Case("broadcast_axis", [In(1, 2, 1)], {"axis": 2, "size": 3}),
        Case("broadcast_axis", [In(1, 2, 1)], {"axis": (0, 2), "size": (2, 3)}),
        Case("broadcast_axis", [In(1, 2, 1)], {"axis": (0, 2), "size": (1, 1)}),
        Case("broadcast_axis", [In(2, 3)]),
        Case("broadcast_to", [In(1, 3)], {"shape": (2, 3)}),
        Case("broadcast_to", [In(1, 3, 1)], {"shape": (2, 0, 4)}),
        Case("broadcast_to", [In(2, 1, 3, 1)], {"shape": (0, 2, 0, 2)}),
        Case("broadcast_to", [In(1, 3)], {"shape": (0, 0)}),
        Case("_npi_broadcast_to", [In(1, 3)], {"shape": (2, 3)}),
        Case("_npi_broadcast_to", [In(3)], {"shape": (4, 2, 3)}),
        Case("_npi_broadcast_to", [In(3, 1)], {"shape": (2, -2, 4)}),
        Case("broadcast_like", [In(1, 2, 1), In(3, 2, 4)]),
        Case("broadcast_like", [In(1, 2), In(3, 2)]),
        Case("broadcast_like", [In(1), In(1, 2, 5)], {"lhs_axes": (0,), "rhs_axes": (-1,)}),
        Case("broadcast_like", [In(1, 2, 1), In(7, 3, 4)], {"lhs_axes": (0, -1), "rhs_axes": (1, 2)}),
        Case("broadcast_like", [In(2, 3), In(2, 3)]),
        Case("repeat", [In(2, 3)], {"repeats": 2}),
        Case("repeat", [In(2, 3)], {"repeats": 2, "axis": 0}),
        Case("repeat", [In(2, 3)], {"repeats": 3, "axis": 1}),
        Case("repeat", [In(2, 3, 2)], {"repeats": 2, "axis": -1}),
        Case("repeat", [In(2, 3, 2)], {"repeats": 1, "axis": -2}),
        Case("repeat", [In(1, 2, 3, 3)], {"repeats": 2, "axis": 2}),
        Case("tile", [In(2, 3)], {"reps": (2, 2)}),
        Case("tile", [In(2, 3)], {"reps": (2,)}),
        Case("tile", [In(2, 3)], {"reps": (2, 2, 3)}),
        Case("tile", [In(2, 3)], {"reps": (1, 1)}),
        Case("tile", [In(2, 1, 3)], {"reps": (3, 1)}),
        Case("tile", [In(3)], {"reps": (4,)}),
    ]
    + [Case("broadcast_axis", [_ints(2, 1, dtype=d)], {"axis": 1, "size": 3}) for d in _DTYPES]
    + [Case("broadcast_like", [_ints(2, 1, dtype=d), In(2, 3, dtype=d)]) for d in _DTYPES]
    + [Case("repeat", [_ints(2, 3, dtype=d)], {"repeats": 2, "axis": 1}) for d in _DTYPES]
    + [Case("tile", [_ints(2, 3, dtype=d)], {"reps": (2, 1)}) for d in _DTYPES]
)
