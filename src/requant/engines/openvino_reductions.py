"""Means and sums of integers with three axes, which OpenVINO reads beyond their end.

Where the data of a mean or sum is quantized and the result is not, OpenVINO computes it by an integer kernel, and for
tensors of three axes that kernel reads other memory from some batch size on (seen with 2026.4: 2 or 10 samples, numbers
without any sense). With a fourth axis of size 1, reduced as well, it is right, and such an axis costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import (
    attribute,
    changed_copy,
    constant,
    initializer,
    insert_before,
    ints,
    is_default,
    rank,
    stand_in,
)

_POOLS = frozenset({"GlobalAveragePool"})
_REDUCTIONS = frozenset({"ReduceMean", "ReduceSum"})


def lifted_reductions(model: ir.Model) -> ir.Model:
    """A model of equal results whose means and sums of three axes are of four; the given one if it is not quantized or
    has none.

    Args:
        model: left as it is.
    """
    return changed_copy(model, _found, _lift)


def _found(graph: ir.Graph) -> Iterator[ir.Node]:
    if not any(n.op_type == "DequantizeLinear" for n in graph):
        return
    for node in graph:
        if not is_default(node) or rank(node.inputs[0] if node.inputs else None) != 3:
            continue
        if node.op_type in _POOLS or (node.op_type in _REDUCTIONS and _axes(node) is not None):
            yield node


def _axes(node: ir.Node) -> list[int] | None:
    """The axes of a reduction, counted from the front; None if they are computed, or none is reduced."""
    given = ints(node, "axes")
    if given is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        array = constant(node.inputs[1])
        if array is None:
            return None
        given = [int(a) for a in array.reshape(-1)]
    if not given:
        return None if attribute(node, "noop_with_empty_axes", 0) else [0, 1, 2]
    return [a % 3 for a in given]


def _lift(graph: ir.Graph, node: ir.Node) -> None:
    data, out = node.inputs[0], node.outputs[0]
    assert data is not None
    axes = _axes(node) if node.op_type in _REDUCTIONS else None
    sizes = None if data.shape is None else ir.Shape([*data.shape, 1])
    last = initializer(graph, "last_of_four_axes", np.array([3], np.int64))
    node.replace_input_with(0, insert_before(node, "Unsqueeze", [data, last], f"{data.name}_lifted", data.dtype, sizes))
    if axes is not None:
        if "axes" in node.attributes:
            node.attributes["axes"] = ir.AttrInt64s("axes", [*axes, 3])
        else:
            node.resize_inputs(2)
            node.replace_input_with(1, initializer(graph, f"{node.name}_axes", np.array([*axes, 3], np.int64)))
        if not attribute(node, "keepdims", 1):
            return
    squeeze = ir.Node("", "Squeeze", [out, last], name=f"{out.name}/Squeeze")
    lifted = None if out.shape is None else ir.Shape([*out.shape, 1])
    stand_in(graph, out, [squeeze], f"{out.name}_lifted")
    out.shape = lifted
