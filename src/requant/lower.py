"""Symbol → ONNX: the one lowering. Each node's operator emits its nodes; names of MXNet are kept.

Every ONNX node carries ``metadata_props["mx.node"]`` (the MXNet node it came from) and ``["mx.op"]``; the value of each
MXNet output is named as ``list_outputs`` names it (``conv0_output``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from requant.dtypes import as_dtype
from requant.errors import InputError, ParameterError, ShapeError, nearest
from requant.ops.emit import OPSET, Emit, Value
from requant.ops.registry import Shape
from requant.symbol.infer import call_lowering, declaration, follow, infer, infer_type
from requant.symbol.training import Cut
from requant.symbol.tree import Entry, Node, Symbol

log = logging.getLogger(__name__)

#: ONNX IR version written; the newest that every supported ONNX Runtime reads.
IR_VERSION = 10
#: What dimension 0 of an input is called when it is left open.
BATCH = "N"

Dims = Sequence[int | str | None]


@dataclass
class Lowered:
    """The ONNX model of a symbol, and what was decided on the way.

    Attributes:
        model: the model; inputs and outputs carry MXNet's names.
        cut: variables that are not needed at inference.
        unused: parameters that no node reads.
    """

    model: ir.Model
    cut: tuple[Cut, ...] = ()
    unused: tuple[str, ...] = field(default=())


def needed_nodes(symbol: Symbol) -> tuple[list[Node], tuple[Cut, ...]]:
    """Nodes that inference needs, in order, and the label variables that it does not."""
    needed: list[Node] = []
    seen: set[int] = set()
    cuts: dict[int, Cut] = {}
    stack: list[tuple[Node, int]] = [(n, 0) for n, _ in reversed(symbol.entries)]
    while stack:
        node, at = stack.pop()
        if at == 0:
            if id(node) in seen:
                continue
            seen.add(id(node))
        if at < len(node.inputs):
            stack.append((node, at + 1))
            assert node.op is not None
            source = node.inputs[at][0]
            if node.input_names[at] in node.op.labels:
                if source.is_variable:
                    cuts.setdefault(id(source), Cut(source.name, node.name, node.op.name))
            elif id(source) not in seen:
                stack.append((source, 0))
        else:
            needed.append(node)
    used = {id(n) for n in needed}
    return needed, tuple(c for i, c in cuts.items() if i not in used)


def free_inputs(symbol: Symbol, params: Mapping[str, object]) -> list[str]:
    """Names of the variables that neither a parameter fills nor inference can do without."""
    nodes, _ = needed_nodes(symbol)
    return list(dict.fromkeys(n.name for n in nodes if n.is_variable and n.name not in params))


def input_dims(
    symbol: Symbol, params: Mapping[str, np.ndarray], given: Mapping[str, Dims]
) -> tuple[dict[str, list[int | str | None]], dict[str, np.dtype]]:
    """Dimensions and dtypes of free inputs: as given, else declared in the file, else told by the parameters.

    Raises:
        InputError: a given name is not a free input (the message lists them), or a rank cannot be told.
    """
    free = free_inputs(symbol, params)
    for name in given:
        if name not in free:
            raise InputError(
                "no free input of that name", got=name, expected=f"one of {free}", next=nearest(name, free)
            )
    result: dict[str, list[int | str | None]] = {}
    if len(given) == len(free):  # nothing to find out; the lowering itself finds what does not fit
        declared = {n.name: declaration(n)[1] for n in symbol.variables()}
        result = {name: [_dim(name, i, d) for i, d in enumerate(given[name])] for name in free}
        return result, {**_told_types(symbol, params), **{n: t for n, t in declared.items() if t is not None}}
    variables = set(symbol.list_inputs())
    shapes: dict[str, Shape] = {n: tuple(p.shape) for n, p in params.items() if n in variables}
    for name, dims in given.items():
        shapes[name] = tuple(d if isinstance(d, int) and d > 0 else 0 for d in dims)
    types = {n: p.dtype for n, p in params.items() if n in variables}
    found = infer(symbol, shapes, types, partial=True, declared=True)
    by_name = {n.name: found.shape(n) for n in symbol.variables()}
    for name in free:
        known = by_name.get(name)
        if name in given:
            result[name] = [_dim(name, i, d) for i, d in enumerate(given[name])]
        elif known is not None:
            result[name] = [_dim(name, i, d or None) for i, d in enumerate(known)]
            if result[name]:
                result[name][0] = BATCH  # a declared batch is the training batch, not a fact about the model
        else:
            raise InputError(
                "the shape of an input cannot be told from the parameters",
                where=f"input {name!r}",
                expected="a shape for each free input: " + ", ".join(free),
                next=f"give shapes={{{name!r}: (1, 3, 224, 224)}} or --shape {name}=1,3,224,224, with the true numbers",
            )
    known_types = {n.name: t for n in symbol.variables() if (t := found.dtype(n)) is not None}
    return result, {**_told_types(symbol, params), **known_types}


def _told_types(symbol: Symbol, params: Mapping[str, np.ndarray]) -> dict[str, np.dtype]:
    """Dtypes of variables that follow from parameters of another dtype than float32: a network cast to float16."""
    variables = set(symbol.list_inputs())
    types = {n: p.dtype for n, p in params.items() if n in variables}
    if all(t == np.float32 or t.kind in "iub" for t in types.values()):
        return {}
    args, _, aux = infer_type(symbol, types)
    return dict(zip([*symbol.list_arguments(), *symbol.list_auxiliary_states()], [*args, *aux]))


def _dim(name: str, axis: int, d: int | str | None) -> int | str:
    if isinstance(d, str):
        return d
    if d is None or d <= 0:
        return BATCH if axis == 0 else f"{name}_d{axis}"
    return int(d)


def to_onnx(
    symbol: Symbol,
    params: Mapping[str, np.ndarray],
    shapes: Mapping[str, Dims] | None = None,
    dtypes: Mapping[str, object] | None = None,
    name: str = "requant",
    *,
    exact: bool = False,
) -> Lowered:
    """Lower a symbol with its parameters to an ONNX model.

    Args:
        symbol: the network; its outputs become the model's outputs, in order.
        params: values of arguments and auxiliary states, by variable name.
        shapes: dimensions of free inputs by name. A string or None is a symbolic dimension. Inputs left out get what
            the file declares or the parameters imply, with an open batch.
        dtypes: dtypes of free inputs by name; float32 otherwise.
        exact: quantized operators compute MXNet's integers bit for bit, as in calls on arrays, instead of becoming what
            engines run fast.
    Raises:
        InputError, ParameterError, ShapeError, UnknownOperatorError: each names the node or input at fault.
        NeedsShape: some operator needs a dimension that was left open.
    """
    dims, known = input_dims(symbol, params, shapes or {})
    nodes, cuts = needed_nodes(symbol)
    for cut in cuts:
        log.debug("cut %s: %s (%s) needs it in training alone", cut.variable, cut.node, cut.op)
    g = Emit(exact=exact)
    values: dict[tuple[int, int], Value] = {}
    inputs: dict[str, Value] = {}
    by_name: dict[str, Value] = {}
    for node in nodes:
        if not node.is_variable:
            _lower_node(g, node, values)
            continue
        if node.name not in by_name:
            if node.name in params:
                by_name[node.name] = g.parameter(node.name, np.asarray(params[node.name]))
            else:
                dtype = (dtypes or {}).get(node.name) or known.get(node.name) or np.dtype(np.float32)
                by_name[node.name] = inputs[node.name] = g.input(node.name, dims[node.name], as_dtype(dtype))
        values[id(node), 0] = by_name[node.name]
    outputs = _outputs(g, symbol, values)
    graph = ir.Graph(
        list(inputs.values()),
        outputs,
        nodes=g.needed(outputs),
        initializers=_used(g),
        opset_imports={"": OPSET},
        name=name,
    )
    model = ir.Model(graph, ir_version=IR_VERSION, producer_name="requant")
    unused = tuple(p for p in params if p not in by_name)
    return Lowered(model, cuts, unused)


def _lower_node(g: Emit, node: Node, values: dict[tuple[int, int], Value]) -> None:
    assert node.op is not None
    g.node, g.mx_op = node.name, node.op.name
    inputs = [values.get((id(n), i)) for n, i in node.inputs]
    _check_parameters(node, inputs)
    before = len(g.nodes)
    outs = call_lowering(g, node.op, node.parsed, node.input_names, inputs, node.subgraphs)
    fresh = {id(v) for made in g.nodes[before:] for v in made.outputs}
    for i, (out, wanted) in enumerate(zip(outs, node.output_names())):
        if id(out) in fresh:
            fresh.discard(id(out))
            out.name = g.unique(wanted)
        values[id(node), i] = out
    g.node = g.mx_op = ""


def _check_parameters(node: Node, inputs: Sequence[Value | None]) -> None:
    """Raise ShapeError if a parameter has not the shape that the operator's attributes and data ask for.

    Engines go by the arrays that they are given: a wrong one would give other numbers instead of an error.
    """
    assert node.op is not None
    names = node.input_names
    if node.op.param_shapes is None or not any(
        v is not None and v.const_value is not None and n in PARAMETER_INPUTS for n, v in zip(names, inputs)
    ):
        return
    shapes = [None if v is None or v.shape is None else v.shape for v in inputs]
    have = {n: None if s is None else tuple(d if isinstance(d, int) else 0 for d in s) for n, s in zip(names, shapes)}
    for name, wanted in follow(node, {**have, "output": None}).items():
        value, shape = dict(zip(names, inputs)).get(name), have.get(name)
        if name not in PARAMETER_INPUTS or value is None or value.const_value is None or shape is None:
            continue
        if len(shape) != len(wanted) or any(w and d != w for d, w in zip(shape, wanted)):
            raise ShapeError(
                f"parameter {value.name!r} has not the shape that its node asks for",
                where=f"input {name!r} of node {node.name!r} ({node.op.name})",
                got=shape,
                expected="(" + ", ".join(str(w or "?") for w in wanted) + ")",
                next="the symbol and the parameters do not belong together, or the data has another number of channels",
            )


def _outputs(g: Emit, symbol: Symbol, values: Mapping[tuple[int, int], Value]) -> list[Value]:
    """The graph's outputs: each its own value, produced by a node, named as MXNet lists it."""
    outs: list[Value] = []
    used: set[int] = set()
    for (node, index), wanted in zip(symbol.entries, symbol.list_outputs()):
        value = values[id(node), index]
        if value.producer() is None or id(value) in used or value.name != wanted:
            # An input or parameter passed through, a value that is listed twice, or one that an identity
            # (Dropout, BlockGrad) hands on: ONNX wants a node of its own behind every output.
            g.node = node.name
            value = g("Identity", value)
            value.name = g.unique(wanted)
        used.add(id(value))
        outs.append(value)
    return outs


