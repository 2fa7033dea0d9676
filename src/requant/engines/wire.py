"""A model as ONNX bytes, with its weights copied once.

``onnx_ir.to_proto(model).SerializeToString()`` copies every weight three times, which for a model of 100 MB takes
as long as compiling it. The protobuf wire format allows better: a message may come in pieces, which a parser merges
(https://protobuf.dev/programming-guides/encoding/#last-one-wins). So the graph without its large weights is written
as usual, and each large weight follows as a piece of its own, joined from the array's own memory.

An engine that maps files has it better still: it gets the weights in a file in memory, and copies none of them.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from requant.errors import EngineError

# Field numbers of onnx.proto, with wire type 2 (length-delimited): number << 3 | 2
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = b"\x3a", b"\x2a", b"\x4a"
_LARGE = 1024
_WEIGHTS = "weights"
#: Bytes that the place of a weight in its file is a multiple of: a line of the processor's caches.
_ALIGNED = 64
#: Protobuf's own limit for one message.
LIMIT = 2**31 - 1


def skeleton(model: ir.Model) -> tuple[onnx.ModelProto, list[tuple[onnx.TensorProto, memoryview | bytes]]]:
    """The model without its large weights, and those: a header and the raw data (little-endian) of each."""
    graph = model.graph
    small, large = [], []
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None:
            raise EngineError("a weight has no value", where=value.name)
        is_large = tensor.dtype != ir.DataType.STRING and tensor.nbytes >= _LARGE
        if is_large or isinstance(tensor, ir.ExternalTensor):
            header = onnx.TensorProto(name=value.name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())
            large.append((header, _raw(tensor)))
        else:
            small.append(value)
    view: Any = ir.GraphView(
        tuple(graph.inputs),
        tuple(graph.outputs),
        nodes=tuple(graph),
        initializers=small,
        doc_string=graph.doc_string,
        name=graph.name,
        metadata_props=dict(graph.metadata_props),
    )
    proto = onnx.ModelProto(ir_version=model.ir_version, producer_name="requant")
    for domain, version in model.opset_imports.items():
        proto.opset_import.add(domain=domain, version=version)
    ir.serde.serialize_graph_into(proto.graph, view)
    for function in model.functions.values():
        proto.functions.append(ir.to_proto(function))
    return proto, large


def memory_folder(size: int) -> Path | None:
    """A folder whose files lie in memory, with room for ``size`` bytes, or None where there is none.

    Files there can be removed while they are mapped, which is what Linux allows and others do not.
    """
    folder = Path("/dev/shm")
    try:
        fits = sys.platform == "linux" and os.access(folder, os.W_OK) and shutil.disk_usage(folder).free >= 2 * size
    except OSError:
        return None
    return folder if fits else None


def write_apart(proto: onnx.ModelProto, large: list[tuple[onnx.TensorProto, memoryview | bytes]], folder: Path) -> Path:
    """Write a model and, in a file beside it, its large weights. Returns the model's path.

    Args:
        proto: gets the headers of the large weights, which say where in the file they lie.
    """
    path, at = folder / "model.onnx", 0
    with open(folder / _WEIGHTS, "wb") as file:
        for header, raw in large:
            at += file.write(bytes(-at % _ALIGNED))
            entries = {"location": _WEIGHTS, "offset": str(at), "length": str(len(raw))}
            tensor = proto.graph.initializer.add()
            tensor.CopyFrom(header)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
            at += file.write(raw)
    path.write_bytes(proto.SerializeToString())
    return path


def join(proto: onnx.ModelProto, large: list[tuple[onnx.TensorProto, memoryview | bytes]]) -> bytes:
    """The bytes of a model whose large weights are still apart.

    Raises:
        EngineError: more than 2 GiB, the limit of ONNX for a model in one piece.
    """
    parts: list[bytes | memoryview] = [proto.SerializeToString()]
    for header, raw in large:
        head = header.SerializeToString() + _TENSOR_RAW_DATA + _varint(len(raw))
        tensor = _GRAPH_INITIALIZER + _varint(len(head) + len(raw))
        parts += [_MODEL_GRAPH + _varint(len(tensor) + len(head) + len(raw)) + tensor + head, raw]
    size = sum(len(p) for p in parts)
    if size > LIMIT:
        raise EngineError("the model is too large for one piece", where=proto.graph.name, got=size, expected=LIMIT)
    return b"".join(parts)


def _raw(tensor: ir.TensorProtocol) -> memoryview | bytes:
    if tensor.dtype.bitwidth < 8 or sys.byteorder == "big":
        return tensor.tobytes()
    array: Any = np.ascontiguousarray(tensor.numpy()).reshape(-1)
    return memoryview(array.view(np.uint8)) if array.size else b""


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
