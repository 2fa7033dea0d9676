"""Joining and splitting."""

from case import Case, In

_DTYPES = ["float64", "float16", "uint8", "int8", "int32", "int64"]


def _ints(*dims, **kw):
    return In(*dims, kind="ints", low=0, high=100, **kw)


def _split(dims, **attrs):
    return Case("SliceChannel", [In(*dims)], attrs)


def _split_v2(dims, **attrs):
    return Case("_split_v2", [In(*dims)], attrs)


CASES = (
    [
        Case("Concat", [In(2, 3, 4), In(2, 1, 4)], {"num_args": 2}),
        Case("Concat", [In(2, 3), In(1, 3), In(4, 3)], {"num_args": 3, "dim": 0}),
        Case("Concat", [In(2, 3, 4), In(2, 3, 2)], {"num_args": 2, "dim": 2}),
        Case("Concat", [In(2, 3, 4), In(2, 3, 2)], {"num_args": 2, "dim": -1}),
        Case("Concat", [In(2, 3, 4), In(2, 2, 4)], {"num_args": 2, "dim": -2}),
        Case("Concat", [In(2, 3)], {"num_args": 1}),
        Case("Concat", [In(3), In(2)], {"num_args": 2, "dim": 0}),
        Case("Concat", [In(1, 2, 3, 2), In(1, 4, 3, 2), In(1, 1, 3, 2), In(1, 2, 3, 2)], {"num_args": 4, "dim": 1}),
        Case("_npi_concatenate", [In(2, 3), In(2, 1)], {"num_args": 2, "axis": 1}),
        Case("_npi_concatenate", [In(2, 3), In(1, 3)], {"num_args": 2}),
        Case("_npi_concatenate", [In(2, 3), In(4)], {"num_args": 2, "axis": "None"}),
        Case("stack", [In(2, 3), In(2, 3)], {"num_args": 2}),
        Case("stack", [In(2, 3), In(2, 3), In(2, 3)], {"num_args": 3, "axis": 1}),
        Case("stack", [In(2, 3), In(2, 3)], {"num_args": 2, "axis": 2}),
        Case("stack", [In(2, 3), In(2, 3)], {"num_args": 2, "axis": -1}),
        Case("stack", [In(2, 3)], {"num_args": 1, "axis": -3}),
        Case("_npi_stack", [In(2, 3), In(2, 3)], {"num_args": 2, "axis": 1}),
        Case("_npi_vstack", [In(2, 3), In(1, 3)], {"num_args": 2}),
        Case("_npi_vstack", [In(3), In(3)], {"num_args": 2}),
        Case("_npi_hstack", [In(2, 3), In(2, 1)], {"num_args": 2}),
        Case("_npi_hstack", [In(3), In(2)], {"num_args": 2}),
        _split((2, 4, 3), num_outputs=2),
        _split((2, 6, 3), num_outputs=3, axis=1),
        _split((2, 3, 4), num_outputs=4, axis=2),
        _split((2, 3, 4), num_outputs=2, axis=-1),
        _split((2, 3, 4), num_outputs=2, axis=0, squeeze_axis=True),
        _split((2, 3, 4), num_outputs=3, squeeze_axis=1),
        _split((2, 3, 4), num_outputs=1),
        _split((2, 1, 4), num_outputs=1, squeeze_axis=True),
        _split_v2((6, 2), indices=(0, 2, 5), axis=0),
        _split_v2((2, 6), indices=(0, 1), axis=1),
        _split_v2((2, 3, 5), indices=(0, 3), axis=-1),
        _split_v2((2, 4, 3), indices="[]", sections=2),
        _split_v2((2, 4, 3), indices="[]", sections=2, axis=0, squeeze_axis=True),
        _split_v2((2, 4, 3), indices="[]", sections=1),
        _split_v2((3, 4), indices=(0, 1, 2), axis=0, squeeze_axis=True),
        Case("_npi_hsplit", [In(4, 6)], {"indices": "[]", "sections": 3}),
        Case("_npi_hsplit", [In(6)], {"indices": "[]", "sections": 2}),
    ]
    + [Case("Concat", [_ints(2, 3, dtype=d), _ints(2, 1, dtype=d)], {"num_args": 2}) for d in _DTYPES]
    + [Case("stack", [_ints(2, 3, dtype=d), _ints(2, 3, dtype=d)], {"num_args": 2}) for d in _DTYPES]
    + [Case("SliceChannel", [_ints(2, 4, dtype=d)], {"num_outputs": 2}) for d in _DTYPES]
    + [Case("_split_v2", [_ints(2, 4, dtype=d)], {"indices": (0, 3)}) for d in _DTYPES]
)
