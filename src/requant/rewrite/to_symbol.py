"""A plan made on ONNX, written as an int8 symbol that MXNet 1.9.1 runs.

The float network is fused and quantized by MXNet's rules (`requant.rewrite.fuse`, `requant.rewrite.quantize`), but the
plan chooses which nodes become int8, and ranges are those that calibration found for it, for MXNet's level counts.
Weights are those of the int8 model (`requant.rewrite.layers`). Where MXNet's kernels are wrong, the symbol goes around
them:

- a sum is not fused where its operand is uint8 and the result int8; where the operand is int8 and the result uint8, the
  range is widened to the half that MXNet keeps (B1);
- convolutions with groups, other than depthwise ones, stay float (B5), as do products (B8) and activations that are not
  fused (B6); a leaky ReLU is not fused into a fully connected layer (B13);
- fully connected layers keep float32 weights, which MXNet quantizes by channel, so that every way of binding the symbol
  works (B22).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from requant.errors import counted
from requant.qmath import QuantParams, Range, mxnet_levels
from requant.quant.plan import Plan
from requant.rewrite.calibration import Array, quantize_params, set_ranges
from requant.rewrite.fuse import backend_symbol
from requant.rewrite.graph import Moved, entry_name, kept, op_name, outputs_of, rebuilt
from requant.rewrite.merge import align_scales, calibrated, merge_requantize, range_of, with_range
from requant.rewrite.quantize import quantize_symbol
from requant.symbol.tree import Entry, Node, Symbol

log = logging.getLogger(__name__)

BACKEND = "MKLDNN_QUANTIZE"
#: Operators of MXNet whose int8 kernels in 1.9.1 are right, beside fused ones.
_RIGHT = {"Pooling", "Concat", "Flatten", "elemwise_add"}
#: Uint8 levels over int8 levels: how much wider a range must be for its first 127 levels to hold everything.
_WIDER = 255.5 / 127.0


@dataclass(frozen=True)
class Int8Symbol:
    """An int8 network in MXNet's words.

    Attributes:
        symbol: the network.
        params: its arguments and auxiliary states.
        dynamic: names of tensors whose ranges are found at run time, because calibration did not look at them.
    """

    symbol: Symbol
    params: dict[str, Array]
    dynamic: tuple[str, ...]


def to_symbol(
    symbol: Symbol, params: Mapping[str, Array], plan: Plan, ranges: Mapping[str, Range], tensors: Collection[str]
) -> Int8Symbol:
    """Write a plan as an MXNet symbol.

    Args:
        symbol, params: the float network.
        plan: which nodes become int8, by the names that they have in the symbol.
        ranges: by name of the tensor, for those that calibration looked at.
        tensors: names of all tensors of the graph that was planned.
    """
    whole = _group_ranges(plan, ranges)
    apart = {n.name for n in symbol.nodes if _stays_apart(n, symbol, plan)}
    while True:
        made = _make(symbol, params, plan, whole, set(tensors), apart)
        broken = _sums_that_break(made.symbol)
        if not broken:
            break
        apart |= broken
    final = _widen_sums(made.symbol)
    if made.dynamic:
        log.warning(
            "found at run time, which is slower: the ranges of %s: %s",
            counted(len(made.dynamic), "tensor"),
            ", ".join(made.dynamic[:6]),
        )
    args = quantize_params(final, params, {})
    args.update({n: params[n] for n in final.list_auxiliary_states() if n in params})
    return Int8Symbol(final, args, made.dynamic)


def more_tensors(symbol: Symbol, params: Mapping[str, Array], plan: Plan, tensors: Collection[str]) -> tuple[str, ...]:
    """Tensors whose ranges ``to_symbol`` wants and the plan does not: what int8 layers give to float ones.

    The plan's engines need no range there; MXNet's layers give integers always.
    """
    seen = dict.fromkeys(plan.observed, Range(-1.0, 1.0))
    apart = {n.name for n in symbol.nodes if _stays_apart(n, symbol, plan)}
    open_ = _make(symbol, params, plan, _group_ranges(plan, seen), set(tensors), apart).dynamic
    fused = backend_symbol(symbol, BACKEND, apart=apart)
    names = {n: _tensor((node, i), set(tensors)) for node in fused.nodes for i, n in enumerate(node.output_names())}
    return tuple(names[point] for point in open_ if names.get(point) in tensors)


def as_mxnet_counts(params: Mapping[str, QuantParams]) -> dict[str, Range]:
    """The ranges for which MXNet's steps are those of the plan's engine: 127.5 of them for int8, 255.5 for uint8.

    Tensors with a zero point, which MXNet has not, are left out.
    """
    found = {}
    for name, one in params.items():
        if one.symmetric and not one.per_channel:
            reach = float(mxnet_levels(one.dtype)) * float(one.scale)
            found[name] = Range(0.0 if one.dtype == np.uint8 else -reach, reach)
    return found


def _group_ranges(plan: Plan, ranges: Mapping[str, Range]) -> dict[str, tuple[float, float]]:
    """Ranges by tensor; tensors of one group have the union of theirs."""
    found = {n: (float(r[0]), float(r[1])) for n, r in ranges.items()}
    for members in plan.groups.values():
        given = [found[n] for n in members if n in found]
        if given:
            union = min(r[0] for r in given), max(r[1] for r in given)
            found.update(dict.fromkeys(members, union))
    return found


def _chosen(plan: Plan) -> set[str]:
    """Names of the nodes that compute, or hand on, integers."""
    return {n for d in plan.decisions if d.chosen != "float" for n in (d.node, *d.names)}


def _stays_apart(node: Node, symbol: Symbol, plan: Plan) -> bool:
    """Whether a node must not be fused into the one before it."""
    if op_name(node) == "elemwise_add":
        return node.name not in _chosen(plan)
    if op_name(node) == "LeakyReLU":
        return op_name(node.inputs[0][0]) == "FullyConnected"
    return False


def _make(
    symbol: Symbol,
    params: Mapping[str, Array],
    plan: Plan,
    ranges: Mapping[str, tuple[float, float]],
    tensors: set[str],
    apart: set[str],
) -> Int8Symbol:
    fused = backend_symbol(symbol, BACKEND, apart=apart)
    excluded = [n.name for n in fused.nodes if n.op is not None and not _quantizable(n, _chosen(plan))]
    made = quantize_symbol(
        fused, excluded_names=excluded, offline=list(params), dtype="auto", mode="full", granularity="channel-wise"
    )
    known = _by_point(fused, ranges, tensors)
    calibrated_ = merge_requantize(set_ranges(made.symbol, known), uncalibrated=True)
    left = {entry_name(n.inputs[0]).removeprefix("quantized_") for n in calibrated_.nodes if _open(n)}
    return Int8Symbol(align_scales(calibrated_), {}, tuple(p for p in made.points if p in left))


def _open(node: Node) -> bool:
    return op_name(node) in ("_contrib_quantize_v2", "_contrib_requantize") and not calibrated(node)


def _quantizable(node: Node, chosen: set[str]) -> bool:
    """Whether a node of the fused symbol becomes int8: the plan wants it, and MXNet computes it rightly."""
    if not node.subgraphs:
        return node.name in chosen and op_name(node) in _RIGHT
    first = next(n for n in node.subgraphs[0].nodes if n.op is not None)
    layer = next((n for n in node.subgraphs[0].nodes if op_name(n) in ("Convolution", "FullyConnected")), first)
    if layer.name not in chosen:
        return False
    if op_name(layer) == "Convolution":
        groups, filters = layer.parsed.num_group, layer.parsed.num_filter  # type: ignore[attr-defined]
        if 1 < groups < filters:
            log.info("%s stays float: MXNet computes int8 convolutions in groups wrongly (B5)", layer.name)
            return False
    return True


def _by_point(
    fused: Symbol, ranges: Mapping[str, tuple[float, float]], tensors: set[str]
) -> dict[str, tuple[float, float]]:
    """Ranges by the names of the fused symbol's tensors."""
    found: dict[str, tuple[float, float]] = {}
    for node in fused.nodes:
        for i, name in enumerate(node.output_names()):
            tensor = _tensor((node, i), tensors)
            if tensor in ranges:
                found[name] = ranges[tensor]
    return found


