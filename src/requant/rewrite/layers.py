"""The weights of an int8 model, put into the float symbol that it came from.

MXNet quantizes weights itself, when it runs a file for the first time: with one scale for each output channel, and
each element to the nearest integer. An int8 model of ours has better integers (rounded by the data that they meet) and
biases that take back what rounding adds. Both go into a file as float numbers that MXNet rounds to those very integers:
a multiple of the channel's scale each, with the largest at 127.5 of them, since MXNet divides by 127.5. Batch
normalization is in those numbers, so that MXNet has nothing to fold, which it does with another last digit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import Array as Numbers
from requant.passes.rewrite import constant
from requant.quant.plan import Plan
from requant.rewrite.calibration import Array
from requant.rewrite.graph import Moved, outputs_of, readers, rebuilt
from requant.symbol.tree import Entry, Node, Symbol

log = logging.getLogger(__name__)

#: MXNet's levels for the largest magnitude of a channel.
_LEVELS = np.float32(127.5)
#: A channel whose largest integer is smaller keeps its float weights: the largest would be off by more than a step.
_LARGEST = 126
#: How closely a weight of the symbol, with its batch normalization, must equal the one that was quantized.
_CLOSE = 1e-3
#: Neighbouring float32 numbers that are tried for a largest magnitude.
_TRIES = 4096


@dataclass(frozen=True)
class Layer:
    """A convolution or fully connected layer of an int8 model.

    Attributes:
        weight: int8, dimension 0 counts output channels.
        scale: of each output channel, float32 (channels,).
        bias: float32 (channels,), with what rounding adds taken back; zeros if there is none.
        source, source_bias: the float weight and bias that were quantized, of the same shapes.
    """

    weight: Numbers
    scale: Numbers
    bias: Numbers
    source: Numbers
    source_bias: Numbers


def layers(int8: ir.Model, floating: ir.Model, plan: Plan) -> dict[str, Layer]:
    """The int8 layers of a model by every name they have, MXNet's too.

    Args:
        int8: what ``apply`` made.
        floating: the optimized float model that it was made of.
        plan: the plan of both.
    """
    nodes, sources = ({str(n.name): n for n in m.graph} for m in (int8, floating))
    found: dict[str, Layer] = {}
    for decision in plan.decisions:
        if decision.chosen != "int8" or decision.weight != 1 or decision.op_type not in ("Conv", "Gemm"):
            continue
        node, source = nodes.get(decision.node), sources.get(decision.node)
        layer = None if node is None or source is None else _layer(node, source)
        if layer is not None:
            found.update(dict.fromkeys((decision.node, *decision.names), layer))
    return found


def _layer(node: ir.Node, source: ir.Node) -> Layer | None:
    weight, before = _restored(node.inputs[1]), constant(source.inputs[1])
    if weight is None or before is None:
        return None
    q, scale = weight
    if node.op_type == "Gemm":
        turned = node.attributes.get("transB")
        if turned is None or not turned.as_int():
            q, before = q.T, before.T
    channels = q.shape[0]
    biases = []
    for one in (node, source):
        value = one.inputs[2] if len(one.inputs) > 2 else None
        restored = _restored(value)
        bias = constant(value) if restored is None else restored[0].astype(np.float32) * restored[1]
        if value is not None and (bias is None or bias.size not in (1, channels)):
            return None
        flat = np.zeros(1, np.float32) if bias is None else bias.reshape(-1).astype(np.float32)
        biases.append(np.broadcast_to(flat, (channels,)))
    if q.dtype != np.int8 or q.shape != before.shape or scale.size not in (1, channels):
        return None
    return Layer(q, np.broadcast_to(scale.reshape(-1), (channels,)), biases[0], before.astype(np.float32), biases[1])


def _restored(value: ir.Value | None) -> tuple[Numbers, Numbers] | None:
    """The integers and scales of a dequantized constant."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "DequantizeLinear":
        return None
    q, scale = constant(node.inputs[0]), constant(node.inputs[1])
    return None if q is None or scale is None else (q, scale)


def with_layers(
    symbol: Symbol, params: Mapping[str, Array], found: Mapping[str, Layer]
) -> tuple[Symbol, dict[str, Array]]:
    """A float symbol with the weights of int8 layers, and its parameters.

    A layer whose weight, with the batch normalization behind it, is not the one that was quantized stays as it is:
    other operators around it were folded into that one.
    """
    read_by = readers(symbol)
    heads = {id(n) for n, _ in symbol.entries}
    made = dict(params)
    norms: set[int] = set()
    new: dict[int, tuple[str, str]] = {}
    for node in symbol.nodes:
        layer = found.get(node.name)
        if layer is None or node.op is None or node.op.name not in ("Convolution", "FullyConnected"):
            continue
        norm = _norm(node, read_by, heads)
        if not _same(node, norm, params, layer):
            log.debug("%s: its weight is another one in the int8 model; MXNet rounds the float one", node.name)
            continue
        names = [_own(node, i, what, read_by, made) for i, what in ((1, "weight"), (2, "bias"))]
        made[names[0]], made[names[1]] = rounded_alike(layer)
        new[id(node)] = names[0], names[1]
        if norm is not None:
            norms.add(id(norm))

    def visit(node: Node, moved: Moved) -> list[Entry] | None:
        if id(node) in norms:
            return [moved(node.inputs[0])]
        if id(node) not in new:
            return None
        inputs = [moved(node.inputs[0]), *((Node(None, n), 0) for n in new[id(node)])]
        attrs = {k: v for k, v in node.attrs.items() if k != "no_bias"}
        return outputs_of(Node(node.op, node.name, {**attrs, "no_bias": "False"}, inputs, node.subgraphs))

    return rebuilt(symbol, visit), made


