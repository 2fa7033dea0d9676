"""ONNX files to ``onnx_ir`` models and back, with every size and path checked before it is used."""

from __future__ import annotations

import functools
import math
import mmap
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from requant.errors import FormatError, GraphError, InputError, counted, nearest
from requant.formats.atomic import atomic_write
from requant.formats.sniff import recognize

#: Protobuf cannot hold 2 GiB; above this many bytes of tensors, they go to a file beside the model.
EXTERNAL_ABOVE = 1_900_000_000
_ADVICE = "the file is truncated or corrupt: copy or export it again"


def _field_length(tensor: Any, dtype: ir.DataType, count: int) -> tuple[int, int] | None:
    """(found, expected) length of the typed field that holds a tensor without raw bytes; None if there is no rule."""
    name = dtype.name
    if name in ("FLOAT", "COMPLEX64"):
        return len(tensor.float_data), count * (2 if name == "COMPLEX64" else 1)
    if name in ("DOUBLE", "COMPLEX128"):
        return len(tensor.double_data), count * (2 if name == "COMPLEX128" else 1)
    if name == "INT64":
        return len(tensor.int64_data), count
    if name in ("UINT32", "UINT64"):
        return len(tensor.uint64_data), count
    if dtype.bitwidth < 8:
        return None
    return len(tensor.int32_data), count


def _external_info(tensor: Any, where: str) -> tuple[str, int, int | None]:
    """Location, offset and length of an external tensor, as the file states them."""
    info = {entry.key: entry.value for entry in tensor.external_data}
    try:
        offset = int(info.get("offset", "0"))
        length = int(info["length"]) if "length" in info else None
    except ValueError:
        offset, length = -1, None
    if "location" not in info or offset < 0 or (length is not None and length < 0):
        raise FormatError("an external tensor's place cannot be read", where=where, got=info, next=_ADVICE)
    return info["location"], offset, length


def _contained(folder: Path, location: str, where: str) -> Path:
    """The data file, if it lies in the model's folder."""
    windows = PureWindowsPath(location)  # sees both kinds of separators
    inside = bool(location) and "\0" not in location and not (windows.drive or windows.root or ".." in windows.parts)
    try:
        target = (folder / location).resolve() if inside else folder
        inside = inside and target.is_relative_to(folder.resolve())
        exists = target.is_file()
    except (OSError, RuntimeError, ValueError):  # too long a name, a loop of links
        inside = exists = False
    if not inside:
        raise FormatError(
            "external data lies outside of the model's folder",
            where=where,
            got=repr(location),
            expected="a relative path without '..' or links that lead out",
            next="copy the data file into the model's folder, and mistrust the model",
        )
    if not exists:
        raise FormatError(
            "the model's external data is missing",
            where=where,
            got=f"no file {location!r} beside the model",
            next=f"put {location!r} into the same folder",
        )
    return target


def _check_tensor(tensor: Any, folder: Path | None, where: str) -> None:
    here = f"{where}, tensor {tensor.name!r}"
    try:
        dtype = ir.DataType(tensor.data_type)
        if dtype == ir.DataType.UNDEFINED:
            raise ValueError("no type")
        bits = 0 if dtype == ir.DataType.STRING else dtype.bitwidth
    except (ValueError, TypeError):
        raise FormatError("unknown type of a tensor", where=here, got=tensor.data_type, next=_ADVICE) from None
    if any(dim < 0 for dim in tensor.dims) or len(tensor.dims) > 32:
        raise FormatError("a tensor's shape is absurd", where=here, got=list(tensor.dims)[:40], next=_ADVICE)
    if math.prod(dim or 1 for dim in tensor.dims) >= 1 << 59:
        raise FormatError("a tensor's shape is absurd", where=here, got=list(tensor.dims), next=_ADVICE)
    count = math.prod(tensor.dims)
    nbytes = (count * bits + 7) // 8
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        location, offset, length = _external_info(tensor, here)
        if folder is None or dtype == ir.DataType.STRING:
            raise FormatError("a tensor cannot be external here", where=here, got=location)
        size = _contained(folder, location, here).stat().st_size
        found = size - offset if length is None else length
        if offset + nbytes > size or (length is not None and length != nbytes):
            raise FormatError(
                "external data does not fit its tensor",
                where=here,
                got=f"{counted(found, 'byte')} at {offset} of {location!r} ({counted(size, 'byte')})",
                expected=f"{counted(nbytes, 'byte')}, shape {list(tensor.dims)} of {dtype.name}",
                next=_ADVICE,
            )
        return
    if dtype == ir.DataType.STRING:
        lengths: tuple[int, int] | None = (len(tensor.string_data), count)
    elif tensor.HasField("raw_data"):
        lengths = (len(tensor.raw_data), nbytes)
    else:
        lengths = _field_length(tensor, dtype, count)
    if lengths is not None and lengths[0] != lengths[1]:
        raise FormatError(
            "a tensor's data does not fit its shape",
            where=here,
            got=f"{lengths[0]} bytes or elements",
            expected=f"{lengths[1]}, shape {list(tensor.dims)} of {dtype.name}",
            next=_ADVICE,
        )


