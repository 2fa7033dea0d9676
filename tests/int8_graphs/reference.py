"""INT8 graphs in numpy, node by node: the intended arithmetic, or MXNet 1.9.1's with its bug B1.

Written from the formulas alone; nothing of requant computes an int8 node here. Float nodes are run by requant.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from floats import LAYERS

from requant import eager
from requant.ops import registry
from requant.symbol.tree import Node, Symbol

F = np.float32
Array = np.ndarray[Any, np.dtype[Any]]
#: Channels whose products of 8-bit numbers float32 adds exactly.
_EXACT = 512


def reach(low: float, high: float) -> np.float32:
    return max(abs(F(low)), abs(F(high)))


def levels(dtype: np.dtype) -> np.float32:
    return F(127.5) if dtype == np.int8 else F(255.5)


def scale(dtype: np.dtype, low: float, high: float) -> np.float32:
    largest = reach(low, high)
    return F(levels(dtype) / largest) if largest else F(2147483647)


def saturate(x: Array, dtype: np.dtype) -> Array:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(x), limits.min, limits.max).astype(dtype)


def ints(text: str | None, default: int) -> tuple[int, int]:
    numbers = [int(t) for t in (text or "").strip("()").replace(" ", "").split(",") if t]
    return (numbers[0], numbers[-1]) if numbers else (default, default)


def sums(x: Array, w: Array, attrs: Mapping[str, str]) -> Array:
    """The exact sums of a 2-D convolution, float64; groups are 1 or the channels."""
    pad, stride, dilate = (ints(attrs.get(k), d) for k, d in (("pad", 0), ("stride", 1), ("dilate", 1)))
    x = np.pad(x.astype(F), [(0, 0), (0, 0), (pad[0],) * 2, (pad[1],) * 2])
    kernel = w.shape[2:]
    rows, columns = ((s - d * (k - 1) - 1) // t + 1 for s, d, k, t in zip(x.shape[2:], dilate, kernel, stride))
    found = np.zeros((x.shape[0], w.shape[0], rows, columns))
    depthwise = w.shape[1] == 1 and x.shape[1] == w.shape[0]
    for i, j in np.ndindex(*kernel):
        top, left = i * dilate[0], j * dilate[1]
        part = x[:, :, top : top + (rows - 1) * stride[0] + 1 : stride[0]]
        part = np.ascontiguousarray(part[..., left : left + (columns - 1) * stride[1] + 1 : stride[1]])
        taps = w[:, :, i, j].astype(F)
        if depthwise:
            found += part * taps.reshape(1, -1, 1, 1)
            continue
        for c in range(0, taps.shape[1], _EXACT):
            flat = part[:, c : c + _EXACT].reshape(x.shape[0], -1, rows * columns)
            found += np.matmul(taps[:, c : c + _EXACT], flat).reshape(found.shape)
    return found


def convolve(node: Node, given: list[Array], bug: bool) -> tuple[Array, Array, Array]:
    """A calibrated fused convolution: integers and their range."""
    graph = node.subgraphs[0]
    values = {id(v): a for v, a in zip(graph.variables(), given)}
    ranges = [float(a.reshape(-1)[0]) for a in given[len(values) :]]
    weight: Array = np.zeros(0)
    bias: Array | None = None
    attrs: Mapping[str, str] = {}
    data = other = None
    relu = False
    for inner in graph.nodes:
        if inner.op is None:
            continue
        own = [values[id(n)] for n, _ in inner.inputs if n.op is None]
        if inner.op.name == "Convolution":
            attrs, data, weight = inner.attrs, own[0], own[1]
            bias = own[2] if len(own) > 2 else None
        elif inner.op.name == "BatchNorm":
            gamma, beta, mean, var = own
            if inner.attrs.get("fix_gamma", "True") in ("True", "1", "true"):
                gamma = np.ones_like(gamma)
            by = (gamma / np.sqrt(var + F(float(inner.attrs.get("eps", "0.001"))))).astype(F)
            weight = (weight * by.reshape(-1, 1, 1, 1)).astype(F)
            bias = (beta + by * ((0 if bias is None else bias) - mean)).astype(F)
        elif inner.op.name == "elemwise_add":
            other = own[0]
        else:
            assert inner.op.name == "Activation" and inner.attrs["act_type"] == "relu"
            relu = True
    assert data is not None
    low, high = (float(F(node.attrs[k])) for k in ("min_calib_range", "max_calib_range"))
    kind = np.dtype(np.uint8 if relu else np.int8)
    ds, out = scale(data.dtype, ranges[0], ranges[1]), scale(kind, low, high)
    ws = np.array([scale(np.dtype(np.int8), float(w.min()), float(w.max())) for w in weight], F)
    if bias is not None:
        with np.errstate(divide="ignore"):
            ws = np.where(bias == 0, ws, np.minimum(ws, F(2**30) / np.abs(bias) / ds)).astype(F)
    total = sums(data, saturate(weight * ws.reshape(-1, 1, 1, 1), np.dtype(np.int8)), attrs)
    if bias is not None:
        total += np.rint(bias * (ws * ds)).reshape(1, -1, 1, 1)
    x = total.astype(F) * (out / ds / ws).astype(F).reshape(1, -1, 1, 1)
    stored = kind
    if other is not None:
        x = x + other.astype(F) * F(out / scale(other.dtype, ranges[2], ranges[3]))
        stored = other.dtype if bug else kind
    if relu:
        x = np.maximum(x, 0)
    return saturate(x, stored).view(kind), np.array([low], F), np.array([high], F)


def quantize(node: Node, x: Array) -> tuple[Array, Array, Array]:
    low, high = (node.attrs.get(k) for k in ("min_calib_range", "max_calib_range"))
    a, b = (float(x.min()), float(x.max())) if low is None or high is None else (float(F(low)), float(F(high)))
    kind = np.dtype(np.uint8 if low is not None and node.attrs["out_type"] == "auto" and a >= 0 else np.int8)
    largest = reach(a, b)
    if kind == np.int8:
        a, b = -float(largest), float(largest)
    return saturate(x * F(levels(kind) / largest), kind), np.array([a], F), np.array([b], F)


def concat(node: Node, given: list[Array]) -> tuple[Array, Array, Array]:
    count = len(given) // 3
    data = given[:count]
    ends = [(float(given[count + 2 * i][0]), float(given[count + 2 * i + 1][0])) for i in range(count)]
    kind = np.dtype(np.int8 if any(q.dtype == np.int8 for q in data) else np.uint8)
    low, high = min([0.0] + [e[0] for e in ends]), max([0.0] + [e[1] for e in ends])
    out = scale(kind, low, high)
    moved = [saturate(q.astype(F) * F(out / scale(q.dtype, *e)), kind) for q, e in zip(data, ends)]
    return np.concatenate(moved, int(node.attrs.get("dim", "1"))), np.array([low], F), np.array([high], F)


def layer(node: Node, given: list[Array], bug: bool) -> list[Array]:
    """The outputs of one node."""
    assert node.op is not None
    name = node.op.name
    if name == "_contrib_quantize_v2":
        return list(quantize(node, given[0]))
    if name == "_contrib_dequantize":
        q = given[0]
        return [q.astype(F) * F(reach(given[1][0], given[2][0]) / levels(q.dtype))]
    if name == "_sg_mkldnn_conv" and node.attrs.get("quantized") == "true":
        return list(convolve(node, given, bug))
    if name == "_contrib_quantized_concat":
        return list(concat(node, given))
    if name in LAYERS:  # pooling
        plain = registry.get(LAYERS[name])
        out = eager.invoke(plain, node.attrs, [given[0].astype(F)])[0]
        return [saturate(out, given[0].dtype), given[1], given[2]]
    if node.subgraphs:
        return [_float(node.subgraphs[0], given)]
    return eager.invoke(node.op, node.parsed, given)


def _float(graph: Symbol, given: list[Array]) -> Array:
    values = {id(v): a for v, a in zip(graph.variables(), given)}
    for inner in graph.nodes:
        if inner.op is not None:
            values[id(inner)] = eager.invoke(inner.op, inner.parsed, [values[id(n)] for n, _ in inner.inputs])[0]
    return values[id(graph.entries[0][0])]


def run(symbol: Symbol, params: Mapping[str, Array], data: Array, *, bug: bool = False) -> list[Array]:
    """The outputs of a graph."""
    made: dict[tuple[int, int], Array] = {}
    last = {id(n): i for i, node in enumerate(symbol.nodes) for n, _ in node.inputs}
    kept = {id(n) for n, _ in symbol.entries}
    for at, node in enumerate(symbol.nodes):
        if node.op is None:
            made[id(node), 0] = data if node.name == "data" else params[node.name]
            continue
        outs = layer(node, [made[id(n), i] for n, i in node.inputs], bug)
        made.update({(id(node), i): o for i, o in enumerate(outs)})
        for key in [k for k in made if last.get(k[0], at + 1) <= at and k[0] not in kept]:
            del made[key]
    return [made[id(n), i] for n, i in symbol.entries]
