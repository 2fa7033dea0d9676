"""Model files written by hand, as the MXNet of any year wrote them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import requant
from requant.formats.params import write_params

Node = dict[str, Any]
DIGITS = Path(__file__).resolve().parents[1] / "digits"
ENGINES = ("openvino", "onnxruntime")


def variable(name: str, **attrs: str) -> Node:
    return {"op": "null", "name": name, "inputs": [], "attrs": attrs}


def apply(op: str, name: str, inputs: Sequence[int | tuple[int, int]], **attrs: str) -> Node:
    """An operator node. An input is a node's number, or (number, output)."""
    pairs = [[i, 0, 0] if isinstance(i, int) else [*i, 0] for i in inputs]
    return {"op": op, "name": name, "inputs": pairs, "attrs": attrs}


def text(
    nodes: Sequence[Node],
    heads: Sequence[int | tuple[int, int]] | None = None,
    version: int | None = 10901,
    key: str = "attrs",
    arity: int = 3,
) -> str:
    """Symbol JSON. ``key`` is where operators' attributes stand: ``param`` to 0.8, ``attr`` to 1.0, then ``attrs``."""
    listed = []
    for node in nodes:
        plain = {k: v for k, v in node.items() if k != "attrs"}
        plain["inputs"] = [entry[:arity] for entry in node["inputs"]]
        if node["attrs"]:
            plain["attr" if node["op"] == "null" and key == "param" else key] = node["attrs"]
        elif key == "param":
            plain["param"] = {}
        if key == "param":
            plain["backward_source_id"] = -1
        listed.append(plain)
    last = [len(nodes) - 1] if heads is None else heads
    graph: dict[str, Any] = {
        "nodes": listed,
        "arg_nodes": [i for i, n in enumerate(nodes) if n["op"] == "null"],
        "heads": [([h, 0, 0] if isinstance(h, int) else [*h, 0])[:arity] for h in last],
    }
    if version is not None:
        graph["attrs"] = {"mxnet_version": ["int", version]}
    return json.dumps(graph)


def save(folder: Path, symbol: str, params: Mapping[str, np.ndarray] | None = None, name: str = "net") -> Path:
    """``net-symbol.json``, and ``net-0000.params`` if there are any; the prefix is returned."""
    (folder / f"{name}-symbol.json").write_text(symbol)
    if params is not None:
        write_params(folder / f"{name}-0000.params", params)
    return folder / name


def load(folder: Path, symbol: str, params: Mapping[str, np.ndarray] | None = None, **how: Any) -> requant.Model:
    """The model of these files."""
    prefix = save(folder, symbol, params)
    return requant.load(prefix if params is not None else f"{prefix}-symbol.json", **how)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Float32 numbers, about standard normal."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def digit_images(count: int) -> np.ndarray:
    """The first images of the digits, (count, 1, 8, 8), float32 from 0 to 1."""
    return np.load(DIGITS / "digits.npz")["x"][:count].astype(np.float32) / 16


def digit_scores(count: int) -> np.ndarray:
    """What the trained network says of them, (count, 10)."""
    return requant.load(DIGITS / "digits").run(digit_images(count))[0]


def conv_net(conv: dict[str, str], pool: dict[str, str]) -> list[Node]:
    """A convolution with these attributes, a pooling, and all in one row."""
    return [
        variable("data"),
        variable("c_weight"),
        variable("c_bias"),
        apply("Convolution", "c", [0, 1, 2], **conv),
        apply("Pooling", "p", [3], **pool),
        apply("Flatten", "f", [4]),
    ]


#: What `conv_net` needs: attributes and parameters.
PLAIN = ({"kernel": "(3, 3)", "pad": "(1, 1)", "num_filter": "4"}, {"kernel": "(2, 2)", "stride": "(2, 2)"})
CONV_PARAMS = {"arg:c_weight": numbers(4, 2, 3, 3), "arg:c_bias": numbers(4)}

#: A fully connected layer of 4 units on 3 inputs.
FC = [variable("data"), variable("w"), apply("FullyConnected", "fc", [0, 1], num_hidden="4", no_bias="True")]
FC_PARAMS = {"arg:w": numbers(4, 3)}
