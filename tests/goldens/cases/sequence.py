"""Batches of sequences of different lengths."""

from case import Case, In

_DTYPES = ["float64", "float16", "int32"]
_LENGTHS = In(3, value=[1, 4, 2])


def _with(**attrs):
    return dict(attrs, use_sequence_length=True)


CASES = [
    Case("SequenceMask", [In(4, 3, 2)]),
    Case("SequenceMask", [In(4, 3, 2), _LENGTHS], _with()),
    Case("SequenceMask", [In(4, 3), _LENGTHS], _with(value=-1.5)),
    Case("SequenceMask", [In(3, 4, 2), _LENGTHS], _with(axis=1, value=2)),
    Case("SequenceMask", [In(3, 4), _LENGTHS], _with(axis=1)),
    Case("SequenceMask", [In(4, 3, 2, 2), In(3, value=[1, 4, 2], dtype="int32")], _with()),
    Case("SequenceMask", [In(4, 3), In(3, value=[0, 4, 2])], _with(), note="an empty sequence"),
    Case("SequenceLast", [In(4, 3, 2)]),
    Case("SequenceLast", [In(3, 4, 2)], {"axis": 1}),
    Case("SequenceLast", [In(4, 3, 2), _LENGTHS], _with()),
    Case("SequenceLast", [In(3, 4, 2), _LENGTHS], _with(axis=1)),
    Case("SequenceLast", [In(4, 3, 2, 2), In(3, value=[1, 4, 2], dtype="int32")], _with()),
    Case("SequenceReverse", [In(4, 3, 2)]),
    Case("SequenceReverse", [In(4, 3, 2), _LENGTHS], _with()),
    Case("SequenceReverse", [In(4, 3), _LENGTHS], _with()),
    Case("SequenceReverse", [In(4, 3, 2, 2), In(3, value=[1, 4, 2], dtype="int32")], _with()),
]
for _d in _DTYPES:
    _data = In(4, 3, 2, kind="ints", low=0, high=9, dtype=_d)
    _lengths = In(3, value=[1, 4, 2], dtype=_d)
    CASES += [
        Case("SequenceMask", [_data, _lengths], _with(value=3)),
        Case("SequenceLast", [_data, _lengths], _with()),
        Case("SequenceReverse", [_data, _lengths], _with()),
    ]
