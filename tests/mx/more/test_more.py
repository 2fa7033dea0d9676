"""``gluon.contrib`` cells, estimators, operators written in Python, tables of networks: as in MXNet 1.9.1."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant.mx as mx
from requant.errors import InputError, UnsupportedError

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import more_cases  # noqa: E402


@pytest.fixture(scope="module")
def recorded() -> Iterator[Any]:
    with np.load(HERE / "data" / "more.npz") as found:
        yield found


@pytest.mark.parametrize("name", list(more_cases.CASES))
def test_as_in_mxnet(name: str, recorded: Any) -> None:
    found = more_cases.CASES[name](mx)
    wanted = {k.split("|", 1)[1]: recorded[k] for k in recorded.files if k.split("|")[0] == name}
    assert set(found) == set(wanted) and wanted
    for key, theirs in wanted.items():
        if theirs.dtype.kind == "U":
            assert np.asarray(found[key]).tolist() == theirs.tolist()
        else:
            np.testing.assert_allclose(found[key], theirs, rtol=1e-5, atol=1e-6, err_msg=key)


def test_custom_operators_explain_themselves() -> None:
    more_cases.custom(mx)
    x = mx.nd.ones((2, 2))
    with pytest.raises(InputError, match="no custom operator of that name"):
        mx.nd.Custom(x, op_type="more_scalde")
    with pytest.raises(InputError, match="another number of inputs"):
        mx.nd.Custom(x, op_type="more_scaled", factor=1)
    a, _ = mx.nd.Custom(shift=x, data=2 * x, op_type="more_scaled", factor=3, name="by_name")
    assert (a.asnumpy() == 7).all()
    with pytest.raises(InputError, match="no input of that name"):
        mx.nd.Custom(x, x, shifd=x, op_type="more_scaled", factor=1)
    with pytest.raises(UnsupportedError, match="cannot be part of a compiled network"):
        mx.sym.Custom(mx.sym.var("x"), op_type="more_scaled")


def test_training_names_raise() -> None:
    loss = mx.gluon.loss.L2Loss()
    made = mx.gluon.contrib.estimator.Estimator(mx.gluon.nn.Dense(2), loss)
    with pytest.raises(UnsupportedError, match="does not train"):
        made.fit([])
    with pytest.raises(ValueError, match=r"must be a gluon\.loss\.Loss"):
        mx.gluon.contrib.estimator.Estimator(mx.gluon.nn.Dense(2), "l2")


class _Digraph:
    """What ``plot_network`` asks of graphviz."""

    def __init__(self, name: str, format: str) -> None:
        self.name, self.format = name, format
        self.nodes: dict[str, dict[str, str]] = {}
        self.edges: list[tuple[str, str, str | None]] = []

    def node(self, name: str, label: str, **style: str) -> None:
        self.nodes[name] = {"label": label, **style}

    def edge(self, tail: str, head: str, **style: str) -> None:
        self.edges.append((tail, head, style.get("label")))


def test_plot_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes, edges and sizes that graphviz is given; parameters are left out unless asked for."""
    module = types.ModuleType("graphviz")
    module.Digraph = _Digraph  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "graphviz", module)
    symbol = more_cases.network(mx)
    dot = mx.viz.plot_network(symbol, title="net", shape={"data": (1, 3, 10, 10)})
    assert "conv0_weight" not in dot.nodes and dot.nodes["conv0"]["label"].startswith("Convolution")
    assert ("conv0", "data", "3x10x10") in dot.edges and ("bn0", "conv0", "4x8x8") in dot.edges
    everything = mx.viz.plot_network(symbol, hide_weights=False)
    assert ("conv0", "conv0_weight", None) in everything.edges


def test_plot_network_without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(UnsupportedError, match="pip install graphviz"):
        mx.viz.plot_network(more_cases.network(mx))
