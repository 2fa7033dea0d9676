"""Channels that a depthwise convolution reads get scales of their own, and nothing else changes."""

import numpy as np
import onnx_ir as ir
import pytest
from small_graphs import Build, ranges, run

from requant.formats.passed import from_program
from requant.passes.rewrite import forget_names
from requant.pipeline.refine import moments
from requant.quant.apply import apply, group_params
from requant.quant.channels import is_depthwise, level_channels, may_be_leveled
from requant.quant.planner import plan
from requant.scheme import ONNXRUNTIME, OPENVINO, TENSORRT, Scheme

F32 = np.float32
CHANNELS = 16
SIZES = (2.0 ** np.linspace(0, -7, CHANNELS)).astype(F32)


def network(between: str, *, uneven: bool = True, second_reader: bool = False) -> ir.Model:
    """Two convolutions whose second is depthwise, with channels of different size between them."""
    b = Build()
    b.conv("mix", "x", 4, CHANNELS)
    if uneven:
        b.weights["mix.w"] *= SIZES.reshape(-1, 1, 1, 1)
        b.weights["mix.b"] *= SIZES
    else:
        b.weights["mix.w"][:] = b.weights["mix.w"][:1]
        b.weights["mix.b"][:] = 0
    last = "mix"
    if between == "affine":
        last = b.op("HardSwish", "act", last)
        b.weights["a"], b.weights["c"] = np.array(1.5, F32), np.array([0.01], F32)
        last = b.op("Add", "moved", b.op("Mul", "grown", last, "a"), "c")
    elif between:
        last = b.op(between, "act", last)
    b.conv("dw", last, CHANNELS, CHANNELS, group=CHANNELS)
    b.weights["dw.w"] /= SIZES.reshape(-1, 1, 1, 1)  # so that all channels count for the same
    out = b.conv("out", "dw", CHANNELS, 8, k=1)
    outputs = {out: ("N", 8, 8, 8)}
    if second_reader:
        b.conv("other", last, CHANNELS, 8, k=1)
        outputs["other"] = ("N", 8, 8, 8)
    return b.model({"x": ("N", 4, 8, 8)}, outputs)


def data(seed: int, count: int = 64) -> np.ndarray:
    found: np.ndarray = np.random.default_rng(seed).standard_normal((count, 4, 8, 8)).astype(F32)
    return found


def decibel(a: np.ndarray, b: np.ndarray) -> float:
    return float(10 * np.log10(np.square(a, dtype=np.float64).sum() / np.square(a.astype(np.float64) - b).sum()))


def leveled(model: ir.Model, scheme: Scheme = OPENVINO) -> tuple[ir.Model, list[str], float, float]:
    """A float model with its channels divided, which tensors those are, and the signal to noise without and with."""
    made = plan(model, "best", scheme)
    x = data(0)
    found = ranges(model, made, {"x": x})
    seen = moments(model, made, from_program(x, ["x"], None))
    new = model.clone()
    forget_names(new)
    _, _, changed = level_channels(new, made, group_params(made, found), None, seen)
    fresh = {"x": data(1)}
    wanted = run(model, fresh)["out"]
    flat = {n: type(m)(m.count, m.total, m.products) for n, m in seen.items()}
    scores = [decibel(wanted, run(apply(model, made, found, moments=m), fresh)["out"]) for m in (flat, seen)]
    return new, [str(v.name) for v in changed], *scores


@pytest.mark.parametrize("between", ["", "LeakyRelu", "affine", "HardSwish"])
def test_small_channels_survive(between: str) -> None:
    model = network(between)
    new, changed, before, after = leveled(model)
    assert len(changed) == 1
    assert after > before + 6
    fresh = {"x": data(2)}
    np.testing.assert_allclose(run(new, fresh)["out"], run(model, fresh)["out"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scheme", [OPENVINO, ONNXRUNTIME, TENSORRT], ids=lambda s: s.name)
def test_under_every_scheme(scheme: Scheme) -> None:
    _, changed, before, after = leveled(network(""), scheme)
    assert changed == ["mix"]
    assert after > before + 6


@pytest.mark.parametrize("between", ["", "affine"])
def test_constants_take_the_division_in(between: str) -> None:
    model = network(between)
    new, _, _, _ = leveled(model)
    assert [n.op_type for n in new.graph] == [n.op_type for n in model.graph]


def test_one_multiplication_where_no_constant_does() -> None:
    model = network("HardSwish")
    new, _, _, _ = leveled(model)
    kinds = [n.op_type for n in new.graph]
    assert kinds.count("Mul") == 1
    assert len(kinds) == len(model.graph) + 1


@pytest.mark.parametrize(
    "model",
    [network("Relu"), network("", uneven=False), network("", second_reader=True)],
    ids=["a channel may be silent", "channels of one size", "another reader"],
)
def test_left_alone(model: ir.Model) -> None:
    _, changed, _, _ = leveled(model)
    assert changed == []


def test_a_divided_tensor_gives_up_its_name() -> None:
    """Else a comparison tensor by tensor would find it all wrong."""
    model = network("")
    made = plan(model, "best", OPENVINO)
    x = data(0)
    seen = moments(model, made, from_program(x, ["x"], None))
    int8 = apply(model, made, ranges(model, made, {"x": x}), moments=seen)
    names = {str(v.name) for n in int8.graph for v in n.outputs}
    assert "mix" not in names
    assert "mix_leveled" in names
    assert "out" in names


def test_a_silent_channel_keeps_the_common_scale() -> None:
    model = network("")
    dead = model.graph.initializers["mix.w"].const_value
    bias = model.graph.initializers["mix.b"].const_value
    assert dead is not None and bias is not None
    weight, vector = dead.numpy().copy(), bias.numpy().copy()
    weight[3], vector[3] = 0, 0
    model.graph.initializers["mix.w"].const_value = ir.Tensor(weight, name="mix.w")
    model.graph.initializers["mix.b"].const_value = ir.Tensor(vector, name="mix.b")
    new, changed, before, after = leveled(model)
    assert changed == ["mix"]
    assert np.isfinite(after)
    assert after > before + 6
    array = new.graph.initializers["mix.w"].const_value
    assert array is not None
    assert np.isfinite(array.numpy()).all()


def test_what_depthwise_means() -> None:
    nodes = {str(n.name): n for n in network("").graph}
    assert is_depthwise(nodes["dw"])
    assert not is_depthwise(nodes["mix"])
    assert may_be_leveled(nodes["dw"])
    assert not may_be_leveled({str(n.name): n for n in network("Relu").graph}["dw"])
