"""The INT8 names of GluonCV, built by its own ``get_model``: they give what their graphs give.

The graphs themselves are compared with MXNet 1.9.1 by ``tests/int8_graphs``, whose parameters (seeded, and fitted to
the ranges that the graphs were calibrated for), images and recorded outputs are used here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import requant
import requant.mx as mx
from requant.formats import symbol_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "int8_graphs"))

import fit_factors
import graphs


def parameters(name: str) -> dict[str, np.ndarray]:
    """Parameters by name."""
    symbol = symbol_file.loads(graphs.text(name), name)
    return graphs.parameters(name, fit_factors.shapes(symbol, graphs.shape(name)))


def fill(net: Any, values: dict[str, np.ndarray]) -> None:
    """Give the block its parameters."""
    for name, parameter in net.collect_params().items():
        parameter.set_data(mx.nd.array(values[name]))


def native(name: str, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What the graph gives without Gluon."""
    symbol = symbol_file.loads(graphs.text(name), name)
    used = {n: v for n, v in values.items() if n in symbol.list_inputs()}
    model = requant.Model.from_symbol(symbol, used, shapes={"data": graphs.shape(name)}, source=name)
    return model.run(graphs.image(name))


def far(found: list[np.ndarray], wanted: list[np.ndarray]) -> float:
    """The largest difference of any output, relative to its largest magnitude."""
    assert [o.shape for o in found] == [o.shape for o in wanted], [o.shape for o in found]
    return max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-12)) for a, b in zip(found, wanted))


def from_mxnet(name: str, found: list[np.ndarray]) -> float:
    """The distance to MXNet's recorded first float output that is not sorted by score, relative to its norm."""
    outputs = symbol_file.loads(graphs.text(name), name).list_outputs()
    at = 1 if name.startswith("ssd") else 0
    with np.load(Path(graphs.DATA) / "outputs.npz") as file:
        theirs = file[f"{name}|{outputs[at]}"]
    return float(np.linalg.norm(graphs.sample(found[at]) - theirs) / np.linalg.norm(theirs))