#: Attribute types whose value is a message of its own, and the field that must hold it.
_MESSAGE_FIELDS = {"TENSOR": "t", "GRAPH": "g", "TYPE_PROTO": "tp", "SPARSE_TENSOR": "sparse_tensor"}


def _check_attribute(attribute: Any, where: str) -> None:
    try:
        kind = ir.AttributeType(attribute.type).name
    except ValueError:
        kind = "UNDEFINED"
    field = _MESSAGE_FIELDS.get(kind)
    if kind == "UNDEFINED" or (field and not attribute.ref_attr_name and not attribute.HasField(field)):
        raise FormatError(
            f"attribute {attribute.name!r} has no value of its type",
            where=where,
            got=f"type {attribute.type} ({kind})",
            next=_ADVICE,
        )


def _proto_nodes(nodes: Iterable[Any], where: str) -> Iterator[tuple[Any, str]]:
    """Every tensor in the attributes of nodes, nested graphs included, and where it is."""
    for i, node in enumerate(nodes):
        here = f"{where}, node {i} ({node.name or node.op_type!r})"
        for attribute in node.attribute:
            _check_attribute(attribute, here)
            if attribute.HasField("t"):
                yield attribute.t, here
            yield from ((tensor, here) for tensor in attribute.tensors)
            sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
            for item in (*sparse, *attribute.sparse_tensors):
                yield item.values, here
                yield item.indices, here
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _proto_tensors(graph, here)


def _proto_tensors(graph: Any, where: str) -> Iterator[tuple[Any, str]]:
    yield from ((tensor, where) for tensor in graph.initializer)
    for sparse in graph.sparse_initializer:
        yield sparse.values, where
        yield sparse.indices, where
    yield from _proto_nodes(graph.node, where)


def _check_graph_names(graph: Any, outer: frozenset[str], where: str) -> None:
    inputs = [value.name for value in graph.input]
    inputs += [tensor.name for tensor in graph.initializer]
    inputs += [sparse.values.name for sparse in graph.sparse_initializer]
    _check_names(inputs, graph.node, [value.name for value in graph.output], outer, where)


def _check_names(inputs: Iterable[str], nodes: Any, outputs: Iterable[str], outer: frozenset[str], where: str) -> None:
    """Every value is made once and before it is used."""
    made = set(inputs)
    known = made | outer
    for i, node in enumerate(nodes):
        here = f"{where}, node {i} ({node.name or node.op_type!r})"
        for name in node.input:
            if name and name not in known:
                later = any(name in other.output for other in nodes)
                raise GraphError(
                    "a node uses a value that is made later" if later else "a node uses a value that nothing makes",
                    where=here,
                    got=repr(name),
                    next="sort the nodes of the model" if later else _ADVICE,
                )
        for attribute in node.attribute:
            for nested in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _check_graph_names(nested, frozenset(known), here)
        for name in filter(None, node.output):
            if name in made:
                raise GraphError("a value is made twice", where=here, got=repr(name), next=_ADVICE)
            made.add(name)
            known.add(name)
    for name in outputs:
        if name not in known:
            raise GraphError("an output of the graph is made by nothing", where=where, got=repr(name))


@functools.cache
def _text_fields(kind: type) -> tuple[tuple[str, ...], tuple[tuple[str, bool], ...]]:
    """Names of a message's string fields, and of its message fields with whether they are repeated."""
    empty = kind()
    fields = empty.DESCRIPTOR.fields
    messages = [field.name for field in fields if field.type == field.TYPE_MESSAGE]
    return (
        tuple(field.name for field in fields if field.type == field.TYPE_STRING),
        tuple((name, hasattr(getattr(empty, name), "add")) for name in messages),
    )


