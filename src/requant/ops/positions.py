"""index_array: the position of every element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, Ints
from requant.errors import ShapeError
from requant.ops.emit import Emit, Value
from requant.ops.registry import op
from requant.ops.sizes import Size, expand_to, reshape_to, sizes


@dataclass(frozen=True)
class IndexArrayAttrs(Attrs):
    axes: Ints | None = None


@op("_contrib_index_array")
def index_array(g: Emit, a: IndexArrayAttrs, data: Value) -> Value:
    """Positions (*shape of data, len(axes)) of the elements along ``axes`` (all of them if None), as int64."""
    rank, own = g.rank(data), sizes(g, data)
    axes = list(range(rank)) if a.axes is None else [g.axis(data, i) for i in a.axes]
    if not axes:
        raise ShapeError("index_array needs an axis", where=g.node, got=f"axes {a.axes} of rank {rank}")
    one = Size.number_of(1)
    parts = []
    for axis in axes:
        count = g.squeeze(g.size_of(data, [axis]), [0])
        place = g("Range", g.const(np.int64(0)), count, g.const(np.int64(1)))
        line = reshape_to(g, place, [own[i] if i == axis else one for i in range(rank)] + [one], (data,))
        parts.append(expand_to(g, line, [*own, one], (data,)))
    return parts[0] if len(parts) == 1 else g("Concat", *parts, axis=rank)
