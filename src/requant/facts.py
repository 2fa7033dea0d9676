"""What a model is, in numbers: operators, parameters, bytes, multiply-accumulates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass, ShapeInferencePass

from requant.engines.memory import check_arrays
from requant.lower import to_onnx
from requant.passes import FoldConstants, FoldShapeArithmetic
from requant.pipeline import Model
from requant.quant.macs import node_macs

#: Rounds of folding until the shapes of a network are known.
_ROUNDS = 8


@dataclass(frozen=True)
class Facts:
    """Figures of a model.

    Attributes:
        ops: how many nodes of each operator; MXNet's operators for an MXNet model, ONNX's for an ONNX model.
        parameters: how many numbers the parameters hold.
        bytes: how many bytes they take.
        dtypes: bytes by dtype.
        macs: multiply-accumulates of one run with ``shapes``; None if a shape is not known.
        shapes: the input shapes that ``macs`` counts for (batch 1 where it is open).
    """

    ops: Mapping[str, int]
    parameters: int
    bytes: int
    dtypes: Mapping[str, int]
    macs: int | None
    shapes: Mapping[str, tuple[int, ...]]


def facts(model: Model, shapes: Mapping[str, Sequence[int]] | None = None) -> Facts:
    """Figures of a model; ``shapes`` are the input shapes to count multiply-accumulates for."""
    if model.symbol is not None:
        ops = Counter(n.op.name for n in model.symbol.nodes if n.op is not None)
        arrays = list(model.params.values())
    else:
        ops = Counter(n.op_type for n in model.onnx.graph)
        arrays = [v.const_value.numpy() for v in model.onnx.graph.initializers.values() if v.const_value is not None]
        # Some exporters write every parameter as a node.
        constants = (n.attributes.get("value") for n in model.onnx.graph if n.op_type == "Constant")
        arrays += [a.as_tensor().numpy() for a in constants if a is not None]
    dtypes: Counter[str] = Counter()
    for array in arrays:
        dtypes[array.dtype.name] += array.nbytes
    at = {n: tuple(int(d) for d in s) for n, s in (shapes or {}).items()}
    for spec in model.inputs:
        fixed = tuple(d if isinstance(d, int) else 1 if i == 0 else 0 for i, d in enumerate(spec.shape or ()))
        at.setdefault(spec.name, fixed)
    return Facts(
        ops=dict(ops.most_common()),
        parameters=sum(a.size for a in arrays),
        bytes=sum(a.nbytes for a in arrays),
        dtypes=dict(dtypes),
        macs=_macs(model, at) if all(all(s) for s in at.values()) else None,
        shapes=at,
    )


def _macs(model: Model, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    if model.symbol is not None:
        graph = to_onnx(model.symbol, model.params, shapes).model.graph
    else:
        whole = ir.from_proto(ir.to_proto(model.onnx))
        for value in whole.graph.inputs:
            if value.name in shapes:
                value.shape = ir.Shape(shapes[value.name])
        for node in whole.graph:  # shapes of the open batch would stand in the way of those of this one
            for value in node.outputs:
                if value not in whole.graph.outputs:
                    value.shape = None
        LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=0)(whole)
        for _ in range(_ROUNDS):  # shapes that are computed from shapes become known one after the other
            ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(whole)
            if not FoldShapeArithmetic()(whole).modified | FoldConstants()(whole).modified:
                break
        graph = whole.graph
    total = 0
    for node in graph:
        count = node_macs(node)
        if count is None:
            return None
        total += count
    return total


def random_feeds(model: Model, shapes: Mapping[str, Sequence[int]], seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of these shapes: standard normal for floats, small non-negative numbers for integers.

    Raises:
        InputError: they do not fit into memory.
    """
    check_arrays({s.name: (shapes[s.name], s.dtype.itemsize) for s in model.inputs}, model.source)
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray] = {}
    for spec in model.inputs:
        shape = tuple(int(d) for d in shapes[spec.name])
        if spec.dtype.kind == "f":  # drawn as what they become: a large array has no second one beside it
            drawn = np.float64 if spec.dtype == np.float64 else np.float32
            feeds[spec.name] = rng.standard_normal(shape, drawn).astype(spec.dtype, copy=False)
        elif spec.dtype.kind == "b":
            feeds[spec.name] = rng.integers(0, 2, shape, np.bool_)
        else:
            feeds[spec.name] = rng.integers(0, 8, shape, np.int8).astype(spec.dtype, copy=False)
    return feeds
