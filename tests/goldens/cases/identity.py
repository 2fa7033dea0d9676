"""identity, BlockGrad, Dropout, div_sqrt_dim."""

from case import Case, In

CASES = [
    Case("_copy", [In(2, 3)]),
    Case("_copy", [In(2, 3, dtype="int32", kind="ints", low=-3, high=3)]),
    Case("BlockGrad", [In(2, 3, 4)]),
    Case("BlockGrad", [In(2, 3, dtype="float16")]),
    Case("Dropout", [In(2, 3, 4)]),
    Case("Dropout", [In(2, 3, 4)], {"p": 0.9, "mode": "training", "axes": (1,), "cudnn_off": True}),
    Case("Dropout", [In(2, 3, 4)], {"p": 0.0, "mode": "always"}),
    Case("Dropout", [In(2, 3, 4, dtype="float64")], {"p": 0.3}),
    Case("_contrib_div_sqrt_dim", [In(2, 3, 5)]),
    Case("_contrib_div_sqrt_dim", [In(7)]),
    Case("_contrib_div_sqrt_dim", [In(2, 6, dtype="float64")]),
    Case("_contrib_div_sqrt_dim", [In(2, 6, dtype="float16")], rtol=2e-3, atol=2e-3),
]
