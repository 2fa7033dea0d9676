"""MXNet's quantization pass: a float symbol becomes one of int8 operators, with MXNet 1.9.1's exact names.

Which nodes: operators that MXNet must quantize (convolutions, fully connected layers), and those that it supports
beside them, all of them (``full``) or those between two of the former (``smart``). Every float tensor that an int8
operator reads gets one ``_contrib_quantize_v2``, every int8 tensor that a float operator reads one
``_contrib_dequantize``, and every operator that sums in int32 is followed by a ``_contrib_requantize``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from requant.errors import QuantizationError, counted, nearest
from requant.ops import registry
from requant.ops.registry import Quant
from requant.rewrite.graph import entry_name, kept, readers
from requant.symbol.tree import Entry, Node, Symbol

log = logging.getLogger(__name__)

DTypeName = Literal["auto", "int8", "uint8"]
DTYPES = ("auto", "int8", "uint8")
MODES = ("smart", "full")
GRANULARITIES = ("tensor-wise", "channel-wise")

#: Fused operator -> how it says that it is quantized.
_FUSED = {
    "_sg_mkldnn_conv": "true",
    "_sg_mkldnn_fully_connected": "True",
    "_sg_mkldnn_selfatt_qk": "True",
    "_sg_mkldnn_selfatt_valatt": "True",
}
#: Operators whose int8 form sums in int32 (MXNet's ``FNeedRequantize``).
_SUMS = {*_FUSED, "Convolution", "FullyConnected", "elemwise_add", "elemwise_mul"}
#: Operators that MXNet gives names to its outputs (``FListOutputNames``): their quantizers are called after them.
_NAMED = {
    *_FUSED,
    "Activation",
    "BatchNorm",
    "Concat",
    "Convolution",
    "Crop",
    "Deconvolution",
    "Dropout",
    "FullyConnected",
    "GroupNorm",
    "IdentityAttachKLSparseReg",
    "InstanceNorm",
    "L2Normalization",
    "LRN",
    "LayerNorm",
    "LeakyReLU",
    "MakeLoss",
    "Pad",
    "Pooling",
    "RNN",
    "SVMOutput",
    "SequenceLast",
    "SequenceMask",
    "SequenceReverse",
    "SliceChannel",
    "SoftmaxActivation",
    "SoftmaxOutput",
    "SwapAxis",
    "UpSampling",
    "_contrib_BatchNormWithReLU",
    "_contrib_SyncBatchNorm",
    "_contrib_interleaved_matmul_encdec_qk",
    "_contrib_interleaved_matmul_encdec_valatt",
    "_contrib_interleaved_matmul_selfatt_qk",
    "_contrib_interleaved_matmul_selfatt_valatt",
    "col2im",
    "elemwise_add",
    "im2col",
    "softmax",
    "softmin",
}
_OWN_NAMES = {
    "make_loss": ("loss",),
    "_npi_concatenate": ("out",),
    "_npi_hstack": ("out",),
    "_npi_matmul": ("out",),
    "_npi_std": ("std",),
    "_npi_var": ("var",),
    "BatchNorm": ("output", "mean", "var"),
    "GroupNorm": ("output", "mean", "std"),
    "LayerNorm": ("output", "mean", "std"),
}


@dataclass(frozen=True)
class Quantized:
    """What the pass made.

    Attributes:
        symbol: the int8 symbol, its ranges not calibrated yet.
        points: names of the float tensors whose ranges calibration must find, in MXNet's order.
        nodes: names of the nodes that became int8.
    """

    symbol: Symbol
    points: tuple[str, ...]
    nodes: tuple[str, ...]


def quantize_symbol(
    symbol: Symbol,
    *,
    excluded_names: Collection[str] = (),
    excluded_ops: Collection[str] = (),
    offline: Collection[str] = (),
    dtype: str = "int8",
    mode: str = "smart",
    granularity: str = "tensor-wise",
) -> Quantized:
    """Quantize a symbol as MXNet 1.9.1 does.

    Args:
        symbol: the float network, fused or not.
        excluded_names: nodes that stay float; a fused node stays float if a node in it is named.
        excluded_ops: operators that stay float, by name.
        offline: variables whose values are quantized beforehand, mostly parameters: they become three variables.
        dtype: ``int8``, ``uint8``, or ``auto`` (uint8 where the calibrated minimum is not negative).
        mode: ``full`` or ``smart``.
        granularity: ``channel-wise`` gives fused fully connected layers one scale for each output.
    Raises:
        QuantizationError: an unknown dtype, mode or granularity.
    """
    for what, got, known in (
        ("quantized dtype", dtype, DTYPES),
        ("quantize mode", mode, MODES),
        ("quantize granularity", granularity, GRANULARITIES),
    ):
        if got not in known:
            raise QuantizationError(
                f"unrecognized {what}", got=got, expected=", ".join(known), next=nearest(str(got), known)
            )
    chosen = _choose(symbol, set(excluded_names), set(excluded_ops), mode)
    maker = _Maker(symbol, chosen, set(offline), dtype, granularity == "channel-wise")
    made = maker.make()
    points = tuple(_points(made, maker.requantized, maker.ranged))
    log.info(
        "quantized %d of %s (mode %s, dtype %s); %s to calibrate",
        len(chosen),
        counted(sum(1 for n in symbol.nodes if n.op is not None), "node"),
        mode,
        dtype,
        counted(len(points), "tensor"),
    )
    return Quantized(made, points, tuple(n.name for n in symbol.nodes if id(n) in chosen))


# -- which nodes -----------------------------------------------------------------------------------------------------


def _kind(node: Node, names: Collection[str], ops: Collection[str]) -> Quant:
    """Whether a node must be quantized, can be, or stays float."""
    if node.op is None or node.name in names or node.op.name in ops or not _has_kernel(node):
        return Quant.NONE
    if node.op.name in _FUSED:
        inner = any(n.name in names for s in node.subgraphs for n in s.nodes if n.op is not None)
        return Quant.NONE if inner else Quant.MUST
    return node.op.quant if node.op.quantized is not None else Quant.NONE


def _has_kernel(node: Node) -> bool:
    """Whether MXNet has an int8 form for these attributes."""
    assert node.op is not None
    attrs = node.parsed
    if node.op.name == "Activation" and attrs.act_type != "relu":  # type: ignore[attr-defined]
        log.info(
            "Currently, quantized activation only supports relu, exclude %s which act_type is %s",
            node.name,
            attrs.act_type,  # type: ignore[attr-defined]
        )
        return False
    if node.op.name == "Concat" and attrs.dim <= 0:  # type: ignore[attr-defined]
        log.info(
            "Currently, quantized concat only supports dim>0, exclude %s which dim is %d",
            node.name,
            attrs.dim,  # type: ignore[attr-defined]
        )
        return False
    # Where MXNet makes a graph that cannot run, the node stays float (B10, B11).
    if node.op.name == "Pooling" and attrs.pool_type not in ("max", "avg"):  # type: ignore[attr-defined]
        log.info("%s stays float: a pooling of 8-bit data is max or avg", node.name)
        return False
    if node.op.name == "Embedding" and attrs.dtype != "float32":  # type: ignore[attr-defined]
        log.info("%s stays float: its weight is not float32", node.name)
        return False
    if node.op.name == "RNN":
        log.info("%s stays float: MXNet's int8 LSTM fails when it runs, and others have none", node.name)
        return False
    return True


def _choose(symbol: Symbol, names: Collection[str], ops: Collection[str], mode: str) -> set[int]:
    """Ids of the nodes that become int8."""
    kinds = {id(n): _kind(n, names, ops) for n in symbol.nodes}
    chosen = {i for i, k in kinds.items() if k is not Quant.NONE}
    if mode == "smart":
        read_by = readers(symbol)
        down = _reached(symbol.nodes, kinds, lambda n: [s for s, _ in n.inputs])
        up = _reached(symbol.nodes[::-1], kinds, lambda n: read_by.get(id(n), []))
        chosen = {i for i in chosen if kinds[i] is Quant.MUST or (i in down and i in up)}
    for node in symbol.nodes:
        if node.op is not None:
            log.info("%s is %squantized.", _with_parts(node), "" if id(node) in chosen else "NOT ")
    return chosen


def _with_parts(node: Node) -> str:
    """The name of a node; of one that fusion made, also what the user calls those inside."""
    if node.op is None or not node.op.name.startswith("_sg_mkldnn_"):
        return node.name
    return f"{node.name} ({', '.join(n.name for s in node.subgraphs for n in s.nodes if n.op is not None)})"


def _reached(nodes: Iterable[Node], kinds: Mapping[int, Quant], near: Callable[[Node], Iterable[Node]]) -> set[int]:
    """Nodes that a chain of nothing but support nodes joins to a must node, looking one way."""
    found: set[int] = set()
    for node in nodes:
        if any(kinds[id(n)] is Quant.MUST or (kinds[id(n)] is Quant.SUPPORT and id(n) in found) for n in near(node)):
            found.add(id(node))
    return found


# -- making the symbol -----------------------------------------------------------------------------------------------


class _Maker:
    """The state of one rewriting: what stands for each entry, in float and in int8."""

    def __init__(self, symbol: Symbol, chosen: set[int], offline: set[str], dtype: str, channel_wise: bool) -> None:
        self.symbol, self.chosen, self.offline = symbol, chosen, offline
        self.dtype, self.channel_wise = dtype, channel_wise
        self.stands: dict[tuple[int, int], Entry] = {}
        self.triples: dict[tuple[int, int], tuple[Entry, Entry, Entry]] = {}
        self.floats: dict[tuple[int, int], Entry] = {}
        self.requantized: dict[int, str] = {}  # requantize node -> name of the float tensor
        self.ranged: dict[int, str] = {}  # node whose own output is calibrated -> name of the float tensor

    def make(self) -> Symbol:
        """The int8 symbol."""
        for node in self.symbol.nodes:
            if id(node) in self.chosen:
                self._quantize(node)
            else:
                new = kept(node, [self._float(e) for e in node.inputs])
                for i in range(len(node.output_names())):
                    self.stands[id(node), i] = (new, i)
        shared = dict(self.floats)  # what a float node reads serves an output as well (MXNet stacks another, B12)
        heads = []
        for entry in self.symbol.entries:
            key = (id(entry[0]), entry[1])
            heads.append(shared[key] if key in shared else self._float(entry))
            if key not in shared:
                self.floats.pop(key, None)  # and another output gets another one, as in MXNet
        return type(self.symbol)(heads)

    def _float(self, entry: Entry) -> Entry:
        """The entry as a float tensor."""
        key = (id(entry[0]), entry[1])
        if id(entry[0]) not in self.chosen:
            return self.stands[key]
        if key not in self.floats:
            node = Node(registry.get("_contrib_dequantize"), f"{entry[0].name}_dequantize", {}, self.triples[key])
            self.floats[key] = (node, 0)
        return self.floats[key]

    def _int8(self, entry: Entry) -> tuple[Entry, Entry, Entry]:
        """The entry as integers, with their range."""
        key = (id(entry[0]), entry[1])
        if key not in self.triples:
            source, index = entry
            name = f"{source.name}{_suffix(source, index)}_quantize"
            if source.is_variable and source.name in self.offline:
                values = [(Node(None, name + end), 0) for end in ("", "_min", "_max")]
                self.triples[key] = values[0], values[1], values[2]
            else:
                self.triples[key] = self._quantizer(self.stands[key], name)
        return self.triples[key]

    def _quantizer(self, entry: Entry, name: str) -> tuple[Entry, Entry, Entry]:
        node = Node(registry.get("_contrib_quantize_v2"), name, {"out_type": self.dtype}, [entry])
        return (node, 0), (node, 1), (node, 2)

    def _quantize(self, node: Node) -> None:
        """Make the int8 form of a node."""
        assert node.op is not None
        op = node.op.name
        attrs = dict(node.attrs)
        if op in _FUSED:
            attrs["quantized"] = _FUSED[op]
            if op == "_sg_mkldnn_fully_connected" and self.channel_wise:
                attrs["channel_wise_quantize"] = "True"
        avoided = self._avoided(node)
        triples = {i: self._int8(e) for i, e in enumerate(node.inputs) if i not in avoided}
        inputs = [triples[i][0] if i in triples else self._float(e) for i, e in enumerate(node.inputs)]
        for triple in triples.values():
            inputs += triple[1:]
        target = registry.get(op if op in _FUSED else str(node.op.quantized))
        new = Node(target, f"quantized_{node.name}", attrs, inputs, node.subgraphs)
        if op in _SUMS:
            three = [(new, i) for i in range(3)]
            name = f"requantize_{node.name}"
            last = Node(registry.get("_contrib_requantize"), name, {"out_type": self.dtype}, three)
            self.requantized[id(last)] = node.output_names()[0]
        else:
            last = new
            if op == "BatchNorm":
                self.ranged[id(new)] = node.output_names()[0]
        self.triples[id(node), 0] = (last, 0), (last, 1), (last, 2)

    def _avoided(self, node: Node) -> set[int]:
        """Indices of the inputs that stay float."""
        assert node.op is not None
        every = range(len(node.inputs))
        op = node.op.name
        if op == "_sg_mkldnn_conv":
            kept_ = {0}
            if str(node.attrs.get("with_sum", "")).lower() in ("true", "1"):
                kept_.add(len(node.inputs) - 1)
            return set(every) - kept_
        if op == "BatchNorm":
            return set(every) - {0}
        if op == "Embedding":
            return {0}
        if op == "_sg_mkldnn_fully_connected" and self.channel_wise:
            return set(every) - {0}
        return set()


def _suffix(node: Node, index: int) -> str:
    """What stands between a node's name and ``_quantize``: the output's name, or its number if it has none."""
    if node.op is None:
        return ""
    own = _OWN_NAMES.get(node.op.name)
    if own is not None:
        return f"_{own[index]}"
    if node.op.name == "SliceChannel":
        return f"_output{index}"
    return "_output" if node.op.name in _NAMED else f"_{index}"


def _points(made: Symbol, requantized: Mapping[int, str], ranged: Mapping[int, str]) -> Iterable[str]:
    """Float tensors to calibrate, in the order of the int8 symbol."""
    for node in made.nodes:
        name = "" if node.op is None else node.op.name
        if name in ("_contrib_quantize_v2", "_contrib_quantize_asym"):
            yield entry_name(node.inputs[0])
        elif id(node) in requantized:
            yield requantized[id(node)]
        elif id(node) in ranged:
            yield ranged[id(node)]
