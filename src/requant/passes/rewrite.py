"""The few moves that all passes are made of: read a constant, find the only user, make an initializer, drop a node.

A node that a pass merges into another leaves its names behind, so that a layer can be excluded or reported under any
name it ever had: ``metadata_props["mx.node"]`` lists MXNet's names and ``["requant.nodes"]`` ONNX's, one a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")

MX_NODE = "mx.node"
NODES = "requant.nodes"
_TAKEN = "requant.taken_names"


class GraphPass(ir.passes.InPlacePass):
    """A pass that looks at each graph of a model, subgraphs and functions included, until nothing changes there."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Run on every graph of the model. ``modified`` says whether anything was rewritten."""
        modified = False
        for graph in graphs(model):
            modified |= self.graph(graph)
        return ir.passes.PassResult(model, modified)

    def graph(self, graph: ir.Graph) -> bool:
        """Rewrite one graph. Returns whether anything changed."""
        raise NotImplementedError


class NodePass(GraphPass):
    """A pass that looks at one node at a time."""

    #: The operators it looks at.
    op_types: frozenset[str] = frozenset()

    def graph(self, graph: ir.Graph) -> bool:
        changed = False
        for node in list(graph):
            if node.graph is graph and is_default(node) and node.op_type in self.op_types:
                changed |= self.node(graph, node)
        return changed

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Rewrite around one node. Returns whether anything changed."""
        raise NotImplementedError


def graphs(model: ir.Model) -> Iterator[ir.Graph]:
    """The main graph and all graphs nested in it. Functions are left alone: they are inlined before."""
    yield model.graph
    yield from model.graph.subgraphs()


def constant(value: ir.Value | None) -> Array | None:
    """The array of an initializer or Constant node, or None if the value is computed or fed.

    The array must not be written to: the file may be mapped, and other nodes may read it.
    """
    if value is None or (value.is_graph_input() and value.const_value is None):
        return None
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor.numpy()


def is_float(array: Array | None) -> bool:
    """The array holds float32, float64, float16 or bfloat16."""
    return array is not None and (array.dtype.kind == "f" or array.dtype.name == "bfloat16")


def int_list(value: ir.Value | None) -> list[int] | None:
    """The integers of a constant of rank 0 or 1, or None."""
    array = constant(value)
    if array is None or array.ndim > 1 or array.dtype.kind not in "iu":
        return None
    return [int(v) for v in array.reshape(-1)]


def scalar(value: ir.Value | None) -> float | None:
    """The number in a constant of one element, or None."""
    array = constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """The value of an attribute, or the default that ONNX gives it."""
    found = node.attributes.get(name)
    if found is None:
        return default
    if found.type == ir.AttributeType.STRING:
        return found.as_string()
    return found.value


def ints(node: ir.Node, name: str) -> list[int] | None:
    """The value of an attribute that holds integers, or None if it is not there."""
    found = node.attributes.get(name)
    return None if found is None else [int(v) for v in found.as_ints()]


def is_default(node: ir.Node) -> bool:
    """The node is of ONNX's own operator set."""
    return node.domain in ("", "ai.onnx")


def rank(value: ir.Value | None) -> int | None:
    """The number of dimensions, or None if unknown."""
    return None if value is None or value.shape is None else value.shape.rank()


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """The shape if every dimension is a number, else None."""
    if value is None or value.shape is None or not value.shape.is_static():
        return None
    return tuple(int(d) for d in value.shape.numpy())


