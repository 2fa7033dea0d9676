"""Detection operators beyond their goldens: plain numpy, MXNet's faults, open sizes, refusals, labels that are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from requant import eager, engines, lower
from requant.engines.base import EngineOptions
from requant.errors import AttributeValueError, DTypeError, RequantError, ShapeError
from requant.mx import sym
from requant.ops import registry

Dims = list[int | str]


def run(
    engine: str, name: str, attrs: dict[str, object], arrays: list[np.ndarray], dims: list[Dims] | None = None
) -> list[np.ndarray]:
    op = registry.get(name)
    shapes = dims or [list(a.shape) for a in arrays]
    model, used = eager.lower_one(op, op.parse(attrs), [(a.dtype, s) for a, s in zip(arrays, shapes)])
    session = engines.get(engine).load(model, EngineOptions(threads=1), None)
    return session.run({f"in{i}": arrays[i] for i in used})


def boxes(count: int, classes: int, batch: int = 1, seed: int = 0) -> np.ndarray:
    rng = np.random.RandomState(seed)
    low = rng.uniform(0, 200, (batch, count, 2))
    parts = [
        rng.randint(0, classes, (batch, count, 1)),
        rng.randint(-20, 100, (batch, count, 1)) / 100,  # many ties
        low,
        low + rng.uniform(5, 60, (batch, count, 2)),
    ]
    return np.concatenate(parts, axis=2).astype(np.float32)


def plain_nms(rows: np.ndarray, overlap: float, valid: float, topk: int, by_class: bool) -> np.ndarray:
    """box_nms of (n, 6), as its documentation describes it."""
    order = [i for i in np.argsort(-rows[:, 1], kind="stable") if rows[i, 1] > valid]
    kept: list[np.ndarray] = []
    for i in order if topk < 0 else order[:topk]:
        row = rows[i]
        for other in kept:
            if by_class and other[0] != row[0]:
                continue
            extent = np.minimum(row[4:], other[4:]) - np.maximum(row[2:4], other[2:4])
            shared = np.prod(np.maximum(extent, 0))
            union = np.prod(row[4:] - row[2:4]) + np.prod(other[4:] - other[2:4]) - shared
            if shared / union > overlap:
                break
        else:
            kept.append(row)
    out = np.full_like(rows, -1)
    out[: len(kept)] = kept
    return out


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(("count", "classes", "topk"), [(600, 1, -1), (600, 7, -1), (3000, 5, 150), (300, 40, 200)])
def test_box_nms_is_what_its_documentation_says(count: int, classes: int, topk: int, engine: str) -> None:
    data = boxes(count, classes, batch=2, seed=count + classes)
    attrs: dict[str, object] = {"overlap_thresh": 0.3, "valid_thresh": 0.1, "topk": topk, "id_index": 0}
    (out,) = run(engine, "_contrib_box_nms", attrs, [data])
    for got, rows in zip(out, data):
        np.testing.assert_array_equal(got, plain_nms(rows, 0.3, 0.1, topk, by_class=True))


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_boxes_that_begin_left_of_the_image_are_converted_too(engine: str) -> None:
    """MXNet leaves boxes with a negative first coordinate in their old format, in both directions."""
    data = np.array([[0, 0.9, -1, 2, 3, 8], [0, 0.8, 20, 30, 24, 36]], np.float32)
    (center,) = run(engine, "_contrib_box_nms", {"out_format": "center"}, [data])
    np.testing.assert_allclose(center, [[0, 0.9, 1, 5, 4, 6], [0, 0.8, 22, 33, 4, 6]], rtol=1e-6)
    (corner,) = run(
        engine, "_contrib_box_nms", {"in_format": "center"}, [np.array([[0, 0.9, -1, 2, 3, 8]], np.float32)]
    )
    np.testing.assert_allclose(corner, [[0, 0.9, -2.5, -2, 0.5, 6]], rtol=1e-6)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_class_numbers_may_be_of_any_size(engine: str) -> None:
    data = boxes(20, 3)[0]
    wide = data.copy()
    wide[:, 0] = np.array([-(2**30), 0, 2**30])[data[:, 0].astype(int)]
    (few,) = run(engine, "_contrib_box_nms", {"id_index": 0, "overlap_thresh": 0.1}, [data])
    (many,) = run(engine, "_contrib_box_nms", {"id_index": 0, "overlap_thresh": 0.1}, [wide])
    np.testing.assert_array_equal(many[:, 1:], few[:, 1:])


OPEN: list[tuple[str, dict[str, object], list[np.ndarray], list[Dims]]] = [
    (
        "_contrib_box_nms",
        {"id_index": 0, "topk": 7},
        [boxes(30, 3, 2)],
        [["N", 30, 6]],
    ),
    ("_contrib_box_nms", {"id_index": 0, "topk": 50}, [boxes(30, 3, 2)], [["N", "n", "w"]]),
    (
        "_contrib_MultiBoxPrior",
        {"sizes": (0.2, 0.4), "ratios": (1, 2)},
        [np.zeros((1, 3, 4, 5), "f4")],
        [["N", 3, "h", "w"]],
    ),
    (
        "_contrib_MultiBoxDetection",
        {"nms_topk": 6},
        [np.random.RandomState(0).rand(2, 4, 9).astype("f4"), np.zeros((2, 36), "f4"), boxes(9, 1)[:, :, 2:] / 300],
        [["N", 4, 9], ["N", 36], [1, 9, 4]],
    ),
    (
        "_contrib_MultiProposal",
        {"scales": (2,), "ratios": (1, 2), "rpn_post_nms_top_n": 5, "output_score": True},
        [
            np.random.RandomState(0).rand(2, 4, 3, 4).astype("f4"),
            np.zeros((2, 8, 3, 4), "f4"),
            np.array([[48, 64, 1]] * 2, "f4"),
        ],
        [["N", 4, "h", "w"], ["N", 8, "h", "w"], ["N", 3]],
    ),
    (
        "_contrib_ModulatedDeformableConvolution",
        {"kernel": (3, 3), "num_filter": 2, "pad": (1, 1)},
        [
            np.random.RandomState(i).rand(*s).astype("f4")
            for i, s in enumerate([(2, 3, 5, 6), (2, 18, 5, 6), (2, 9, 5, 6), (2, 3, 3, 3), (2,)])
        ],
        [["N", 3, "h", "w"], ["N", 18, "h", "w"], ["N", 9, "h", "w"], [2, 3, 3, 3], [2]],
    ),
    (
        "Correlation",
        {"max_displacement": 2, "pad_size": 2},
        [np.random.RandomState(i).rand(2, 3, 5, 6).astype("f4") for i in range(2)],
        [["N", 3, "h", "w"]] * 2,
    ),
]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize(("name", "attrs", "arrays", "dims"), OPEN, ids=[o[0] for o in OPEN])
def test_open_sizes_give_the_same(
    name: str, attrs: dict[str, object], arrays: list[np.ndarray], dims: list[Dims], engine: str
) -> None:
    fixed = run(engine, name, attrs, arrays)
    opened = run(engine, name, attrs, arrays, dims)
    for got, want in zip(opened, fixed, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        assert np.abs(want).max() > 0


F = "f4"
REFUSED: list[tuple[str, dict[str, Any], list[np.ndarray], type[RequantError]]] = [
    ("_contrib_box_nms", {"overlap_thresh": -0.1}, [np.zeros((4, 6), F)], AttributeValueError),
    ("_contrib_box_nms", {"coord_start": 3}, [np.zeros((4, 6), F)], AttributeValueError),
    ("_contrib_box_nms", {"id_index": 6}, [np.zeros((4, 6), F)], AttributeValueError),
    ("_contrib_box_nms", {"score_index": -1}, [np.zeros((4, 6), F)], AttributeValueError),
    ("_contrib_box_nms", {}, [np.zeros(6, F)], ShapeError),
    ("_contrib_box_iou", {}, [np.zeros((4, 4), F), np.zeros(4, F)], ShapeError),
    ("_contrib_box_iou", {}, [np.zeros((4, 5), F), np.zeros((4, 4), F)], ShapeError),
    ("_contrib_box_iou", {}, [np.zeros((4, 4), "i4"), np.zeros((4, 4), "i4")], DTypeError),
    ("_contrib_bipartite_matching", {"threshold": 0.1}, [np.zeros((4, 4), "i4")], DTypeError),
    ("_contrib_bipartite_matching", {"threshold": 0.1}, [np.zeros(4, F)], ShapeError),
    ("_contrib_MultiBoxPrior", {"steps": (0.1, -1)}, [np.zeros((1, 3, 4, 4), F)], AttributeValueError),
    ("_contrib_MultiBoxPrior", {"sizes": ()}, [np.zeros((1, 3, 4, 4), F)], ShapeError),
    (
        "_contrib_MultiBoxDetection",
        {"variances": (1, 1)},
        [np.zeros((1, 3, 4), F), np.zeros((1, 16), F), np.zeros((1, 4, 4), F)],
        AttributeValueError,
    ),
    (
        "_contrib_ROIAlign",
        {"pooled_size": (0, 2), "spatial_scale": 1},
        [np.zeros((1, 3, 4, 4), F), np.zeros((2, 5), F)],
        AttributeValueError,
    ),
    (
        "_contrib_ROIAlign",
        {"pooled_size": (2, 2), "spatial_scale": 1},
        [np.zeros((1, 3, 4, 4), F), np.zeros((2, 4), F)],
        ShapeError,
    ),
    (
        "_contrib_ROIAlign",
        {"pooled_size": (2, 2), "spatial_scale": 1, "position_sensitive": True},
        [np.zeros((1, 6, 4, 4), F), np.zeros((2, 5), F)],
        ShapeError,
    ),
    (
        "_contrib_PSROIPooling",
        {"pooled_size": 2, "output_dim": 3, "spatial_scale": 1},
        [np.zeros((1, 8, 4, 4), F), np.zeros((2, 5), F)],
        ShapeError,
    ),
    (
        "_contrib_Proposal",
        {},
        [np.zeros((2, 24, 4, 4), F), np.zeros((2, 48, 4, 4), F), np.zeros((2, 3), F)],
        ShapeError,
    ),
    (
        "_contrib_Proposal",
        {"scales": (8,)},
        [np.zeros((1, 24, 4, 4), F), np.zeros((1, 48, 4, 4), F), np.zeros((1, 3), F)],
        ShapeError,
    ),
    ("Correlation", {"kernel_size": 2}, [np.zeros((1, 3, 9, 9), F)] * 2, AttributeValueError),
    ("Correlation", {"max_displacement": 5}, [np.zeros((1, 3, 9, 9), F)] * 2, ShapeError),
    (
        "_contrib_DeformableConvolution",
        {"kernel": (3, 3), "num_filter": 2, "no_bias": True},
        [np.zeros((1, 3, 9, 9), F), np.zeros((1, 9, 7, 7), F), np.zeros((2, 3, 3, 3), F)],
        ShapeError,
    ),
    ("_contrib_index_array", {"axes": (2,)}, [np.zeros((2, 3), F)], ShapeError),
]


@pytest.mark.parametrize(("name", "attrs", "arrays", "error"), REFUSED, ids=[f"{r[0]}{r[1]}" for r in REFUSED])
def test_what_makes_no_sense_is_refused(
    name: str, attrs: dict[str, Any], arrays: list[np.ndarray], error: type[RequantError]
) -> None:
    op = registry.get(name)
    with pytest.raises(error):
        eager.lower_one(op, op.parse(attrs), [(a.dtype, list(a.shape)) for a in arrays])


def test_training_targets_need_no_labels() -> None:
    anchor = sym.contrib.MultiBoxPrior(sym.var("data"), sizes=(0.3,))
    target = sym.contrib.MultiBoxTarget(anchor, sym.var("label"), sym.var("cls_pred"), ignore_label=-3)
    assert target.list_arguments() == ["data", "label", "cls_pred"]
    found = lower.to_onnx(getattr(target, "_symbol", target), {}, {"data": (2, 3, 2, 2), "cls_pred": (2, 5, 4)})
    assert [c.variable for c in found.cut] == ["label"]
    session = engines.get("onnxruntime").load(found.model, EngineOptions(threads=1), None)
    feeds = {"data": np.zeros((2, 3, 2, 2), np.float32), "cls_pred": np.zeros((2, 5, 4), np.float32)}
    outs = session.run({s.name: feeds[s.name] for s in session.inputs})
    assert [o.shape for o in outs] == [(2, 16), (2, 16), (2, 4)]
    assert [float(o.min()) for o in outs] == [float(o.max()) for o in outs] == [0, 0, -3]
