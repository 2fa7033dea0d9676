"""Fused int8 nodes as MXNet 1.9.1 computes them, node by node: exact integers, and as engines run them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from requant import engines
from requant.engines.base import EngineOptions
from requant.formats import symbol_file
from requant.lower import to_onnx
from requant.symbol.tree import Symbol

DATA = Path(__file__).parent / "data" / "fused.npz"


def read() -> dict[str, dict[str, np.ndarray]]:
    networks: dict[str, dict[str, np.ndarray]] = {}
    with np.load(DATA) as file:
        for key in file.files:
            name, part = key.split("|")
            networks.setdefault(name, {})[part] = file[key]
    return networks


NETWORKS = read()
#: Where MXNet 1.9.1 has a bug (numbers of docs/differences.md); ours is compared to the intended arithmetic elsewhere.
BUGS = {
    "conv_groups": "B5: scales of other channels",
    "conv_sum_s8_relu": "B1: stored as int8",
    "conv_sum_u8": "B1: stored as uint8",
    "conv_gelu": "gelu of the integers instead of the real numbers",
    "dense_leaky": "B13: negative numbers lost",
    "dense_channels_leaky": "B13: negative numbers lost",
}


def network(name: str) -> tuple[Symbol, dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    parts = NETWORKS[name]
    symbol = symbol_file.loads(parts["symbol"].tobytes(), name)
    params = {k[6:]: v for k, v in parts.items() if k.startswith("param:")}
    outputs = {k[4:]: v for k, v in parts.items() if k.startswith("out:")}
    return symbol, params, parts["data"], outputs


def run(name: str, engine: str, exact: bool) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Name, ours and MXNet's of every output of every node."""
    symbol, params, data, outputs = network(name)
    inner = symbol.get_internals()
    chosen = Symbol([e for e, n in zip(inner.entries, inner.list_outputs()) if n in outputs])
    model = to_onnx(chosen, params, {"data": data.shape}, exact=exact).model
    got = engines.get(engine).load(model, EngineOptions(threads=1)).run({"data": data})
    return [(n, a, outputs[n]) for n, a in zip(chosen.list_outputs(), got)]


@pytest.mark.parametrize("name", [n for n in NETWORKS if n not in BUGS])
def test_exact(name: str) -> None:
    """Integers equal MXNet's; oneDNN rounds those behind a batch normalization or a curved activation to one step."""
    step = 1 if any(word in name for word in ("bn", "depthwise", "gelu", "tanh", "sigmoid", "elu", "attention")) else 0
    for output, mine, theirs in run(name, "onnxruntime", exact=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype, output
        if theirs.dtype.kind in "iu":
            worst = np.abs(mine.astype(np.int64) - theirs.astype(np.int64)).max()
            assert worst <= step, f"{output}: {worst} steps"
        else:
            one = step * np.abs(theirs).max() / 127
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5 + one, err_msg=output)


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_graph(name: str, engine: str) -> None:
    """As engines run it: within one step of the exact integers, node by node on the same inputs."""
    exact = {n: a for n, a, _ in run(name, "onnxruntime", exact=True)}
    for output, mine, _ in run(name, engine, exact=False):
        wanted = exact[output]
        assert mine.shape == wanted.shape and mine.dtype == wanted.dtype, output
        if wanted.dtype in (np.int8, np.uint8):
            assert np.abs(mine.astype(int) - wanted.astype(int)).max() <= 1, output
        elif wanted.dtype == np.int32:
            reach = np.abs(wanted).max()
            assert np.abs(mine.astype(np.int64) - wanted.astype(np.int64)).max() <= 0.02 * reach, output
        else:
            np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=0.03 * np.abs(wanted).max(), err_msg=output)
