"""Shape and type inference. Output shapes come from the lowering itself; parameter shapes from the operators' rules.

There is no second description of any operator here: a node's output shapes are read off the ONNX nodes that its
lowering emits for the input shapes at hand. Unknown dimensions are 0 and an unknown rank is None, as in MXNet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs, items
from requant.dtypes import as_dtype, from_code
from requant.errors import (
    AttributeValueError,
    DTypeError,
    GraphError,
    InputError,
    RequantError,
    ShapeError,
    nearest,
)
from requant.ops.emit import Emit, NeedsShape, Value
from requant.ops.registry import OpDef, Shape
from requant.symbol.tree import Node, Symbol

#: Node id and output index.
Key = tuple[int, int]


@dataclass
class Inferred:
    """Shapes and dtypes of every entry, keyed by (node id, output index)."""

    shapes: dict[Key, Shape]
    dtypes: dict[Key, np.dtype]

    def shape(self, node: Node, index: int = 0) -> Shape | None:
        return self.shapes.get((id(node), index))

    def dtype(self, node: Node, index: int = 0) -> np.dtype | None:
        return self.dtypes.get((id(node), index))


def as_tuple(result: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    """A lowering's result as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def call_lowering(
    g: Emit,
    op: OpDef,
    attrs: Attrs,
    names: tuple[str, ...],
    inputs: list[Value | None],
    subgraphs: tuple[Symbol, ...] = (),
) -> tuple[Value, ...]:
    """Run an operator's lowering: inputs by name, or by position if it is variadic.

    Raises:
        GraphError: the attributes and inputs make no sense together in a way that the operator does not name itself.
        Others: as the lowering finds them.
    """
    extra = {"subgraphs": subgraphs} if subgraphs else {}
    try:
        with np.errstate(all="ignore"):  # numbers among the attributes are cast as C casts them, without a word
            if op.variadic is not None and not callable(op.inputs):
                return as_tuple(op.lower(g, attrs, *inputs, **extra))
            return as_tuple(op.lower(g, attrs, **dict(zip(names, inputs)), **extra))
    except RequantError:
        raise
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as fault:
        shown = ", ".join("-" if v is None else f"{v.dtype} {v.shape}" for v in inputs)
        raise GraphError(
            f"{op.name} cannot be computed with these attributes and inputs",
            where=f"node {g.node!r}" if g.node else None,
            got=f"{attrs} on {shown}"[:300],
            expected=f"{type(fault).__name__}: {fault}"[:200],
        ) from fault


def merge(a: Shape | None, b: Shape | None, where: object = None) -> Shape | None:
    """What two partial shapes say together.

    Raises:
        ShapeError: they contradict each other.
    """
    if a is None or b is None:
        return b if a is None else a
    if len(a) != len(b) or any(x and y and x != y for x, y in zip(a, b)):
        raise ShapeError("two shapes contradict each other", where=where, got=a, expected=b)
    return tuple(x or y for x, y in zip(a, b))


#: MXNet holds at most this many elements in one array, less one.
_MOST_ELEMENTS = 1 << 31
_MOST_DIMENSIONS = 32


def _declared_shape(text: str, where: str) -> Shape:
    """A ``__shape__`` as it stands in the file; unknown dimensions (0, or -1) are 0."""
    members = items(text)
    try:
        dims = tuple(int(str(d).rstrip("L")) for d in members[: _MOST_DIMENSIONS + 1])
    except ValueError:
        raise AttributeValueError(
            "attribute '__shape__' cannot be read",
            where=where,
            got=repr(text[:80]),
            expected="such as '(1, 3, 224, 224)'",
        ) from None
    known = [d for d in dims if d > 0]
    if len(members) > _MOST_DIMENSIONS or any(d < -1 for d in dims) or math.prod(known) >= _MOST_ELEMENTS:
        raise AttributeValueError(
            "attribute '__shape__' is absurd",
            where=where,
            got=repr(text[:80]),
            expected=f"at most {_MOST_DIMENSIONS} sizes, and less than {_MOST_ELEMENTS} elements",
        )
    return tuple(max(0, d) for d in dims)


