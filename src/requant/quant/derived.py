"""Statistics of tensors that a plan did not need, from those of the tensors that they are made of.

A plan observes one tensor for all that hold the same values. With other excludes another one of them may need a range:
what a concatenation joins has all values of its branches, and what only moves values has those of its input. So a table
serves every exclude list, and layers can be returned to float, without looking at data again.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from requant.passes.rewrite import is_default
from requant.quant.roles import is_activation
from requant.quant.table import CalibrationTable

#: Operators whose output holds the values of their first input, all of them and no others.
_MOVES = frozenset({"Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Dropout"})
#: Operators whose output holds some of them: a range of theirs is one of it, too.
_SELECTS = frozenset({"Slice", "Split", "MaxPool", "GlobalMaxPool", "Gather", "DepthToSpace", "SpaceToDepth"})


def derived(table: CalibrationTable, graph: ir.Graph, wanted: Iterable[str]) -> CalibrationTable:
    """A table that has the wanted tensors, too, as far as they follow from others; the given one if nothing is missing.

    Args:
        table: left as it is.
        graph: of the optimized model.
        wanted: names of tensors.
    """
    values = {str(out.name): out for node in graph for out in node.outputs}
    found: dict[str, tuple[str, ...]] = {}
    for name in wanted:
        if name not in table and name in values:
            sources = _sources(table, values[name])
            if sources:
                found[name] = sources
    return table.joined(found) if found else table


def _sources(table: CalibrationTable, value: ir.Value) -> tuple[str, ...]:
    """Names of the tensors of a table whose values are those of this one; none if that cannot be told."""
    if str(value.name) in table:
        return (str(value.name),)
    node = value.producer()
    if node is None or not is_default(node):
        return ()
    if node.op_type in _MOVES | _SELECTS:
        source = node.inputs[0]
        return _sources(table, source) if source is not None and is_activation(source) else ()
    if node.op_type != "Concat":
        return ()
    parts = [_sources(table, v) if v is not None and is_activation(v) else () for v in node.inputs]
    return tuple(dict.fromkeys(name for part in parts for name in part)) if all(parts) else ()
