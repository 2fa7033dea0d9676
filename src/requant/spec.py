"""What must hold of a graph after each stage. A breach is a fault of requant, or of the file that was read."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from requant.errors import GraphError

#: Protobuf cannot hold more than 2 GiB; larger models are checked without their weights.
_LIMIT = 1_900_000_000


def check(model: ir.Model, where: object = "model") -> None:
    """The ONNX checker with full shape inference, and names that are unique and not empty.

    Raises:
        GraphError: something does not hold; it says what.
    """
    seen: set[str] = set()
    for node in model.graph:
        for value in node.outputs:
            if not value.name:
                continue
            if value.name in seen:
                raise GraphError("two values have one name", where=where, got=value.name)
            seen.add(value.name)
    outputs = [v.name for v in model.graph.outputs]
    if len(set(outputs)) != len(outputs):
        raise GraphError("two outputs have one name", where=where, got=outputs)
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    if size > _LIMIT:
        return
    try:
        onnx.checker.check_model(ir.to_proto(model), full_check=True)
    except Exception as fault:  # the checker and the inference raise types of their own
        raise GraphError("the graph is not valid ONNX", where=where, got=str(fault).strip().split("\n")[0]) from fault