def declaration(node: Node) -> tuple[Shape | None, np.dtype | None]:
    """Shape and dtype that a variable's ``__shape__`` and ``__dtype__`` attributes state; None where they do not."""
    where = f"variable {node.name!r}"
    shape = node.attrs.get("__shape__")
    code = node.attrs.get("__dtype__")
    dims = None if shape in (None, "None") else _declared_shape(shape, where)
    dtype = None
    if code is not None and code not in ("-1", "None"):
        dtype = from_code(int(code), where) if code.lstrip("-").isdigit() else as_dtype(code, where)
    return dims, dtype


def output_shapes(
    node: Node, shapes: list[Shape | None], dtypes: list[np.dtype]
) -> tuple[list[Shape | None], list[np.dtype | None]]:
    """Shapes and dtypes of a node's visible outputs, read off its lowering. Unknown where the lowering cannot tell."""
    assert node.op is not None
    count = len(node.op.output_names(node.parsed))
    needed = [n not in node.op.labels for n in node.input_names]
    if any(s is None and need for s, need in zip(shapes, needed)):
        return [None] * count, [None] * count
    g = Emit(node.name)
    g.mx_op = node.op.name
    values = [
        g.input(f"in{i}", [d or f"d{i}_{k}" for k, d in enumerate(s or ())], t) if need else None
        for i, (s, t, need) in enumerate(zip(shapes, dtypes, needed))
    ]
    try:
        outs = call_lowering(g, node.op, node.parsed, node.input_names, values, node.subgraphs)
    except NeedsShape:
        return [None] * count, [None] * count
    found_shapes = [None if v.shape is None else tuple(d or 0 for d in g.dims(v)) for v in outs]
    found_types = [None if v.dtype is None else g.dtype(v) for v in outs]
    return found_shapes, found_types


def infer(
    symbol: Symbol,
    shapes: Mapping[str, Shape],
    dtypes: Mapping[str, np.dtype] | None = None,
    *,
    partial: bool = False,
    declared: bool = True,
) -> Inferred:
    """Infer the shapes and dtypes of all entries.

    Args:
        shapes: known shapes of variables by name; 0 is an unknown dimension.
        dtypes: known dtypes of variables by name; others follow their siblings or are float32.
        partial: leave contradictions of missing data alone instead of insisting on complete shapes.
        declared: honour ``__shape__`` and ``__dtype__`` of variables.
    Raises:
        ShapeError: shapes contradict each other.
        InputError: a name that is not a variable of the symbol.
    """
    known = set(symbol.list_inputs())
    for name in shapes:
        if name not in known:
            raise InputError("no input of that name", where=repr(symbol), got=name, next=nearest(name, known))
    found = Inferred({}, {})
    for node in symbol.nodes:
        if node.is_variable:
            dims, dtype = declaration(node) if declared else (None, None)
            given = shapes.get(node.name)
            shape = given if given is not None and all(given) else merge(given, dims, f"variable {node.name!r}")
            if shape is not None:
                found.shapes[id(node), 0] = shape
            if dtypes and node.name in dtypes:
                found.dtypes[id(node), 0] = as_dtype(dtypes[node.name])
            elif dtype is not None:
                found.dtypes[id(node), 0] = dtype
    complete = False
    for _ in range(4):  # backward facts need another forward pass; four settle every graph that MXNet settles
        changed, complete = _sweep(symbol, found)
        if complete or not changed:
            break
    return found