def _check_text(message: Any, where: str) -> None:
    """Protobuf gives a string that is not UTF-8 as bytes, which nothing behind it expects."""
    kind: Any = type(message)
    texts, messages = _text_fields(kind)
    for name in texts:
        found = getattr(message, name)
        for text in (found,) if isinstance(found, (str, bytes)) else found:
            if isinstance(text, bytes):
                raise FormatError(f"a {name} is not UTF-8 text", where=where, got=repr(text[:40]), next=_ADVICE)
    for name, repeated in messages:
        for inner in getattr(message, name) if repeated else [getattr(message, name)] if message.HasField(name) else []:
            _check_text(inner, where)


def _parse(data: bytes, where: str) -> Any:
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
        whole = proto.HasField("graph") and len(proto.opset_import) > 0 and len(proto.graph.output) > 0
    except Exception as fault:  # protobuf's own errors; their classes differ between its implementations
        raise _not_onnx(data, where, f"{type(fault).__name__}: {fault}") from None
    if not whole:
        raise _not_onnx(data, where, "no graph, no opset, or no outputs")
    _check_text(proto, where)
    return proto


def _not_onnx(data: bytes, where: str, got: str) -> FormatError:
    what, advice = recognize(data[:64]) or ("", _ADVICE)
    return FormatError(
        "this is not an ONNX model" + (f" but {what}" if what else ""),
        where=where,
        got=f"{counted(len(data), 'byte')}, {got}",
        expected="an ONNX ModelProto",
        next=advice,
    )


_Place = tuple[Any, Callable[[Any], None]]