def sole_user(value: ir.Value) -> ir.Node | None:
    """The node that alone reads the value (and reads it once), or None."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def maker(value: ir.Value | None, *op_types: str) -> ir.Node | None:
    """The node that makes the value, if it is of one of these operators and nobody else reads the value."""
    node = None if value is None else value.producer()
    if node is None or value is None or node.op_type not in op_types or not is_default(node):
        return None
    return node if sole_user(value) is not None else None


def unique(graph: ir.Graph, wanted: str) -> str:
    """``wanted``, or ``wanted_1`` and so on if the graph has a value of that name."""
    taken: set[str] | None = graph.meta.get(_TAKEN)
    if taken is None:  # collected once: names that go free meanwhile are not needed
        taken = {str(v.name) for v in graph.inputs}
        taken |= {str(out.name) for node in graph for out in node.outputs}
        graph.meta[_TAKEN] = taken
    name, k = wanted, 0
    while name in taken or name in graph.initializers:
        k += 1
        name = f"{wanted}_{k}"
    taken.add(name)
    return name


def forget_names(model: ir.Model) -> None:
    """Collect the names anew: somebody else added values to the model."""
    for graph in graphs(model):
        graph.meta.pop(_TAKEN, None)


def name_nodes(model: ir.Model) -> None:
    """Call nodes that came without a name after their first output. onnx-ir calls them ``node``, ``node_1``, ..."""
    for graph in graphs(model):
        taken = {node.name for node in graph}
        for node in graph:
            wanted = node.outputs[0].name if node.outputs else None
            if wanted and wanted not in taken and re.fullmatch(r"node(_\d+)?", node.name or "node"):
                node.name = wanted
                taken.add(wanted)


def initializer(graph: ir.Graph, wanted: str, array: Array) -> ir.Value:
    """A new initializer; its name is ``wanted`` with a number added if that is taken."""
    name = unique(graph, wanted)
    tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def replace_constant(graph: ir.Graph, node: ir.Node, index: int, array: Array, wanted: str | None = None) -> None:
    """Give a node its own new constant. Other users of the old one keep it: shared weights stay as they are."""
    old = node.inputs[index] if index < len(node.inputs) else None
    if old is not None and old.is_initializer() and sole_user(old) is node and not old.is_graph_input():
        old.const_value = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape), name=old.name)
        old.shape = ir.Shape(array.shape)
        old.dtype = old.const_value.dtype
        return
    base = wanted or (old.name if old is not None and old.name else f"{node.name or node.op_type}_{index}")
    value = initializer(graph, base, array)
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, value)


def names_of(node: ir.Node) -> tuple[str, ...]:
    """Every name a node is known by: its own, those of nodes merged into it, and MXNet's for all of them."""
    lines = [node.name or "", *node.metadata_props.get(NODES, "").split("\n")]
    lines += node.metadata_props.get(MX_NODE, "").split("\n")
    return tuple(dict.fromkeys(n for n in lines if n))


def users_names(node: ir.Node) -> tuple[str, ...]:
    """What the user calls a node and those merged into it: MXNet's names where it came from there, the main one first.

    A node of a file has its own names; what nothing has named is called after what it makes.
    """
    given = [n for n in node.metadata_props.get(MX_NODE, "").split("\n") if n] or list(names_of(node))
    main = next((n for n in given if (node.name or "").startswith(f"{n}/")), None)
    found = dict.fromkeys([main, *given] if main is not None else given)
    return tuple(found) or (str(node.outputs[0].name),)


def absorb(kept: ir.Node, *gone: ir.Node) -> None:
    """Let ``kept`` answer to the names of the nodes it stands for now."""
    for key, own in ((NODES, True), (MX_NODE, False)):
        lines: list[str] = []
        for node in (kept, *gone):
            if own and node.name:
                lines.append(node.name)
            lines += node.metadata_props.get(key, "").split("\n")
        unique_lines = list(dict.fromkeys(n for n in lines if n))
        if unique_lines:
            kept.metadata_props[key] = "\n".join(unique_lines)


def can_bypass(node: ir.Node, value: ir.Value, index: int = 0) -> bool:
    """Whether all readers of an output of ``node`` can read ``value`` instead.

    A graph output keeps its name, so the value that takes its place must be one that can be renamed: made by a node
    of the same graph, and not an output already.
    """
    out = node.outputs[index]
    if not out.is_graph_output():
        return True
    source = value.producer()
    return source is not None and source.graph is node.graph and not value.is_graph_output()


