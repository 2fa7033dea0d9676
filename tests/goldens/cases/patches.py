"""Sliding windows as columns, and back."""

from case import Case, In

CASES = [
    Case("im2col", [In(2, 3, 5, 6)], {"kernel": (3, 3)}),
    Case("im2col", [In(2, 3, 5, 6)], {"kernel": (3, 2), "stride": (2, 1), "pad": (1, 0)}),
    Case("im2col", [In(1, 2, 7, 7)], {"kernel": (2, 2), "dilate": (2, 3), "pad": (1, 1)}),
    Case("im2col", [In(1, 4, 4, 4)], {"kernel": (2, 2), "stride": (2, 2)}),
    Case("col2im", [In(2, 27, 12)], {"output_size": (5, 6), "kernel": (3, 3)}),
    Case("col2im", [In(2, 18, 15)], {"output_size": (5, 6), "kernel": (3, 2), "stride": (2, 1), "pad": (1, 0)}),
    Case("col2im", [In(1, 8, 9)], {"output_size": (6, 7), "kernel": (2, 2), "stride": (2, 2), "pad": (0, 0)}),
    Case("col2im", [In(1, 8, 42)], {"output_size": (7, 7), "kernel": (2, 2), "dilate": (2, 3), "pad": (1, 1)}),
]
