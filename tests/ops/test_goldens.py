"""Every operator against what MXNet 1.9.1 gave: eagerly on ONNX Runtime, and as a static graph on OpenVINO."""

import sys
from pathlib import Path

import numpy as np
import pytest

from requant import eager, engines
from requant.engines.base import EngineOptions
from requant.ops import registry

GOLDENS = Path(__file__).parent.parent / "goldens"
sys.path.insert(0, str(GOLDENS))

from case import Case, cases, families  # noqa: E402

ALL = [(family, case) for family in families() for case in cases(family)]
_FILES: dict[str, dict[str, np.ndarray]] = {}


def golden(family: str, case: Case) -> list[np.ndarray]:
    if family not in _FILES:
        with np.load(GOLDENS / "data" / f"{family}.npz") as file:
            _FILES[family] = dict(file)
    data = _FILES[family]
    found = []
    while f"{case.id}|{len(found)}" in data:
        found.append(data[f"{case.id}|{len(found)}"])
    assert found, f"no golden recorded for {case.id}: run tests/goldens/record.py {family} --missing with MXNet 1.9.1"
    return found


def compare(case: Case, got: list[np.ndarray], want: list[np.ndarray]) -> None:
    assert len(got) >= len(want)
    for mine, theirs in zip(got, want):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(
            mine.astype(np.float64), theirs.astype(np.float64), rtol=case.rtol, atol=case.atol, equal_nan=True
        )


@pytest.mark.parametrize(("family", "case"), ALL, ids=[c.id for _, c in ALL])
def test_eager(family: str, case: Case) -> None:
    if "onnxruntime" in case.skip:
        pytest.skip(case.skip["onnxruntime"])
    op = registry.get(case.op)
    got = eager.invoke(op, {k: str(v) for k, v in case.attrs.items()}, case.arrays())
    compare(case, got, golden(family, case))


@pytest.mark.parametrize(("family", "case"), ALL, ids=[c.id for _, c in ALL])
def test_openvino(family: str, case: Case) -> None:
    if "openvino" in case.skip:
        pytest.skip(case.skip["openvino"])
    op = registry.get(case.op)
    arrays = case.arrays()
    attrs = op.parse({k: str(v) for k, v in case.attrs.items()})
    model, used = eager.lower_one(op, attrs, [(a.dtype, list(a.shape)) for a in arrays])
    session = engines.get("openvino").load(model, EngineOptions(threads=1), None)
    compare(case, session.run({f"in{i}": arrays[i] for i in used}), golden(family, case))
