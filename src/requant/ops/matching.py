"""Bipartite matching: pairs of rows and columns, the best first. A step of SSD's training targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from requant.attrs import Attrs
from requant.errors import DTypeError, ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import op
from requant.ops.sizes import reshape_to, sizes, total

#: The score of pairs that are out of question.
_NEVER = float(np.finfo(np.float32).min)


@dataclass(frozen=True, kw_only=True)
class BipartiteMatchingAttrs(Attrs):
    is_ascend: bool = False
    threshold: float
    topk: int = -1


def _steps(g: Emit, a: BipartiteMatchingAttrs, score: Value) -> Value:
    """How many pairs there are at most: an int64 scalar. MXNet allows one more than ``topk``."""
    rows, columns = g.dims(score)[1:]
    if rows is not None and columns is not None:
        return g.const(np.int64(min(rows, columns, *([a.topk + 1] if a.topk > 0 else []))))
    limits = [g.size_of(score, [1]), g.size_of(score, [2])]
    if a.topk > 0:
        limits.append(g.const(np.array([a.topk + 1])))
    return g.squeeze(g("Min", *limits), [0])


def _first(g: Emit, values: Value, best: Value, places: Value) -> Value:
    """Index (B, 1) of the first of values (B, n) that equals best (B, 1). places: 0.0 to n - 1."""
    return g.reduce("Min", g("Where", g("Equal", values, best), places, g.const(1e9, values)), [1], keepdims=True)


def _step(g: Emit, states: tuple[Value, ...]) -> tuple[Value, ...]:
    """Take the best pair that is left: note it, and rule out its row and its column.

    States are the scores (B, N, M), the column of each row (B, N), the row of each column (B, M), and the numbers of
    rows (N,) and columns (M,), which stay.
    """
    score, of_rows, of_columns, rows, columns = states
    by_row = g.reduce("Max", score, [2])
    best = g.reduce("Max", by_row, [1], keepdims=True)
    any_left = g("Greater", best, _NEVER)
    row = _first(g, by_row, best, rows)
    is_row = g("And", g("Equal", rows, row), any_left)
    line = g.reduce("Max", g("Where", g.unsqueeze(is_row, [2]), score, g.const(_NEVER, score)), [1])
    column = _first(g, line, best, columns)
    is_column = g("And", g("Equal", columns, column), any_left)
    taken = g("Or", g.unsqueeze(is_row, [2]), g.unsqueeze(is_column, [1]))
    return (
        g("Where", taken, g.const(_NEVER, score), score),
        g("Where", is_row, column, of_rows),
        g("Where", is_column, row, of_columns),
        g("Identity", rows),
        g("Identity", columns),
    )


def _loop(g: Emit, count: Value, states: tuple[Value, ...]) -> tuple[Value, ...]:
    """``_step``, ``count`` times over."""
    body = Emit(f"{g.node}/step" if g.node else "step")
    body.mx_op = g.mx_op
    turn, go_on = body.input("turn", [], np.int64), body.input("go_on", [], np.bool_)
    inner = tuple(body.input(f"state{i}", s.shape or [], g.dtype(s)) for i, s in enumerate(states))  # type: ignore[arg-type]
    outputs = _step(body, inner)
    on = body("Identity", go_on)
    graph = ir.Graph(
        [turn, go_on, *inner],
        [on, *outputs],
        nodes=body.nodes,
        initializers=list(body.initializers.values()),
        name=body.node,
    )
    found = g.multi("Loop", len(states), count, g.const(np.bool_(True)), *states, body=graph)
    for out, state in zip(found, states):
        out.type, out.shape = state.type, state.shape
    return found


@op("_contrib_bipartite_matching", outputs=("output0", "output1"))
def bipartite_matching(g: Emit, a: BipartiteMatchingAttrs, data: Value) -> tuple[Value, Value]:
    """Pairs of rows and columns of scores (..., N, M): the best pair, then the best of the others, and so on.

    Gives the column of each row (..., N) and the row of each column (..., M), -1 where there is none. Pairs count with
    a score above ``threshold`` (below it with ``is_ascend``). As in MXNet there may be one pair more than ``topk``.
    """
    if g.dtype(data).kind != "f":
        raise DTypeError("scores are floating-point numbers", where=g.node, got=g.dtype(data))
    if g.rank(data) < 2:
        raise ShapeError("scores are (..., rows, columns)", where=g.node, got=g.dims(data))
    *lead, rows, columns = sizes(g, data)
    batch = total(lead)
    score = g.cast(reshape_to(g, data, [batch, rows, columns]), np.float32)
    threshold = a.threshold
    if a.is_ascend:
        score, threshold = g("Neg", score), -threshold
    score = g("Where", g("Greater", score, threshold), score, g.const(_NEVER, score))
    places, unmatched = [], []
    for axis in (1, 2):
        count = g.size_of(score, [axis])
        place = g("Range", g.const(np.int64(0)), g.squeeze(count, [0]), g.const(np.int64(1)))
        places.append(g.cast(place, np.float32))
        shape = g.concat_sizes([g.size_of(score, [0]), count])
        none = g("ConstantOfShape", shape, value=np.full(1, -1, np.float32))
        unmatched.append(g.set_shape(none, [s.label for s in (batch, (rows, columns)[axis - 1])]))
    _, of_rows, of_columns, *_ = _loop(g, _steps(g, a, score), (score, *unmatched, *places))
    outs = [reshape_to(g, v, [*lead, n], (data,)) for v, n in ((of_rows, rows), (of_columns, columns))]
    return g.cast(outs[0], g.dtype(data)), g.cast(outs[1], g.dtype(data))
