"""Matrix products."""

from case import Case, In

T = {"transpose_a": True}
U = {"transpose_b": True}
TU = {"transpose_a": True, "transpose_b": True}


def pair(a, b, dtype="float32"):
    return [In(*a, dtype=dtype), In(*b, dtype=dtype)]


CASES = [
    Case("dot", pair((3,), (3,))),
    Case("dot", pair((2, 3), (3,))),
    Case("dot", pair((3,), (3, 4))),
    Case("dot", pair((2, 3), (3, 4))),
    Case("dot", pair((2, 3), (3, 4), "float64")),
    Case("dot", pair((2, 3, 4), (4,))),
    Case("dot", pair((2, 3, 4), (4, 5))),
    Case("dot", pair((2, 3, 4), (4, 5, 2))),
    Case("dot", pair((3,), (3, 2, 2))),
    Case("dot", pair((2, 3), (3, 2, 2))),
    Case("dot", pair((3, 2), (3, 4)), T),
    Case("dot", pair((2, 3), (4, 3)), U),
    Case("dot", pair((3, 2), (4, 3)), TU),
    Case("dot", pair((4, 2, 3), (4, 5)), T),
    Case("dot", pair((4, 2, 3), (5, 2, 4)), TU),
    Case("dot", pair((2, 4), (3, 5, 4)), U),
    Case("dot", pair((4,), (2, 4)), U),
    Case("dot", pair((4, 2), (4,)), T),
    Case("batch_dot", pair((2, 3, 4), (2, 4, 5))),
    Case("batch_dot", pair((2, 4, 3), (2, 4, 5)), T),
    Case("batch_dot", pair((2, 3, 4), (2, 5, 4)), U),
    Case("batch_dot", pair((2, 4, 3), (2, 5, 4)), TU),
    Case("batch_dot", pair((2, 3, 4, 5), (2, 3, 5, 2))),
    Case("batch_dot", pair((2, 3, 4), (2, 4, 5), "float64")),
    Case("_npx_batch_dot", pair((2, 3, 4), (2, 4, 5))),
    Case("_linalg_gemm2", pair((2, 3), (3, 4))),
    Case("_linalg_gemm2", pair((3, 2), (4, 3)), {"transpose_a": True, "transpose_b": True, "alpha": 0.5}),
    Case("_linalg_gemm2", pair((2, 2, 3), (2, 3, 4)), {"alpha": 2.0}),
    Case("_linalg_gemm2", pair((5, 2, 4, 3), (5, 3, 4, 6)), {"axis": 1}),
    Case("_linalg_gemm2", pair((5, 2, 4, 3), (5, 3, 4, 6)), {"axis": -3, "alpha": -1.5}),
    Case("_linalg_gemm2", pair((3, 2, 3), (3, 2, 3)), {"axis": 0, "transpose_a": True}),
    Case("_linalg_gemm2", pair((2, 3), (3, 4), "float64")),
    Case("_linalg_gemm", [*pair((2, 3), (3, 4)), In(2, 4)]),
    Case("_linalg_gemm", [*pair((3, 2), (3, 4)), In(2, 4)], {"transpose_a": True, "alpha": 2.0, "beta": 0.5}),
    Case("_linalg_gemm", [*pair((2, 3), (4, 3)), In(2, 4)], {"transpose_b": True, "alpha": -1.0, "beta": 3.0}),
    Case("_linalg_gemm", [*pair((2, 2, 3), (2, 3, 4)), In(2, 2, 4)], {"alpha": 2.0, "beta": 0.5}),
    Case("_linalg_gemm", [*pair((2, 5, 3), (3, 5, 4)), In(2, 5, 4)], {"axis": 0, "beta": -2.0}),
    Case("_linalg_gemm", [*pair((2, 3), (3, 4), "float64"), In(2, 4, dtype="float64")]),
    Case("_linalg_syrk", [In(2, 3)]),
    Case("_linalg_syrk", [In(2, 2, 3)], {"transpose": True, "alpha": 2.0}),
    Case("_linalg_trmm", pair((3, 3), (3, 2))),
    Case("_linalg_trmm", pair((3, 3), (3, 2)), {"lower": False, "alpha": 2.0}),
    Case("_linalg_trmm", pair((2, 3, 3), (2, 2, 3)), {"rightside": True, "transpose": True}),
    Case("_npi_matmul", pair((2, 3), (3, 4))),
    Case("_npi_matmul", pair((3,), (3, 4))),
    Case("_npi_matmul", pair((2, 3), (3,))),
    Case("_npi_matmul", pair((5, 1, 2, 3), (2, 3, 4))),
    Case("_np_dot", pair((2, 3), (3, 4))),
    Case("_np_dot", pair((2, 3), (3,))),
    Case("_np_dot", pair((3,), (3,))),
    Case("_np_dot", pair((2, 3, 4), (2, 4, 5))),
    Case("_npi_einsum", pair((2, 3), (3, 4)), {"num_args": 2, "subscripts": "ij,jk->ik"}),
    Case("_npi_einsum", pair((2, 3, 4), (2, 5, 4)), {"num_args": 2, "subscripts": "bik,bjk->bij"}),
    Case("_npi_einsum", [In(2, 3)], {"num_args": 1, "subscripts": "ij->ji"}),
    Case("_npi_tensordot", pair((2, 3, 4), (4, 3, 5)), {"a_axes_summed": (1, 2), "b_axes_summed": (1, 0)}),
    Case("_npi_tensordot", pair((2, 3), (3, 4)), {"a_axes_summed": (-1,), "b_axes_summed": (0,)}),
    Case("_npi_tensordot_int_axes", pair((2, 3, 4), (3, 4, 5)), {"axes": 2}),
    Case("_npi_tril", [In(3, 4)]),
    Case("_npi_tril", [In(2, 4, 4)], {"k": -1}),
    Case("_npi_tril", [In(3)], {"k": 1}),
]
