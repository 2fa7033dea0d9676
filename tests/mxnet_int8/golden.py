"""The recorded symbols, and how ours are compared with them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np

from requant.formats.symbol_file import to_record
from requant.formats.symbol_records import GraphRecord
from requant.quant.kl_threshold import _screen
from requant.symbol.tree import Symbol

RANGE = ("min_calib_range", "max_calib_range")
Graph = list[Any]


def load(name: str) -> dict[str, Any]:
    """What MXNet returned for a network."""
    path = Path(__file__).parent / "data" / f"{name}.json.xz"
    found: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return found


def compact(symbol: Symbol) -> Graph:
    """A symbol as the recorder wrote it: nodes (op, name, attributes, inputs, subgraphs) and heads."""
    return _graph(to_record(symbol))


def _graph(record: GraphRecord) -> Graph:
    nodes = []
    for node in record.nodes:
        nested = [_graph(s) for s in node.subgraphs]
        nodes.append([node.op, node.name, dict(node.attrs), [list(e) for e in node.inputs], nested])
    return [nodes, [list(h) for h in record.heads]]


def differences(ours: Graph, theirs: Graph) -> list[Any]:
    """Where two graphs differ in nodes, names, attributes or inputs. Ranges are only looked at for being there."""
    found: list[Any] = []
    if len(ours[0]) != len(theirs[0]):
        found.append(f"{len(ours[0])} nodes, not {len(theirs[0])}")
    for a, b in zip(ours[0], theirs[0]):
        if a[:2] != b[:2] or a[3] != b[3]:
            found.append((a[:2], a[3], b[:2], b[3]))
            break
        plain = [{k: v for k, v in n[2].items() if k not in RANGE} for n in (a, b)]
        if plain[0] != plain[1] or a[2].keys() != b[2].keys():
            found.append((a[1], a[2], b[2]))
        if len(a[4]) != len(b[4]):
            found.append((a[1], "subgraphs"))
        for s, t in zip(a[4], b[4]):
            found += differences(s, t)
    if ours[1] != theirs[1]:
        found.append(("heads", ours[1], theirs[1]))
    return found


def ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    """Calibrated ranges by node name."""
    return {n[1]: (float(n[2][RANGE[0]]), float(n[2][RANGE[1]])) for n in graph[0] if RANGE[0] in n[2]}


def equally_good(histogram: Any, ours: float, theirs: float, quantized_bins: int) -> bool:
    """Whether two thresholds of one histogram have the same divergence, as far as MXNet's float32 sums can tell.

    The float network is computed by another engine, so that a handful of values fall into a neighbouring bin. Where two
    windows are equally good, that is enough to change the winner.
    """
    bins = len(histogram.counts)
    half = np.arange(quantized_bins // 2, bins // 2 + 1)
    divergence = _screen(histogram.counts, half, quantized_bins)
    edges = histogram.edges[bins // 2 + half + 1]
    first, second = (divergence[np.argmin(np.abs(edges - t))] for t in (ours, theirs))
    return bool(abs(first - second) <= 2e-5 + 1e-3 * abs(first))
