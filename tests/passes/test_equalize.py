"""Cross-layer equalization: text in, text out; and outputs that never change."""

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_text import parse, run, show

from requant.passes.rewrite import constant
from requant.quant.equalize import equalized

PAIR = """
net (float[N,1,2,2] x) => (float[N,1,2,2] y)
<float[2,1,1,1] a = {8, 2}, float[2] ab = {4, 4}, float[1,2,1,1] b = {2, 8}, float[1] bb = {1}> {
  h = Conv (x, a, ab)
  r = MIDDLE (h)
  y = Conv (r, b, bb)
}"""


def test_rows_and_columns_meet_in_the_middle() -> None:
    """Channel 0 is made by 8 and read by 2, channel 1 the reverse: both end with 4 and 4."""
    model = equalized(parse(PAIR.replace("MIDDLE", "Relu")))
    assert show(model) == [
        "h = Conv(x, [[[[4]]],[[[4]]]], [2,8])",
        "r = Relu(h)",
        "y = Conv(r, [[[[4]],[[4]]]], [1])",
    ]


@pytest.mark.parametrize("middle", ["Sigmoid", "Tanh", "Exp", "HardSwish"])
def test_what_does_not_commute_keeps_its_channels(middle: str) -> None:
    model = parse(PAIR.replace("MIDDLE", middle))
    assert show(equalized(model)) == show(model)


def test_the_given_model_is_left_alone() -> None:
    model = parse(PAIR.replace("MIDDLE", "Relu"))
    before = show(model)
    equalized(model)
    assert show(model) == before


def test_relu6_is_left_alone() -> None:
    text = PAIR.replace("MIDDLE (h)", "Clip (h, zero, six)").replace("<", "<float zero = {0}, float six = {6}, ", 1)
    model = parse(text)
    assert show(equalized(model)) == show(model)


def test_what_a_graph_gives_out_is_left_alone() -> None:
    text = PAIR.replace("MIDDLE", "Relu").replace("(float[N,1,2,2] y)", "(float[N,1,2,2] y, float[N,2,2,2] r)")
    model = parse(text)
    assert show(equalized(model)) == show(model)


def test_all_tensors_of_a_residual_stream_are_divided_alike() -> None:
    model = parse("""
net (float[N,1,2,2] x) => (float[N,1,2,2] y)
<float[2,1,1,1] a = {8, 2}, float[2,2,1,1] m = {1, 0, 0, 1}, float[1,2,1,1] b = {2, 8}> {
  h = Conv (x, a)
  g = Conv (h, m)
  s = Add (h, g)
  r = Relu (s)
  y = Conv (r, b)
}""")
    made = equalized(model)
    assert any(a != b for a, b in zip(show(model), show(made)))
    np.testing.assert_allclose(run(made)[0], run(model)[0], rtol=1e-5, atol=1e-5)
    weight = constant(next(n for n in made.graph if n.name == "g" or n.outputs[0].name == "g").inputs[1])
    assert weight is not None
    np.testing.assert_allclose(weight.reshape(2, 2), np.eye(2), rtol=1e-6)


def network(seed: int, depth: int, kinds: list[str]) -> ir.Model:
    """A network of depthwise and pointwise convolutions, sums and pooling whose channels differ by large factors."""
    rng = np.random.default_rng(seed)
    lines, weights, last = [], [], "x"
    for i in range(depth):
        group = 4 if i % 2 else 1
        shape = (4, 4 // group, 3, 3) if group == 4 else (4, 4, 1, 1)
        values = rng.standard_normal(shape) * np.exp(rng.uniform(-4, 4, (4, 1, 1, 1)))
        numbers = ", ".join(f"{v:.6f}" for v in values.ravel())
        weights.append(f"float[{','.join(map(str, shape))}] w{i} = {{{numbers}}}")
        weights.append(f"float[4] b{i} = {{{', '.join(f'{v:.6f}' for v in rng.standard_normal(4))}}}")
        pads = "[1, 1, 1, 1]" if group == 4 else "[0, 0, 0, 0]"
        lines.append(f"c{i} = Conv <group = {group}, pads = {pads}> ({last}, w{i}, b{i})")
        kind = kinds[i % len(kinds)]
        if kind == "sum" and i:
            lines.append(f"a{i} = Add (c{i}, {last})")
        elif kind == "pool":
            lines.append(f"a{i} = MaxPool <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (c{i})")
        elif kind == "scaled":
            numbers = ", ".join(f"{v:.6f}" for v in rng.uniform(0.1, 9, 4))
            weights.append(f"float[4,1,1] m{i} = {{{numbers}}}")
            lines += [f"t{i} = Mul (c{i}, m{i})", f"a{i} = Relu (t{i})"]
        else:
            lines.append(f"a{i} = {'Relu' if kind in ('sum', 'relu') else kind} (c{i})")
        last = f"a{i}"
    numbers = ", ".join(f"{v:.6f}" for v in rng.standard_normal(12))
    weights.append(f"float[3,4] f = {{{numbers}}}")
    body = "\n".join(lines)
    return parse(f"""
net (float[N,4,5,5] x) => (float[N,3] y) <{", ".join(weights)}> {{
{body}
p = GlobalAveragePool ({last})
q = Flatten (p)
y = Gemm <transB = 1> (q, f)
}}""")


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    depth=st.integers(1, 6),
    kinds=st.lists(st.sampled_from(["relu", "sum", "pool", "scaled", "Sigmoid", "Neg"]), min_size=1, max_size=4),
)
def test_outputs_never_change(seed: int, depth: int, kinds: list[str]) -> None:
    model = network(seed, depth, kinds)
    wanted, got = run(model)[0], run(equalized(model))[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(wanted).max())))


def test_channels_of_a_depthwise_network_come_nearer() -> None:
    model = network(3, 5, ["relu"])
    made = equalized(model)

    def spread(m: ir.Model) -> float:
        found = []
        for node in m.graph:
            weight = constant(node.inputs[1]) if node.op_type == "Conv" else None
            if weight is not None:
                sizes = np.abs(weight).max(axis=(1, 2, 3))
                found.append(float(np.log(sizes).std()))
        return float(np.mean(found[:-1]))

    assert spread(made) < 0.6 * spread(model)
