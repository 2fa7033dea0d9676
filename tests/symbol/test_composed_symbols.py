"""Symbols composed by hand, compared with what MXNet 1.9.1 says of them: names, orders, attributes, shapes, JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from requant import mx
from requant.errors import ShapeError
from requant.symbol.infer import infer_shape

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from symbols import ALL, Composed, facts  # noqa: E402

RECORDED: dict[str, dict[str, Any]] = json.loads((HERE / "data" / "symbols.json").read_text())
FACTS = [
    "name",
    "list_arguments",
    "list_outputs",
    "list_auxiliary_states",
    "list_inputs",
    "get_internals",
    "get_children",
    "attr_dict",
    "list_attr",
    "length",
    "tojson",
    "infer_shape",
    "infer_shape_partial",
    "infer_type",
]
_FOUND: dict[str, dict[str, Any]] = {}


def found(case: Composed) -> dict[str, Any]:
    if case.name not in _FOUND:
        _FOUND[case.name] = facts(mx, case)
    return _FOUND[case.name]


@pytest.mark.parametrize("fact", FACTS)
@pytest.mark.parametrize("case", ALL, ids=[c.name for c in ALL])
def test_as_mxnet(case: Composed, fact: str) -> None:
    if fact not in RECORDED[case.name]:
        return
    got, want = found(case)[fact], RECORDED[case.name][fact]
    if fact == "tojson" and got != want:
        assert json.loads(got) == json.loads(want)
    if fact == "infer_shape_partial":
        assert_knows_at_least(got, want)
    else:
        assert got == want


def assert_knows_at_least(got: list[list[list[int]]], want: list[list[list[int]]]) -> None:
    """What MXNet knows of partial shapes is known here; [] and 0 stand for what it does not know."""
    assert [len(part) for part in got] == [len(part) for part in want]
    for mine, theirs in zip([s for part in got for s in part], [s for part in want for s in part]):
        assert not theirs or len(mine) == len(theirs)
        assert all(m == t or t == 0 for m, t in zip(mine, theirs))


@pytest.mark.parametrize("case", ALL, ids=[c.name for c in ALL])
def test_json_reads_back(case: Composed) -> None:
    """MXNet's text, read and written again, is the same text."""
    text = RECORDED[case.name]["tojson"]
    assert mx.sym.load_json(text).tojson() == text


def test_composing_by_position() -> None:
    """MXNet composes by keyword alone; by position the variables are taken in order."""
    a, b = mx.sym.var("a"), mx.sym.var("b")
    product = (a * b)(mx.sym.var("x") + 1, mx.sym.var("y"))
    assert product.list_arguments() == ["x", "y"]


def test_inference_names_what_is_missing() -> None:
    net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=3, name="fc")
    with pytest.raises(ShapeError, match="data, fc_weight"):
        infer_shape(net, {})
    with pytest.raises(ShapeError, match="contradict"):
        infer_shape(net, {"data": (0, 3), "fc_weight": (3, 4)})
    with pytest.raises(ShapeError, match="too few dimensions"):
        mx.sym.BatchNorm(mx.sym.var("data")).infer_shape(data=(3,))
