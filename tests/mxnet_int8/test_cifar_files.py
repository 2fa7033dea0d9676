"""The CIFAR networks, quantized here and written as MXNet's files, in MXNet 1.9.1 (recorded) and here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import write_cifar_int8 as made

DATA = Path(__file__).parent / "data"
#: Percentage points between MXNet and our own int8.
APART = 0.1


@pytest.fixture(scope="module")
def scores() -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads((DATA / "cifar-scores.json").read_text())
    assert set(found) == set(made.NETWORKS)
    return found


@pytest.mark.parametrize("name", made.NETWORKS)
def test_mxnet_scores_as_we_do(name: str, scores: dict[str, dict[str, float]]) -> None:
    """The recorded run: our int8, the files read by us, and the files in MXNet."""
    for ours in ("int8", "read", "exact"):
        assert abs(scores[name]["mxnet"] - scores[name][ours]) <= APART + 1e-9, ours


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("name", made.NETWORKS[:2])
def test_the_files_of_today_are_as_good(name: str, scores: dict[str, dict[str, float]], tmp_path: Path) -> None:
    """Quantized again, here: the classes are those that MXNet found in the files of then."""
    x, labels = made.images("cifar10_test.npz")
    with np.load(DATA / "cifar-classes.npz") as file:
        theirs = file[name]
    assert 100 * float((theirs == labels).mean()) == pytest.approx(scores[name]["mxnet"], abs=0.005)
    ours = made.classes(made.written(name, tmp_path)["exact"], x)
    assert abs(100 * float((ours == labels).mean()) - scores[name]["mxnet"]) <= APART
    assert float((ours == theirs).mean()) > 0.995