def _used(g: Emit) -> list[Value]:
    read = {id(v) for node in g.nodes for v in node.inputs if v is not None}
    return [v for v in g.initializers.values() if id(v) in read]


#: Input names that parameters go into; a free variable there is a parameter that is missing, not an input.
PARAMETER_INPUTS = frozenset(
    {"weight", "bias", "gamma", "beta", "moving_mean", "moving_var", "running_mean", "running_var", "parameters"}
)


def missing_parameters(symbol: Symbol, params: Mapping[str, object], inputs: Sequence[str], where: object) -> None:
    """Say at once which parameter is missing: a variable that has no value and goes into a parameter's place.

    Args:
        inputs: names that the caller declares to be inputs, wherever they go.
    Raises:
        ParameterError: one is missing; the message names the closest one that is there.
    """
    free = set(free_inputs(symbol, params)) - set(inputs)
    for node in needed_nodes(symbol)[0]:
        if node.op is None:
            continue
        for name, (source, _) in zip(node.input_names, node.inputs):
            if name in PARAMETER_INPUTS and source.is_variable and source.name in free:
                raise ParameterError(
                    f"parameter {source.name!r} is missing",
                    where=where,
                    expected=f"a value for input {name!r} of node {node.name!r} ({node.op.name})",
                    next=nearest(source.name, params),
                )


def entry_of(symbol: Symbol, name: str) -> Entry:
    """The entry that ``list_outputs`` of the internals calls ``name``."""
    return symbol.get_internals()[name].entries[0]
