"""Element-wise functions of one tensor."""

from case import Case, In

# Values that functions treat in different ways: signs, small and large, on both sides of a half, tiny.
ANY = [[-3.7, -2.5, -1.5, -1.0, -0.5, -0.3], [-1e-3, 0.0, 1e-4, 0.25, 0.5, 0.7], [1.0, 1.5, 2.5, 3.3, 5.0, 9.25]]
POSITIVE = [[1e-4, 0.02, 0.5, 0.9], [1.0, 1.3, 2.0, 2.5], [7.0, 33.0, 120.5, 4000.0]]
UNIT = [[-1.0, -0.99, -0.5, -1e-3], [0.0, 1e-4, 0.3, 0.5], [0.75, 0.9, 0.999, 1.0]]
BELOW_ONE = [[-0.999, -0.9, -0.5, -1e-3], [0.0, 1e-4, 0.3, 0.5], [0.75, 0.9, 0.99, 0.999]]
ABOVE_ONE = [[1.0, 1.001, 1.5, 2.0], [3.5, 8.0, 40.0, 1000.0]]

DOMAINS = {
    "abs": ANY,
    "sign": ANY,
    "rint": ANY,
    "round": ANY,
    "ceil": ANY,
    "floor": ANY,
    "trunc": ANY,
    "fix": ANY,
    "square": ANY,
    "sqrt": POSITIVE,
    "rsqrt": POSITIVE,
    "cbrt": ANY,
    "rcbrt": POSITIVE,
    "exp": ANY,
    "log": POSITIVE,
    "log10": POSITIVE,
    "log2": POSITIVE,
    "log1p": [[-0.9, -0.5, -1e-3, -1e-6], [0.0, 1e-7, 1e-4, 0.3], [0.5, 2.0, 50.0, 6e4]],
    "expm1": [[-9.0, -0.7, -0.5, -1e-4], [0.0, 1e-7, 1e-3, 0.3], [0.5, 0.9, 4.0, 20.0]],
    "sin": ANY,
    "cos": ANY,
    "tan": ANY,
    "arcsin": UNIT,
    "arccos": UNIT,
    "arctan": ANY,
    "sinh": ANY,
    "cosh": ANY,
    "tanh": ANY,
    "arcsinh": ANY,
    "arccosh": ABOVE_ONE,
    "arctanh": BELOW_ONE,
    "degrees": ANY,
    "radians": ANY,
    "gamma": ANY,
    "gammaln": [*POSITIVE, [-3.7, -2.5, -0.5, 0.0]],
    "erf": ANY,
    "erfinv": UNIT,
    "reciprocal": POSITIVE,
    "negative": ANY,
    "logical_not": ANY,
}
# Names of MXNet's numpy operators that are aliases here.
NUMPY = ("absolute negative sign sqrt square exp log log1p sin tanh arctan reciprocal floor ceil trunc rint").split()
# Integers at which the function is an integer, or far from one: truncation must not hang on the last bit.
INTEGERS = ("abs sign rint round trunc square exp cos arctan sinh degrees negative logical_not tan").split()
INFINITE = [[float("inf"), float("-inf"), float("nan")], [0.0, 1.0, -2.5]]

# The sums of MXNet's float16 functions are rounded to 11 bits.
HALF = {"rtol": 2e-3, "atol": 1e-3}
FINITE = {"openvino": "float64 is computed in float32, and an infinity comes back as the largest float32"}
NO_NAN = {"openvino": "its exp of NaN is infinity"}


def array(values, dtype="float32"):
    import numpy as np

    return In(*np.shape(values), value=values, dtype=dtype)


CASES = [Case(name, [array(values)]) for name, values in DOMAINS.items()]
CASES += [
    Case(name, [array(values, "float16")], **HALF)
    for name, values in DOMAINS.items()
    if name
    in "abs sign rint round cbrt rcbrt exp log log1p expm1 tan tanh gamma gammaln erf erfinv degrees negative".split()
]
CASES += [
    Case(name, [array(DOMAINS[name], "float64")], skip=FINITE if name in ("gamma", "gammaln", "erfinv") else None)
    for name in "sqrt rcbrt log10 log1p expm1 sin tan tanh arcsin sinh arccosh gamma gammaln erf erfinv round".split()
]
CASES += [Case(name, [array([[0, 1, -3], [2, 5, 4]], "int32")]) for name in INTEGERS]
CASES += [
    Case(name, [array([0, 1, 2, 3, 4, 9, 100], "uint8")])
    for name in ("abs", "negative", "square", "sqrt", "log2", "rint", "logical_not", "sign")
]
CASES += [Case(name, [array([0, 1, -2, 100, -7], "int8")]) for name in ("abs", "negative", "square", "sign", "floor")]
CASES += [Case(name, [array([0, 1, -2, 1000], "int64")]) for name in ("abs", "negative", "square", "sign")]
CASES += [
    Case("_npi_" + name, [array(DOMAINS["abs" if name == "absolute" else name])], note="numpy name") for name in NUMPY
]
CASES += [
    Case(name, [array(INFINITE)], note="infinities", skip=NO_NAN if name in ("exp", "expm1", "gamma") else None)
    for name in ("abs", "floor", "fix", "rint", "round", "exp", "log1p", "expm1", "cbrt", "erf", "square", "gamma")
]
for name in ("_npi_isnan", "_npi_isinf", "_npi_isposinf", "_npi_isneginf", "_npi_isfinite"):
    CASES += [Case(name, [array(INFINITE)]), Case(name, [array([1, 0, -2], "int32")])]
CASES += [
    Case("_npi_logical_not", [array(ANY)]),
    Case("_npi_logical_not", [array([1, 0, -2], "int32")]),
    Case("_npi_logical_not", [array([True, False], "bool")]),
    Case("_npi_bitwise_not", [array([1, 0, -2], "int32")]),
    Case("_npi_bitwise_not", [array([1, 0, 254], "uint8")]),
    Case("_npi_bitwise_not", [array([True, False], "bool")]),
    Case("_npi_nan_to_num", [array(INFINITE)]),
    Case("_npi_nan_to_num", [array(INFINITE)], {"nan": 2.5, "posinf": 7, "neginf": -8}),
    Case("_npi_around", [array(ANY)]),
    Case("_npi_around", [array([[1.256, -1.253, 0.004], [12.5, -37.5, 151.0]])], {"decimals": 2}),
    Case("_npi_around", [array([[12.5, -37.5, 151.0]])], {"decimals": -1}),
    Case("_contrib_round_ste", [array(ANY)]),
    Case("_contrib_sign_ste", [array(ANY)]),
    Case("abs", [In(2, 3, 4, 5)], note="rank 4"),
    Case("abs", [In(1)], note="rank 1"),
]
