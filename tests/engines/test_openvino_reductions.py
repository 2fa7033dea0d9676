"""Means and sums of quantized tensors with three axes, at batches where OpenVINO alone reads beyond their end."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.openvino_reductions import lifted_reductions

F32 = np.float32


def model(op: str, axes: list[int] | None, keep: int = 1, opset: int = 18, rank: int = 3) -> ir.Model:
    """x (N, 4, 24), quantized, reduced in float."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="d"),
    ]
    stored = {"s": np.array(0.03, F32), "z": np.array(0, np.int8)}
    attributes = {} if op.startswith("Global") else {"keepdims": keep}
    inputs = ["d"]
    if axes is not None and (opset >= 18 or (op == "ReduceSum" and opset >= 13)):
        stored["axes"] = np.array(axes, np.int64)
        inputs.append("axes")
    elif axes is not None:
        attributes["axes"] = axes  # type: ignore[assignment]
    nodes.append(helper.make_node(op, inputs, ["y"], name="y", **attributes))
    sizes = ["N", 4, 24, 2][:rank]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    weights = [numpy_helper.from_array(v, n) for n, v in stored.items()]
    graph = helper.make_graph(nodes, "reduced", infos[:1], infos[1:], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


CASES = [
    ("GlobalAveragePool", None, 1, 18),
    *[
        (op, axes, keep, 18)
        for op in ("ReduceMean", "ReduceSum")
        for axes in ([2], [1], [-1], [1, 2])
        for keep in (0, 1)
    ],
    *[(op, [-2], 0, 13) for op in ("ReduceMean", "ReduceSum")],
    ("ReduceMean", None, 0, 18),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("batch", [1, 12, 64])
def test_openvino_computes_what_onnxruntime_does(case: tuple[str, list[int] | None, int, int], batch: int) -> None:
    given = model(*case)
    lifted = lifted_reductions(given)
    assert "Unsqueeze" in {n.op_type for n in lifted.graph}
    onnx.checker.check_model(ir.to_proto(lifted), full_check=True)
    x = np.random.default_rng(1).standard_normal((batch, 4, 24)).astype(F32)
    results = []
    for engine, each in (("onnxruntime", given), ("onnxruntime", lifted), ("openvino", given)):
        results.append(engines.get(engine).load(each, EngineOptions(), {"x": x.shape}).run({"x": x})[0])
    assert results[0].shape == results[1].shape == results[2].shape
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-4, atol=1e-4)


def test_nothing_to_do() -> None:
    four = model("ReduceMean", [2], rank=4)
    assert lifted_reductions(four) is four
    plain = model("ReduceMean", [2])
    for node in list(plain.graph)[:2]:
        node.op_type = "Identity"
        node.resize_inputs(1)
    assert lifted_reductions(plain) is plain


def test_the_given_model_is_left_as_it_is() -> None:
    given = model("ReduceMean", [-1])
    before = ir.to_proto(given).SerializeToString()
    assert lifted_reductions(given) is not given
    assert ir.to_proto(given).SerializeToString() == before
