"""Strides of 1×1 convolutions go up to where the skipped positions would be computed."""

from __future__ import annotations

import onnx_ir as ir
from onnx_text import check, parse

from requant.passes import PullStrides

BLOCK = """agraph (float[N, 1, H, W] x) => (float[N, 1, h, w] y, float[N, 1, h, w] z)
    <float[1, 1, 3, 3] k = {1, 2, 3, 4, 5, 6, 7, 8, 9}, float[1, 1, 1, 1] p = {2}> {
    a = Conv<pads = [1, 1, 1, 1], strides = [1, 1]>(x, k)
    r = Relu(a)
    b = Conv(r, p)
    s = Add(b, x)
    t = Relu(s)
    y = Conv<strides = [2, 2]>(t, p)
    z = Conv<strides = [2, 2]>(t, p)
}"""


def settle(model: ir.Model) -> None:
    while PullStrides()(model).modified:
        pass


def test_the_last_convolutions_of_a_stage_take_the_stride() -> None:
    lines = [
        "a = Conv(x, [[[[1,2,3],[4,5,6],[7,8,9]]]]) pads=[1, 1, 1, 1] strides=[2, 2]",
        "r = Relu(a)",
        "b = Conv(r, [[[[2]]]]) strides=[1, 1]",
        "x_subsampled = MaxPool(x) kernel_shape=[1, 1] strides=[2, 2]",
        "s = Add(b, x_subsampled)",
        "t = Relu(s)",
        "y = Conv(t, [[[[2]]]]) strides=[1, 1]",
        "z = Conv(t, [[[[2]]]]) strides=[1, 1]",
    ]
    for size in ("4, 4", "5, 7"):
        height, width = ((int(n) + 1) // 2 for n in size.split(", "))
        text = BLOCK.replace("N, 1, H, W", f"N, 1, {size}").replace("N, 1, h, w", f"N, 1, {height}, {width}")
        text = text.replace("4, 4", size)
        check(text, settle, lines)


def test_nothing_moves_if_somebody_reads_all_positions() -> None:
    text = BLOCK.replace("z = Conv<strides = [2, 2]>(t, p)", "z = Conv(t, p)").replace(
        "float[N, 1, h, w] z", "float[N, 1, H, W] z"
    )
    assert not PullStrides()(parse(text)).modified


def test_nothing_moves_if_no_convolution_would_compute_less() -> None:
    text = """agraph (float[N, 1, 4, 4] x) => (float[N, 1, 2, 2] y) <float[1, 1, 1, 1] p = {2}> {
        t = Relu(x)
        y = Conv<strides = [2, 2]>(t, p)
    }"""
    assert not PullStrides()(parse(text)).modified


def test_a_kernel_of_more_than_one_position_reads_what_it_skips() -> None:
    text = """agraph (float[N, 1, 6, 6] x) => (float[N, 1, 2, 2] y) <float[1, 1, 1, 1] p = {2},
        float[1, 1, 3, 3] k = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
        t = Conv(x, p)
        y = Conv<strides = [2, 2]>(t, k)
    }"""
    assert not PullStrides()(parse(text)).modified
