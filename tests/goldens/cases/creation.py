"""Tensors made from nothing or after another; casts."""

from case import Case, In

X = [[0.0, 1.7, -2.5, 0.3], [100.0, 7.0, -0.9, 2.5]]
TYPES = ("float16", "float32", "float64", "int32", "int64", "int8", "uint8", "bool")
MKLDNN_OFF = (("MXNET_MKLDNN_ENABLED", "0"),)


def array(values, dtype="float32"):
    import numpy as np

    return In(*np.shape(values), value=values, dtype=dtype)


CASES = []
for dtype in TYPES:
    values = [[abs(v) for v in row] for row in X] if dtype == "uint8" else X
    CASES += [
        Case("_zeros", [], {"shape": (2, 3), "dtype": dtype}),
        Case("_full", [], {"shape": (2, 3), "dtype": dtype, "value": 2.7}),
        Case("Cast", [array(values)], {"dtype": dtype}),
        Case("Cast", [array([0, 1, 100, 7], "int32")], {"dtype": dtype}),
        Case("Cast", [array([0, 1, 100, 9], dtype)], {"dtype": "float32"}, note="from it"),
    ]
for dtype in ("float32", "int32", "uint8"):
    CASES += [
        Case("_arange", [], {"start": 0.5, "stop": 4, "step": 1.5, "dtype": dtype}),
        Case("_linspace", [], {"start": 0.5, "stop": 4, "num": 4, "dtype": dtype}),
        Case("_eye", [], {"N": 2, "M": 3, "k": 1, "dtype": dtype}),
        Case("zeros_like", [array([[1, 2], [3, 4]], dtype)]),
        Case("ones_like", [array([[1, 2], [3, 4]], dtype)]),
    ]
CASES += [
    Case("cast", [In(2, 3)], {"dtype": "float16"}, rtol=1e-3),
    Case("Cast", [array([0.0, 0.5, -0.25, float("inf")], "float16")], {"dtype": "bool"}),
    Case("amp_cast", [In(2, 3)], {"dtype": "float16"}, rtol=1e-3),
    Case("amp_cast", [In(2, 3, dtype="float16")], {"dtype": "float32"}),
    Case("amp_cast", [array([[0, 3]], "int32")], {"dtype": "float16"}),
    Case("amp_multicast", [In(2, 3, dtype="float16"), In(2, 3)], {"num_outputs": 2}, env=MKLDNN_OFF),
    Case(
        "amp_multicast",
        [In(2, 3), In(2, 3, dtype="float16")],
        {"num_outputs": 2, "cast_narrow": True},
        env=MKLDNN_OFF,
        rtol=1e-3,
    ),
    Case("amp_multicast", [In(2, 3, dtype="float16")] * 3, {"num_outputs": 3}, env=MKLDNN_OFF),
    Case("_ones", [], {"shape": (2, 3), "ctx": "cpu(0)"}),
    Case("_ones", [], {"shape": (70, 80)}, note="expanded"),
    Case("_full", [], {"shape": (2,), "value": float("inf")}),
    Case("_zeros_without_dtype", [], {"shape": (2,), "dtype": 4}),
    Case("_npi_zeros", [], {"shape": (2, 3)}),
    Case("_npi_ones", [], {"shape": (2,), "dtype": "int32"}),
    Case("_npi_full_like", [In(2, 3)], {"fill_value": 2.5}),
    Case("_npi_full_like", [In(2, 3)], {"fill_value": 2.5, "dtype": "int32"}),
    Case("_npi_identity", [], {"shape": (3, 3)}),
    Case("_npi_eye", [], {"N": 2}),
    Case("_npi_indices", [], {"dimensions": (2, 3)}),
    Case("_npi_logspace", [], {"start": 0, "stop": 2, "num": 5}),
    Case("_npi_logspace", [], {"start": 0, "stop": 2, "num": 4, "endpoint": False, "base": 2.0}),
    Case("_npi_arange", [], {"start": 0, "stop": 3}),
    Case("_arange", [], {"start": 5}),
    Case("_arange", [], {"start": 5, "stop": 0, "step": -2}),
    Case("_arange", [], {"start": 0, "stop": 3, "repeat": 2}),
    Case("_arange", [], {"start": 0, "stop": 1, "step": 0.1}),
    Case("_linspace", [], {"start": 0, "stop": 1, "num": 5, "endpoint": False}),
    Case("_linspace", [], {"start": 3, "stop": -1, "num": 3}),
    Case("_linspace", [], {"start": 0, "stop": 1, "num": 1}),
    Case("_eye", [], {"N": 3}),
    Case("_eye", [], {"N": 3, "k": -1}),
    Case("_eye", [], {"N": 2, "M": 5, "k": 2}),
    Case("zeros_like", [In(2, 3, dtype="float16")]),
    Case("ones_like", [In(60, 90)], note="expanded"),
    Case("_contrib_arange_like", [In(2, 4)]),
    Case("_contrib_arange_like", [In(2, 4)], {"start": 2, "step": 0.5}),
    Case("_contrib_arange_like", [In(2, 3)], {"repeat": 2}),
    Case("_contrib_arange_like", [In(2, 4)], {"axis": 1}),
    Case("_contrib_arange_like", [In(2, 4)], {"axis": -1, "repeat": 2, "start": 1}),
    Case("_contrib_arange_like", [In(2, 4)], {"axis": 0, "step": -2}),
    Case("_contrib_arange_like", [In(2, 4, dtype="float64")]),
    Case("_contrib_arange_like", [array([[1, 2, 3]], "int32")], {"axis": 1}),
    Case("_npx_arange_like", [In(2, 4)], {"axis": 1}),
    Case("shape_array", [In(2, 3, 4)]),
    Case("shape_array", [In(5, dtype="int32")]),
    Case("size_array", [In(2, 3, 4)]),
]
