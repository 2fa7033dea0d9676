"""Golden cases of correlation."""

from case import Case, In


def correlation(shape, dtype="float32", **attrs):
    tolerance = {"rtol": 2e-2, "atol": 2e-3} if dtype == "float16" else {}
    return Case("Correlation", [In(*shape, dtype=dtype), In(*shape, dtype=dtype)], attrs, **tolerance)


CASES = [
    correlation((2, 3, 6, 7)),
    correlation((1, 4, 6, 7), max_displacement=2, pad_size=2),
    correlation((1, 4, 6, 7), max_displacement=2, pad_size=2, is_multiply=False),
    correlation((1, 4, 9, 8), max_displacement=4, pad_size=4, stride2=2),
    correlation((1, 4, 9, 8), max_displacement=3, pad_size=4, stride2=2, kernel_size=3),
    correlation((2, 2, 9, 8), max_displacement=2, pad_size=3, stride1=2, stride2=2, kernel_size=3),
    correlation((2, 2, 9, 8), max_displacement=2, pad_size=3, stride1=2, kernel_size=3, is_multiply=False),
    correlation((1, 2, 9, 8), max_displacement=1, pad_size=0, stride1=3, kernel_size=1),
    correlation((1, 2, 9, 8), max_displacement=0, kernel_size=5, pad_size=1),
    correlation((1, 2, 6, 7), "float64", max_displacement=1, pad_size=1),
    correlation((1, 2, 6, 7), "float16", max_displacement=1, pad_size=1),
]
