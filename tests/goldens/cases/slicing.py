"""Slicing, reversing, and assignment to a slice."""

from case import Case, In

_DTYPES = ["float64", "float16", "uint8", "int8", "int32", "int64"]


def _ints(*dims, **kw):
    return In(*dims, kind="ints", low=0, high=100, **kw)


def _slice(dims, begin, end, step=None):
    attrs = {"begin": begin, "end": end}
    if step is not None:
        attrs["step"] = step
    return Case("slice", [In(*dims)], attrs)


CASES = (
    [
        _slice((4, 5), (1, 0), (3, 4)),
        _slice((4, 5), (1,), (3,)),
        _slice((4, 5, 3), (None, 1), (None, None)),
        _slice((4, 5), (-3, -4), (-1, -1)),
        _slice((4, 5), (None, 0), (None, 3), (-1, 2)),
        _slice((4, 5), (3, 4), (0, 1), (-1, -2)),
        _slice((4, 5), (0, 4), (4, None), (2, -1)),
        _slice((7,), (1,), (7,), (3,)),
        _slice((7,), (-1,), (-8,), (-2,)),
        _slice((4, 5), (0, 0), (10, 20)),
        _slice((4, 5), (None, None), (None, None)),
        _slice((2, 3, 4, 5), (0, 1, 0, 2), (2, 3, None, 5), (None, 1, 2, None)),
        Case("slice_axis", [In(4, 5)], {"axis": 0, "begin": 1, "end": 3}),
        Case("slice_axis", [In(4, 5)], {"axis": 1, "begin": 2, "end": "None"}),
        Case("slice_axis", [In(4, 5)], {"axis": -1, "begin": -3, "end": -1}),
        Case("slice_axis", [In(4, 5)], {"axis": -2, "begin": 0, "end": "None"}),
        Case("slice_axis", [In(2, 3, 4)], {"axis": 1, "begin": -2, "end": 3}),
        Case("slice_like", [In(4, 5), In(2, 3)]),
        Case("slice_like", [In(4, 5), In(4, 5)]),
        Case("slice_like", [In(4, 5, 6), In(2, 3)], {"axes": (0, 1)}),
        Case("slice_like", [In(4, 5, 6), In(2, 3, 3)], {"axes": (-1,)}),
        Case("slice_like", [In(2, 3, 6, 7), In(1, 9, 4, 5)], {"axes": (2, 3)}),
        Case("slice_like", [In(2, 3, 6, 7), In(1, 9, 4, 5)], {"axes": (0, 2, -1)}),
        Case("reverse", [In(3, 4)], {"axis": 0}),
        Case("reverse", [In(3, 4)], {"axis": 1}),
        Case("reverse", [In(3, 4)], {"axis": (0, 1)}),
        Case("reverse", [In(2, 3, 4)], {"axis": (2, 0)}),
        Case("_npi_flip", [In(3, 4)], {"axis": (1,)}),
        Case("_npi_flip", [In(2, 3, 4)], {"axis": (0, 2)}),
        Case("_np_roll", [In(3, 4)], {"shift": (1,), "axis": (1,)}),
        Case("_np_roll", [In(3, 4)], {"shift": (-2, 3), "axis": (0, 1)}),
        Case("_np_roll", [In(3, 4)], {"shift": (5,)}),
        Case("_slice_assign", [In(4, 5), In(2, 3)], {"begin": (1, 0), "end": (3, 3)}),
        Case("_slice_assign", [In(4, 5), In(4, 2)], {"begin": (None, 1), "end": (None, 4), "step": (None, 2)}),
        Case("_slice_assign", [In(4, 5), In(2, 5)], {"begin": (-1,), "end": (-3,), "step": (-1,)}),
        Case("_slice_assign_scalar", [In(4, 5)], {"begin": (1, 0), "end": (3, 3), "scalar": 2.5}),
        Case("_slice_assign_scalar", [In(4, 5)], {"begin": (0, 1), "end": (4, 5), "step": (2, 3)}),
    ]
    + [Case("slice", [_ints(3, 4, dtype=d)], {"begin": (0, 3), "end": (2, 0), "step": (1, -2)}) for d in _DTYPES]
    + [Case("slice_axis", [_ints(3, 4, dtype=d)], {"axis": 1, "begin": 1, "end": 3}) for d in _DTYPES]
    + [Case("reverse", [_ints(3, 4, dtype=d)], {"axis": 1}) for d in _DTYPES]
    + [Case("slice_like", [_ints(3, 4, dtype=d), In(2, 2, dtype=d)]) for d in _DTYPES]
    + [Case("_slice_assign", [_ints(4, dtype=d), _ints(2, dtype=d)], {"begin": (1,), "end": (3,)}) for d in _DTYPES[:4]]
)
