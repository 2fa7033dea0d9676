"""Where OpenVINO reads ONNX otherwise than ONNX says: the sessions mean what the graph means."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from requant import engines
from requant.engines.base import EngineOptions
from requant.ops.emit import OPSET, Emit


def load(g: Emit, inputs: list[ir.Value], outputs: list[ir.Value]) -> engines.Session:
    graph = ir.Graph(
        inputs, outputs, nodes=g.nodes, initializers=list(g.initializers.values()), opset_imports={"": OPSET}
    )
    return engines.get("openvino").load(ir.Model(graph, ir_version=10), EngineOptions(threads=1), None)


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((1, 3000), 1, 3000),
        ((2, 3000), 1, 40),
        ((900, 2, 2), 0, 300),
        ((1, 17), -1, 17),
        ((30000,), 0, 1),
        ((1, 50000), 1, 50000),
        ((2, 60000), 1, 50000),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_equal_elements_keep_their_order(
    shape: tuple[int, ...], axis: int, k: int, largest: int, dtype: type[np.generic]
) -> None:
    g = Emit()
    x = g.input("x", shape, dtype)
    values, indices = g.multi("TopK", 2, x, np.array([k], np.int64), axis=axis, largest=largest, sorted=1)
    if k > 46340 and dtype == np.int32:
        pytest.skip("OpenVINO's own stable TopK does these, which takes seconds")
    array = np.random.RandomState(0).randint(-20, 20, shape).astype(dtype)
    order = np.argsort(-array if largest else array, axis=axis, kind="stable").take(range(k), axis=axis)
    got, where = load(g, [x], [values, indices]).run({"x": array})
    np.testing.assert_array_equal(where, order)
    np.testing.assert_array_equal(got, np.take_along_axis(array, order, axis))
    assert where.dtype == np.int64


def test_topk_of_nan_and_infinities_gives_as_many_as_asked_for() -> None:
    g = Emit()
    x = g.input("x", (1, 3000), np.float32)
    values, indices = g.multi("TopK", 2, x, np.array([2000], np.int64), axis=1, largest=1, sorted=1)
    array = np.random.RandomState(0).normal(0, 1, (1, 3000)).astype(np.float32)
    array[0, 5:1500] = np.nan
    array[0, 1600:1700] = -np.inf
    array[0, 1700:1800] = np.inf
    got, where = load(g, [x], [values, indices]).run({"x": array})
    assert got.shape == where.shape == (1, 2000)
    np.testing.assert_array_equal(where[0, :100], np.arange(1700, 1800))
    np.testing.assert_array_equal(got[0, :1405], np.sort(array[0][~np.isnan(array[0])])[::-1][:1405])


@pytest.mark.parametrize(("threshold", "kept"), [(0.5, 2), (np.nextafter(np.float32(0.5), np.float32(0)), 1)])
def test_a_box_that_reaches_the_threshold_stays(threshold: float, kept: int) -> None:
    g = Emit()
    boxes = g.input("boxes", (1, 2, 4), np.float32)
    scores = g.input("scores", (1, 1, 2), np.float32)
    limits = np.array([threshold], np.float32), np.array([0.0], np.float32)
    found = g("NonMaxSuppression", boxes, scores, np.array([2], np.int64), *limits)
    feeds = {"boxes": np.array([[[0, 0, 2, 2], [0, 0, 2, 1]]], np.float32), "scores": np.ones((1, 1, 2), np.float32)}
    assert len(load(g, [boxes, scores], [found]).run(feeds)[0]) == kept
