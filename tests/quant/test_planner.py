"""Planning: modes, excludes, reasons."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_graphs import Build, residual

from requant.errors import QuantizationError
from requant.passes import optimize
from requant.quant import flow
from requant.quant.plan import Plan, from_json
from requant.quant.planner import plan
from requant.scheme import ONNXRUNTIME, OPENVINO, TENSORRT, Scheme


def choices(made: Plan) -> dict[str, str]:
    return {d.node: d.chosen for d in made.decisions}


def test_best_plan_of_a_residual_block() -> None:
    made = plan(residual(), "best", OPENVINO)
    assert choices(made) == {
        "c0": "int8",
        "r0": "fused",
        "p0": "through",
        "c1": "int8",
        "r1": "fused",
        "c2": "int8",
        "s": "int8",
        "r2": "fused",
        "gap": "int8",
        "f": "through",
        "fc": "int8",
        "y": "float",
    }
    assert made.decision("y").why == "Softmax has no int8 form in scheme 'openvino'"
    assert made.decision("r1").why == "computed inside c1"
    # The pooled tensor and its input share one scale, which is observed once; so do the flat tensor and its input.
    assert made.groups["r0"] == ("r0", "p0")
    assert set(made.observed) == {"x", "r0", "r1", "r2", "gap"}


def test_the_range_of_an_addend_in_accumulators_follows_from_the_sum() -> None:
    def addends(model: ir.Model, scheme: Scheme) -> dict[str, tuple[str, str]]:
        return {t.name: t.addend_of for t in plan(model, "best", scheme).tensors if t.addend_of is not None}

    # Of c2 + p0 the convolution's side, which OpenVINO does not round. ONNX Runtime does, so there it is observed.
    assert addends(residual(), OPENVINO) == {"c2": ("r2", "p0")}
    assert addends(residual(), ONNXRUNTIME) == {}
    assert "c2" in plan(residual(), "best", ONNXRUNTIME).observed
    assert addends(residual(bn=True), OPENVINO) == {}  # a sum that stays float bounds nothing

    def two(order: tuple[str, str], graph_output: bool = False) -> ir.Model:
        b = Build()
        b.conv("c0", "x", 3, 4)
        b.op("Relu", "r0", "c0")
        b.conv("c1", "r0", 4, 4)
        b.conv("c2", "r0", 4, 4)
        b.op("Add", "s", *order)
        b.conv("y", "s", 4, 4)
        outs = {"y": ("N", 4, 8, 8), **({"s": ("N", 4, 8, 8)} if graph_output else {})}
        return b.model({"x": ("N", 3, 8, 8)}, outs)

    # Of two convolutions, the first input is the one that sums.
    assert addends(two(("c1", "c2")), OPENVINO) == {"c1": ("s", "c2")}
    assert addends(two(("c2", "c1")), OPENVINO) == {"c2": ("s", "c1")}
    # A sum that leaves the graph as float must not saturate.
    assert addends(two(("c1", "c2"), graph_output=True), OPENVINO) == {}


def test_scheme_decides_where_quantizers_stand() -> None:
    assert plan(residual(), "best", TENSORRT).decision("s").inputs == (1,)  # c2 stays in the accumulators
    none = dataclasses.replace(OPENVINO, add_inputs="none")
    assert plan(residual(), "best", none).decision("s").inputs == ()
    # ONNX Runtime wants quantized outputs too, but a graph output stays what it is.
    b = Build()
    b.conv("c0", "x", 3, 4)
    b.op("Relu", "r0", "c0")
    b.op("Sigmoid", "y", "r0")
    model = b.model({"x": ("N", 3, 8, 8)}, {"y": ("N", 4, 8, 8)})
    assert plan(model, "best", ONNXRUNTIME).observed == ("x", "r0")
    assert plan(model, "best", OPENVINO).observed == ("x",)


def test_a_pre_activation_stream_stays_float() -> None:
    made = plan(residual(bn=True), "best", OPENVINO)
    assert choices(made)["s"] == "float"
    assert "no chain of int8 nodes" in made.decision("s").why
    assert choices(made)["bn"] == "float"
    assert choices(plan(residual(bn=True), "full", OPENVINO))["s"] == "int8"
    assert choices(plan(residual(bn=True), "smart", OPENVINO))["s"] == "int8"  # MXNet counts BatchNorm as support


# A = must (Conv), B = support (Add of a tensor with itself), C = other (Sin).
CHAINS = {
    "ABA": "i i i",
    "CBC": "f f f",
    "ABC": "i f f",
    "CBA": "f f i",
    "ABBBA": "i i i i i",
    "ABCBA": "i f f f i",
    "BAB": "f i f",
    "AABA": "i i i i",
}


@pytest.mark.parametrize("chain", CHAINS)
def test_smart_is_mxnets_rule(chain: str) -> None:
    b = Build()
    last = "x"
    for i, kind in enumerate(chain):
        name = f"n{i}"
        if kind == "A":
            b.conv(name, last, 2, 2)
        elif kind == "B":
            b.op("Add", name, last, last)
        else:
            b.op("Sin", name, last)
        last = name
    model = b.model({"x": ("N", 2, 4, 4)}, {last: ("N", 2, 4, 4)})
    wanted = ["int8" if c == "i" else "float" for c in CHAINS[chain].split()]
    if "int8" not in wanted:
        with pytest.raises(QuantizationError, match="nothing in this model would be quantized"):
            plan(model, "smart", OPENVINO)
    else:
        assert [d.chosen for d in plan(model, "smart", OPENVINO).decisions] == wanted
    assert [d.chosen == "int8" for d in plan(model, "full", OPENVINO).decisions] == [c in "AB" for c in chain]


def test_smart_needs_one_good_path_each_way() -> None:
    """A support node with several producers and consumers: one chain up and one chain down are enough."""
    b = Build()
    b.conv("must", "x", 2, 2)
    b.op("Sin", "other", "x")
    b.op("Add", "s", "must", "other")
    b.conv("end", "s", 2, 2)
    b.op("Sin", "aside", "s")
    model = b.model({"x": ("N", 2, 4, 4)}, {"end": ("N", 2, 4, 4), "aside": ("N", 2, 4, 4)})
    assert choices(plan(model, "smart", OPENVINO))["s"] == "int8"


@given(st.lists(st.sampled_from("msx"), min_size=1, max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_smart_equals_the_definition_by_paths(kinds: list[str], data: st.DataObject) -> None:
    """The two walks find what enumerating all paths finds."""
    values = [ir.Value(name="in")]
    nodes = []
    for i, _ in enumerate(kinds):
        picks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=3))
        node = ir.Node("", "Sum", [values[p] for p in picks], name=f"n{i}", outputs=[ir.Value(name=f"v{i}")])
        nodes.append(node)
        values.append(node.outputs[0])
    kind = dict(zip(nodes, kinds))

    def path(node: ir.Node, step: object) -> bool:
        """Some chain of support nodes leads to a must node."""
        return any(kind[n] == "m" or (kind[n] == "s" and path(n, step)) for n in step(node))  # type: ignore[operator]

    wanted = {n for n in nodes if kind[n] == "m" or (kind[n] == "s" and path(n, flow.before) and path(n, flow.after))}
    assert flow.smart(nodes, lambda n: kind[n] == "m", lambda n: kind[n] == "s") == wanted


def fused() -> ir.Model:
    """conv + batch norm + relu, as MXNet's lowering names them, and a second conv."""
    b = Build()
    b.op("Conv", "net/Conv", "x", b.weight("w", 4, 3, 3, 3), mx="resnetv10_conv0_fwd", pads=[1] * 4)
    stats = [b.weight(f"bn.{n}", 4) for n in ("g", "b", "m", "v")]
    b.weights["bn.v"] = np.abs(b.weights["bn.v"]) + 0.5
    b.op("BatchNormalization", "net/BN", "net/Conv", *stats, mx="resnetv10_batchnorm0_fwd")
    b.op("Relu", "net/Relu", "net/BN", mx="resnetv10_relu0_fwd")
    b.op("Conv", "head/Conv", "net/Relu", b.weight("w2", 4, 4, 1, 1), mx="resnetv10_stage1_conv0_fwd")
    return optimize(b.model({"x": ("N", 3, 8, 8)}, {"head/Conv": ("N", 4, 8, 8)}))


