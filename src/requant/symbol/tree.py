"""The immutable expression tree: nodes, entries, and ``Symbol``, a tuple of entries.

A ``Symbol`` never changes. ``get_internals``, indexing, ``Group`` and composing make new ones that share nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from requant.attrs import Attrs, to_string
from requant.errors import GraphError, InputError, counted, nearest
from requant.ops import registry
from requant.ops.registry import OpDef
from requant.symbol.naming import current_attributes, current_names

if TYPE_CHECKING:
    from typing_extensions import Self


class Node:
    """One operator application, or a variable (``op`` is None).

    Attributes:
        op: the operator, None for a variable.
        name: the node's name; two nodes may share one (MXNet allows it).
        attrs: attribute strings as written, user attributes (``__x__``) included.
        inputs: (node, output index) pairs.
        subgraphs: nested symbols of fused nodes.
    """

    __slots__ = ("__dict__", "attrs", "inputs", "name", "op", "subgraphs")

    def __init__(
        self,
        op: OpDef | None,
        name: str,
        attrs: Mapping[str, str] | None = None,
        inputs: Sequence[Entry] = (),
        subgraphs: Sequence[Symbol] = (),
    ) -> None:
        self.op, self.name, self.attrs = op, name, dict(attrs or {})
        self.inputs: tuple[Entry, ...] = tuple(inputs)
        self.subgraphs = tuple(subgraphs)

    @functools.cached_property
    def parsed(self) -> Attrs:
        """The attributes, read. Raises AttributeValueError naming this node."""
        assert self.op is not None
        return self.op.parse(self.attrs, where=f"node {self.name!r} ({self.op.name})")

    @functools.cached_property
    def input_names(self) -> tuple[str, ...]:
        """MXNet's name of each input, in order."""
        assert self.op is not None
        return self.op.input_names(self.parsed, len(self.inputs))[: len(self.inputs)]

    @property
    def is_variable(self) -> bool:
        return self.op is None

    def output_names(self) -> tuple[str, ...]:
        """Full names of the visible outputs, as list_outputs gives them."""
        if self.op is None:
            return (self.name,)
        return self.op.list_output_names(self.name, self.parsed)

    def __repr__(self) -> str:
        return f"<{self.op.name if self.op else 'variable'} {self.name}>"


Entry = tuple[Node, int]

#: Attributes of MXNet itself, written as ``__lr_mult__`` and so on, which its lists show under both names.
_HIDDEN = ("ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage")


def _listed(attrs: Mapping[str, str]) -> dict[str, str]:
    """Attributes as MXNet's lists show them."""
    return {**attrs, **{k: attrs[f"__{k}__"] for k in _HIDDEN if f"__{k}__" in attrs}}


def post_order(entries: Iterable[Entry]) -> list[Node]:
    """All nodes below ``entries``, each after its inputs, in MXNet's depth-first order. Iterative: graphs are deep."""
    seen: set[int] = set()
    order: list[Node] = []
    for root, _ in entries:
        stack: list[tuple[Node, int]] = [(root, 0)]
        if id(root) in seen:
            continue
        seen.add(id(root))
        while stack:
            node, at = stack.pop()
            if at < len(node.inputs):
                stack.append((node, at + 1))
                child = node.inputs[at][0]
                if id(child) not in seen:
                    seen.add(id(child))
                    stack.append((child, 0))
            else:
                order.append(node)
    return order


