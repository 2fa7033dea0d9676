"""Regions of interest where MXNet is wrong: ROIAlign leaves regions with a negative batch index as they were in memory,
and puts a 0 into the results of other regions. Its documentation says that such regions give 0, and so do we."""

from __future__ import annotations

import numpy as np
import pytest

from requant import eager, engines
from requant.engines.base import EngineOptions
from requant.ops import registry

ATTRS = [
    {"pooled_size": (3, 2)},
    {"pooled_size": (3, 2), "aligned": True},
    {"pooled_size": (3, 2), "aligned": True, "sample_ratio": 2},
    {"pooled_size": (2, 2), "position_sensitive": True},
]
ROIS = np.array([[0, 2, 3, 10, 9], [-1, 2, 2, 9, 9], [1, 0, 0, 20, 20], [-3, -50, 0, 4, 4]], np.float32)


def run(engine: str, name: str, attrs: dict[str, object], arrays: list[np.ndarray]) -> np.ndarray:
    op = registry.get(name)
    model, used = eager.lower_one(op, op.parse(attrs), [(a.dtype, list(a.shape)) for a in arrays])
    session = engines.get(engine).load(model, EngineOptions(threads=1), None)
    return session.run({f"in{i}": arrays[i] for i in used})[0]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("attrs", ATTRS, ids=str)
def test_padding_gives_zero_and_leaves_other_regions_alone(attrs: dict[str, object], engine: str) -> None:
    data = np.random.RandomState(0).normal(0, 1, (2, 8, 12, 16)).astype(np.float32)
    attrs = {**attrs, "spatial_scale": 0.5}
    out = run(engine, "_contrib_ROIAlign", attrs, [data, ROIS])
    true = run(engine, "_contrib_ROIAlign", attrs, [data, ROIS[[0, 2]]])
    np.testing.assert_array_equal(out[[1, 3]], 0)
    np.testing.assert_array_equal(out[[0, 2]], true)
    assert np.all(np.abs(true).max(axis=(1, 2, 3)) > 0)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("roi", [[0, 5, 5, 5, 5], [0, 9, 9, 3, 4], [0, 5, 5, 9, 5]])
def test_aligned_regions_without_area_give_zero(roi: list[float], engine: str) -> None:
    """MXNet aborts the process there."""
    data = np.random.RandomState(0).normal(0, 1, (1, 3, 12, 16)).astype(np.float32)
    attrs = {"pooled_size": (3, 2), "spatial_scale": 0.5, "aligned": True}
    out = run(engine, "_contrib_ROIAlign", attrs, [data, np.array([roi], np.float32)])
    np.testing.assert_array_equal(out, 0)
