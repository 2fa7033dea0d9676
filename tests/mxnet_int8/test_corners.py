"""Corners of the passes beside MXNet 1.9.1 (``record_corners.py``)."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from corners import CASES, ranges
from golden import compact, differences, load

import requant.mx as mx
from requant.rewrite.calibration import set_ranges
from requant.rewrite.fuse import backend_symbol
from requant.rewrite.quantize import quantize_symbol


@functools.cache
def golden() -> dict[str, Any]:
    return load("corners")


@pytest.mark.parametrize("name", CASES)
def test_passes_make_what_mxnet_makes(name: str) -> None:
    make, options = CASES[name]
    with mx.name.NameManager():
        symbol = make(mx)
    if options["fuse"]:
        symbol = symbol.get_backend_symbol("MKLDNN_QUANTIZE")
    made = quantize_symbol(
        symbol,
        excluded_names=options["names"],
        excluded_ops=options["ops"],
        offline=[n for n in symbol.list_arguments() if n not in ("data", "data2")],
        dtype=options["dtype"],
        mode=options["mode"],
        granularity=options["granularity"],
    )
    expected = golden()[name]
    assert differences(compact(made.symbol), expected["int8"]) == []
    assert list(made.points) == expected["points"]
    final = set_ranges(made.symbol, ranges(made.points))
    if options["fuse"]:
        final = backend_symbol(final, "MKLDNN_QUANTIZE")
    assert differences(compact(final), expected["final"]) == []
    attributes = [[n[2] for n in g[0]] for g in (compact(final), expected["final"])]
    assert attributes[0] == attributes[1]