def _places(model: ir.Model) -> Iterator[_Place]:
    """Every tensor of a model with a function that puts another in its place."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            yield value.const_value, functools.partial(setattr, value, "const_value")
    owners: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
    for owner in owners:
        for node in ir.traversal.RecursiveGraphIterator(owner):
            for attr in list(node.attributes.values()):
                yield from _attribute_places(node, attr)


def _attribute_places(node: ir.Node, attr: ir.Attr) -> Iterator[_Place]:
    if attr.is_ref():
        return
    if attr.type == ir.AttributeType.TENSOR:
        yield attr.value, lambda new: node.attributes.__setitem__(attr.name, ir.AttrTensor(attr.name, new))
    elif attr.type == ir.AttributeType.TENSORS:
        tensors = list(attr.value)
        for i, tensor in enumerate(tensors):

            def put(new: Any, i: int = i) -> None:
                tensors[i] = new
                node.attributes[attr.name] = ir.AttrTensors(attr.name, list(tensors))

            yield tensor, put


def _in_memory(tensor: ir.ExternalTensor, maps: dict[str, mmap.mmap]) -> ir.Tensor[Any]:
    """The same tensor over a mapping of its file, which stays valid when the file is replaced or removed."""
    dtype, shape = tensor.dtype, tuple(tensor.shape.numpy())
    itemsize, path = dtype.bitwidth // 8, os.path.join(tensor.base_dir, tensor.location)
    if math.prod(shape) == 0:
        array = np.empty(shape, dtype.numpy())
    elif itemsize == 0:  # two or more elements in a byte
        array = np.array(tensor.numpy())
    else:
        if path not in maps:
            with open(path, "rb") as file:
                maps[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        raw = np.frombuffer(maps[path], np.uint8, math.prod(shape) * itemsize, tensor.offset or 0)
        aligned = raw if raw.ctypes.data % itemsize == 0 else raw.copy()
        array = aligned.view(dtype.numpy()).reshape(shape)
    return ir.Tensor(array, dtype=dtype, name=tensor.name, doc_string=tensor.doc_string)


def _internalize(model: ir.Model) -> None:
    maps: dict[str, mmap.mmap] = {}
    for tensor, put in list(_places(model)):
        if isinstance(tensor, ir.ExternalTensor):
            put(_in_memory(tensor, maps))


def read(path: str | os.PathLike[str], shapes: Mapping[str, Sequence[int | str | None]] | None = None) -> ir.Model:
    """Read an ONNX model.

    Shapes, data lengths and names are checked; operators are not. External data is mapped from its file: the model
    does not need the file's name any more afterwards. Dimensions of -1 or ``?``, as some exporters write them, are
    open.

    Args:
        path: the file.
        shapes: dimensions of inputs that the file leaves open, by name; None or a string leaves one as it is.

    Raises:
        InputError: ``shapes`` names no input, has another rank, or contradicts the file.
        FormatError: not an ONNX model, truncated, a tensor whose data does not fit its shape, external data that is
            missing, too short, or outside of the model's folder.
        GraphError: a value is used before it is made, by nothing, or made twice.
        OSError: the file cannot be opened.
    """
    where = os.fspath(path)
    proto = _parse(Path(path).read_bytes(), where)
    folder = Path(os.path.abspath(path)).parent
    for tensor, here in _proto_tensors(proto.graph, where):
        _check_tensor(tensor, folder, here)
    for function in proto.functions:
        inside = f"{where}, function {function.name!r}"
        for tensor, here in _proto_nodes(function.node, inside):
            _check_tensor(tensor, None, here)
        _check_names(function.input, function.node, function.output, frozenset(), inside)
    _check_graph_names(proto.graph, frozenset(), where)
    try:
        model: ir.Model = ir.from_proto(proto)
        ir.external_data.set_base_dir(model.graph, folder)
    except Exception as fault:  # onnx_ir has no error class of its own for what a corrupt field does to it
        raise FormatError(
            "the ONNX model cannot be understood", where=where, got=str(fault).splitlines()[0][:200], next=_ADVICE
        ) from fault
    _internalize(model)
    _open_unknown(model)
    _fix_shapes(model, shapes or {}, where)
    return model


#: What exporters call a dimension of which they know nothing. As a name it would mean one size wherever it stands.
_NO_NAMES = frozenset({"?", "", "-1", "None", "unk__"})


def _open_unknown(model: ir.Model) -> None:
    """Make dimensions below zero, and those whose name says that nothing is known of them, open ones."""

    def unknown(dim: int | ir.SymbolicDim) -> bool:
        return dim < 0 if isinstance(dim, int) else dim.value in _NO_NAMES

    for graph in model.graphs():
        for value in (*graph.inputs, *graph.outputs, *(v for node in graph for v in node.outputs)):
            if value.shape is not None and any(unknown(d) for d in value.shape):
                value.shape = ir.Shape([None if unknown(d) else d for d in value.shape])


def _fix_shapes(model: ir.Model, shapes: Mapping[str, Sequence[int | str | None]], where: str) -> None:
    """Put numbers in the place of open dimensions of inputs."""
    inputs = {str(v.name): v for v in model.graph.inputs if v.name not in model.graph.initializers}
    for name, dims in shapes.items():
        if name not in inputs:
            raise InputError(
                "no input of that name", where=where, got=name, expected=list(inputs), next=nearest(name, inputs)
            )
        value = inputs[name]
        old = list(value.shape) if value.shape is not None else [None] * len(dims)
        fits = len(old) == len(dims) and all(
            not isinstance(a, int) or not isinstance(b, int) or a == b for a, b in zip(old, dims)
        )
        if not fits:
            raise InputError(
                "the file declares another shape",
                where=f"{where}: input {name!r}",
                got=tuple(dims),
                expected=tuple(d if isinstance(d, int) else d.value for d in old if d is not None),
                next="only dimensions that the file leaves open can be given",
            )
        value.shape = ir.Shape([b if isinstance(b, int) else a for a, b in zip(old, dims)])


def write(model: ir.Model, path: str | os.PathLike[str], *, external_above: int = EXTERNAL_ABOVE) -> list[str]:
    """Write an ONNX model; the file is replaced at once or not at all. The model is not changed.

    Args:
        model: what to write.
        path: the file.
        external_above: with more bytes of tensors than this, they go to ``<path>.data`` (protobuf cannot hold more
            than 2 GiB). The two files are then replaced one after the other, the data first.

    Returns:
        The names of the written files.

    Raises:
        OSError: a file cannot be written.
    """
    tensors = [tensor for tensor, _ in _places(model) if tensor is not None]
    if any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors):
        model = model.clone()
        _internalize(model)
    target = Path(os.path.realpath(path))
    if sum(tensor.nbytes for tensor in tensors) <= external_above:
        with atomic_write(target) as file:
            file.write(ir.to_proto(model).SerializeToString())
        return [os.fspath(path)]
    scratch = target.with_name(f".{target.name[:80]}.{secrets.token_hex(6)}.part")
    scratch.mkdir()
    try:
        data = f"{target.name}.data"
        ir.save(model.clone(), scratch / target.name, external_data=data)
        os.replace(scratch / data, target.with_name(data))
        os.replace(scratch / target.name, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return [os.fspath(path), os.fspath(path) + ".data"]
