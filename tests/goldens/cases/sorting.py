"""Ordering. Inputs are mostly free of ties; those with ties say so, and there the order is kept."""

from case import Case, In

_DTYPES = ["float64", "uint8", "int8", "int32", "int64"]
_INDEX_DTYPES = ["float16", "float64", "int32", "int64", "uint8"]

_TIES = In(2, 7, value=[[3, 1, 3, 2, 1, 3, 0], [5, 5, 5, 5, 5, 5, 5]])


def _topk(dims, **attrs):
    return Case("topk", [In(*dims, kind="perm")], attrs)


CASES = (
    [
        _topk((3, 5)),
        _topk((3, 5), k=3),
        _topk((3, 5), k=5, ret_typ="value"),
        _topk((3, 5), k=2, ret_typ="both"),
        _topk((3, 5), k=2, ret_typ="mask"),
        _topk((3, 5), k=2, ret_typ="both", axis=0),
        _topk((3, 5), k=2, ret_typ="mask", axis=0, is_ascend=True),
        _topk((3, 5), k=2, ret_typ="value", is_ascend=True),
        _topk((3, 5), k=2, ret_typ="indices", is_ascend=1),
        _topk((3, 5), k=0, ret_typ="both"),
        _topk((3, 5), k=-1, ret_typ="value", is_ascend=True),
        _topk((3, 5), k=4, ret_typ="both", axis="None"),
        _topk((3, 5), k=4, ret_typ="mask", axis="None"),
        _topk((2, 3, 4), k=2, ret_typ="both", axis=1),
        _topk((2, 3, 4), k=2, ret_typ="both", axis=-2),
        _topk((2, 3, 4, 2), k=1, ret_typ="mask", axis=1),
        _topk((40,), k=3, ret_typ="both"),
        Case("sort", [In(3, 5, kind="perm")]),
        Case("sort", [In(3, 5, kind="perm")], {"is_ascend": False}),
        Case("sort", [In(3, 5, kind="perm")], {"axis": 0}),
        Case("sort", [In(3, 5, kind="perm")], {"axis": "None"}),
        Case("sort", [In(2, 3, 4)], {"axis": 1, "is_ascend": 0}),
        Case("argsort", [In(3, 5, kind="perm")]),
        Case("argsort", [In(3, 5, kind="perm")], {"is_ascend": False}),
        Case("argsort", [In(3, 5, kind="perm")], {"axis": 0}),
        Case("argsort", [In(3, 5, kind="perm")], {"axis": "None"}),
        Case("argsort", [In(2, 3, 4)], {"axis": 1, "is_ascend": 0}),
        Case("topk", [_TIES], {"k": 3, "ret_typ": "both"}, note="ties"),
        Case("topk", [_TIES], {"k": 3, "ret_typ": "both", "is_ascend": True}, note="ties"),
        Case("topk", [_TIES], {"k": 7, "ret_typ": "both"}, note="ties"),
        Case("topk", [_TIES], {"k": 3, "ret_typ": "mask"}, note="ties"),
        Case("argsort", [_TIES], note="ties"),
        Case("argsort", [_TIES], {"is_ascend": False}, note="ties"),
        Case("argsort", [_TIES], {"axis": 0}, note="ties"),
        Case("topk", [In(2, 6, kind="perm", dtype="float16")], {"k": 2, "ret_typ": "both"}),
    ]
    + [Case("topk", [In(2, 6, kind="perm", dtype=d)], {"k": 2, "ret_typ": "both"}) for d in _DTYPES]
    + [Case("topk", [In(2, 6, kind="perm", dtype=d)], {"k": 2, "ret_typ": "mask"}) for d in _DTYPES]
    + [Case("topk", [In(2, 6, kind="perm")], {"k": 2, "ret_typ": "both", "dtype": d}) for d in _INDEX_DTYPES]
    + [Case("sort", [In(2, 6, kind="perm", dtype=d)], {"is_ascend": False}) for d in _DTYPES]
    + [Case("argsort", [In(2, 6, kind="perm", dtype=d)]) for d in _DTYPES]
    + [Case("argsort", [In(2, 6, kind="perm")], {"dtype": d}) for d in _INDEX_DTYPES]
)
