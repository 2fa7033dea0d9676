"""Factors for seeded parameters, so that every layer's output fills its calibrated range: ``data/factors.json.gz``.

The float network is run node by node. Behind each fused convolution its batch normalization (or weight and bias) is
scaled, which scales what is added to a shortcut or goes through an activation.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import graphs
from floats import LAYERS

from requant import eager
from requant.formats import symbol_file
from requant.ops import registry
from requant.symbol.infer import infer_shape
from requant.symbol.tree import Node, Symbol


def shapes(symbol: Symbol, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters."""
    args, _, aux = infer_shape(symbol, {"data": shape})
    names = [*symbol.list_arguments(), *symbol.list_auxiliary_states()]
    return {n: s for n, s in zip(names, [*args, *aux]) if n != "data" and s is not None}


def factor(y: np.ndarray, other: np.ndarray | None, relu: bool, reach: float) -> float:
    """What to multiply y by, so that the largest magnitude of act(y + other) is ``reach``."""

    def largest(f: float) -> float:
        total = f * y if other is None else f * y + other
        return float(total.max() if relu else np.abs(total).max())

    low, high = 1e-4, 1e4
    for _ in range(40):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if largest(middle) < reach else (low, middle)
    # a shortcut that fills the range by itself leaves no room: a quarter of it then
    return max(high, 0.25 * reach / max(float(np.abs(y).max()), 1e-6)) if other is not None else high


def fused(node: Node, inputs: list[np.ndarray], found: dict[str, float]) -> np.ndarray:
    """The output of a fused node; factors of its parameters are put into ``found``."""
    graph = node.subgraphs[0]
    values = {id(v): a for v, a in zip(graph.variables(), inputs)}
    outer = {id(v): n.name for v, (n, _) in zip(graph.variables(), node.inputs)}
    names: dict[str, str] = {}
    y: np.ndarray | None = None
    other, relu, fixed = None, False, True
    for inner in graph.nodes:
        if inner.op is None:
            continue
        kind = inner.op.name
        if kind in ("Convolution", "FullyConnected", "BatchNorm"):
            given = [values[id(n)] if n.op is None else y for n, _ in inner.inputs]
            y = eager.invoke(inner.op, inner.parsed, given)[0]  # type: ignore[arg-type]
            names |= {n: outer[id(v)] for n, (v, _) in zip(inner.input_names, inner.inputs) if v.op is None}
            fixed = bool(getattr(inner.parsed, "fix_gamma", fixed)) if kind == "BatchNorm" else fixed
        elif kind == "elemwise_add":
            other = next(values[id(n)] for n, _ in inner.inputs if n.op is None)
        else:
            relu = True
    assert y is not None
    f = 1.0
    high = node.attrs.get("max_calib_range")
    if high is not None:
        reach = max(abs(float(high)), abs(float(node.attrs["min_calib_range"])))
        f = factor(y, other, relu, reach)
        if "gamma" in names:
            found |= {names["beta"]: f, **({names["moving_var"]: f**-2} if fixed else {names["gamma"]: f})}
        else:
            found |= {names[n]: f for n in ("weight", "bias") if n in names}
    y = np.float32(f) * y
    y = y if other is None else y + other
    return np.maximum(y, 0) if relu else y


def fit(name: str) -> dict[str, float]:
    """Factor by parameter name."""
    symbol = symbol_file.loads(graphs.text(name), name)
    params = graphs.parameters(name, shapes(symbol, graphs.shape(name)), fitted=False)
    found: dict[str, float] = {}
    made: dict[tuple[int, int], np.ndarray] = {}
    last = {id(n): i for i, node in enumerate(symbol.nodes) for n, _ in node.inputs}
    for at, node in enumerate(symbol.nodes):
        inputs = [made[id(n), i] for n, i in node.inputs]
        if node.op is None:
            made[id(node), 0] = graphs.image(name) if node.name == "data" else params[node.name]
        elif node.op.name in ("_contrib_quantize_v2", "_contrib_dequantize"):
            made.update({(id(node), i): inputs[0] for i in range(3)})
        elif node.subgraphs:
            made.update(dict.fromkeys([(id(node), i) for i in range(3)], fused(node, inputs, found)))
        elif node.op.name in LAYERS:
            layer = registry.get(LAYERS[node.op.name])
            out = eager.invoke(layer, node.attrs, inputs[: len(inputs) // 3])[0]
            made.update({(id(node), i): out for i in range(3)})
        else:
            outs = eager.invoke(node.op, node.parsed, inputs)
            made.update({(id(node), i): o for i, o in enumerate(outs)})
        for key in [k for k in made if last.get(k[0], at + 1) <= at]:
            del made[key]
    return {n: float(f"{f:.5g}") for n, f in found.items()}


if __name__ == "__main__":
    path = Path(graphs.DATA) / "factors.json.gz"
    kept = json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}
    for name in sys.argv[1:] or graphs.names():
        kept[name] = fit(name)
        print(name, len(kept[name]), flush=True)
        path.write_bytes(gzip.compress(json.dumps(kept, sort_keys=True).encode(), mtime=0))