def _sweep(symbol: Symbol, found: Inferred) -> tuple[bool, bool]:
    changed, complete = False, True
    for node in symbol.nodes:
        if node.op is None:
            continue
        changed |= _apply_rule(node, found)
        outputs = len(node.op.output_names(node.parsed))
        if all(_full(found.shape(node, i)) for i in range(outputs)):
            continue
        shapes = [found.shape(n, i) for n, i in node.inputs]
        first = next((t for n, i in node.inputs if (t := found.dtype(n, i)) is not None), np.dtype(np.float32))
        known = {name: found.dtype(n, i) for name, (n, i) in zip(node.input_names, node.inputs)}
        told = {} if node.op.param_types is None else node.op.param_types(node.parsed, known)
        dtypes = [found.dtype(n, i) or told.get(name, first) for name, (n, i) in zip(node.input_names, node.inputs)]
        out_shapes, out_types = output_shapes(node, shapes, dtypes)
        for i, (shape, dtype) in enumerate(zip(out_shapes, out_types)):
            merged = merge(found.shape(node, i), shape, f"node {node.name!r} ({node.op.name})")
            if merged is not None and merged != found.shape(node, i):
                found.shapes[id(node), i] = merged
                changed = True
            if dtype is not None:
                found.dtypes[id(node), i] = dtype
            complete &= _full(merged)
        for source, i in node.inputs:
            complete &= _full(found.shape(source, i))
    return changed, complete


def _full(shape: Shape | None) -> bool:
    return shape is not None and all(shape)


def follow(node: Node, have: Mapping[str, Shape | None]) -> Mapping[str, Shape]:
    """The shapes that the operator's rule derives. Raises ShapeError where a shape has too few dimensions for it."""
    assert node.op is not None
    told = _follow_nested(node, have) if node.subgraphs else {}
    if node.op.param_shapes is None:
        return told
    try:
        return {**told, **node.op.param_shapes(node.parsed, have)}
    except IndexError:
        raise ShapeError(
            "an input has too few dimensions",
            where=f"node {node.name!r} ({node.op.name})",
            got=", ".join(f"{n}: {s}" for n, s in have.items() if s is not None),
        ) from None


def _follow_nested(node: Node, have: Mapping[str, Shape | None]) -> dict[str, Shape]:
    """The shapes of a fused node's inputs that its nested graph tells; its variables are the first inputs, in order."""
    graph = node.subgraphs[0]
    pairs = list(zip(node.input_names, graph.variables()))
    known = {v.name: s for n, v in pairs if (s := have.get(n)) is not None}
    found = infer(graph, known, partial=True, declared=False)
    return {n: s for n, v in pairs if (s := found.shape(v)) is not None}


def _apply_rule(node: Node, found: Inferred) -> bool:
    """Let the operator's rule fill in shapes of its inputs (parameters, mostly)."""
    assert node.op is not None
    if node.op.param_shapes is None and not node.subgraphs:
        return False
    have = {name: found.shape(n, i) for name, (n, i) in zip(node.input_names, node.inputs)}
    if all(_full(s) for s in have.values()):
        return False
    have["output"] = found.shape(node, 0)
    changed = False
    for name, shape in follow(node, have).items():
        if name not in node.input_names:
            continue
        source, index = node.inputs[node.input_names.index(name)]
        where = f"input {name!r} of node {node.name!r} ({node.op.name})"
        merged = merge(found.shape(source, index), tuple(shape), where)
        if merged is not None and merged != found.shape(source, index):
            found.shapes[id(source), index] = merged
            changed = True
    return changed


def infer_shape(
    symbol: Symbol, shapes: Mapping[str, Shape], *, partial: bool = False
) -> tuple[list[Shape | None], list[Shape | None], list[Shape | None]]:
    """Shapes of arguments, outputs and auxiliary states, in the order in which they are listed.

    Raises:
        ShapeError: shapes contradict each other, or (unless partial) some stay unknown; the message names them.
    """
    found = infer(symbol, shapes, partial=partial)
    aux = symbol._auxiliary
    args = [found.shape(n) for n in symbol.variables() if id(n) not in aux]
    auxs = [found.shape(n) for n in symbol.variables() if id(n) in aux]
    outs = [found.shape(n, i) for n, i in symbol.entries]
    if not partial:
        names = [*symbol.list_arguments(), *symbol.list_auxiliary_states(), *symbol.list_outputs()]
        missing = [n for n, s in zip(names, [*args, *auxs, *outs]) if not _full(s)]
        if missing:
            shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
            raise ShapeError(
                "some shapes cannot be inferred",
                where=repr(symbol),
                got=f"unknown: {shown}",
                next="give the shapes of more inputs, or call infer_shape_partial",
            )
    return args, outs, auxs


