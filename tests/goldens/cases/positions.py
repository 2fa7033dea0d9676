"""Golden cases of index_array."""

from case import Case, In


def positions(*shape, **attrs):
    dtype = attrs.pop("dtype", "float32")
    return Case("_contrib_index_array", [In(*shape, dtype=dtype)], attrs)


CASES = [
    positions(3, 2),
    positions(3, 2, 4),
    positions(5),
    positions(3, 2, 2, axes=(1, 0)),
    positions(3, 2, 2, axes=(-1,)),
    positions(3, 2, 4, axes=(2, 2, -3)),
    positions(2, 3, dtype="int32"),
]
