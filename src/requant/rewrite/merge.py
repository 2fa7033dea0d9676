"""Fusions behind the quantization pass: calibrated requantize (and dequantize) nodes go into the operator before them.

MXNet 1.9.1's ``MKLDNN_QUANTIZE`` backend: post-quantization of convolution and addition, of fully connected layers,
products and attention, and one scale for all inputs of a concatenation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from requant.rewrite.graph import Moved, kept, op_name, outputs_of, readers, rebuilt
from requant.rewrite.switches import switched_off
from requant.symbol.tree import Entry, Node, Symbol

RANGE = ("min_calib_range", "max_calib_range")
#: Operators whose range is all that a requantize gives them.
_RANGED = {"_sg_mkldnn_conv", "_contrib_quantized_elemwise_add"}
#: Operators that can also give float numbers at once, and the environment switches that keep them from fusing.
_FLOATING = {
    "_sg_mkldnn_fully_connected": "QFC",
    "_contrib_quantized_elemwise_mul": "QEM",
    "_sg_mkldnn_selfatt_qk": "QTRANSFORMER",
    "_sg_mkldnn_selfatt_valatt": "QTRANSFORMER",
}


def calibrated(node: Node) -> bool:
    """Both ends of the node's range are set."""
    return all(node.attrs.get(key) not in (None, "None") for key in RANGE)


def number(value: float) -> str:
    """A range's end as MXNet writes it into an attribute: float32, six decimals."""
    return f"{float(np.float32(value)):f}"


def with_range(node: Node, low: float, high: float) -> dict[str, str]:
    """The node's attributes with that range."""
    return {**node.attrs, RANGE[0]: number(low), RANGE[1]: number(high)}


def range_of(node: Node) -> tuple[float, float]:
    """The node's calibrated range."""
    low, high = (float(np.float32(node.attrs[key])) for key in RANGE)
    return low, high


def _mergeable(node: Node) -> bool:
    name = op_name(node)
    if name.startswith("_sg_mkldnn_") and node.attrs.get("quantized", "").lower() not in ("true", "1"):
        return False
    if calibrated(node):
        return False
    return name in _RANGED or (name in _FLOATING and not switched_off(f"{_FLOATING[name]}_FUSE_ALL"))


def merge_requantize(symbol: Symbol, *, uncalibrated: bool = False) -> Symbol:
    """Give quantized operators the range of the calibrated requantize that alone reads them.

    Where nothing but a dequantize reads the requantize, operators that can give float numbers do so
    (``enable_float_output``). MXNet does that too where an int8 operator reads the requantize as well, and crashes
    (B25); here the requantize is merged and the dequantize stays.

    Args:
        uncalibrated: operators that give float numbers need no range for it, so merge these without one, too.
    """
    read_by = readers(symbol)
    heads = {id(n) for n, _ in symbol.entries}
    merged: dict[int, tuple[Node, Node | None]] = {}  # operator -> its requantize, and its dequantize
    gone: dict[int, Node] = {}  # requantize or dequantize -> operator
    for node in symbol.nodes:
        if node.op is None or not _mergeable(node) or id(node) in heads:
            continue
        after = read_by.get(id(node), [])
        if len(after) != 1 or op_name(after[0]) != "_contrib_requantize":
            continue
        requantize, dequantize = after[0], None
        last = read_by.get(id(requantize), [])
        if (
            op_name(node) in _FLOATING
            and not switched_off(f"{_FLOATING[op_name(node)]}_FLOAT_OUTPUT")
            and id(requantize) not in heads
            and len(last) == 1
            and op_name(last[0]) == "_contrib_dequantize"
        ):
            dequantize = last[0]
        if not calibrated(requantize) and (dequantize is None or not uncalibrated):
            continue
        if dequantize is not None:
            gone[id(dequantize)] = node
        gone[id(requantize)] = node
        merged[id(node)] = requantize, dequantize

    made: dict[int, Sequence[Entry]] = {}

    def visit(node: Node, moved: Moved) -> Sequence[Entry] | None:
        if id(node) in gone:
            return made[id(gone[id(node)])]
        if id(node) not in merged:
            return None
        requantize, dequantize = merged[id(node)]
        if dequantize is None:
            attrs = with_range(node, *range_of(requantize))
        else:
            attrs = {**node.attrs, "enable_float_output": "True"}
        new = Node(node.op, node.name, attrs, [moved(e) for e in node.inputs], node.subgraphs)
        made[id(node)] = outputs_of(new)
        return made[id(node)]

    return rebuilt(symbol, visit)


_CONCAT, _POOLING = "_contrib_quantized_concat", "_contrib_quantized_pooling"


def align_scales(symbol: Symbol) -> Symbol:
    """Give all calibrated producers whose values meet in a quantized concat one range, the union of theirs with 0."""
    current = symbol
    for node in symbol.nodes:
        if op_name(node) == _CONCAT:
            current = _align(current, node.name)
    return current


def _align(symbol: Symbol, name: str) -> Symbol:
    concat = next(n for n in symbol.nodes if op_name(n) == _CONCAT and n.name == name)
    found = _producers(symbol, concat)
    ranged = [n for n in found if calibrated(n)]
    if len(ranged) < 2:
        return symbol
    low = min(0.0, *(range_of(n)[0] for n in ranged))
    high = max(0.0, *(range_of(n)[1] for n in ranged))
    ids = {id(n) for n in ranged}

    def visit(node: Node, moved: Moved) -> Sequence[Entry] | None:
        if id(node) not in ids:
            return None
        new = kept(node, [moved(e) for e in node.inputs])
        return outputs_of(Node(new.op, new.name, with_range(node, low, high), new.inputs, new.subgraphs))

    return rebuilt(symbol, visit)


def _data_inputs(node: Node) -> Iterable[Node]:
    count = len(node.inputs) // 3
    return [n for n, _ in node.inputs[:count]]


def _producers(symbol: Symbol, concat: Node) -> list[Node]:
    """Operators whose int8 values come to a concat, and nowhere else, through other concats and poolings."""
    read_by: Mapping[int, list[Node]] = readers(symbol)
    inside, found = {id(concat)}, {}
    queue = [concat]
    while queue:
        node = queue.pop(0)
        for source in _data_inputs(node):
            if source.is_variable or id(source) in inside or any(id(r) not in inside for r in read_by[id(source)]):
                continue  # what others read as well keeps its own range
            if op_name(source) in (_CONCAT, _POOLING):
                inside.add(id(source))
                queue.append(source)
            else:
                found[id(source)] = source
        after = read_by.get(id(node), [])
        if len(after) == 1 and op_name(after[0]) in (_CONCAT, _POOLING) and id(after[0]) not in inside:
            inside.add(id(after[0]))
            queue.append(after[0])
    return list(found.values())