def _tensor(entry: Entry, tensors: Collection[str]) -> str:
    """The name, in the graph that was planned, of a tensor of the fused symbol."""
    while True:
        node, _ = entry
        if node.subgraphs:
            entry = node.subgraphs[0].entries[0]
        elif entry_name(entry) not in tensors and _vanishes(node):
            entry = node.inputs[0]
        else:
            return entry_name(entry)


def _vanishes(node: Node) -> bool:
    """Whether a node that is not in the planned graph has the range of what it reads.

    A batch normalization folded into the convolution before it left its tensor under that one's name. Padding with
    zeros, folded into the convolution behind it, adds a value that every int8 form holds anyway.
    """
    if op_name(node) == "Pad":
        return node.attrs.get("mode") == "constant" and float(node.attrs.get("constant_value", 0)) == 0
    return op_name(node) in ("BatchNorm", "Dropout", "Flatten", "Reshape", "_copy")


# -- sums ------------------------------------------------------------------------------------------------------------


def _unsigned(entry: Entry) -> bool:
    """Whether an int8 tensor of the symbol is uint8 at run time."""
    node, _ = entry
    name = op_name(node)
    if name == "_sg_mkldnn_conv":
        last = node.subgraphs[0].entries[0][0]
        if op_name(last) == "LeakyReLU":
            return False
        return op_name(last) == "clip" or op_name(last) == "Activation"
    if name in ("_contrib_quantize_v2", "_contrib_requantize"):
        return node.attrs.get("out_type") == "uint8" or (calibrated(node) and range_of(node)[0] >= 0)
    if name == "_contrib_quantized_concat":
        return all(_unsigned(e) for e in node.inputs[: len(node.inputs) // 3])
    if name == "_contrib_quantized_elemwise_add":
        return all(_unsigned(e) for e in node.inputs[:2])
    return bool(node.inputs) and _unsigned(node.inputs[0])


def _sums(symbol: Symbol) -> list[tuple[Node, Entry]]:
    """Quantized convolutions with a fused sum, and their second operands."""
    found = []
    for node in symbol.nodes:
        if op_name(node) == "_sg_mkldnn_conv" and "with_sum" in node.attrs and "quantized" in node.attrs:
            found.append((node, node.inputs[len(node.inputs) - 5]))
    return found


def _sums_that_break(symbol: Symbol) -> set[str]:
    """Names of additions whose result is int8 while the operand is uint8: MXNet stores it as uint8 (B1)."""
    found: set[str] = set()
    for node, operand in _sums(symbol):
        if _unsigned(operand) and not _unsigned((node, 0)):
            found.update(n.name for n in node.subgraphs[0].nodes if op_name(n) == "elemwise_add")
    return found


def _widen_sums(symbol: Symbol) -> Symbol:
    """Wider ranges where the result is uint8 and the operand int8: MXNet keeps the first 127 levels alone (B1)."""
    wide = {id(n) for n, operand in _sums(symbol) if _unsigned((n, 0)) and not _unsigned(operand) and calibrated(n)}

    def visit(node: Node, moved: Moved) -> list[Entry] | None:
        if id(node) not in wide:
            return None
        low, high = range_of(node)
        new = kept(node, [moved(e) for e in node.inputs])
        attrs = with_range(node, low, float(np.float32(high * _WIDER)))
        return outputs_of(Node(new.op, new.name, attrs, new.inputs, new.subgraphs))

    return rebuilt(symbol, visit)
