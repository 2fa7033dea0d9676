"""Quantizers added for engines that run a convolution as integers only if its output is quantized."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_text import parse, run, show

from requant.passes.complete import complete
from requant.scheme import ONNXRUNTIME, OPENVINO

BLOCK = """agraph (float[1, 2, 4, 4] x) => (uint8[1, 3, 3, 4] q, uint8[1, 3, 3, 4] short)
    <float one = {0.02}, float two = {0.03}, float wide = {0.01}, uint8 none = {0}, int8 zero = {0},
     int8[3, 2, 2, 1] w = {50, -30, 20, 90, -70, 10, 5, -40, 3, 60, -100, 80}> {
    a = QuantizeLinear(x, one, none)
    b = DequantizeLinear(a, one, none)
    v = DequantizeLinear(w, wide, zero)
    t = Conv(b, v)
    s = Relu(t)
    short = QuantizeLinear(s, two, none)
    r = DequantizeLinear(short, two, none)
    y = Conv(b, v)
    z = Add(y, r)
    q = QuantizeLinear(z, two, none)
}"""


def test_a_residual_convolution_gets_a_quantizer() -> None:
    before = parse(BLOCK)
    after = complete(before, ONNXRUNTIME)
    assert sum(n.op_type == "QuantizeLinear" for n in before.graph) == 3
    lines = show(after)
    assert sum("QuantizeLinear" in line and "Dequantize" not in line for line in lines) == 4
    for mine, theirs in zip(run(after), run(before)):
        assert np.abs(mine.astype(int) - theirs.astype(int)).max() <= 1


ONES = (
    ("2, 1] w = {50, -30, 20, 90, -70, 10, 5, -40, 3, 60, -100, 80}", "1, 1] w = {50, -30, 20, 90, -70, 10}"),
    ("1, 3, 3, 4]", "1, 3, 4, 4]"),
)


@pytest.mark.parametrize("bias", ["", ", c", ", e"])
def test_a_kernel_of_one_position_becomes_a_product_of_matrices(bias: str) -> None:
    """The same sums, to the last bit that float32 can tell."""
    text = BLOCK.replace("y = Conv(b, v)", f"e = DequantizeLinear(d, wide, long) y = Conv(b, v{bias})")
    text = text.replace("int8 zero", "float[3] c = {0.5, -1, 2}, int32[3] d = {40, -7, 0}, int32 long = {0}, int8 zero")
    for old, new in ONES:
        text = text.replace(old, new)
    before = parse(text)
    after = complete(before, ONNXRUNTIME)
    kinds = [n.op_type for n in after.graph]
    assert kinds.count("MatMulInteger") == 1 and kinds.count("QuantizeLinear") == 3 and kinds.count("Conv") == 1
    for mine, theirs in zip(run(after), run(before)):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("r = DequantizeLinear(short, two, none)", "r = Relu(s)"),  # the shortcut is float
        ("q = QuantizeLinear(z, two, none)", "u = Neg(z)  q = QuantizeLinear(u, two, none)"),  # so is the sum
        ("v = DequantizeLinear(w, wide, zero)", "v = Cast<to = 1>(w)"),  # and the weight
    ],
)
def test_nothing_is_added_where_nothing_becomes_int8(old: str, new: str) -> None:
    model = parse(BLOCK.replace(old, new))
    assert complete(model, ONNXRUNTIME) is model


def test_engines_that_need_none_get_none() -> None:
    model = parse(BLOCK)
    assert complete(model, OPENVINO) is model
