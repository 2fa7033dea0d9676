"""Compute no more positions than are read: pull the stride of 1×1 convolutions up to what makes their input.

In a ResNet v1 every stage begins with 1×1 convolutions of stride 2, on both branches. Three of four positions of the
block before are computed for nothing. Here its last convolution, and the 3×3 one before that, take the stride
themselves, and the shortcut is subsampled: the same numbers come out of a tenth fewer products (ResNet-50).
"""

from __future__ import annotations

import onnx_ir as ir

from requant.passes.rewrite import NodePass, attribute, constant, ints, is_default, rank, sole_user, unique

#: Operators that give at each position what they are given there, whatever their other positions hold.
_POINTWISE = frozenset(
    {
        "Relu",
        "Clip",
        "LeakyRelu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Tanh",
        "Elu",
        "Softplus",
        "BatchNormalization",
    }
)
_JOINING = frozenset({"Add", "Mul", "Sub"})


class PullStrides(NodePass):
    """Move the strides of 1×1 convolutions into earlier convolutions, where all readers skip the same positions."""

    op_types = frozenset({"Conv"})

    def node(self, graph: ir.Graph, node: ir.Node) -> bool:
        """Pull the stride of one convolution, together with those that read the same tensor."""
        value, strides = node.inputs[0], _skipping(node)
        if value is None or strides is None or value.is_graph_output():
            return False
        readers = [use.node for use in value.uses()]
        if any(_skipping(r) != strides or r.inputs[0] is not value or r.graph is not graph for r in readers):
            return False
        if not _gains(value, graph):
            return False
        for reader in readers:
            reader.attributes["strides"] = ir.AttrInt64s("strides", [1] * len(strides))
        _subsample(graph, value, strides)
        return True


def _skipping(node: ir.Node) -> list[int] | None:
    """The strides of a convolution with a kernel of one position, or None if it is not one or skips nothing."""
    if node.op_type != "Conv" or not is_default(node):
        return None
    weight = constant(node.inputs[1])
    strides = ints(node, "strides")
    if weight is None or strides is None or max(strides) < 2 or any(k != 1 for k in weight.shape[2:]):
        return None
    if attribute(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID") or any(ints(node, "pads") or []):
        return None
    return strides


def _absorbs(node: ir.Node | None, graph: ir.Graph) -> bool:
    """A convolution that can take a stride on itself."""
    return (
        node is not None
        and node.op_type == "Conv"
        and node.graph is graph
        and attribute(node, "auto_pad", "NOTSET") in ("NOTSET", "VALID")
    )


def _ways_up(node: ir.Node | None, graph: ir.Graph) -> list[ir.Value]:
    """The inputs through which a stride moves on up."""
    if node is None or node.graph is not graph or not is_default(node):
        return []
    if node.op_type in _POINTWISE and node.inputs[0] is not None:
        return [node.inputs[0]]
    if node.op_type in _JOINING:
        values = [v for v in node.inputs if v is not None]
        shapes = [v.shape for v in values]
        # A branch that is broadcast (channel attention) has no positions to skip.
        if (
            len(values) == 2
            and shapes[0] is not None
            and shapes[0] == shapes[1]
            and all(d is not None for d in shapes[0])
        ):
            return values
    return []


def _gains(value: ir.Value, graph: ir.Graph) -> bool:
    """Some convolution above would compute fewer positions."""
    node = value.producer()
    if _absorbs(node, graph):
        return True
    return any(sole_user(v) is not None and _gains(v, graph) for v in _ways_up(node, graph))


def _subsample(graph: ir.Graph, value: ir.Value, strides: list[int]) -> None:
    """Let a tensor be computed at every ``strides``-th position only. All its readers expect that."""
    node = value.producer()
    assert node is not None
    _shrink(value, strides)
    if _absorbs(node, graph):
        old = ints(node, "strides") or [1] * len(strides)
        node.attributes["strides"] = ir.AttrInt64s("strides", [a * b for a, b in zip(old, strides)])
        return
    ways = _ways_up(node, graph)
    for index, source in enumerate(node.inputs):
        if source is None or source not in ways:
            continue
        if sole_user(source) is not None and _gains(source, graph):
            _subsample(graph, source, strides)
        else:
            node.replace_input_with(index, _picked(graph, source, strides, node))


def _picked(graph: ir.Graph, source: ir.Value, strides: list[int], reader: ir.Node) -> ir.Value:
    """Every ``strides``-th position of a tensor: a pooling over single positions, which runs on any integer type."""
    out = ir.Value(name=unique(graph, f"{source.name}_subsampled"), shape=source.shape, type=source.type)
    attributes = {"kernel_shape": [1] * len(strides), "strides": strides}
    node = ir.Node(
        "", "MaxPool", [source], attributes=ir.convenience.convert_attributes(attributes), outputs=[out], name=out.name
    )
    _shrink(out, strides)
    graph.insert_before(reader, node)
    return out


def _shrink(value: ir.Value, strides: list[int]) -> None:
    """Bring the known shape of a tensor up to date."""
    if value.shape is None or rank(value) != len(strides) + 2:
        value.shape = None
        return
    dims: list[int | str | None] = [d if isinstance(d, int) else d.value for d in value.shape]
    for i, s in enumerate(strides):
        d = dims[2 + i]
        dims[2 + i] = (d - 1) // s + 1 if isinstance(d, int) else (d if s == 1 else None)
    value.shape = ir.Shape(dims)
