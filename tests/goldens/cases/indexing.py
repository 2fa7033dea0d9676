"""Gathering, scattering and selecting by index."""

from case import Case, In

_DTYPES = ["float64", "float16", "uint8", "int8", "int32", "int64"]


def _ints(*dims, **kw):
    kw.setdefault("low", 0)
    kw.setdefault("high", 100)
    return In(*dims, kind="ints", **kw)


def _at(value, dtype="float32"):
    shape, inner = [], value
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0]
    return In(*shape, value=value, dtype=dtype)


_EMB = {"input_dim": 5, "output_dim": 3}

CASES = (
    [
        Case("Embedding", [_at([0, 4, 2]), In(5, 3)], _EMB),
        Case("Embedding", [_at([-1, 0, 4, 7, 2.7]), In(5, 3)], _EMB, note="out of range"),
        Case("Embedding", [_at([[0, 1], [3, 4]], "int32"), In(5, 3)], _EMB),
        Case("Embedding", [_at([[0, 1, 2]], "int64"), In(5, 3)], _EMB),
        Case("Embedding", [_at([[[3], [1]]], "uint8"), In(5, 3)], _EMB),
        Case("Embedding", [_at([3, 1]), In(5, 3, dtype="float64")], dict(_EMB, dtype="float64")),
        Case("Embedding", [_at([3, 1]), In(5, 3, dtype="float16")], dict(_EMB, dtype="float16")),
        Case("_contrib_SparseEmbedding", [_at([3, 1]), In(5, 3)], _EMB),
        Case("batch_take", [In(3, 4), _at([1, -1, 9], "int32")]),
        Case("pick", [In(3, 4), _at([1, -1, 9])]),
        Case("pick", [In(3, 4), _at([1, -1, 9])], {"mode": "wrap"}),
        Case("pick", [In(3, 4), _at([1, -1, 9])], {"keepdims": True}),
        Case("pick", [In(3, 4), _at([1, 0, 2, 0])], {"axis": 0}),
        Case("pick", [In(3, 4), _at([[1], [0], [3]])], {"keepdims": True}),
        Case("pick", [In(3, 4), _at([[1], [0], [3]])], note="index keeps dims"),
        Case("pick", [In(2, 3, 4), _ints(2, 4, high=3)], {"axis": 1}),
        Case("pick", [In(2, 3, 4), _ints(2, 3, high=4, dtype="int32")], {"axis": -1, "keepdims": True}),
        Case("pick", [In(2, 3, 4), _ints(3, 4, high=2, dtype="float64")], {"axis": 0, "mode": "wrap"}),
        Case("gather_nd", [In(3, 4), _at([[0, 1], [1, 3]])]),
        Case("gather_nd", [In(3, 4), _at([[0, -1], [1, -2]])], note="negative"),
        Case("gather_nd", [In(3, 4), _at([[0, 2, 1]], "int32")]),
        Case("gather_nd", [In(2, 3, 4), _at([[[0, 1], [1, 1]], [[2, 0], [1, 2]]], "int64")]),
        Case("gather_nd", [In(2, 3, 4), _at([[0, 1], [1, 0], [3, 3]])]),
        Case("scatter_nd", [In(3), _at([[0, 1, 2], [1, 2, 0]])], {"shape": (3, 4)}),
        Case("scatter_nd", [In(2, 4), _at([[2, 0]], "int32")], {"shape": (3, 4)}),
        Case("scatter_nd", [In(2, 2, 2), _at([[0, 1], [1, 1]])], {"shape": (2, 2, 2, 2)}),
        Case("_contrib_index_copy", [In(4, 2), _at([3, 1], "int32"), In(2, 2)]),
        Case("one_hot", [_at([0, -1, 2, 5, 1.6])], {"depth": 3}),
        Case("one_hot", [_at([[0, 2], [1, 1]], "int32")], {"depth": 4}),
        Case("one_hot", [_at([0, 2], "int64")], {"depth": 3, "on_value": 2.5, "off_value": -1.5, "dtype": "float32"}),
        Case("where", [In(3, 4, kind="ints", low=0, high=2), In(3, 4), In(3, 4)]),
        Case("where", [_at([0.0, 0.3, -0.2]), In(3), In(3)], note="fractions"),
        Case("where", [_at([0, 2, -1]), In(3, 4), In(3, 4)]),
        Case("where", [_at([0, 1], "int32"), In(2, 3, 4), In(2, 3, 4)]),
        Case("_npi_where", [_at([0, 1, 1, 0]), In(3, 4), In(3, 1)]),
        Case("_npi_where", [_at([[0], [1], [1]]), In(3, 4), In(1, 4)]),
        Case("_npi_where_lscalar", [_at([0, 1, 1]), In(3)], {"scalar": 2.5}),
        Case("_npi_where_rscalar", [_at([0, 1, 1]), In(3)], {"scalar": -1.5}),
    ]
    + [Case("take", [In(3, 4), _at([-1, 0, 2, 5])], {"mode": m}) for m in ["clip", "wrap"]]
    + [Case("take", [In(3, 4), _at([[-5, 1.7]])], {"mode": m, "axis": 1}) for m in ["clip", "wrap"]]
    + [
        Case("take", [In(3, 4), _at([2, 0])], {"mode": "raise"}),
        Case("take", [In(2, 3, 4), _at([[2, 0], [1, 3]], "int64")], {"axis": -1}),
        Case("take", [In(2, 3, 4), _at([[2, 0, 1]], "int32")], {"axis": -2, "mode": "wrap"}),
        Case("take", [In(6), _at([[2, 0], [1, 5]], "uint8")]),
    ]
    + [Case("take", [_ints(3, 4, dtype=d), _at([2, 0])], {"axis": 1}) for d in _DTYPES]
    + [Case("pick", [_ints(3, 4, dtype=d), _at([1, 0, 3])]) for d in _DTYPES]
    + [Case("gather_nd", [_ints(3, 4, dtype=d), _at([[1, 0], [3, 2]])]) for d in _DTYPES]
    + [Case("scatter_nd", [_ints(2, dtype=d), _at([[1, 0], [3, 2]])], {"shape": (2, 4)}) for d in _DTYPES]
    + [Case("one_hot", [_at([1, 0, 2])], {"depth": 3, "dtype": d}) for d in _DTYPES]
    + [Case("one_hot", [_at([1, 2])], {"depth": 3, "dtype": d, "on_value": 5, "off_value": 2.5}) for d in _DTYPES]
    + [Case("where", [_ints(2, 3, high=2, dtype=d), _ints(2, 3, dtype=d), _ints(2, 3, dtype=d)]) for d in _DTYPES]
)
