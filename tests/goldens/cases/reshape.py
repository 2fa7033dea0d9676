"""Reshape and its kin: every code, both directions, legacy spellings."""

from case import Case, In


def _reshape(dims, shape, **kw):
    return Case("Reshape", [In(*dims)], dict(shape=shape, **kw))


def _npx(dims, shape, **kw):
    return Case("_npx_reshape", [In(*dims)], dict(newshape=shape, **kw))


CASES = [
    _reshape((2, 3, 4), (4, 6)),
    _reshape((2, 3, 4), (4, 0, 2)),
    _reshape((2, 3, 4), (2, 0, 0)),
    _reshape((2, 3, 4), (6, 1, -1)),
    _reshape((2, 3, 4), (3, -1, 8)),
    _reshape((2, 3, 4), (-1,)),
    _reshape((2, 3, 4), (0, -1)),
    _reshape((2, 3, 4), (-2,)),
    _reshape((2, 3, 4), (2, -2)),
    _reshape((2, 3, 4), (-2, 1, 1)),
    _reshape((2, 3, 4), (-3, 4)),
    _reshape((2, 3, 4, 5), (-3, -3)),
    _reshape((2, 3, 4), (0, -3)),
    _reshape((2, 3, 4), (-3, -2)),
    _reshape((2, 3, 4), (-4, 1, 2, -2)),
    _reshape((2, 3, 4), (2, -4, -1, 3, -2)),
    _reshape((2, 6, 4, 4), (0, -4, 3, -1, -2)),
    _reshape((2, 6, 4, 4), (0, -4, -1, 2, 0, 0)),
    _reshape((2, 3, 2, 4, 4), (0, -3, -2)),
    _reshape((8, 3, 3), (-4, -1, 4, 0, 0)),
    _reshape((8, 3), (1, -1)),
    _reshape((5,), (1, 5, 1)),
    _reshape((10, 5, 4), (-1, 0), reverse=True),
    _reshape((10, 5, 4), (-1, 0), reverse=False),
    _reshape((8, 3, 4), (-4, -1, 2, 0, -4, 2, -1)),
    _reshape((2, 3, 8), (0, 0, 2, 4, -4), reverse=True),
    _reshape((2, 3, 4, 5), (-2, -3), reverse=True),
    _reshape((2, 3, 4), (-2, 4), reverse=True),
    _reshape((4, 6), (2, 12), reverse=True),
    Case("Reshape", [In(2, 3, 4)], {"target_shape": (2, 0)}),
    Case("Reshape", [In(2, 3, 4)], {"target_shape": (0, 4)}),
    Case("Reshape", [In(2, 3, 4)], {"target_shape": (0, 0), "keep_highest": True}),
    Case("Reshape", [In(2, 3, 4)], {"target_shape": (7, 4, 3), "keep_highest": True}),
    Case("Reshape", [In(2, 3, 4, kind="ints", low=0, high=200, dtype="uint8")], {"shape": (0, -1)}),
    Case("Reshape", [In(2, 3, 4, dtype="float64")], {"shape": (-3, 0)}),
    Case("Reshape", [In(2, 3, 4, dtype="float16")], {"shape": (-3, 0)}),
    Case("Reshape", [In(2, 3, 4, kind="ints", low=-9, high=9, dtype="int32")], {"shape": (-1, 2)}),
    _npx((2, 3, 4), (-1, 4)),
    _npx((2, 3, 4), (-2, -1)),
    _npx((2, 3, 4), (-4,)),
    _npx((2, 3, 4), (-5, -2)),
    _npx((2, 3, 4), (-2, -5)),
    _npx((1, 3, 1, 4), (-3, -2, -3, -2)),
    _npx((1, 3, 4), (-3, -4)),
    _npx((2, 6, 4), (-2, -6, 2, -1, -4)),
    _npx((2, 6, 4), (-2, -6, -1, 2, -2)),
    _npx((2, 6, 4), (-2, -6, 3, 2, 2, 2)),
    _npx((2, 3, 8), (-2, -2, 2, -1, -6), reverse=True),
    _npx((2, 3, 4, 5), (-4, -5), reverse=True),
    Case("_np_reshape", [In(2, 3, 4)], {"newshape": (-1, 4)}),
    Case("_np_reshape", [In(2, 3, 4)], {"newshape": (24,), "order": "C"}),
    Case("reshape_like", [In(2, 6), In(3, 4)]),
    Case("reshape_like", [In(30, 7), In(15, 2, 4)], {"lhs_begin": 0, "lhs_end": 1, "rhs_begin": 0, "rhs_end": 2}),
    Case("reshape_like", [In(3, 5), In(1, 15, 4)], {"lhs_begin": 0, "lhs_end": 2, "rhs_begin": 1, "rhs_end": 2}),
    Case(
        "reshape_like",
        [In(30, 12), In(4, 2, 2, 3)],
        {"lhs_begin": -1, "lhs_end": None, "rhs_begin": 1, "rhs_end": None},
    ),
    Case("reshape_like", [In(4, 6, 5), In(2, 12)], {"lhs_end": -1}),
    Case("reshape_like", [In(4, 6, 5), In(7, 3, 2)], {"lhs_begin": 1, "lhs_end": 2, "rhs_begin": -2}),
]
