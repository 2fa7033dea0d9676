"""ONNX → ONNX, meaning kept. One transformation a file; the order is the tuple below.

``optimize(model)`` is what every model goes through before it is planned and quantized: batch normalization, padding,
scales and biases end up in the linear operators, and everything that can be known in advance is a constant. Batch
normalization must go first of all: what is folded cannot be quantized apart any more.
"""

from __future__ import annotations

import logging

import onnx_ir as ir
from onnx_ir.passes import common

from requant.passes.batch_norm import FoldBatchNorm
from requant.passes.clip import MergeClips
from requant.passes.constants import FoldConstants
from requant.passes.gemm import MatMulToGemm, PlainGemm
from requant.passes.noop import RemoveNoOps
from requant.passes.opset import UpgradeOpset
from requant.passes.pad import FoldPad
from requant.passes.rewrite import forget_names, name_nodes
from requant.passes.scale import FoldScale
from requant.passes.shapes import FoldShapeArithmetic
from requant.passes.stride import PullStrides

log = logging.getLogger(__name__)

#: Run once: bring files of any age and exporter to one form.
PREPARE: tuple[ir.passes.InPlacePass, ...] = (
    UpgradeOpset(),
    common.InlinePass(),
    common.RemoveInitializersFromInputsPass(),
    common.LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=0),
    common.RemoveUnusedNodesPass(),
    common.NameFixPass(),
)

#: Run in turn until nothing changes any more.
SIMPLIFY: tuple[ir.passes.InPlacePass, ...] = (
    # Not with ONNX's data propagation, which writes out a ConstantOfShape of any size; FoldShapeArithmetic does that.
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False),
    FoldShapeArithmetic(),
    FoldConstants(),
    RemoveNoOps(),
    MergeClips(),
    FoldPad(),
    PlainGemm(),
    MatMulToGemm(),
    FoldBatchNorm(),
    FoldScale(),
    PullStrides(),
    common.RemoveUnusedNodesPass(),
)
_ROUNDS = 6


def optimize(model: ir.Model) -> ir.Model:
    """A model that computes the same with fewer and larger operators. The given model is not touched.

    Returns:
        A new model; it shares with the old one the weights that did not change.
    """
    new = model.clone()
    before = sum(1 for _ in new.graph.all_nodes())
    for step in PREPARE:
        step(new)
    forget_names(new)
    name_nodes(new)
    for _ in range(_ROUNDS):
        changed = False
        for step in SIMPLIFY:
            result = step(new)
            # New shapes alone are no reason for another round, or rank-less files would never settle.
            changed |= result.modified and not isinstance(step, common.ShapeInferencePass)
        if not changed:
            break
    log.debug("optimize: %d nodes became %d", before, sum(1 for _ in new.graph.all_nodes()))
    return new


__all__ = [
    "PREPARE",
    "SIMPLIFY",
    "FoldBatchNorm",
    "FoldConstants",
    "FoldPad",
    "FoldScale",
    "FoldShapeArithmetic",
    "MatMulToGemm",
    "MergeClips",
    "PlainGemm",
    "PullStrides",
    "RemoveNoOps",
    "UpgradeOpset",
    "optimize",
]
