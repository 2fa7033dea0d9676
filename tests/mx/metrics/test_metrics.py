"""``mx.metric`` gives what MXNet 1.9.1 gives, update by update."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant.mx as mx
from requant.errors import InputError, ShapeError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import metric_cases  # noqa: E402

RECORDED = json.loads((HERE / "data" / "metrics.json").read_text())


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return metric_cases.run(mx)


@pytest.mark.parametrize("case", RECORDED)
def test_as_in_mxnet(case: str, found: dict[str, Any]) -> None:
    flat_found, flat_wanted = flat(found[case]), flat(RECORDED[case])
    assert len(flat_found) == len(flat_wanted)
    for mine, theirs in zip(flat_found, flat_wanted):
        assert mine == theirs if isinstance(theirs, str) else mine == pytest.approx(theirs, rel=2e-6, nan_ok=True)


def flat(value: Any) -> list[Any]:
    return [a for v in value for a in flat(v)] if isinstance(value, list) else [value]


def test_every_case_is_recorded(found: dict[str, Any]) -> None:
    assert set(found) == set(RECORDED) and len(found) > len(metric_cases.CASES)


def test_a_metric_of_ones_own() -> None:
    @mx.metric.register
    class Largest(mx.metric.EvalMetric):
        def __init__(self, name: str = "largest", **kwargs: Any) -> None:
            super().__init__(name, **kwargs)

        def update(self, labels: Any, preds: Any) -> None:
            self.sum_metric = max([self.sum_metric, *(float(p.asnumpy().max()) for p in preds)])
            self.num_inst = 1

    metric = mx.metric.create("largest", output_names=["y"], label_names=["l"], unit="px")
    metric.update_dict({"l": mx.nd.ones((2,))}, {"y": mx.nd.array([3.0, 5.0]), "z": mx.nd.array([9.0])})
    assert metric.get() == metric.get_global() == ("largest", 5.0)
    assert metric.get_config()["unit"] == "px" and metric.get_config()["output_names"] == ["y"]


def test_from_a_configuration() -> None:
    made = mx.metric.create(**mx.metric.F1(average="macro", name="mine").get_config())
    assert isinstance(made, mx.metric.F1) and made.name == "mine"


def test_refusals() -> None:
    f1 = mx.metric.F1()
    with pytest.raises(InputError, match="two classes"):
        f1.update([mx.nd.array([0, 1, 2])], [mx.nd.ones((3, 3))])
    with pytest.raises(ShapeError, match="do not fit"):
        f1.update([mx.nd.array([0, 1])], [mx.nd.ones((3, 2))])
    with pytest.raises(InputError, match="macro or micro"):
        mx.metric.MCC(average="weighted")
    with pytest.raises(InputError, match="no metric of that name"):
        mx.metric.create("f2")
    assert np.isnan(mx.metric.PCC().get()[1])
