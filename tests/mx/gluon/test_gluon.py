"""Layers, cells, losses and networks of ``mx.gluon`` against MXNet 1.9.1: outputs, and names of everything."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant.mx as mx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import gluon_cases  # noqa: E402

NAMES: dict[str, Any] = json.loads((HERE / "data" / "names.json").read_text())


@pytest.fixture(scope="module")
def recorded() -> dict[str, np.ndarray]:
    with np.load(HERE / "data" / "outputs.npz") as found:
        return dict(found)


def same(group: str, mine: dict[str, Any], recorded: dict[str, np.ndarray]) -> None:
    wanted = {n.split("|")[1]: v for n, v in recorded.items() if n.startswith(group + "|")}
    assert wanted.keys() == mine.keys()
    for name, theirs in wanted.items():
        ours = mine[name].asnumpy()
        assert ours.shape == theirs.shape, name
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(theirs).max()), err_msg=name)


def test_layers(recorded: dict[str, np.ndarray]) -> None:
    found, names = gluon_cases.layers(mx)
    same("layers", found, recorded)
    for name, theirs in NAMES["layers"].items():
        # Pixel shuffles take other steps than in MXNet, so that the names of their outputs differ.
        assert names[name][: 2 if name.startswith("shuffle") else 3] == theirs[: 2 if name.startswith("shuffle") else 3]


def test_cells(recorded: dict[str, np.ndarray]) -> None:
    same("cells", gluon_cases.cells(mx), recorded)


def test_losses(recorded: dict[str, np.ndarray]) -> None:
    same("losses", gluon_cases.losses(mx), recorded)


@pytest.mark.parametrize(
    "name", [n for n in gluon_cases.VISION if "152" not in n and "201" not in n and "169" not in n]
)
def test_networks_have_the_same_names(name: str) -> None:
    assert gluon_cases.vision(mx, name) == NAMES["vision"][name]


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in gluon_cases.VISION if "152" in n or "201" in n or "169" in n])
def test_deep_networks_have_the_same_names(name: str) -> None:
    assert gluon_cases.vision(mx, name) == NAMES["vision"][name]
