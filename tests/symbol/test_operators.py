"""Names of every operator's inputs, auxiliary states and outputs, as MXNet 1.9.1 gives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from requant.ops import registry
from requant.symbol.tree import compose, variable

RECORDED: dict[str, list[dict[str, Any]]] = json.loads((Path(__file__).parent / "data" / "operators.json").read_text())
ALL = [(op, entry) for op, entries in sorted(RECORDED.items()) for entry in entries]


@pytest.mark.parametrize(("name", "entry"), ALL, ids=[f"{op}{i}" for i, (op, _) in enumerate(ALL)])
def test_names(name: str, entry: dict[str, Any]) -> None:
    op = registry.get(name)
    want = dict(entry["found"])
    count = entry["inputs"]
    if op.variadic and not count:  # amp_multicast: MXNet can make its inputs, requant takes any number of given ones
        count = len(want["arguments"])
        want["arguments"] = [f"in{i}" for i in range(count)]
    symbol = compose(op, [variable(f"in{i}") for i in range(count)], entry["attrs"], name="op")
    got = {
        "arguments": symbol.list_arguments(),
        "auxiliary": symbol.list_auxiliary_states(),
        "outputs": symbol.list_outputs(),
        "all outputs": op.count_outputs(op.parse(entry["attrs"])),
    }
    if op.name != name:  # one operator here, two of MXNet that name their inputs differently
        assert len(got.pop("arguments")) == len(want.pop("arguments"))
    assert got == want
