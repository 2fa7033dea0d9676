"""Mistakes in preprocessing, told from ranges."""

from __future__ import annotations

from requant.qmath import Range
from requant.quant.declared import compare_declared


def test_raw_images_where_scaled_ones_were_declared() -> None:
    declared = Range((0 - 116) / 58, (255 - 116) / 58)
    assert "scaled at all" in str(compare_declared("data", Range(0.1, 254.9), declared))
    assert compare_declared("data", Range(0.1, 254.9), Range(0.0, 255.0)) is None
    assert "mean" in str(compare_declared("data", Range(0.1, 254.9), Range(-128.0, 127.0)))
    assert "scaled twice" in str(compare_declared("data", Range(0.0, 1 / 255), Range(0.0, 1.0)))
