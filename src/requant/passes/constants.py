"""Constant folding: a node whose inputs are all constants becomes a constant.

Values come from ONNX's own reference implementation, operator by operator, so that no engine is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from requant.passes.rewrite import Array, GraphPass, constant, initializer, int_list, is_default

log = logging.getLogger(__name__)

#: A folded constant may be this large in bytes even if its inputs were small.
LARGEST_GROWTH = 1 << 20
#: Beyond this many bytes nothing is folded: the graph is not made for it.
LARGEST = 1 << 30

# Not folded: operators that draw numbers, hold graphs, or (quantizers) whose constants must stay as they are.
_NEVER = frozenset(
    {
        "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout",
        "If", "Loop", "Scan", "SequenceMap", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Constant",
    }
)  # fmt: skip

# A reshape or a cast of a weight is what folding is for; these work in the weight's own memory or shrink it.
_CHEAP_COPIES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Cast", "Identity"})


class FoldConstants(GraphPass):
    """Evaluate nodes with constant inputs, in order, so that whole branches of constants fold in one walk."""

    def graph(self, graph: ir.Graph) -> bool:
        """Fold the nodes of one graph."""
        changed = False
        for node in list(graph):
            if not is_default(node) or node.op_type in _NEVER or not node.outputs:
                continue
            arrays = [None if v is None else constant(v) for v in node.inputs]
            if any(v is not None and a is None for v, a in zip(node.inputs, arrays)):
                continue
            if any(out.is_graph_output() or out.dtype == ir.DataType.STRING for out in node.outputs):
                continue
            if not any(out.uses() for out in node.outputs) or not _affordable(node, arrays):
                continue
            results = evaluate(node, arrays)
            if results is None:
                continue
            for out, array in zip(node.outputs, results):
                if out.uses():
                    value = initializer(graph, f"{out.name}_folded", array)
                    ir.convenience.replace_all_uses_with(out, value)
            graph.remove(node, safe=True)
            changed = True
        return changed


def evaluate(node: ir.Node, arrays: list[Array | None]) -> list[Array] | None:
    """The outputs of a node for these inputs, or None if the reference implementation cannot say."""
    graph = node.graph
    version = (graph.opset_imports.get("") if graph is not None else None) or 20
    names = [f"i{i}" if a is not None else "" for i, a in enumerate(arrays)]
    proto = ir.to_proto(node)
    del proto.input[:], proto.metadata_props[:]
    proto.input.extend(names)
    outputs = [f"o{i}" for i in range(len(node.outputs))]
    del proto.output[:]
    proto.output.extend(outputs)
    feeds = {n: a for n, a in zip(names, arrays) if a is not None}
    inputs = [
        onnx.helper.make_tensor_value_info(n, int(ir.DataType.from_numpy(a.dtype)), a.shape) for n, a in feeds.items()
    ]
    outs = [onnx.helper.make_empty_tensor_value_info(n) for n in outputs]
    made = onnx.helper.make_model(
        onnx.helper.make_graph([proto], "fold", inputs, outs), opset_imports=[onnx.helper.make_opsetid("", version)]
    )
    try:
        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(made).run(None, feeds)
    except Exception as fault:  # whatever the reference raises, the node simply stays
        log.debug("not folded: %s (%s): %s", node.name, node.op_type, fault)
        return None
    results = [np.asarray(a) for a in found]
    return results if all(_fits(out, a) for out, a in zip(node.outputs, results)) else None


def _fits(out: ir.Value, array: Array) -> bool:
    """The array is of the type that the graph declares, and of its shape where that is known."""
    if array.dtype == np.dtype(object) or (out.dtype is not None and out.dtype.numpy() != array.dtype):
        return False
    return out.shape is None or (
        out.shape.rank() == array.ndim and all(not isinstance(d, int) or d == n for d, n in zip(out.shape, array.shape))
    )


def _affordable(node: ir.Node, arrays: list[Array | None]) -> bool:
    """The result is not out of proportion: numbers in a file must not decide how much memory is taken unchecked."""
    given = [a for a in arrays if a is not None]
    total = sum(a.nbytes for a in given)
    if total > LARGEST:
        return False
    measure = _GROWING.get(node.op_type)
    if measure is not None:
        size = measure(node, given)
    elif node.op_type in _CHEAP_COPIES or not given:
        size = total
    else:
        size = _broadcast_bytes(given)
    return size is not None and size <= max(LARGEST_GROWTH, 2 * total)


def _product(dims: list[int] | tuple[int, ...]) -> int:
    out = 1
    for d in dims:
        out *= max(int(d), 0)
    return out


def _broadcast_bytes(given: list[Array]) -> int | None:
    try:
        shape = np.broadcast_shapes(*[a.shape for a in given])
    except ValueError:  # not broadcast: bounded by the sum of its inputs, or of matrix products
        shape = ()
    largest = max((a.nbytes for a in given), default=0)
    return max(_product(shape) * 8, largest)


def _vector(node: ir.Node, index: int) -> list[int] | None:
    return int_list(node.inputs[index]) if len(node.inputs) > index and node.inputs[index] is not None else None


def _by_target(node: ir.Node, given: list[Array]) -> int | None:
    """Expand, ConstantOfShape: the target shape is an input."""
    target = _vector(node, 0 if node.op_type == "ConstantOfShape" else 1)
    if target is None or any(t < 0 for t in target):
        return None
    return _product(target) * 8 * max(1, _product(given[0].shape) if node.op_type == "Expand" else 1)


def _by_repeats(node: ir.Node, given: list[Array]) -> int | None:
    repeats = _vector(node, 1)
    return None if repeats is None else _product(repeats) * given[0].nbytes


def _by_range(node: ir.Node, given: list[Array]) -> int | None:
    if len(given) != 3 or any(a.size != 1 for a in given):
        return None
    start, limit, step = (float(a.reshape(-1)[0]) for a in given)
    if step == 0 or not np.isfinite([start, limit, step]).all():
        return None
    return int(max(0.0, (limit - start) / step) + 1) * 8


def _by_pads(node: ir.Node, given: list[Array]) -> int | None:
    pads = _vector(node, 1)
    if pads is None or any(abs(p) > LARGEST for p in pads):
        return None
    half = len(pads) // 2
    shape = given[0].shape
    axes = _vector(node, 3) or list(range(len(shape)))
    if len(axes) != half or any(not -len(shape) <= a < len(shape) for a in axes):
        return None
    grown = [int(d) for d in shape]
    for i, axis in enumerate(axes):
        grown[axis] += pads[i] + pads[half + i]
    return _product(grown) * given[0].itemsize


def _by_gather(node: ir.Node, given: list[Array]) -> int | None:
    data, indices = given[0], given[1]
    return indices.size * max(1, data.nbytes // max(1, min(data.shape, default=1) or 1))


def _by_product(node: ir.Node, given: list[Array]) -> int | None:
    a, b = given[0], given[1]
    return a.size // max(1, a.shape[-1] if a.ndim else 1) * max(1, b.size // max(1, b.shape[0] if b.ndim else 1)) * 8


def _never(node: ir.Node, given: list[Array]) -> int | None:
    return None


_GROWING: dict[str, Callable[[ir.Node, list[Any]], int | None]] = {
    "Expand": _by_target,
    "ConstantOfShape": _by_target,
    "Tile": _by_repeats,
    "Range": _by_range,
    "Pad": _by_pads,
    "Gather": _by_gather,
    "MatMul": _by_product,
    "Gemm": _by_product,
    "OneHot": _never,
    "Resize": _never,
    "Upsample": _never,
    "Einsum": _never,
    "EyeLike": _never,
    "ConvTranspose": _never,
    "Conv": _never,
    "Loop": _never,
    "GatherND": _never,
    "GatherElements": _never,
    "MaxUnpool": _never,
    "HannWindow": _never,
    "HammingWindow": _never,
    "BlackmanWindow": _never,
    "MelWeightMatrix": _never,
    "DFT": _never,
    "STFT": _never,
    "CenterCropPad": _never,
    "Scatter": _never,
    "AffineGrid": _never,
    "Unique": _never,
}
