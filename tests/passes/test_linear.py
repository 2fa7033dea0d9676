"""Batch normalization, padding, scales and biases go into the linear operator."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx_text import check, parse, run, show

from requant.passes import FoldBatchNorm, FoldPad, FoldScale, MatMulToGemm, PlainGemm, optimize
from requant.passes.rewrite import names_of

BN = "<float[2] g = {2, 1}, float[2] b = {1, 0}, float[2] m = {0.5, 0}, float[2] v = {4, 1}"


def test_batch_norm_goes_into_the_convolution_before_it() -> None:
    text = f"""agraph (float[N, 1, 3, 3] x) => (float[N, 2, 3, 3] y) {BN}, float[2, 1, 1, 1] w = {{1, 3}},
        float[2] c = {{1, 2}}> {{
        [conv] a = Conv(x, w, c)
        [bn] y = BatchNormalization<epsilon = 0.0>(a, g, b, m, v)
    }}"""
    model = check(text, FoldBatchNorm(), ["y = Conv(x, [[[[1]]],[[[3]]]], [1.5,2])"])
    assert names_of(model.graph[0]) == ("conv", "bn")


def test_batch_norm_before_a_convolution_goes_into_it_where_nothing_is_padded() -> None:
    text = f"""agraph (float[N, 2, 3, 3] x) => (float[N, 1, 3, 3] y) {BN}, float[1, 2, 1, 1] w = {{1, 3}}> {{
        a = BatchNormalization<epsilon = 0.0>(x, g, b, m, v)
        y = Conv(a, w)
    }}"""
    check(text, FoldBatchNorm(), ["y = Conv(x, [[[[1]],[[3]]]], [0.5])"])


def test_batch_norm_stays_before_a_padded_convolution() -> None:
    text = f"""agraph (float[N, 2, 3, 3] x) => (float[N, 1, 5, 5] y) {BN}, float[1, 2, 1, 1] w = {{1, 3}}> {{
        a = BatchNormalization<epsilon = 0.0>(x, g, b, m, v)
        y = Conv<pads = [1, 1, 1, 1]>(a, w)
    }}"""
    model = parse(text)
    assert not FoldBatchNorm()(model).modified
    assert len(model.graph) == 2


def test_batch_norm_before_a_grouped_convolution_scales_the_right_channels() -> None:
    text = f"""agraph (float[N, 2, 2, 2] x) => (float[N, 4, 2, 2] y) {BN}, float[4, 1, 1, 1] w = {{1, 2, 3, 4}}> {{
        a = BatchNormalization<epsilon = 0.0>(x, g, b, m, v)
        y = Conv<group = 2>(a, w)
    }}"""
    check(text, FoldBatchNorm(), ["y = Conv(x, [[[[1]]],[[[2]]],[[[3]]],[[[4]]]], [0.5,1,0,0]) group=2"])


@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_goes_into_a_transposed_convolution(group: int) -> None:
    text = f"""agraph (float[N, 4, 3, 3] x) => (float[N, 2, 4, 4] y) {BN},
        float[4, {2 // group}, 2, 2] w = {{{", ".join(str(i) for i in range(32 // group))}}}> {{
        a = ConvTranspose<group = {group}>(x, w)
        y = BatchNormalization<epsilon = 0.0>(a, g, b, m, v)
    }}"""
    model = parse(text)
    before = run(model)
    assert FoldBatchNorm()(model).modified
    assert len(model.graph) == 1
    np.testing.assert_allclose(run(model)[0], before[0], rtol=1e-4, atol=1e-4)


def test_batch_norm_goes_into_gemm() -> None:
    text = f"""agraph (float[N, 2] x) => (float[N, 2] y) {BN}, float[2, 2] w = {{1, 2, 3, 4}}, float[1] c = {{1}}> {{
        a = Gemm<transB = 1, beta = 2.0>(x, w, c)
        y = BatchNormalization<epsilon = 0.0>(a, g, b, m, v)
    }}"""
    check(text, FoldBatchNorm(), ["y = Gemm(x, [[1,2],[3,4]], [2.5,2]) beta=1.0 transB=1"])


def test_a_shared_weight_is_not_changed_for_its_other_reader() -> None:
    text = f"""agraph (float[N, 1, 3, 3] x) => (float[N, 2, 3, 3] y, float[N, 2, 3, 3] z) {BN},
        float[2, 1, 1, 1] w = {{1, 3}}> {{
        a = Conv(x, w)
        y = BatchNormalization<epsilon = 0.0>(a, g, b, m, v)
        z = Conv(x, w)
    }}"""
    check(text, FoldBatchNorm(), ["y = Conv(x, [[[[1]]],[[[3]]]], [0.5,0])", "z = Conv(x, [[[[1]]],[[[3]]]])"])
    model = parse(text.replace("2, 1}, float[2] b", "4, 1}, float[2] b"))
    FoldBatchNorm()(model)
    assert show(model) == [
        "y = Conv(x, [[[[2]]],[[[3]]]])",
        "z = Conv(x, [[[[1]]],[[[3]]]])",
    ]


def test_batch_norm_stays_where_its_input_has_another_reader_or_is_an_output() -> None:
    text = f"""agraph (float[N, 1, 3, 3] x) => (float[N, 2, 3, 3] y, float[N, 2, 3, 3] a) {BN},
        float[2, 1, 1, 1] w = {{1, 3}}> {{
        a = Conv(x, w)
        y = BatchNormalization<epsilon = 0.0>(a, g, b, m, v)
    }}"""
    assert not FoldBatchNorm()(parse(text)).modified


def test_a_variance_that_makes_the_weights_infinite_is_not_folded() -> None:
    text = f"""agraph (float[N, 1, 3, 3] x) => (float[N, 2, 3, 3] y) {BN}, float[2, 1, 1, 1] w = {{1, 3}}> {{
        a = Conv(x, w)
        y = BatchNormalization<epsilon = 0.0>(a, g, b, m, v)
    }}"""
    model = parse(text.replace("v = {4, 1}", "v = {4, -1}"))
    assert not FoldBatchNorm()(model).modified


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("y = Mul(a, k)", "y = Conv(x, [[[[2]]],[[[9]]]], [2,6])"),
        ("y = Add(k, a)", "y = Conv(x, [[[[1]]],[[[3]]]], [3,5])"),
        ("y = Sub(a, k)", "y = Conv(x, [[[[1]]],[[[3]]]], [-1,-1])"),
        ("y = Sub(k, a)", "y = Conv(x, [[[[-1]]],[[[-3]]]], [1,1])"),
        ("y = Div(a, k)", "y = Conv(x, [[[[0.5]]],[[[1]]]], [0.5,0.666667])"),
        ("y = Mul(a, s)", "y = Conv(x, [[[[4]]],[[[12]]]], [4,8])"),
    ],
)
def test_constants_behind_a_convolution_go_into_it(line: str, expected: str) -> None:
    text = f"""agraph (float[N, 1, 3, 3] x) => (float[N, 2, 3, 3] y)
        <float[2, 1, 1, 1] w = {{1, 3}}, float[2] c = {{1, 2}}, float[2, 1, 1] k = {{2, 3}}, float s = {{4}}> {{
        a = Conv(x, w, c)
        {line}
    }}"""
    check(text, FoldScale(), [expected])


def test_a_constant_that_varies_over_positions_stays() -> None:
    text = """agraph (float[N, 1, 1, 2] x) => (float[N, 2, 1, 2] y) <float[2, 1, 1, 1] w = {1, 3},
        float[2] k = {2, 3}> {
        a = Conv(x, w)
        y = Mul(a, k)
    }"""
    assert not FoldScale()(parse(text)).modified


def test_division_by_zero_stays() -> None:
    text = """agraph (float[N, 1, 1, 2] x) => (float[N, 2, 1, 2] y) <float[2, 1, 1, 1] w = {1, 3},
        float[2, 1, 1] k = {2, 0}> {
        a = Conv(x, w)
        y = Div(a, k)
    }"""
    assert not FoldScale()(parse(text)).modified


def test_zero_padding_becomes_the_convolutions() -> None:
    text = """agraph (float[N, 1, 3, 3] x) => (float[N, 1, 3, 2] y)
        <float[1, 1, 2, 3] w = {1, 2, 3, 4, 5, 6}, int64[8] p = {0, 0, 0, 1, 0, 0, 1, 0}> {
        [pad] a = Pad(x, p)
        [conv] y = Conv(a, w)
    }"""
    model = check(text, FoldPad(), ["y = Conv(x, [[[[1,2,3],[4,5,6]]]]) pads=[0, 1, 1, 0]"])
    assert names_of(model.graph[0]) == ("conv", "pad")


@pytest.mark.parametrize(
    ("pad", "reader"),
    [
        ("a = Pad(x, p, one)", "y = Conv(a, w)"),
        ('a = Pad<mode = "reflect">(x, p)', "y = Conv(a, w)"),
        ("a = Pad(x, channels)", "y = Conv(a, w2)"),
        ("a = Pad(x, p)", "y = MaxPool<kernel_shape = [1, 1]>(a)"),
        ("a = Pad(x, p)", "y = AveragePool<kernel_shape = [2, 2], pads = [1, 1, 1, 1]>(a)"),
        ("a = Pad(x, less)", "y = Conv(a, w)"),
    ],
)
def test_padding_that_means_something_else_stays(pad: str, reader: str) -> None:
    text = f"""agraph (float[N, 1, 3, 3] x) => (y)
        <float[1, 1, 1, 1] w = {{1}}, float[1, 2, 1, 1] w2 = {{1, 2}}, float one = {{1}},
        int64[8] p = {{0, 0, 0, 1, 0, 0, 1, 0}},
         int64[8] less = {{0, 0, 0, -1, 0, 0, 0, 0}}, int64[8] channels = {{0, 1, 0, 0, 0, 0, 0, 0}}> {{
        {pad}
        {reader}
    }}"""
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert not FoldPad()(model).modified


def test_padding_becomes_that_of_an_average_that_counts_it() -> None:
    text = """agraph (float[N, 1, 4, 4] x) => (float[N, 1, 5, 5] y) <int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}> {
        a = Pad(x, p)
        y = AveragePool<kernel_shape = [2, 2]>(a)
    }"""
    check(text, FoldPad(), ["y = AveragePool(x) count_include_pad=1 kernel_shape=[2, 2] pads=[1, 1, 1, 1]"])


def test_matmul_and_bias_become_gemm() -> None:
    text = """agraph (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}, float[1, 2] b = {5, 6}> {
        a = MatMul(x, w)
        y = Add(b, a)
    }"""
    check(text, MatMulToGemm(), ["y = Gemm(x, [[1,2],[3,4]], [5,6])"])


def test_matmul_of_rank_three_keeps_its_addition() -> None:
    text = """agraph (float[N, 3, 2] x) => (float[N, 3, 2] y) <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {5, 6}> {
        a = MatMul(x, w)
        y = Add(b, a)
    }"""
    model = parse(text)
    assert not MatMulToGemm()(model).modified
    assert not FoldScale()(model).modified
    check(text.replace("Add(b, a)", "Mul(b, a)"), FoldScale(), ["y = MatMul(x, [[5,12],[15,24]])"])


def test_factors_of_gemm_go_into_its_constants() -> None:
    text = """agraph (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}, float[2] b = {5, 6}> {
        y = Gemm<alpha = 2.0, beta = 0.5>(x, w, b)
    }"""
    check(text, PlainGemm(), ["y = Gemm(x, [[2,4],[6,8]], [2.5,3]) alpha=1.0 beta=1.0"])


def test_optimize_leaves_the_given_model_alone() -> None:
    text = f"""agraph (float[N, 1, 3, 3] x) => (float[N, 2, 3, 3] y) {BN}, float[2, 1, 1, 1] w = {{1, 3}}> {{
        a = Conv(x, w)
        y = BatchNormalization<epsilon = 0.0>(a, g, b, m, v)
    }}"""
    model = parse(text.replace("g = {2, 1}", "g = {4, 1}"))
    before = show(model)
    new = optimize(model)
    assert show(model) == before
    assert show(new) == ["y = Conv(x, [[[[2]]],[[[3]]]])"]
