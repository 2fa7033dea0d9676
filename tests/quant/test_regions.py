"""Blocks of a plan: what returns to float together."""

import onnx_ir as ir
import pytest
from small_graphs import Build

from requant.quant.blocks import blocks, kinds
from requant.quant.planner import plan
from requant.scheme import ONNXRUNTIME, OPENVINO


def two_residuals() -> ir.Model:
    """conv → two residual blocks, each with a Relu behind its sum → pool → gemm."""
    b = Build()
    last = b.op("Relu", "r0", b.conv("c0", "x", 3, 4))
    for i in (1, 2):
        b.op("Relu", f"r{i}a", b.conv(f"c{i}a", last, 4, 4))
        b.op("Add", f"s{i}", b.conv(f"c{i}b", f"r{i}a", 4, 4), last)
        last = b.op("Relu", f"r{i}", f"s{i}")
    b.op("GlobalAveragePool", "gap", last)
    b.op("Flatten", "f", "gap")
    b.op("Gemm", "y", "f", b.weight("fc.w", 5, 4), b.weight("fc.b", 5), transB=1)
    return b.model({"x": ("N", 3, 8, 8)}, {"y": ("N", 5)})


def projections() -> ir.Model:
    """Softmax → two products that read it → their product, as in attention."""
    b = Build()
    b.op("Softmax", "s", "x")
    b.op("MatMul", "q", "s", b.weight("q.w", 8, 8))
    b.op("MatMul", "k", "s", b.weight("k.w", 8, 8))
    b.op("Softmax", "qs", "q")
    b.op("Softmax", "ks", "k")
    b.op("MatMul", "v", "qs", b.weight("v.w", 8, 8))
    b.op("Mul", "y", "v", "ks")
    return b.model({"x": (1, 4, 8)}, {"y": (1, 4, 8)})


def branches() -> ir.Model:
    """Two branches that a concatenation joins, and a depthwise convolution behind it."""
    b = Build()
    b.op("Concat", "cat", b.conv("c1", "x", 3, 4), b.conv("c2", "x", 3, 4, k=1), axis=1)
    b.conv("dw", "cat", 8, 8, group=8)
    b.conv("y", "dw", 8, 4, k=1)
    return b.model({"x": (1, 3, 8, 8)}, {"y": (1, 4, 8, 8)})


GRAPHS = [two_residuals, projections, branches]


def test_a_block_ends_behind_a_sum_and_the_relu_in_it() -> None:
    model = two_residuals()
    found = [b.nodes for b in blocks(model, plan(model, "best", OPENVINO))]
    assert found == [("c0", "c1a", "c1b", "s1"), ("c2a", "c2b", "s2"), ("gap", "y")]


def test_readers_of_one_float_tensor_share_its_conversion() -> None:
    model = projections()
    assert [b.nodes for b in blocks(model, plan(model, "best", OPENVINO))] == [("q", "k"), ("v",)]


def test_a_concatenation_joins_its_branches_and_ends_their_block() -> None:
    model = branches()
    found = blocks(model, plan(model, "best", OPENVINO))
    assert [(b.name, b.nodes) for b in found] == [("cat", ("c1", "c2", "cat")), ("y", ("dw", "y"))]


@pytest.mark.parametrize("scheme", [OPENVINO, ONNXRUNTIME], ids=lambda s: s.name)
@pytest.mark.parametrize("mode", ["full", "smart", "best"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_every_int8_node_is_in_exactly_one_block(graph, mode, scheme) -> None:  # type: ignore[no-untyped-def]
    model = graph()
    made = plan(model, mode, scheme)
    together = [n for b in blocks(model, made) for n in b.nodes]
    assert sorted(together) == sorted(d.node for d in made.decisions if d.chosen == "int8")
    by_kind = [n for names in kinds(model, made.decisions).values() for n in names]
    assert sorted(by_kind) == sorted(together)


def test_kinds_tell_kernels_apart() -> None:
    model = branches()
    found = kinds(model, plan(model, "best", OPENVINO).decisions)
    assert found == {"Conv 3x3": ("c1",), "Conv 1x1": ("c2", "y"), "Concat": ("cat",), "Conv 3x3 depthwise": ("dw",)}
