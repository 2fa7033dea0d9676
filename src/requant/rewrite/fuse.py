"""MXNet's fusion for oneDNN (``Symbol.get_backend_symbol``): convolution and fully connected chains become one node.

The rules, names and input orders are those of MXNet 1.9.1 (its ``MKLDNN`` and ``MKLDNN_QUANTIZE`` subgraph backends),
with two differences on purpose. MXNet fuses past an output of the network, which then reports what comes after it; here
such an output ends the chain (B24). And a fully connected layer is fused with an activation only if nothing else reads
it, as MXNet does for convolutions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from requant.errors import QuantizationError, counted, nearest
from requant.ops import registry
from requant.rewrite.graph import Moved, entry_name, op_name, outputs_of, readers, rebuilt
from requant.rewrite.merge import align_scales, merge_requantize
from requant.rewrite.switches import switched_off
from requant.symbol.tree import Entry, Node, Symbol

log = logging.getLogger(__name__)

#: Backend -> whether it prepares for quantization (or follows it), where fewer activations can be fused.
BACKENDS: Mapping[str, bool] = {"MKLDNN": False, "MKLDNN_QUANTIZE": True, "ONEDNN": False, "ONEDNN_QUANTIZE": True}
CONV, FULLY_CONNECTED = "_sg_mkldnn_conv", "_sg_mkldnn_fully_connected"
ATTENTION = {
    "_contrib_interleaved_matmul_selfatt_qk": "_sg_mkldnn_selfatt_qk",
    "_contrib_interleaved_matmul_selfatt_valatt": "_sg_mkldnn_selfatt_valatt",
}

#: The node that alone reads a node, or None.
Follower = Callable[[Node], "Node | None"]


def backend_symbol(symbol: Symbol, backend: str, *, apart: Collection[str] = ()) -> Symbol:
    """The symbol as a oneDNN backend of MXNet 1.9.1 partitions it.

    Args:
        symbol: a float network, or one that ``quantize_symbol`` made and whose requantize nodes were calibrated.
        backend: ``MKLDNN`` for float inference, ``MKLDNN_QUANTIZE`` before and after quantization. ``ONEDNN`` and
            ``ONEDNN_QUANTIZE`` are MXNet 2.0's names of the same; nodes keep the spelling of 1.9.1.
        apart: nodes that are not fused into the one before them (MXNet has no such thing).
    Raises:
        QuantizationError: no such backend.
    """
    if backend not in BACKENDS:
        raise QuantizationError(
            f"SubgraphProperty {backend} is not found in SubgraphBackendRegistry",
            where="get_backend_symbol",
            got=backend,
            expected=", ".join(BACKENDS),
            next=nearest(backend, BACKENDS),
        )
    quantize = BACKENDS[backend]
    made = without_identities(symbol)
    made = _apply(made, "CONV_OPT", lambda s: _fused(s, _conv_seed, _conv_chain(quantize), _conv_node, apart))
    made = _apply(made, "FC_OPT", lambda s: _fused(s, _fc_seed, _fc_chain(quantize), _fc_node, apart))
    if quantize:
        made = without_identities(made)
    made = _apply(made, "TRANSFORMER_OPT", lambda s: _fused(s, _attention_seed, lambda n, f: [n], _attention_node))
    if quantize:
        made = align_scales(merge_requantize(made))
    _tell(symbol, made, backend)
    return made


def _apply(symbol: Symbol, switch: str, fuse: Callable[[Symbol], Symbol]) -> Symbol:
    if switched_off(switch):
        log.info("MXNET_DISABLE_MKLDNN_%s is set: that fusion is left out", switch)
        return symbol
    return fuse(symbol)


def _tell(before: Symbol, after: Symbol, backend: str) -> None:
    count = sum(1 for n in after.nodes if n.op is not None and n.op.name.startswith("_sg_mkldnn_"))
    log.info(
        "%s: %s became %d, %d of them fused",
        backend,
        counted(sum(1 for n in before.nodes if n.op is not None), "node"),
        sum(1 for n in after.nodes if n.op is not None),
        count,
    )


# -- identities ------------------------------------------------------------------------------------------------------


def _is_identity(node: Node) -> bool:
    if node.op is None:
        return False
    return node.op.name == "_copy" or (node.op.name == "Dropout" and getattr(node.parsed, "mode", "") == "training")


def without_identities(symbol: Symbol) -> Symbol:
    """The symbol without identities and dropouts that read an operator. Each operator loses one of them at a time."""
    taken: set[int] = set()
    removed: set[int] = set()
    for node in symbol.nodes:
        if not _is_identity(node) or id(node) in taken:
            continue
        source = node.inputs[0][0]
        if not source.is_variable and id(source) not in taken:
            taken |= {id(source), id(node)}
            removed.add(id(node))
    return rebuilt(symbol, lambda node, moved: [moved(node.inputs[0])] if id(node) in removed else None)


# -- chains ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Match:
    """A chain of nodes that becomes one."""

    index: int
    nodes: list[Node]
    name: str
    op: str
    attrs: Mapping[str, str]

    @property
    def last(self) -> Node:
        return self.nodes[-1]


#: Operator, name without the number, and attributes of the fused node of a chain.
Made = tuple[str, str, Mapping[str, str]]


def _fused(
    symbol: Symbol,
    seed: Callable[[Node], bool],
    chain: Callable[[Node, Follower], list[Node]],
    made: Callable[[list[Node]], Made],
    apart: Collection[str] = (),
) -> Symbol:
    """Replace the chain that starts at each seed, in order, by a node with the chain as its subgraph."""
    read_by = readers(symbol)
    heads = {id(n) for n, _ in symbol.entries}
    taken: set[int] = set()

    def follower(node: Node) -> Node | None:
        found = read_by.get(id(node), [])
        if id(node) in heads or len(found) != 1 or id(found[0]) in taken or found[0].name in apart:
            return None
        return found[0] if sum(n is node for n, _ in found[0].inputs) == 1 else None

    matches: dict[int, _Match] = {}
    for index, node in enumerate(n for n in symbol.nodes if seed(n)):
        nodes = chain(node, follower)
        taken.update(id(n) for n in nodes)
        op, name, attrs = made(nodes)
        match = _Match(index, nodes, f"{name}{index}", op, attrs)
        matches.update({id(n): match for n in nodes})

    def visit(node: Node, moved: Moved) -> list[Entry] | None:
        match = matches.get(id(node))
        if match is None:
            return None
        return [] if node is not match.last else outputs_of(_fused_node(match, matches, moved))

    return rebuilt(symbol, visit)


def _fused_node(match: _Match, matches: Mapping[int, _Match], moved: Moved) -> Node:
    """The node of a chain. Its inputs are in the order of the chain, those of the convolution first."""
    inside: dict[int, Node] = {}
    outer: list[Entry] = []
    used: dict[str, int] = {}

    def inner(entry: Entry) -> Entry:
        if id(entry[0]) in inside:
            return inside[id(entry[0])], entry[1]
        outer.append(moved(entry))
        name = _name_then(entry, match.index, matches)
        used[name] = used.get(name, -1) + 1
        return Node(None, f"{name}{used[name]}"), 0

    for node in match.nodes:
        inputs = list(node.inputs)
        if len(inputs) == 2 and id(inputs[1][0]) in inside:  # an addition: the chain is its left operand
            inputs.reverse()
        inside[id(node)] = Node(node.op, node.name, node.attrs, [inner(e) for e in inputs], node.subgraphs)
    nested = Symbol([(inside[id(match.last)], 0)])
    return Node(registry.get(match.op), match.name, match.attrs, outer, [nested])


def _name_then(entry: Entry, index: int, matches: Mapping[int, _Match]) -> str:
    """The name of an entry when MXNet makes the ``index``-th fused node: only those before it are fused by then."""
    match = matches.get(id(entry[0]))
    return f"{match.name}_output" if match is not None and match.index < index else entry_name(entry)


# -- convolution -----------------------------------------------------------------------------------------------------


def _conv_seed(node: Node) -> bool:
    return op_name(node) == "Convolution" and len(node.parsed.kernel) in (2, 3)  # type: ignore[attr-defined]


def _activates(node: Node, quantize: bool) -> bool:
    """An Activation that oneDNN computes with the layer before it."""
    return node.parsed.act_type in (("relu",) if quantize else ("relu", "sigmoid", "tanh", "softrelu"))  # type: ignore[attr-defined]


def _conv_act(node: Node, quantize: bool, summed: bool) -> bool:
    if op_name(node) == "Activation":
        return _activates(node, quantize)
    if op_name(node) == "LeakyReLU":
        return node.parsed.act_type in ("leaky", "gelu")  # type: ignore[attr-defined]
    if op_name(node) == "clip" and not (quantize and summed):
        return float(node.parsed.a_min) == 0.0  # type: ignore[attr-defined]
    return False


def _conv_chain(quantize: bool) -> Callable[[Node, Follower], list[Node]]:
    """Convolution, BatchNorm?, elemwise_add?, activation?"""
    with_bn, with_sum, with_act = (not switched_off(f"FUSE_CONV_{n}") for n in ("BN", "SUM", "RELU"))

    def chain(conv: Node, follower: Follower) -> list[Node]:
        nodes = [conv]
        after = follower(conv)
        if with_bn and after is not None and _is_norm(after, conv):
            nodes.append(after)
            after = follower(after)
        summed = with_sum and after is not None and op_name(after) == "elemwise_add"
        if summed and after is not None:
            nodes.append(after)
            after = follower(after)
        if with_act and after is not None and _conv_act(after, quantize, summed):
            nodes.append(after)
        return nodes

    return chain


def _is_norm(node: Node, data: Node) -> bool:
    return op_name(node) == "BatchNorm" and node.inputs[0][0] is data and len(node.output_names()) == 1


def _conv_node(nodes: list[Node]) -> Made:
    name, attrs = "sg_mkldnn_", {}
    for node in nodes:
        if op_name(node) == "Convolution":
            name += "conv_"
        elif op_name(node) == "BatchNorm":
            name += "bn_"
            attrs["with_bn"] = "true"
        elif op_name(node) == "elemwise_add":
            name += "add_"
            attrs["with_sum"] = "true"
        else:
            name += "act_"
            attrs["with_postsum_act" if "with_sum" in attrs else "with_act"] = "true"
    return CONV, name, attrs


# -- fully connected, attention --------------------------------------------------------------------------------------


def _fc_seed(node: Node) -> bool:
    return op_name(node) == "FullyConnected"


def _fc_act(node: Node, quantize: bool) -> bool:
    if op_name(node) == "Activation":
        return _activates(node, quantize)
    if op_name(node) == "LeakyReLU":
        return node.parsed.act_type in ("leaky", "elu", "gelu")  # type: ignore[attr-defined]
    if op_name(node) == "clip":
        return float(node.parsed.a_min) == 0.0  # type: ignore[attr-defined]
    return op_name(node) == "abs" or (not quantize and op_name(node) in ("square", "sqrt", "exp"))


def _fc_chain(quantize: bool) -> Callable[[Node, Follower], list[Node]]:
    enabled = not switched_off("FUSE_FC_ELTWISE")

    def chain(layer: Node, follower: Follower) -> list[Node]:
        after = follower(layer) if enabled else None
        return [layer] if after is None or not _fc_act(after, quantize) else [layer, after]

    return chain


def _fc_node(nodes: list[Node]) -> Made:
    if len(nodes) == 1:
        return FULLY_CONNECTED, "sg_mkldnn_fully_connected_", {}
    return FULLY_CONNECTED, "sg_mkldnn_fully_connected_eltwise_", {"with_eltwise": "True"}


def _attention_seed(node: Node) -> bool:
    return op_name(node) in ATTENTION


def _attention_node(nodes: list[Node]) -> Made:
    op = ATTENTION[op_name(nodes[0])]
    return op, f"{op[1:]}_", {**nodes[0].attrs, "enable_float_output": "False", "quantized": "False"}