def bypass(node: ir.Node, value: ir.Value, index: int = 0) -> None:
    """Let all readers of an output of ``node`` read ``value``, and remove the node. Ask `can_bypass` first."""
    out, graph = node.outputs[index], node.graph
    assert graph is not None
    name = out.name
    is_output = out.is_graph_output()
    if value.shape is None:
        value.shape = out.shape
    if value.type is None:
        value.type = out.type
    ir.convenience.replace_all_uses_with(out, value, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    if is_output:
        value.name = name


def insert_before(
    node: ir.Node,
    op_type: str,
    inputs: Iterable[ir.Value | None],
    name: str,
    dtype: ir.DataType | None,
    shape: ir.Shape | None,
    attributes: Iterable[ir.Attr] = (),
) -> ir.Value:
    """The one output, of this dtype and shape, of a new node in front of another, whose names it bears too."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    out = ir.Value(name=unique(graph, name), shape=shape, type=None if dtype is None else ir.TensorType(dtype))
    made = ir.Node("", op_type, list(inputs), attributes, outputs=[out], name=f"{out.name}/{op_type}")
    made.metadata_props.update(node.metadata_props)
    graph.insert_before(node, made)
    return out


def stand_in(graph: ir.Graph, old: ir.Value, nodes: Sequence[ir.Node], wanted: str) -> None:
    """Nodes that compute something from a value stand for it from now on: the output of the last one bears its name,
    shape and type, is what all others read, and is the graph's output where it was one.

    Args:
        graph: is changed.
        old: the value.
        nodes: new ones, in order; some of them read it.
        wanted: its new name.
    """
    maker, new = old.producer(), nodes[-1].outputs[0]
    assert maker is not None
    own = set(nodes)
    users = [use for use in old.uses() if use.node not in own]
    new.name, new.shape, new.type = old.name, old.shape, old.type
    old.name = unique(graph, wanted)
    graph.insert_after(maker, nodes)
    for user, place in users:
        user.replace_input_with(place, new)
    for place, value in enumerate(graph.outputs):
        if value is old:
            graph.outputs[place] = new


def changed_copy(
    model: ir.Model, find: Callable[[ir.Graph], Iterable[T]], change: Callable[[ir.Graph, T], None]
) -> ir.Model:
    """A copy in which everything that is found is changed; the model itself if nothing is.

    Args:
        model: is left as it is.
        find: what there is to change in a graph.
        change: changes one of them, in its graph.
    """
    if not any(True for _ in find(model.graph)):
        return model
    new = model.clone()
    forget_names(new)
    for each in list(dict.fromkeys(find(new.graph))):
        change(new.graph, each)
    return new


def new_node(
    graph: ir.Graph, op_type: str, inputs: Iterable[ir.Value | None], like: ir.Node, name: str, **attributes: Any
) -> ir.Node:
    """A node in the place of ``like``, placed before it, with one output of the same shape and type."""
    out = ir.Value(name=unique(graph, name), shape=like.outputs[0].shape, type=like.outputs[0].type)
    attrs = ir.convenience.convert_attributes({k: v for k, v in attributes.items() if v is not None})
    node = ir.Node("", op_type, list(inputs), attributes=attrs, outputs=[out], name=out.name)
    for key, text in like.metadata_props.items():
        node.metadata_props[key] = text
    graph.insert_before(like, node)
    return node


def replace_node(
    graph: ir.Graph, old: ir.Node, op_type: str, inputs: Iterable[ir.Value | None], **attributes: Any
) -> ir.Node:
    """Put a node of another operator in the place of ``old``; it keeps the name of node and output."""
    node = new_node(graph, op_type, inputs, old, f"{old.outputs[0].name}_new", **attributes)
    node.name = old.name
    out, name = old.outputs[0], old.outputs[0].name
    ir.convenience.replace_all_uses_with(out, node.outputs[0], replace_graph_outputs=True)
    graph.remove(old, safe=True)
    node.outputs[0].name = name
    return node