#: Ranks tried for inputs of unknown shape, where only dtypes are asked for.
_RANKS = (4, 2, 3, 5, 1)
#: How outputs of int8 operators are called that hold a range.
_RANGES = ("output_min", "output_max", "min_output", "max_output")
#: A size that kernels fit into and many numbers divide, from which rules tell the ranks of parameters.
_SOME_SIZE = 840


def _output_types(node: Node, dtypes: list[np.dtype], first: np.dtype) -> list[np.dtype]:
    """Dtypes of a node's outputs, read off its lowering for inputs of some rank that it takes."""
    assert node.op is not None
    for rank in _RANKS:
        have: dict[str, Shape | None] = dict.fromkeys([*node.input_names, "output"])
        have.update(dict.fromkeys(node.input_names[:1], (_SOME_SIZE,) * rank))
        try:
            told = follow(node, have)
            ranks = [len(told.get(n) or have[n] or (0,) * rank) for n in node.input_names]
            _, found = output_shapes(node, [(0,) * r for r in ranks], dtypes)
        except (ShapeError, AttributeValueError, DTypeError):
            continue
        if all(t is not None for t in found):
            return [t for t in found if t is not None]
    attr = getattr(node.parsed, "dtype", None)
    out = first if attr is None else as_dtype(attr, where=f"node {node.name!r} ({node.op.name})")
    names = node.op.output_names(node.parsed)
    return [np.dtype(np.float32) if n in _RANGES else out for n in names]  # int8 operators tell ranges


def _type_node(node: Node, types: dict[Key, np.dtype]) -> None:
    """Give a node's outputs their dtypes, and the inputs that have none that of the first that has one."""
    assert node.op is not None
    first = next((types[id(n), i] for n, i in node.inputs if (id(n), i) in types), np.dtype(np.float32))
    rule = node.op.param_types
    have = {name: types.get((id(n), i)) for name, (n, i) in zip(node.input_names, node.inputs)}
    told = rule(node.parsed, have) if rule is not None else {}
    for name, (n, i) in zip(node.input_names, node.inputs):
        types.setdefault((id(n), i), told.get(name, first))
    for i, out in enumerate(_output_types(node, [types[id(n), i] for n, i in node.inputs], first)):
        types[id(node), i] = out


def infer_type(symbol: Symbol, dtypes: Mapping[str, object]) -> tuple[list[np.dtype], list[np.dtype], list[np.dtype]]:
    """Dtypes of arguments, outputs and auxiliary states, from the dtypes of some arguments.

    Raises:
        DTypeError: an operator cannot take those types.
    """
    types: dict[Key, np.dtype] = {}
    for node in symbol.variables():
        declared = declaration(node)[1]
        if node.name in dtypes:
            types[id(node), 0] = as_dtype(dtypes[node.name])
        elif declared is not None:
            types[id(node), 0] = declared
    applied = [n for n in symbol.nodes if n.op is not None]
    done: set[int] = set()
    before = -1
    while len(types) > before:
        before = len(types)
        for node in applied:
            if id(node) not in done and (not node.inputs or any((id(n), i) in types for n, i in node.inputs)):
                done.add(id(node))
                _type_node(node, types)
        for node in reversed(applied):
            known = types.get((id(node), 0))
            if id(node) not in done and known is not None and not hasattr(node.parsed, "dtype"):
                rule = node.op.param_types if node.op is not None else None
                told = {} if rule is None else rule(node.parsed, dict.fromkeys(node.input_names))
                types.setdefault((id(node.inputs[0][0]), node.inputs[0][1]), told.get(node.input_names[0], known))
    for node in applied:
        if id(node) not in done:
            _type_node(node, types)
    aux = symbol._auxiliary
    fallback = np.dtype(np.float32)
    args = [types.get((id(n), 0), fallback) for n in symbol.variables() if id(n) not in aux]
    auxs = [types.get((id(n), 0), fallback) for n in symbol.variables() if id(n) in aux]
    return args, [types.get((id(n), i), fallback) for n, i in symbol.entries], auxs