def _norm(node: Node, read_by: Mapping[int, list[Node]], heads: set[int]) -> Node | None:
    """The batch normalization that alone reads a node."""
    found = read_by.get(id(node), [])
    if id(node) in heads or len(found) != 1 or found[0].op is None or found[0].op.name != "BatchNorm":
        return None
    norm = found[0]
    usable = norm.inputs[0][0] is node and id(norm) not in heads and len(norm.output_names()) == 1
    return norm if usable and norm.parsed.axis == 1 else None  # type: ignore[attr-defined]


def _same(node: Node, norm: Node | None, params: Mapping[str, Array], layer: Layer) -> bool:
    values = [params.get(n.name) if n.op is None else None for n, _ in node.inputs[1:]]
    if values[0] is None or (len(values) > 1 and values[1] is None):
        return False
    weight = np.asarray(values[0], np.float64)
    bias = np.zeros(1) if len(values) < 2 or values[1] is None else np.asarray(values[1], np.float64)
    if norm is not None:
        parts = [params.get(n.name) for n, _ in norm.inputs[1:5]]
        if any(p is None for p in parts):
            return False
        gamma, beta, mean, var = (np.asarray(p, np.float64) for p in parts)
        scale = (1.0 if norm.parsed.fix_gamma else gamma) / np.sqrt(var + norm.parsed.eps)  # type: ignore[attr-defined]
        weight, bias = weight * scale.reshape(-1, *[1] * (weight.ndim - 1)), beta + scale * (bias - mean)
    return _near(weight, layer.source) and _near(np.broadcast_to(bias, layer.bias.shape), layer.source_bias)


def _near(a: Numbers, b: Numbers) -> bool:
    if a.size != b.size:
        return False
    return bool(np.abs(a.reshape(b.shape) - b).max(initial=0.0) <= _CLOSE * max(np.abs(b).max(initial=0.0), 1e-12))


def _own(node: Node, at: int, what: str, read_by: Mapping[int, list[Node]], taken: Mapping[str, Array]) -> str:
    """The name of a parameter that this node alone reads: its own one, or a new one."""
    if len(node.inputs) > at and len(read_by.get(id(node.inputs[at][0]), [])) == 1:
        return node.inputs[at][0].name
    name = f"{node.name}_{what}"
    while name in taken:
        name += "_int8"
    return name


def rounded_alike(layer: Layer) -> tuple[Numbers, Numbers]:
    """Float weight and bias that MXNet rounds to a layer's integers: ``rint(w · (127.5 / max|w|))`` in float32.

    The largest element of each channel stands at 127.5 scales, which MXNet makes 127: a positive one by saturation, a
    negative one because a magnitude is chosen whose product with 127.5 / magnitude is just below 127.5. (There is none
    where a scale is up to 0.5 % above a power of two; that one element is -128 then.)
    """
    flat = layer.weight.reshape(layer.weight.shape[0], -1)
    out = flat.astype(np.float32) * layer.scale[:, None]
    bias = np.array(layer.bias, np.float32)
    for channel, (q, scale) in enumerate(zip(flat, layer.scale)):
        largest = int(np.abs(q.astype(int)).max(initial=0))
        positive = bool((q == largest).any())
        reach = _reach(float(scale), positive)
        if largest < _LARGEST:
            out[channel] = layer.source.reshape(flat.shape)[channel]
            bias[channel] = layer.source_bias[channel]
        else:
            at = int(np.argmax(q) if positive else np.argmin(q))
            out[channel, at] = reach if positive else -reach
    return out.reshape(layer.weight.shape), bias


def _reach(scale: float, positive: bool) -> np.float32:
    """A float32 magnitude of 127.5 scales; a negative number of it should round to -127 and not to -128."""
    reach = np.float32(127.5 * scale)
    if positive:
        return reach
    bits = np.array(reach).view(np.int32) - np.arange(_TRIES, dtype=np.int32)
    tried = bits.view(np.float32)
    below = tried * (_LEVELS / tried) < _LEVELS
    return np.float32(tried[int(np.argmax(below))])