class Symbol:
    """A tuple of entries of the expression tree; most have one.

    Args:
        entries: (node, output index) pairs.
    """

    __slots__ = ("__dict__", "entries")

    # numpy must not take over ``array * symbol``
    __array_priority__ = 1000.0

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries: tuple[Entry, ...] = tuple(entries)

    # -- structure -------------------------------------------------------------------------------------------------

    @functools.cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes, in depth-first post-order."""
        return tuple(post_order(self.entries))

    @property
    def name(self) -> str | None:
        """The node's name, or None for a group of several nodes."""
        owners = {id(n) for n, _ in self.entries}
        return self.entries[0][0].name if len(owners) == 1 else None

    @functools.cached_property
    def _auxiliary(self) -> set[int]:
        found: set[int] = set()
        for node in self.nodes:
            if node.op is not None and node.op.aux:
                for name, (source, _) in zip(node.input_names, node.inputs):
                    if name in node.op.aux and source.is_variable:
                        found.add(id(source))
        return found

    def variables(self) -> list[Node]:
        """All variables: arguments and auxiliary states, in order."""
        return [n for n in self.nodes if n.is_variable]

    def list_arguments(self) -> list[str]:
        """Names of all arguments, in depth-first order."""
        return [n.name for n in self.variables() if id(n) not in self._auxiliary]

    def list_auxiliary_states(self) -> list[str]:
        """Names of all auxiliary states (BatchNorm's moving statistics)."""
        return [n.name for n in self.variables() if id(n) in self._auxiliary]

    def list_inputs(self) -> list[str]:
        """Arguments and auxiliary states together."""
        return [n.name for n in self.variables()]

    def list_outputs(self) -> list[str]:
        """Names of the outputs: ``<node>_output``, ``<node>_output0``, or the variable's own name."""
        return [n.output_names()[i] for n, i in self.entries]

    def get_internals(self) -> Self:
        """A symbol of all visible outputs of all nodes, in order."""
        return type(self)([(n, i) for n in self.nodes for i in range(len(n.output_names()))])

    def get_children(self) -> Self | None:
        """A symbol of the inputs of the output nodes; None for a variable."""
        children = [e for n in dict.fromkeys(n for n, _ in self.entries) for e in n.inputs]
        return type(self)(children) if children else None

    def get_inputs(self) -> Self:
        """A symbol of all variables."""
        return type(self)([(n, 0) for n in self.variables()])

    @property
    def num_outputs(self) -> int:
        return len(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: int | str | slice) -> Self:
        if isinstance(index, str):
            names = self.list_outputs()
            hits = [i for i, n in enumerate(names) if n == index]
            if not hits:
                raise InputError("no output of that name", where=repr(self), got=index, next=nearest(index, names))
            if len(hits) > 1:
                raise InputError("several outputs have that name", where=repr(self), got=index)
            index = hits[0]
        if isinstance(index, slice):
            return type(self)(self.entries[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"output {index} of a symbol with {counted(len(self), 'output')}")
        return type(self)([self.entries[index]])

    def __bool__(self) -> bool:
        raise TypeError("a Symbol has no truth value; it is an expression, not a number")

    def __hash__(self) -> int:
        return hash(tuple((id(n), i) for n, i in self.entries))

    def __copy__(self) -> Self:
        return type(self)(self.entries)

    def __deepcopy__(self, memo: object) -> Self:
        return type(self)(self.entries)

    def __repr__(self) -> str:
        name = self.name
        return f"<Symbol {name}>" if name is not None else f"<Symbol group [{', '.join(self.list_outputs())}]>"

    # -- attributes ------------------------------------------------------------------------------------------------

    def _single(self, what: str) -> Node:
        if len({id(n) for n, _ in self.entries}) != 1:
            raise GraphError(f"{what} of a group of several nodes", where=repr(self), next="pick one output with [i]")
        return self.entries[0][0]

    def attr(self, key: str) -> str | None:
        """One attribute string of the node, or None."""
        return _listed(self._single("an attribute").attrs).get(key)

    def list_attr(self) -> dict[str, str]:
        """The node's attribute strings."""
        return _listed(self._single("attributes").attrs)

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Attribute strings of every node that has any, by node name."""
        return {n.name: _listed(n.attrs) for n in self.nodes if n.attrs}

    # -- composing -------------------------------------------------------------------------------------------------

    def __call__(self, *args: Symbol, name: str | None = None, **kwargs: Symbol) -> Self:
        """A copy of this symbol with its free variables replaced by other symbols, by position or by name.

        Args:
            name: a new name for the output node.

        Raises:
            InputError: a keyword is not a variable of this symbol.
        """
        names = self.list_arguments()
        given = dict(zip(names, args)) | kwargs
        for key in kwargs:
            if key not in self.list_inputs():
                raise InputError("no variable of that name", where=repr(self), got=key, next=nearest(key, names))
        made = self.substitute(given)
        if name is None or len(made.entries) != 1 or made.entries[0][0].is_variable:
            return made
        node, index = made.entries[0]
        return type(self)([(Node(node.op, name, node.attrs, node.inputs, node.subgraphs), index)])

    def substitute(self, given: Mapping[str, Symbol]) -> Self:
        """A copy with variables replaced by name. Nodes that do not depend on one are shared, not copied."""
        made: dict[int, Entry | None] = {}
        for node in self.nodes:
            if node.is_variable:
                made[id(node)] = given[node.name].entries[0] if node.name in given else None
                continue
            inputs = [self._moved(e, made) for e in node.inputs]
            if all(a is b for a, (b, _) in zip([n for n, _ in inputs], node.inputs)):
                made[id(node)] = None
            else:
                made[id(node)] = (Node(node.op, node.name, node.attrs, inputs, node.subgraphs), 0)
        return type(self)([self._moved(e, made) for e in self.entries])

    @staticmethod
    def _moved(entry: Entry, made: Mapping[int, Entry | None]) -> Entry:
        node, index = entry
        new = made[id(node)]
        if new is None:
            return entry
        return new if node.is_variable else (new[0], index)


def variable(name: str, attrs: Mapping[str, str] | None = None) -> Symbol:
    """A variable: a free input, or a parameter that a file will give a value."""
    return Symbol([(Node(None, name, current_attributes().get(dict(attrs or {}))), 0)])


def group(symbols: Iterable[Symbol]) -> Symbol:
    """One symbol with the outputs of all."""
    entries = [e for s in symbols for e in s.entries]
    if not entries:
        raise GraphError("a group needs at least one symbol", next="give Group a non-empty list of symbols")
    return Symbol(entries)


def compose(
    op: OpDef,
    args: Sequence[Symbol],
    kwargs: Mapping[str, Any],
    *,
    name: str | None = None,
    hint: str | None = None,
    user_attrs: Mapping[str, str] | None = None,
) -> Symbol:
    """Apply an operator to symbols, as ``sym.<Op>(...)`` does: name it, read its attributes, make missing inputs.

    Args:
        args: inputs by position.
        kwargs: inputs by name (Symbol values) and attributes (anything else; None means not given).
    Raises:
        AttributeValueError, InputError: an attribute or an input that the operator does not have.
    """
    inputs = {k: v for k, v in kwargs.items() if isinstance(v, Symbol)}
    raw = {k: to_string(v) for k, v in kwargs.items() if v is not None and not isinstance(v, Symbol)}
    given = [e for value in (*args, *inputs.values()) for e in value.entries]
    if op.variadic is not None and (op.variadic not in raw or not callable(op.inputs)):
        raw[op.variadic] = str(len(given))
    node_name = current_names().get(name, (hint or op.name).lower())
    where = f"node {node_name!r} ({op.name})"
    attrs = op.parse(raw, where=where)
    for value in (*args, *inputs.values()):
        if len(value.entries) != 1 and op.variadic is None:
            raise InputError("an input must have one output", where=where, got=repr(value), next="pick one with [i]")
    names = op.input_names(attrs, None)
    all_attrs = current_attributes().get({**raw, **(user_attrs or {})})
    if op.variadic is not None:
        entries = given + [_missing(op, n, node_name, all_attrs) for n in names[len(given) :] if callable(op.inputs)]
    else:
        entries = _place(op, names, args, inputs, node_name, where, all_attrs)
    node = Node(op, node_name, all_attrs, entries)
    return Symbol([(node, i) for i in range(len(op.output_names(attrs)))])


def _place(
    op: OpDef,
    names: tuple[str, ...],
    args: Sequence[Symbol],
    inputs: Mapping[str, Symbol],
    node_name: str,
    where: str,
    attrs: Mapping[str, str],
) -> list[Entry]:
    """Put the given inputs in their places, and make a variable for each that is missing."""
    if len(args) > len(names):
        raise InputError("too many inputs", where=where, got=len(args), expected=f"at most {len(names)}: {names}")
    placed: dict[str, Entry] = {n: s.entries[0] for n, s in zip(names, args)}
    for key, value in inputs.items():
        if key not in names:
            raise InputError("no input of that name", where=where, got=key, next=nearest(key, names))
        if key in placed:
            raise InputError("an input is given twice", where=where, got=key)
        placed[key] = value.entries[0]
    entries: list[Entry] = []
    for n in names:
        if n in placed:
            entries.append(placed[n])
        elif n not in op.optional:
            entries.append(_missing(op, n, node_name, attrs))
    return entries


def _missing(op: OpDef, name: str, node_name: str, attrs: Mapping[str, str]) -> Entry:
    """The variable made for an input that is not given. MXNet copies the node's attributes onto it."""
    init = {"__init__": op.default_init[name]} if name in op.default_init else {}
    return Node(None, f"{node_name}_{name}", {**attrs, **init}), 0


def apply(name: str, *args: Symbol, **kwargs: Any) -> Symbol:
    """``compose`` by operator name, for operators of Python expressions."""
    return compose(registry.get(name), args, kwargs)
