"""``mx.viz``: what a symbol consists of, as a table and as a picture."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError, UnsupportedError
from requant.mx.symbol.symbol import Symbol
from requant.symbol import infer
from requant.symbol.tree import Node


def print_summary(
    symbol: Symbol,
    shape: Mapping[str, Sequence[int]] | None = None,
    line_length: int = 120,
    positions: Sequence[float] = (0.44, 0.64, 0.74, 1.0),
) -> None:
    """Print a table of the nodes: output shape, number of parameters, and where the inputs come from.

    Args:
        shape: shapes of inputs by name; without it, shapes and parameters are not shown.
        positions: where columns end, as shares of the line.
    Raises:
        InputError: not a symbol.
    """
    if not isinstance(symbol, Symbol):
        raise InputError("not a symbol", got=type(symbol).__name__)
    found = None
    if shape is not None:
        found = infer.infer(symbol, {n: tuple(s) for n, s in shape.items()}, partial=True)
    ends = [int(line_length * p) for p in positions]

    def row(*fields: object) -> None:
        line = ""
        for text, end in zip(fields, ends):
            line = (line + str(text))[: end - 1].ljust(end)
        print(line.rstrip())

    given = set(shape or ())
    aux, shown = symbol._auxiliary, [n for n in symbol.nodes if n.op is not None or _is_input(symbol, n, given)]
    print("_" * line_length)
    row("Layer (type)", "Output Shape", "Param #", "Previous Layer")
    print("=" * line_length)
    total = 0
    for node in shown:
        count = _parameters(node, given, found, aux)
        total += count
        out = found.shape(node) if found is not None else None
        kind = "null" if node.op is None else node.op.name
        before = [n.name for n, _ in node.inputs if n.op is not None or _is_input(symbol, n, given)]
        size = "" if out is None else "x".join(map(str, out[1:]))
        row(f"{node.name}({kind})", size, count, *before[:1])
        for name in before[1:]:
            row("", "", "", name)
        print(("=" if node is shown[-1] else "_") * line_length)
    print(f"Total params: {total}")
    print("_" * line_length)


def _is_input(symbol: Symbol, node: Node, given: set[str]) -> bool:
    """Whether a variable is fed: it is named in the shapes, or called data."""
    return node.op is None and (node.name in given or node.name == "data")


def _parameters(node: Node, given: set[str], found: infer.Inferred | None, aux: Collection[int]) -> int:
    """Numbers in the arguments of a node; labels and auxiliary states do not count, as in MXNet."""
    if node.op is None or found is None:
        return 0
    own = [
        (n, i)
        for name, (n, i) in zip(node.input_names, node.inputs)
        if n.op is None and n.name not in given and id(n) not in aux and name not in node.op.labels
    ]
    return sum(int(np.prod(s)) for n, i in own if (s := found.shape(n, i)) is not None)


_COLORS = {"Convolution": "#fb8072", "FullyConnected": "#fb8072", "BatchNorm": "#bebada", "Activation": "#ffffb3",
           "LeakyReLU": "#ffffb3", "Pooling": "#80b1d3", "Concat": "#fdb462", "Flatten": "#fdb462"}  # fmt: skip


def plot_network(
    symbol: Symbol,
    title: str = "plot",
    save_format: str = "pdf",
    shape: Mapping[str, Sequence[int]] | None = None,
    dtype: object = None,
    node_attrs: Mapping[str, str] | None = None,
    hide_weights: bool = True,
) -> Any:
    """The graph as a ``graphviz.Digraph``, to be rendered or shown in a notebook.

    Args:
        shape: shapes of inputs by name; edges then show theirs.
        hide_weights: leave parameters out.
    Raises:
        UnsupportedError: the Python package ``graphviz`` is not installed.
    """
    try:
        graphviz: Any = importlib.import_module("graphviz")
    except ImportError as fault:
        raise UnsupportedError("plotting needs the package graphviz", next="pip install graphviz") from fault
    found = None
    if shape is not None:
        found = infer.infer(symbol, {n: tuple(s) for n, s in shape.items()}, partial=True)
    dot = graphviz.Digraph(name=title, format=save_format)
    style = {"shape": "box", "fixedsize": "false", "style": "filled", **(node_attrs or {})}
    endings = ("_weight", "_bias", "_beta", "_gamma", "_mean", "_var")
    hidden = {id(n) for n in symbol.nodes if hide_weights and n.op is None and n.name.endswith(endings)}
    for node in symbol.nodes:
        if id(node) in hidden:
            continue
        kind = "null" if node.op is None else node.op.name
        label = node.name if node.op is None else f"{kind}\n{node.name}"
        dot.node(node.name, label=label, fillcolor=_COLORS.get(kind, "#8dd3c7"), **style)
        for source, index in node.inputs:
            if id(source) not in hidden:
                size = found.shape(source, index) if found is not None else None
                edge = {} if size is None else {"label": "x".join(map(str, size[1:]))}
                dot.edge(node.name, source.name, dir="back", arrowtail="open", **edge)
    return dot
