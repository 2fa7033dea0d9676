"""What of a symbol serves training alone: losses, their labels, and the begin states that a training loop feeds.

Files in the wild hold the graph that was trained. Whatever needs the labels is cut here, and what is left runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from requant.symbol.tree import Entry, Node, Symbol

#: MXNet's convention for names of label variables: ``softmax_label``, ``prob1_label``, ``label``, ``label1``.
_LABEL = re.compile(r"(^|_)label\d*$")
#: What MXNet's recurrent cells call their begin states (``lstm0_begin_state_1``), and its examples (``l0_init_c``).
_STATE = re.compile(r"(_begin_state_\d+|_init_[ch]|^init_[ch])$")
#: Names of inputs that take a recurrent state.
_STATE_INPUTS = frozenset({"state", "state_cell"})


@dataclass(frozen=True)
class Cut:
    """A variable that matters in training alone and was cut off: ``softmax_label`` of a ``SoftmaxOutput``."""

    variable: str
    node: str
    op: str


@dataclass(frozen=True)
class Inference:
    """What inference needs of a symbol.

    Attributes:
        symbol: the symbol with the outputs that can be computed without labels.
        cut: the labels that were cut off.
        outputs: names of the outputs that were cut off, because they need a label.
    """

    symbol: Symbol
    cut: tuple[Cut, ...] = ()
    outputs: tuple[str, ...] = ()


def _read(node: Node) -> Iterator[Entry]:
    """The inputs that a node's outputs depend on: all, but for the labels of a head that computes without them."""
    assert node.op is not None
    for name, entry in zip(node.input_names, node.inputs):
        if node.op.training or name not in node.op.labels:
            yield entry


def _plain(symbol: Symbol) -> set[int]:
    """Variables that some output reaches without passing through a loss."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [n for n, _ in symbol.entries]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.op is None:
            found.add(id(node))
        elif not node.op.training:
            stack.extend(n for n, _ in _read(node))
    return found


def _labels(symbol: Symbol, free: set[int]) -> dict[int, Cut]:
    """The free variables that reach the outputs through losses alone, by id, with the first node that reads them."""
    plain = _plain(symbol)
    all_losses = not plain & free  # then the data reaches the outputs through losses too, and names must tell
    found: dict[int, Cut] = {}
    for node in symbol.nodes:
        if node.op is None:
            continue
        for name, (source, _) in zip(node.input_names, node.inputs):
            if id(source) not in free or id(source) in plain or (name in node.op.labels and not node.op.training):
                continue
            if not all_losses or name in node.op.labels or _LABEL.search(source.name):
                found.setdefault(id(source), Cut(source.name, node.name, node.op.name))
    return found


def _depend(symbol: Symbol, on: Collection[int]) -> set[int]:
    """Ids of the nodes that depend on these variables, themselves included."""
    found = set(on)
    for node in symbol.nodes:
        if node.op is not None and any(id(n) in found for n, _ in _read(node)):
            found.add(id(node))
    return found


def for_inference(symbol: Symbol, params: Mapping[str, object], keep: Collection[str] = ()) -> Inference:
    """Cut off the outputs that need labels: what ``MakeLoss``, ``CTCLoss`` and ``MultiBoxTarget`` lead to.

    A label is a variable without a value that reaches the outputs through losses alone. Where every output is a loss,
    labels are told by their names, and what the losses read becomes the outputs. Heads such as ``SoftmaxOutput``, which
    compute without their label, stay.

    Args:
        params: the variables that have values.
        keep: variables that the caller will feed: no labels, whatever they are called.
    """
    free = {id(n) for n in symbol.variables() if n.name not in params and n.name not in keep}
    labels = _labels(symbol, free)
    if not labels:
        return Inference(symbol)
    lost = _depend(symbol, labels)
    kept = [e for e in symbol.entries if id(e[0]) not in lost]
    if not kept:
        data = _depend(symbol, free - labels.keys())
        border = (e for n in symbol.nodes if id(n) in lost and n.op is not None for e in _read(n))
        before = [e for e in border if id(e[0]) not in lost and id(e[0]) in data and e[0].op is not None]
        kept = list({(id(n), i): (n, i) for n, i in before}.values())
    if not kept:
        return Inference(symbol)
    gone = tuple(name for name, (n, _) in zip(symbol.list_outputs(), symbol.entries) if id(n) in lost)
    return Inference(type(symbol)(kept), tuple(labels.values()), gone)


def state_variables(symbol: Symbol, params: Mapping[str, object]) -> list[str]:
    """Names of the variables without a value that hold recurrent states at the begin of a sequence."""
    found: dict[str, None] = {}
    for node in symbol.nodes:
        if node.op is None:
            if node.name not in params and _STATE.search(node.name):
                found[node.name] = None
            continue
        for name, (source, _) in zip(node.input_names, node.inputs):
            if name in _STATE_INPUTS and source.is_variable and source.name not in params:
                found[source.name] = None
    return list(found)
