"""Which model is it: a hash by which a table, or a plan, knows its own."""

from __future__ import annotations

import hashlib

import onnx_ir as ir


def fingerprint(model: ir.Model) -> str:
    """A hash of a model's structure and weights: equal for equal graphs, whatever file they came from.

    Names of values count, since tables are by name; doc strings and metadata do not.
    """
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        digest.update("\x1f".join(map(str, parts)).encode("utf-8", "surrogatepass") + b"\x1e")

    def add_tensor(name: object, tensor: ir.TensorProtocol | None) -> None:
        add("tensor", name)
        if tensor is not None:
            add(tensor.dtype, tuple(tensor.shape))
            digest.update(tensor.tobytes())

    def add_graph(graph: ir.Graph) -> None:
        for value in graph.inputs:
            add("input", value.name, value.dtype)
        for name, value in sorted(graph.initializers.items()):
            add_tensor(name, value.const_value)
        for node in graph:
            add(node.domain, node.op_type, [v.name if v else None for v in node.inputs], [v.name for v in node.outputs])
            for key, attribute in sorted(node.attributes.items()):
                add("attribute", key, attribute.type)
                if attribute.type == ir.AttributeType.GRAPH:
                    add_graph(attribute.as_graph())
                elif attribute.type == ir.AttributeType.GRAPHS:
                    for graph_ in attribute.as_graphs():
                        add_graph(graph_)
                elif attribute.type == ir.AttributeType.TENSOR:
                    add_tensor(key, attribute.as_tensor())
                else:
                    add(attribute.value)
        add("outputs", [v.name for v in graph.outputs])

    add_graph(model.graph)
    return digest.hexdigest()
