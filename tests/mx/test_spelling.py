"""``requant.mx`` answers as MXNet 1.9.1 did: values, dtypes, shapes, names, JSON, kinds of errors."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant.mx as mx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import spelling  # noqa: E402

WANTED = json.loads((HERE / "data" / "answers.json").read_text())
CASES = [(group, line) for group in spelling.GROUPS for line in spelling.cases(group)]
#: Errors that Python itself or loops rely on; others only have to be errors that teach.
EXACT = {"AttributeError", "IndexError", "StopIteration", "TypeError"}
#: Where requant differs on purpose, and what it answers.
DIFFERENT = {
    # an error of ours, instead of Python's for unknown keywords
    "e = NET.simple_bind(mx.cpu(), a=(2, 3)); e.forward(b=nd.ones((4, 3)))": ["error", "ValueError", True],
    # operators of two symbols broadcast
    "(a + b).infer_shape(a=(1, 2), b=(2, 2))": [[[1.0, 2.0], [2.0, 2.0]], [[2.0, 2.0]], []],
    # what follows from the attributes alone is known
    "sym.FullyConnected(a, num_hidden=3).infer_shape_partial()": [[[], [], [3.0]], [[]], []],
}


def as_shown(value: Any) -> Any:
    return ["list", [as_shown(v) for v in value]] if isinstance(value, list) else value


def compare(got: Any, want: Any) -> None:
    if isinstance(want, list) and want[:1] == ["error"]:
        assert isinstance(got, list), got
        assert got[:1] == ["error"], got
        assert got[1] == want[1] or (got[2] and want[1] not in EXACT), got
        return
    if isinstance(want, list) and want[:1] == ["array"]:
        assert got[:3] == want[:3]
        np.testing.assert_allclose(got[3], want[3], rtol=2e-5, atol=1e-6)
        return
    if isinstance(want, list):
        assert isinstance(got, list), got
        assert len(got) == len(want)
        for g, w in zip(got, want):
            compare(g, w)
        return
    if isinstance(want, float):
        assert isinstance(got, (float, int)), got
        assert math.isclose(got, want, rel_tol=2e-5, abs_tol=1e-7) or (math.isnan(got) and math.isnan(want))
        return
    assert got == want


@pytest.mark.parametrize(("group", "line"), CASES, ids=[f"{g}: {c}" for g, c in CASES])
def test_answers_as_mxnet(group: str, line: str) -> None:
    wanted = WANTED[group][line]
    if line in DIFFERENT:
        other = DIFFERENT[line]
        wanted = other if other[:1] == ["error"] else as_shown(other)
    compare(json.loads(json.dumps(spelling.answer(mx, line))), wanted)
