"""What the inputs of a layer look like to its weight: patches multiply to the layer's own output."""

import math

import numpy as np
import onnx_ir as ir
import pytest
from small_graphs import Build, run

from requant import qmath
from requant.passes.rewrite import constant
from requant.quant.moments import LARGEST_BLOCK, Moments, layout, patches, round_weight
from requant.quant.weights import weight_params

CASES = {
    "plain": {"channels": 3, "out": 5, "k": 3},
    "one by one": {"channels": 6, "out": 4, "k": 1},
    "grouped": {"channels": 6, "out": 4, "k": 3, "group": 2},
    "depthwise": {"channels": 6, "out": 6, "k": 3, "group": 6},
    "strided": {"channels": 3, "out": 5, "k": 3, "strides": [2, 2]},
    "dilated": {"channels": 3, "out": 5, "k": 3, "dilations": [2, 1]},
    "uneven pads": {"channels": 3, "out": 5, "k": 3, "pads": [0, 1, 2, 1]},
    "in blocks": {"channels": 96, "out": 4, "k": 3},
}


def network(case: dict) -> tuple[ir.Model, ir.Node]:  # type: ignore[type-arg]
    b = Build()
    k, group = case["k"], case.get("group", 1)
    attributes = {n: v for n, v in case.items() if n in ("strides", "dilations", "pads")}
    attributes.setdefault("pads", [k // 2] * 4)
    b.op("Conv", "y", "x", b.weight("w", case["out"], case["channels"] // group, k, k), group=group, **attributes)
    model = b.model({"x": ("N", case["channels"], 9, 8)}, {"y": ("N", case["out"], "h", "w")})
    return model, next(iter(model.graph))


@pytest.mark.parametrize("name", CASES)
def test_patches_times_weight_is_the_layer(name: str) -> None:
    model, node = network(CASES[name])
    weight = constant(node.inputs[1])
    assert weight is not None
    how = layout(node, weight)
    assert how is not None
    assert np.array_equal(how.weight(how.blocks(weight), weight), weight)
    assert how.blocks(weight).shape[2] <= LARGEST_BLOCK
    x = np.random.default_rng(0).standard_normal((2, CASES[name]["channels"], 9, 8)).astype(np.float32)
    rows = patches(node, weight, how, x, 10**6, np.random.default_rng(0))
    assert rows is not None
    products = np.einsum("brk,bpk->bpr", how.blocks(weight), rows)
    by_group = products.reshape(how.groups, how.chunks, *products.shape[1:]).sum(axis=1)
    wanted = run(model, {"x": x})["y"]
    got = by_group.transpose(1, 0, 2).reshape(2, math.prod(wanted.shape[2:]), -1).transpose(0, 2, 1)
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Gemm, transB"])
def test_rows_of_products(op: str) -> None:
    b = Build()
    if op == "MatMul":
        b.op("MatMul", "y", "x", b.weight("w", 6, 4))
        model, shape = b.model({"x": ("N", 3, 6)}, {"y": ("N", 3, 4)}), (5, 3, 6)
    else:
        flipped = op.endswith("transB")
        b.op("Gemm", "y", "x", b.weight("w", *((4, 6) if flipped else (6, 4))), transB=int(flipped))
        model, shape = b.model({"x": ("N", 6)}, {"y": ("N", 4)}), (5, 6)  # type: ignore[assignment]
    node = next(iter(model.graph))
    weight = constant(node.inputs[1])
    assert weight is not None
    how = layout(node, weight)
    assert how is not None
    assert np.array_equal(how.weight(how.blocks(weight), weight), weight)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    rows = patches(node, weight, how, x, 100, np.random.default_rng(0))
    assert rows is not None
    got = np.einsum("brk,bpk->pr", how.blocks(weight), rows)
    np.testing.assert_allclose(got, run(model, {"x": x})["y"].reshape(-1, 4), rtol=1e-4, atol=1e-5)


def test_few_places_are_a_sample_of_all() -> None:
    _, node = network(CASES["plain"])
    weight = constant(node.inputs[1])
    assert weight is not None
    how = layout(node, weight)
    assert how is not None
    x = np.random.default_rng(0).standard_normal((3, 3, 9, 8)).astype(np.float32)
    few = patches(node, weight, how, x, 7, np.random.default_rng(0))
    every = patches(node, weight, how, x, 10**6, np.random.default_rng(0))
    assert few is not None
    assert every is not None
    assert few.shape == (1, 21, 27)
    known = {r.tobytes() for r in every[0]}
    assert all(r.tobytes() in known for r in few[0])


def test_batches_add_up() -> None:
    rows = np.random.default_rng(0).standard_normal((2, 60, 5)).astype(np.float32) + 3
    one, two = Moments(), Moments()
    one.observe(rows)
    two.observe(rows[:, :17])
    two.observe(rows[:, 17:])
    np.testing.assert_allclose(one.covariance, two.covariance, rtol=1e-3, atol=1e-4)
    found = one.covariance[0]
    np.testing.assert_allclose(np.diag(found), rows[0].var(axis=0), rtol=1e-4)
    assert np.abs(found - np.cov(rows[0].T, bias=True) * np.where(np.eye(5), 1, 60 / 65)).max() < 1e-4


def test_a_rounded_weight_makes_smaller_errors_on_its_layer() -> None:
    model, node = network(CASES["in blocks"])
    weight = constant(node.inputs[1])
    assert weight is not None
    how = layout(node, weight)
    assert how is not None
    rng = np.random.default_rng(0)
    # Smooth images in which channels go together, as real ones do.
    base = rng.standard_normal((40, 4, 3, 2)).repeat(3, axis=2).repeat(4, axis=3)
    x = np.einsum("ncij,dc->ndij", base, rng.standard_normal((96, 4))).astype(np.float32)
    x += 0.05 * rng.standard_normal(x.shape).astype(np.float32)
    moments = Moments()
    rows = patches(node, weight, how, x[:32], 64, rng)
    assert rows is not None
    moments.observe(rows)
    params = weight_params(node, weight, 1, per_channel=True, reduced=False)
    integers = round_weight(weight, params, how, moments)
    assert integers.dtype == np.int8
    assert round_weight(weight, params, how, moments) is integers, "a search asks for it again and again"

    def error(q: np.ndarray) -> float:
        changed, _ = network(CASES["in blocks"])
        value = changed.graph.initializers["w"]
        value.const_value = ir.Tensor(qmath.dequantize(q, params), name="w")
        a, b = run(model, {"x": x[32:]})["y"], run(changed, {"x": x[32:]})["y"]
        return float(np.square(a - b - (a - b).mean(axis=(0, 2, 3), keepdims=True)).mean())

    assert error(integers) < 0.5 * error(qmath.quantize(weight, params))


def test_layers_whose_patches_are_not_told() -> None:
    b = Build()
    b.op("ConvTranspose", "y", "x", b.weight("w", 4, 4, 2, 2))
    node = next(iter(b.model({"x": ("N", 4, 5, 5)}, {"y": ("N", 4, 6, 6)}).graph))
    weight = constant(node.inputs[1])
    assert weight is not None
    assert layout(node, weight) is None