@pytest.mark.parametrize(
    "name",
    [
        "net/Conv",  # the name it has
        "net/BN",  # a node fused into it
        "resnetv10_conv0_fwd",  # MXNet's name
        "resnetv10_batchnorm0_fwd",  # of the fused node
        "net",  # a scope
        "net/",
        "resnetv10_conv0",  # a gluon block
        "*conv0_fwd",  # globs
        "net/*",
    ],
)
def test_excludes_find_a_node_by_any_name(name: str) -> None:
    made = plan(fused(), "best", OPENVINO, exclude=[] if name == "*conv0_fwd" else [name], exclude_ops=[])
    if name == "*conv0_fwd":
        with pytest.raises(QuantizationError, match="nothing in this model"):
            plan(fused(), exclude=[name])  # it means the head too
        return
    assert choices(made)["net/Conv"] == "float"
    assert made.decision("net/Conv").why == f"excluded by name {name!r}"
    assert choices(made)["head/Conv"] == "int8"


def test_an_exact_name_is_not_taken_for_a_scope() -> None:
    b = Build()
    b.conv("conv1", "x", 3, 4)
    b.conv("conv1_b", "conv1", 4, 4)
    model = b.model({"x": ("N", 3, 8, 8)}, {"conv1_b": ("N", 4, 8, 8)})
    assert choices(plan(model, exclude=["conv1"])) == {"conv1": "float", "conv1_b": "int8"}


