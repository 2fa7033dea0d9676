"""Models that tell what calibration looks at: which outputs, in which order."""

import numpy as np
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from requant import engines
from requant.engines.base import EngineOptions
from requant.pipeline.watch import averaging, by_depth, reducing, watching

F32 = np.float32


def chain() -> ir.Model:
    """x -> a = x * 2 -> b = a + 1 -> c = Relu(b), all (N, 3, 2, 2)."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["a"], name="a"),
        helper.make_node("Add", ["a", "one"], ["b"], name="b"),
        helper.make_node("Relu", ["b"], ["c"], name="c"),
    ]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 3, 2, 2]) for n in ("x", "a", "b", "c")]
    stored = [numpy_helper.from_array(np.array(v, F32), n) for n, v in (("two", 2), ("one", 1))]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[3:], stored, value_info=infos[1:3])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def names(model: ir.Model) -> list[str]:
    return [str(v.name) for v in model.graph.outputs]


def test_what_looks_at_a_tensor_stands_together_and_in_the_order_of_making() -> None:
    made = averaging(reducing(chain(), ["c", "a"]).model, {"c": 1, "a": 1})
    before = names(made)
    assert before[-2:] == ["requant.mean.0", "requant.mean.1"]
    places = by_depth(made)
    after = names(made)
    looked = [str(v.producer().inputs[0].name) for v in made.graph.outputs]  # type: ignore[union-attr]
    assert looked == sorted(looked)
    assert [after[i] for i in places] == before


def test_values_are_found_at_their_places() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype(F32)
    a, c = 2 * x, np.maximum(2 * x + 1, 0)
    made = averaging(watching(chain(), ["c", "a"], channels_last=True), {"c": 1, "a": 1})
    places = by_depth(made)
    for engine in ("openvino", "onnxruntime"):
        outs = engines.get(engine).load(made, EngineOptions(), {"x": x.shape}).run({"x": x})
        got = [outs[i] for i in places]
        wanted = [c.transpose(0, 2, 3, 1), a.transpose(0, 2, 3, 1), c.mean((2, 3)), a.mean((2, 3))]
        for one, other in zip(got, wanted):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
