"""Interleaved attention products."""

from case import Case, In

SELF = "_contrib_interleaved_matmul_selfatt_"
ENCDEC = "_contrib_interleaved_matmul_encdec_"


def products(steps, batch, heads, depth, source):
    a = {"heads": heads}
    return [
        Case(SELF + "qk", [In(steps, batch, heads * 3 * depth)], a),
        Case(SELF + "valatt", [In(steps, batch, heads * 3 * depth), In(batch * heads, steps, steps)], a),
        Case(ENCDEC + "qk", [In(steps, batch, heads * depth), In(source, batch, heads * 2 * depth)], a),
        Case(ENCDEC + "valatt", [In(source, batch, heads * 2 * depth), In(batch * heads, steps, source)], a),
    ]


CASES = products(4, 2, 3, 5, 6) + products(1, 3, 1, 2, 2) + products(5, 1, 4, 2, 3)