def test_a_name_that_matches_nothing_is_an_error_with_the_nearest_names() -> None:
    with pytest.raises(QuantizationError, match="did you mean 'net/Conv'"):
        plan(fused(), exclude=["net/Cnv"])
    with pytest.raises(QuantizationError, match="matches no node"):
        plan(fused(), exclude=["*nothing*"])
    with pytest.raises(QuantizationError, match="did you mean 'Conv'"):
        plan(fused(), exclude_ops=["Convv"])


def test_excluding_operator_types() -> None:
    assert choices(plan(residual(), exclude_ops=["Gemm"]))["fc"] == "float"
    with pytest.raises(QuantizationError, match="excluded by operator type 'Conv'"):
        plan(fused(), exclude_ops=["Conv"])


def test_nothing_to_quantize_is_an_error_with_reasons() -> None:
    b = Build()
    b.op("Sin", "y", "x")
    with pytest.raises(QuantizationError, match="Sin has no int8 form"):
        plan(b.model({"x": ("N", 2)}, {"y": ("N", 2)}))
    with pytest.raises(QuantizationError, match="unknown quantize mode"):
        plan(residual(), "fast")  # type: ignore[arg-type]


def test_every_node_has_a_reason() -> None:
    for mode in ("full", "smart", "best"):
        made = plan(residual(bn=True), mode, OPENVINO)
        assert len(made.decisions) == len(residual(bn=True).graph)
        assert all(d.why for d in made.decisions)


def test_the_log_tells_what_was_done(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="requant.quant.planner"):
        plan(fused(), exclude=["head/Conv"])
    text = caplog.text
    assert "quantized 1 of 3 nodes (mode best, scheme default); 1 tensor is observed" in text
    assert "int8: resnetv10_conv0_fwd (Conv), with resnetv10_batchnorm0_fwd" in text
    assert "fused: resnetv10_relu0_fwd (Relu): computed inside resnetv10_conv0_fwd" in text
    assert "float: resnetv10_stage1_conv0_fwd (Conv): excluded by name 'head/Conv'" in text


def test_concat_shares_a_scale_only_where_it_is_read_as_int8() -> None:
    b = Build()
    b.conv("a", "x", 3, 2)
    b.conv("b", "x", 3, 2)
    b.op("Relu", "r", "b")
    b.op("Concat", "c", "a", "r", axis=1)
    b.conv("d", "c", 4, 2)
    model = b.model({"x": ("N", 3, 8, 8)}, {"d": ("N", 2, 8, 8)})
    made = plan(model, "best", OPENVINO)
    assert choices(made)["c"] == "int8"
    assert made.groups["a"] == ("a", "r", "c")
    assert made.observed == ("x", "a", "r")
    b.nodes.pop()
    b.op("Sin", "d", "c")
    model = b.model({"x": ("N", 3, 8, 8)}, {"d": ("N", 4, 8, 8)})
    assert choices(plan(model, "best", OPENVINO))["c"] == "float"
    assert choices(plan(model, "full", OPENVINO))["c"] == "int8"


def test_a_quantizer_moves_up_through_what_only_moves_values() -> None:
    b = Build()
    b.op("Transpose", "t", "x", perm=[0, 3, 1, 2])
    b.conv("c", "t", 3, 2)
    model = b.model({"x": ("N", 8, 8, 3)}, {"c": ("N", 2, 8, 8)})
    made = plan(model)
    assert (choices(made)["t"], made.groups) == ("through", {"x": ("x", "t")})
    # ... but not through a selection: the part may lie in a smaller range than the whole
    b = Build()
    b.weights["i"] = np.array([0, 1, 2])
    b.op("Gather", "t", "x", "i", axis=1)
    b.conv("c", "t", 3, 2)
    made = plan(b.model({"x": ("N", 5, 8, 8)}, {"c": ("N", 2, 8, 8)}))
    assert made.observed == ("t",)


