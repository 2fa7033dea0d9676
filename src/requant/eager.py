"""Eager calls: one operator on arrays, through the same lowering, as a cached one-op ONNX Runtime session.

A session is keyed by operator, attributes, dtypes and ranks, so that it serves arrays of any size. Where a lowering
needs sizes as numbers (``NeedsShape``), the shapes join the key.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.attrs import Attrs
from requant.engines.base import EngineOptions
from requant.engines.session import Session
from requant.errors import InputError
from requant.lower import IR_VERSION
from requant.ops.emit import OPSET, Emit, NeedsShape, Value
from requant.ops.registry import OpDef
from requant.symbol.infer import call_lowering

#: How many one-op sessions are kept; each weighs a few hundred kilobytes at most.
CACHE_SIZE = 2048

Call = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
Key = tuple[Any, ...]


class _Cache:
    """Calls by key, least recently used out first."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._calls: OrderedDict[Key, Call | None] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key) -> tuple[bool, Call | None]:
        with self._lock:
            if key not in self._calls:
                return False, None
            self._calls.move_to_end(key)
            return True, self._calls[key]

    def put(self, key: Key, call: Call | None) -> None:
        with self._lock:
            self._calls[key] = call
            while len(self._calls) > self._size:
                self._calls.popitem(last=False)


_cache = _Cache(CACHE_SIZE)


def invoke(
    op: OpDef, attrs: Mapping[str, object] | Attrs, arrays: Sequence[np.ndarray], training: bool = False
) -> list[np.ndarray]:
    """Run one operator on arrays.

    Args:
        op: the operator.
        attrs: its attributes, parsed or not.
        arrays: its inputs in MXNet's order; labels that inference does not need may be left out.
        training: compute what MXNet computes in training mode: BatchNorm takes the statistics of the batch.
    Returns:
        Its visible outputs.
    Raises:
        InputError: the number of inputs is wrong. AttributeValueError, ShapeError: as the lowering finds them.
    """
    parsed = attrs if isinstance(attrs, Attrs) else op.parse(attrs)
    ranks = tuple((a.dtype.str if a.dtype.kind != "V" else a.dtype.name, a.ndim) for a in arrays)
    training = training and op.by_mode
    open_key: Key = (op.name, parsed, ranks, training)
    known, call = _cache.get(open_key)
    if not known:
        try:
            call = _build(op, parsed, _open(arrays), training)
        except NeedsShape:
            call = None
        _cache.put(open_key, call)
    if call is None:
        closed_key = (*open_key, tuple(a.shape for a in arrays))
        known, call = _cache.get(closed_key)
        if call is None:
            call = _build(op, parsed, [(a.dtype, list(a.shape)) for a in arrays], training)
            _cache.put(closed_key, call)
    return call(arrays)


def _open(arrays: Sequence[np.ndarray]) -> list[tuple[np.dtype, list[int | str]]]:
    """Dtypes of arrays, and a name for each dimension."""
    return [(a.dtype, [f"d{i}_{k}" for k in range(a.ndim)]) for i, a in enumerate(arrays)]


def lower_one(
    op: OpDef, attrs: Attrs, inputs: Sequence[tuple[np.dtype, Sequence[int | str]]], training: bool = False
) -> tuple[ir.Model, list[int]]:
    """A one-op model with inputs ``in0``... and outputs ``out0``..., and which inputs it really reads."""
    g = Emit(op.name, exact=True, training=training)
    g.mx_op = op.name
    names = op.input_names(attrs, len(inputs))
    needed = [n for n in names if n not in op.labels]
    if len(inputs) < len(needed) or len(inputs) > len(names):
        raise InputError("wrong number of inputs", where=op.name, got=len(inputs), expected=f"{len(names)}: {names}")
    values: list[Value | None] = [g.input(f"in{i}", dims, dtype) for i, (dtype, dims) in enumerate(inputs)]
    outs = call_lowering(g, op, attrs, names[: len(values)], values)
    outputs = []
    for i, out in enumerate(outs):
        out = g("Identity", out) if out.producer() is None or out in outputs else out
        out.name = f"out{i}"
        outputs.append(out)
    nodes = g.needed(outputs)
    read = {id(v) for node in nodes for v in node.inputs if v is not None}
    used = [i for i, v in enumerate(values) if id(v) in read]
    initializers = [v for v in g.initializers.values() if id(v) in read]
    graph = ir.Graph(
        [v for i in used if (v := values[i]) is not None],
        outputs,
        nodes=nodes,
        initializers=initializers,
        opset_imports={"": OPSET},
        name=op.name,
    )
    return ir.Model(graph, ir_version=IR_VERSION, producer_name="requant"), used


def _build(op: OpDef, attrs: Attrs, inputs: Sequence[tuple[np.dtype, Sequence[int | str]]], training: bool) -> Call:
    model, used = lower_one(op, attrs, inputs, training)
    session: Session = engines.get("onnxruntime").load(model, EngineOptions(threads=1), None)
    names = [f"in{i}" for i in used]

    def call(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return session.run({n: arrays[i] for n, i in zip(names, used)})

    return call
