"""Rewriting of immutable symbols: who reads whom, and a copy with some nodes replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from requant.symbol.tree import Entry, Node, Symbol

#: Gives the entry of the new symbol that stands for an entry of the old one.
Moved = Callable[[Entry], Entry]
#: Entries that stand for a node's outputs, or None for the node itself with its inputs moved.
Visit = Callable[[Node, Moved], Sequence[Entry] | None]


def op_name(node: Node) -> str:
    """The name of a node's operator; empty for a variable."""
    return node.op.name if node.op is not None else ""


def readers(symbol: Symbol) -> dict[int, list[Node]]:
    """The nodes that read each node, by its id; a node that reads it twice is there once."""
    found: dict[int, list[Node]] = {}
    for node in symbol.nodes:
        for source in dict.fromkeys(n for n, _ in node.inputs):
            found.setdefault(id(source), []).append(node)
    return found


def kept(node: Node, inputs: Sequence[Entry]) -> Node:
    """The node with these inputs; itself, if they are its own."""
    same = all(a is b and i == k for (a, i), (b, k) in zip(inputs, node.inputs))
    return node if same else Node(node.op, node.name, node.attrs, inputs, node.subgraphs)


def outputs_of(node: Node) -> list[Entry]:
    """All visible outputs of a node."""
    return [(node, i) for i in range(len(node.output_names()))]


def entry_name(entry: Entry) -> str:
    """How list_outputs calls an entry: the variable's name, or ``<node>_output``."""
    node, index = entry
    return node.output_names()[index]


def rebuilt(symbol: Symbol, visit: Visit) -> Symbol:
    """A copy in which ``visit`` says, inputs before readers, what stands for each node.

    A node that will be computed inside a later one may be given no entries at all.
    """
    made: dict[int, Sequence[Entry]] = {}

    def moved(entry: Entry) -> Entry:
        return made[id(entry[0])][entry[1]]

    for node in symbol.nodes:
        found = visit(node, moved)
        made[id(node)] = outputs_of(kept(node, [moved(e) for e in node.inputs])) if found is None else found
    return type(symbol)([moved(e) for e in symbol.entries])
