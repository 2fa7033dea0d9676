"""Element-wise operators."""

from case import Case, In

CASES = [
    Case("elemwise_add", [In(2, 3, 4), In(2, 3, 4)]),
    Case("clip", [In(3, 4, scale=3.0)], {"a_min": -1, "a_max": 2.5}),
]
