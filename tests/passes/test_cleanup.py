"""Clips, no-ops, constants and shape arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_text import check, parse, run, show

from requant.errors import UnsupportedError
from requant.passes import (
    FoldConstants,
    FoldShapeArithmetic,
    MergeClips,
    RemoveNoOps,
    UpgradeOpset,
    optimize,
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("y = Clip(x, zero)", ["y = Relu(x)"]),
        ("a = Relu(x)  y = Clip(a, zero, six)", ["y = Clip(x, 0, 6)"]),
        ("a = Max(x, zero)  y = Min(six, a)", ["y = Clip(x, 0, 6)"]),
        ("a = Clip(x, minus, six)  y = Relu(a)", ["y = Clip(x, 0, 6)"]),
        ("a = Relu(x)  y = Relu(a)", ["y = Relu(x)"]),
        ("a = Min(x, minus)  y = Relu(a)", ["y = Clip(x, 0, 0)"]),
        ("a = Clip(x)  y = Neg(a)", ["y = Neg(x)"]),
        ("y = Clip(x, zero, six)", ["y = Clip(x, 0, 6)"]),
    ],
)
def test_clips_take_one_form(lines: str, expected: list[str]) -> None:
    text = f"""agraph (float[N, 3] x) => (float[N, 3] y) <float zero = {{0}}, float six = {{6}},
        float minus = {{-1}}> {{ {lines} }}"""
    check(text, MergeClips(), expected)


def test_a_clip_that_somebody_else_reads_stays() -> None:
    text = """agraph (float[N, 3] x) => (float[N, 3] y, float[N, 3] z) <float zero = {0}, float six = {6}> {
        a = Relu(x)
        y = Clip(a, zero, six)
        z = Neg(a)
    }"""
    assert not MergeClips()(parse(text)).modified


def test_integer_clips_are_not_relus() -> None:
    text = "agraph (int64[N, 3] x) => (int64[N, 3] y) <int64 zero = {0}> { y = Max(x, zero) }"
    assert not MergeClips()(parse(text)).modified


@pytest.mark.parametrize(
    "line",
    [
        "a = Identity(x)",
        "a = Dropout(x)",
        "a = Cast<to = 1>(x)",
        "a = Transpose<perm = [0, 1, 2]>(x)",
        "a = Concat<axis = 1>(x)",
        "a = Add(x, zero)",
        "a = Mul(one, x)",
        "a = Div(x, ones)",
        "a = Pad(x, no_pads)",
        "a = Tile(x, once)",
        "a = Reshape(x, same)",
        "a = Reshape(x, rest)",
        "a = Slice(x, from, to)",
    ],
)
def test_nodes_that_change_nothing_go(line: str) -> None:
    text = f"""agraph (float[N, 2, 3] x) => (float[N, 2, 3] y)
        <float zero = {{0}}, float one = {{1}}, float[1, 2, 3] ones = {{1, 1, 1, 1, 1, 1}},
        int64[6] no_pads = {{0, 0, 0, 0, 0, 0}},
         int64[3] once = {{1, 1, 1}}, int64[3] same = {{0, 2, 3}}, int64[3] rest = {{-1, 2, 3}},
         int64[1] from = {{0}}, int64[1] to = {{9}}> {{
        {line}
        y = Neg(a)
    }}"""
    if "Slice" in line:
        text = text.replace("float[N, 2, 3]", "float[2, 2, 3]").replace("Slice(x, from, to)", "Slice(x, from, to)")
    model = parse(text)
    before = run(model)
    assert RemoveNoOps()(model).modified
    assert show(model) == ["y = Neg(x)"]
    np.testing.assert_array_equal(run(model)[0], before[0])


@pytest.mark.parametrize(
    "line",
    [
        "a = Add(x, wide)",  # grows the shape
        "a = Mul(x, zero)",
        "a = Sub(zero, x)",
        "a = Transpose<perm = [0, 2, 1]>(x)",
        "a = Slice(x, last, front, axes, back)",  # keeps the shape, turns it round
        "a = Cast<to = 10>(x)",
    ],
)
def test_nodes_that_change_something_stay(line: str) -> None:
    text = f"""agraph (float[1, 2, 3] x) => (y)
        <float zero = {{0}}, float[4, 1, 1] wide = {{0, 0, 0, 0}}, int64[1] last = {{2}}, int64[1] front = {{-9}},
         int64[1] axes = {{2}}, int64[1] back = {{-1}}> {{
        {line}
        y = Neg(a)
    }}"""
    model = ir.from_proto(
        onnx.shape_inference.infer_shapes(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}'))
    )
    assert not RemoveNoOps()(model).modified


def test_an_identity_from_input_to_output_stays() -> None:
    text = "agraph (float[N] x) => (float[N] y, float[N] z) { y = Identity(x)  z = Identity(x) }"
    model = optimize(parse(text))
    assert show(model) == ["y = Identity(x)", "z = Identity(x)"]


def test_an_output_that_a_no_op_makes_keeps_its_name() -> None:
    text = "agraph (float[N] x) => (float[N] y) { a = Neg(x)  y = Identity(a) }"
    model = check(text, RemoveNoOps(), ["y = Neg(x)"])
    assert model.graph.outputs[0].name == "y"


def test_branches_of_constants_become_one_constant() -> None:
    text = """agraph (float[N, 2] x) => (float[N, 2] y) <float[4] w = {1, 2, 3, 4}, int64[2] s = {2, 2},
        float[2] b = {1, 1}> {
        a = Reshape(w, s)
        c = Transpose(a)
        d = Mul(c, c)
        y = MatMul(x, d)
    }"""
    check(text, FoldConstants(), ["y = MatMul(x, [[1,9],[4,16]])"])


def test_constants_stay_where_folding_would_cost_more_than_it_saves() -> None:
    text = """agraph (float[N] x) => (float[1000000000000] y) <int64[1] s = {1000000000000}> {
        a = ConstantOfShape(s)
        y = Add(a, x)
    }"""
    model = parse(text)
    assert not FoldConstants()(model).modified
    for line in ("a = Expand(one, s)", "a = Tile(ones, s)", "a = Range(zero, big, step)", "a = Pad(ones, p)"):
        text = f"""agraph (float[N] x) => (y) <float one = {{1}}, float[1] ones = {{1}},
        int64[1] s = {{1000000000000}},
            float zero = {{0}}, float big = {{1e30}}, float step = {{1}},
        int64[2] p = {{0, 1000000000000}}> {{ {line}  y = Add(a, x) }}"""
        model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
        assert not FoldConstants()(model).modified, line


def test_random_numbers_and_quantizers_are_not_folded() -> None:
    text = """agraph (float[2] x) => (float[2] y) <int8[2] q = {1, 2}, float s = {0.5}, int8 z = {0}> {
        a = RandomNormal<shape = [2]>()
        b = DequantizeLinear(q, s, z)
        c = Add(a, b)
        y = Add(c, x)
    }"""
    assert not FoldConstants()(parse(text)).modified


def test_computed_flatten_becomes_a_constant_reshape() -> None:
    text = """agraph (float[N, 2, 3] x) => (float[N, 6] y) <int64 zero = {0}, int64[1] axes = {0},
        int64[1] rest = {-1}> {
        s = Shape(x)
        n = Gather(s, zero)
        u = Unsqueeze(n, axes)
        t = Concat<axis = 0>(u, rest)
        y = Reshape(x, t)
    }"""
    model = optimize(parse(text))
    assert show(model) == ["y = Reshape(x, [0,-1])"]
    np.testing.assert_array_equal(run(model)[0], run(parse(text))[0])


def test_shape_arithmetic_with_open_dimensions() -> None:
    text = """agraph (float[N, 4, H, W] x) => (float[N, 2, 2, P] y)
        <int64[1] b = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] e = {9}, int64[1] rest = {-1}> {
        s = Shape(x)
        n = Slice(s, b, one)
        c = Slice(s, one, two)
        h = Div(c, two)
        k = Mul(h, one)
        t = Concat<axis = 0>(n, two, k, rest)
        y = Reshape(x, t)
    }"""
    model = optimize(parse(text))
    assert show(model) == ["y = Reshape(x, [0,2,2,-1])"]


def test_two_open_dimensions_of_another_place_stay_computed() -> None:
    text = """agraph (float[N, H, W] x) => (float[W, H, N] y) <int64[3] order = {2, 1, 0}> {
        s = Shape(x)
        t = Gather(s, order)
        y = Reshape(x, t)
    }"""
    model = parse(text)
    FoldShapeArithmetic()(model)
    assert "Gather" in str(show(model))


def test_the_weight_of_a_reshaped_convolution_is_a_constant_again() -> None:
    text = """agraph (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y)
        <float[2, 1, 3, 3] w = {1,2,3,4,5,6,7,8,9,9,8,7,6,5,4,3,2,1}, int64[1] g = {2}, int64[1] rest = {-1}> {
        s = Shape(w)
        t = Concat<axis = 0>(s)
        v = Reshape(w, t)
        y = Conv<group = 2, pads = [1, 1, 1, 1]>(x, v)
    }"""
    model = optimize(parse(text))
    assert [n.op_type for n in model.graph] == ["Conv"]
    assert model.graph[0].inputs[1].is_initializer()


def test_constant_nodes_become_initializers() -> None:
    text = "agraph (float[N, 2] x) => (float[N, 2] y) { c = Constant<value = float[2] {1, 2}>()  y = Mul(x, c) }"
    assert show(optimize(parse(text))) == ["y = Mul(x, [1,2])"]


def test_old_operator_sets_are_upgraded() -> None:
    text = """agraph (float[N, 1, 3, 3] x) => (float[N, 600] y) <float[2, 1, 1, 1] w = {1, 3}> {
        a = Conv(x, w)
        b = Clip<min = 0.0, max = 6.0>(a)
        c = Unsqueeze<axes = [4]>(b)
        y = Flatten(c)
    }""".replace("float[N, 600]", "float[N, 18]")
    proto = onnx.parser.parse_model(f'<ir_version: 4, opset_import: ["" : 9]> {text}')
    model = ir.from_proto(proto)
    model.graph[0].metadata_props["mx.node"] = "conv0"
    new = optimize(model)
    assert new.graph.opset_imports[""] >= 13
    assert [n.op_type for n in new.graph] == ["Conv", "Clip", "Unsqueeze", "Flatten"]
    assert new.graph[0].metadata_props["mx.node"] == "conv0"
    np.testing.assert_allclose(run(new)[0], run(ir.from_proto(proto))[0])


def test_an_operator_set_that_cannot_be_upgraded_is_refused() -> None:
    node = onnx.helper.make_node("Scan", ["x"], ["y"], name="scan")
    graph = onnx.helper.make_graph(
        [node],
        "old",
        [onnx.helper.make_tensor_value_info("x", 1, [1])],
        [onnx.helper.make_tensor_value_info("y", 1, [1])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 8)], ir_version=3)
    with pytest.raises(UnsupportedError, match="operator set 8"):
        UpgradeOpset()(ir.from_proto(model))