def test_attention_quantizes_both_factors() -> None:
    b = Build()
    b.op("MatMul", "q", "x", b.weight("wq", 8, 8))
    b.op("MatMul", "k", "x", b.weight("wk", 8, 8))
    b.op("Transpose", "kt", "k", perm=[0, 2, 1])
    b.op("MatMul", "scores", "q", "kt")
    b.op("Softmax", "y", "scores")
    made = plan(b.model({"x": ("N", 4, 8)}, {"y": ("N", 4, 4)}))
    assert made.decision("scores").inputs == (0, 1)
    assert made.decision("scores").why == "MatMul of two activations"
    assert made.observed == ("x", "q", "k")


def test_what_has_no_float32_weight_stays_float() -> None:
    b = Build()
    b.conv("c", "x", 3, 3)
    b.op("Conv", "dynamic", "c", "k")
    b.op("MatMul", "empty", "dynamic", b.weight("none", 6, 0))
    made = plan(b.model({"x": ("N", 3, 8, 8), "k": (3, 3, 3, 3)}, {"empty": ("N", 3, 6, 0)}))
    assert made.decision("dynamic").why == "its weight is computed, not constant"
    assert made.decision("empty").why == "its weight is empty"


KINDS = ("conv", "depthwise", "relu", "add", "pool", "max", "sigmoid", "concat", "move")
SCHEMES = (OPENVINO, ONNXRUNTIME, TENSORRT)


def grown(kinds: list[str], picks: list[int]) -> ir.Model:
    """A network whose every tensor is (N, 4, 6, 6), by lists of operators and of where they read."""
    b = Build()
    made = [b.conv("c", "x", 3, 4)]
    for i, (kind, pick) in enumerate(zip(kinds, picks)):
        last, other, name = made[-1], made[pick % len(made)], f"n{i}"
        if kind == "conv":
            b.conv(name, other, 4, 4)
        elif kind == "depthwise":
            b.conv(name, last, 4, 4, group=4)
        elif kind in ("relu", "sigmoid"):
            b.op(kind.title(), name, last)
        elif kind == "add":
            b.op("Add", name, last, other)
        elif kind == "pool":
            b.op("AveragePool", name, last, kernel_shape=[3, 3], pads=[1] * 4)
        elif kind == "max":
            b.op("MaxPool", name, other, kernel_shape=[3, 3], pads=[1] * 4)
        elif kind == "move":
            b.op("Transpose", name, last, perm=[0, 1, 3, 2])
        else:
            b.conv(name, b.op("Concat", f"{name}.c", last, other, axis=1), 8, 4, k=1)
        made.append(name)
    return b.model({"x": ("N", 3, 6, 6)}, {made[-1]: ("N", 4, 6, 6)})


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 11)), min_size=1, max_size=12),
    st.sampled_from(SCHEMES),
    st.sampled_from(["full", "smart", "best"]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_holds_of_every_plan(steps: list[tuple[str, int]], scheme: Scheme, mode: str, exclude: bool) -> None:
    model = grown([k for k, _ in steps], [p for _, p in steps])
    excluded = ["n0"] if exclude and steps[0][0] != "concat" else []
    made = plan(model, mode, scheme, exclude=excluded)  # type: ignore[arg-type]
    nodes, tensors = {str(n.name): n for n in model.graph}, {t.name: t for t in made.tensors}
    assert [d.node for d in made.decisions] == list(nodes), "one decision for each node, in order"
    assert all(d.why for d in made.decisions)
    assert len(tensors) == len(made.tensors), "a tensor is quantized once"
    for name, members in made.groups.items():
        assert name in members
        assert any(tensors[m].observe or tensors[m].addend_of for m in members), "every scale has a source"
    for tensor in made.tensors:
        assert all(made.decision(r).chosen in ("int8", "through") for r in tensor.readers or ())
    for decision in made.decisions:
        inputs = [v.name for v in nodes[decision.node].inputs if v is not None]
        assert all(inputs[i] in tensors for i in decision.inputs), "what an int8 node reads has a quantizer"
        assert not decision.inputs or decision.chosen == "int8"
        if decision.node in excluded:
            assert decision.chosen == "float"
        if decision.chosen == "through":
            assert inputs[0] in tensors and str(nodes[decision.node].outputs[0].name) in tensors
    assert made == plan(model, mode, scheme, exclude=excluded), "the same model gives the same plan"  # type: ignore[arg-type]
    assert from_json(made.to_json()) == made
