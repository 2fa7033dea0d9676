"""QDQ files of other tools with signed concatenations mean what they say on OpenVINO too."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.openvino_joins import parted_quantizers, unsigned_joins

F32 = np.float32


def model(
    zero: object = np.int8(0), *, requantized: bool = True, pooled: bool = False, stored: bool = False
) -> ir.Model:
    """Two branches, quantized as int8, joined and read by a convolution that is quantized too."""
    rng = np.random.default_rng(0)
    zero = np.asarray(zero)
    weights = {
        "s": np.array(0.04, F32),
        "z": zero,
        "ws": np.array(0.01, F32),
        "wz": np.array(0, np.int8),
        "one": rng.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8),
        "two": rng.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8),
        "last": rng.integers(-127, 128, (6, 24 if stored else 16, 3, 3)).astype(np.int8),
        "kept": rng.integers(-127, 128, (1, 8, 8, 8)).astype(np.int8),
    }
    nodes = []

    def node(op: str, inputs: list[str], out: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [out], name=out, **attributes))
        return out

    def pair(x: str) -> str:
        return node("DequantizeLinear", [node("QuantizeLinear", [x, "s", "z"], f"{x}_q"), "s", "z"], f"{x}_dq")

    def conv(x: str, w: str, out: str) -> str:
        weight = node("DequantizeLinear", [w, "ws", "wz"], f"{w}_dq")
        return node("Conv", [x, weight], out, pads=[1, 1, 1, 1])

    x = pair("x")
    branches = [pair(conv(x, "one", "a")), pair(conv(x, "two", "b"))]
    if pooled:
        branches[0] = node("MaxPool", [branches[0]], "pooled", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    if stored:
        branches.append(node("DequantizeLinear", ["kept", "s", "z"], "kept_dq"))
    else:
        del weights["kept"]
    joined = node("Concat", branches, "joined", axis=1)
    conv(pair(joined) if requantized else joined, "last", "y")
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 4, 8, 8]), ("y", [1, 6, 8, 8]))
    ]
    stored_weights = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "joins", infos[:1], infos[1:], stored_weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


def run(given: ir.Model, engine: str) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(F32)
    return engines.get(engine).load(given, EngineOptions(), {"x": x.shape}).run({"x": x})[0]


def signed(given: ir.Model) -> set[str]:
    return {
        str(n.name) for n in given.graph if n.op_type == "QuantizeLinear" and n.outputs[0].dtype == ir.DataType.INT8
    }


KINDS = [{}, {"requantized": False}, {"pooled": True}, {"stored": True}, {"zero": np.int8(-7)}]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_rewritten_model_is_equal(kind: dict[str, object]) -> None:
    given = model(**kind)  # type: ignore[arg-type]
    made = unsigned_joins(given)
    onnx.checker.check_model(ir.to_proto(made), full_check=True)
    assert signed(given) - signed(made) == ({"a_q", "b_q", "joined_q"} & signed(given))
    np.testing.assert_array_equal(run(made, "onnxruntime"), run(given, "onnxruntime"))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_openvino_computes_what_onnxruntime_does(kind: dict[str, object]) -> None:
    given = model(**kind)  # type: ignore[arg-type]
    wanted, got = run(given, "onnxruntime"), run(given, "openvino")
    noise = np.square(wanted.astype(np.float64) - got).mean() / np.square(wanted.astype(np.float64)).mean()
    assert 10 * np.log10(1 / noise) > 25


def test_the_given_model_is_left_as_it_is() -> None:
    given = model()
    before = ir.to_proto(given).SerializeToString()
    assert unsigned_joins(given) is not given
    assert ir.to_proto(given).SerializeToString() == before


def test_nothing_to_do() -> None:
    unsigned = model(np.uint8(128))
    assert unsigned_joins(unsigned) is unsigned


def test_integers_that_others_read_stay() -> None:
    given = model()
    quantized = next(n for n in given.graph if n.name == "a_q").outputs[0]
    given.graph.outputs.append(quantized)
    assert "a_q" in signed(unsigned_joins(given))


SIZES = {2: [1, 8], 3: [1, 8, 6], 4: [1, 8, 5, 6], 5: [1, 8, 3, 4, 5]}


def in_a_row(
    zero: object, between: str | None = "Mul", rank: int = 4, *, before: str | None = None, known: bool = True
) -> ir.Model:
    """A tensor joined with itself, quantized twice: in between, arithmetic on channels."""
    each = np.linspace(0.5, 2, 16, dtype=F32)
    weights = {
        "s": np.array(0.05, F32),
        "z": np.asarray(zero),
        "s2": np.array(0.0437, F32),
        "z2": np.array(0, np.uint8),
        "channels": each.reshape([16] + [1] * (rank - 2)),
        **{f"bn{i}": each for i in range(4)},
    }
    inputs = {"BatchNormalization": [f"bn{i}" for i in range(4)], "Relu": [], "Clip": []}
    nodes = []

    def node(op: str, names: list[str], out: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, names, [out], name=out, **attributes))
        return out

    def arithmetic(x: str, op: str | None, out: str) -> str:
        return x if op is None else node(op, [x, *inputs.get(op, ["channels"])], out)

    joined = arithmetic(node("Concat", ["x", "x"], "joined", axis=1), before, "before")
    first = node("DequantizeLinear", [node("QuantizeLinear", [joined, "s", "z"], "q"), "s", "z"], "dq")
    second = arithmetic(first, between, "between")
    node("DequantizeLinear", [node("QuantizeLinear", [second, "s2", "z2"], "q2"), "s2", "z2"], "y")
    sizes = [SIZES[rank], [1, 16, *SIZES[rank][2:]]]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("xy", sizes)]
    used = {name for n in nodes for name in n.input}
    stored = [numpy_helper.from_array(v, n) for n, v in weights.items() if n in used]
    graph = helper.make_graph(nodes, "in_a_row", infos[:1], infos[1:], stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto) if known else proto)


ROWS = [
    *[{"between": b} for b in (None, "Relu", "Mul", "Add", "Sub", "BatchNormalization")],
    *[{"rank": r} for r in (2, 3, 5)],
    *[{"before": b, "between": "Relu"} for b in ("Relu", "Mul", "BatchNormalization")],
    {"known": False},
]


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.parametrize("zero", [np.uint8(100), np.int8(-5)], ids=str)
def test_two_quantizers_behind_a_join_compile_and_mean_the_same(zero: object, row: dict[str, object]) -> None:
    """Without the guard, most of these end the process."""
    given = in_a_row(zero, **row)  # type: ignore[arg-type]
    parted = parted_quantizers(given)
    assert "MaxPool" in {n.op_type for n in parted.graph}
    onnx.checker.check_model(ir.to_proto(parted), full_check=True)
    x = np.random.default_rng(3).standard_normal(given.graph.inputs[0].shape.numpy()).astype(F32) * 3  # type: ignore[union-attr]
    # ONNX's own evaluator: ONNX Runtime makes one rounding of two quantizers in a row.
    wanted = ReferenceEvaluator(ir.to_proto(given)).run(None, {"x": x})[0]
    for engine, each in (("onnxruntime", parted), ("openvino", given)):
        got = engines.get(engine).load(each, EngineOptions(), {"x": x.shape}).run({"x": x})[0]
        # Where a value lies between two steps, kernels round it to either.
        assert np.abs(got - wanted).max() < 0.0438, engine
        assert (np.abs(got - wanted) > 0.01).mean() < 0.01, engine


@pytest.mark.parametrize("zero", [np.uint8(0), np.int8(0)], ids=str)
def test_without_a_zero_point_nothing_is_put_between(zero: object) -> None:
    given = in_a_row(zero)
    assert parted_quantizers(given) is given


def test_one_quantizer_is_left_alone() -> None:
    given = model(np.uint8(128))
    assert parted_quantizers(given) is given


def test_a_signed_join_that_no_product_reads_stays_signed() -> None:
    given = in_a_row(np.int8(0))
    assert unsigned_joins(given) is given
