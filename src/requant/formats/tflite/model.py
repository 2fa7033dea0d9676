"""A TFLite file as plain records: tensors with their scales, operators with their options."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from requant.errors import FormatError, counted
from requant.formats.sniff import recognize
from requant.formats.tflite import schema
from requant.formats.tflite.flatbuffer import Buffer, Table

#: What is absurd: dimensions of a tensor, elements of one, inputs of an operator.
_MOST_DIMS, _MOST_ELEMENTS, _MOST_INPUTS = 8, 1 << 31, 1 << 12


@dataclass(frozen=True)
class Tensor:
    """One tensor of the file.

    Attributes:
        name: as the file has it; need not be unique.
        shape: dimensions; channels last.
        dtype: ``int8``, ``float32`` and so on; also what numpy does not have (``int4``, ``string``).
        data: the array of a constant, else None.
        scale: float32, (1,) or one for each channel; empty if the tensor is not quantized.
        zero_point: int64 of the same size: ``real = scale × (integer − zero_point)``.
        axis: the channel axis where there is more than one scale.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int

    @property
    def quantized(self) -> bool:
        """Integers that stand for real numbers."""
        return self.scale.size > 0 and self.dtype in ("int8", "uint8", "int16", "int32")


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        kind: ``CONV_2D`` and so on; ``CUSTOM name`` for custom ones.
        inputs: numbers of tensors; -1 is one that is left out.
        outputs: numbers of tensors.
        options: as `schema.OPTIONS` names them; activation and padding as words.
    """

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, Any]


@dataclass(frozen=True)
class TFLiteModel:
    """The main graph of a file; ``inputs`` and ``outputs`` are numbers of tensors."""

    source: str
    tensors: tuple[Tensor, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def name(self, operator: Operator) -> str:
        """What an operator is called: by its first output."""
        return self.tensors[operator.outputs[0]].name if operator.outputs else operator.kind


def read(path: str | os.PathLike[str]) -> TFLiteModel:
    """Read a ``.tflite`` file. Constants are arrays over the file's own memory.

    Raises:
        FormatError: not a TFLite file, damaged, or absurd.
        OSError: it cannot be opened.
    """
    where = os.fspath(path)
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
            return read_bytes(b"", where)
        return read_bytes(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), where)


def read_bytes(data: bytes | mmap.mmap, where: str = "model.tflite") -> TFLiteModel:
    """The same from bytes."""
    view = memoryview(data)
    if len(view) < 8 or bytes(view[4:8]) != schema.IDENTIFIER:
        what, advice = recognize(bytes(view[:64])) or (
            "",
            "the file is truncated, corrupt or of another kind: copy or export it again",
        )
        raise FormatError(
            "this is not a TFLite file" + (f" but {what}" if what else ""),
            where=where,
            got=repr(bytes(view[:8])),
            expected=f"{schema.IDENTIFIER!r} at byte 4",
            next=advice,
        )
    buffer = Buffer(view, where)
    root = buffer.root()
    version = root.number(0, "I", 0)
    graphs = root.tables(2)
    if version != schema.VERSION or not graphs:
        raise FormatError(
            "this TFLite file cannot be read",
            where=where,
            got=f"schema version {version}, {counted(len(graphs), 'graph')}",
            expected=f"schema version {schema.VERSION} and a graph",
        )
    main = graphs[0]
    buffers = root.tables(4)
    tensors = tuple(_tensor(t, buffers, buffer) for t in main.tables(0))
    kinds = [_kind(code) for code in root.tables(1)]
    operators = tuple(_operator(t, kinds, len(tensors), where) for t in main.tables(3))
    inputs, outputs = (_numbers(main, field, len(tensors), where) for field in (1, 2))
    if not outputs or min(inputs + outputs) < 0:
        raise FormatError("a graph with no outputs, or with an input that is left out", where=where)
    return TFLiteModel(where, tensors, operators, inputs, outputs)


def _kind(code: Table) -> str:
    """The name of an operator; old files have its number in a byte, new ones in an int."""
    number = max(code.number(0, "b", 0), code.number(3, "i", 0))
    if number == schema.CUSTOM:
        return f"CUSTOM {code.text(1)}"
    return schema.OPERATORS[number] if 0 <= number < len(schema.OPERATORS) else f"operator {number}"


def _numbers(table: Table, field: int, count: int, where: str) -> tuple[int, ...]:
    found = table.vector(field, "<i4")
    if found.size > _MOST_INPUTS or (found.size and not (-1 <= int(found.min()) <= int(found.max()) < count)):
        raise FormatError(
            "an operator or graph names a tensor that is not there",
            where=where,
            got=found[:8].tolist(),
            expected=f"-1 to {count - 1}",
        )
    return tuple(int(i) for i in found)


def _tensor(table: Table, buffers: Sequence[Table], buffer: Buffer) -> Tensor:
    name = table.text(3)
    where = f"{buffer.where}: tensor {name!r}"
    dims = table.vector(0, "<i4")
    number = table.number(1, "B", 0)
    dtype, numpy_type = schema.TYPES[number] if number < len(schema.TYPES) else (f"type {number}", None)
    if dims.size > _MOST_DIMS or (dims.size and int(dims.min()) < 0):
        raise FormatError("a tensor of absurd shape", where=where, got=dims[:12].tolist())
    shape = tuple(int(d) for d in dims)
    elements = math.prod(shape)
    if elements >= _MOST_ELEMENTS:
        raise FormatError("a tensor of absurd size", where=where, got=f"shape {shape}")
    which = table.number(2, "I", 0)
    if which >= len(buffers):
        raise FormatError(
            "a tensor names a buffer that is not there", where=where, got=which, expected=f"0 to {len(buffers) - 1}"
        )
    scale, zero, axis = _quantization(table.table(4), shape, where)
    data = _constant(buffers[which], buffer, numpy_type, shape, where)
    return Tensor(name, shape, dtype, data, scale, zero, axis)


def _constant(table: Table, buffer: Buffer, dtype: Any, shape: tuple[int, ...], where: str) -> np.ndarray | None:
    raw = table.vector(0, "u1")
    offset, size = table.number(1, "Q", 0), table.number(2, "Q", 0)
    if offset > 1 and size:  # files beyond 2 GiB keep arrays behind the table
        raw = np.frombuffer(buffer.bytes(offset, size), "u1")
    if not raw.size:
        return None
    if dtype is None:
        return raw
    kind = np.dtype(dtype).newbyteorder("<")
    if raw.size != math.prod(shape) * kind.itemsize:
        raise FormatError(
            "a constant has not the size of its shape",
            where=where,
            got=counted(raw.size, "byte"),
            expected=f"{math.prod(shape) * kind.itemsize} for {kind} {shape}",
        )
    return np.asarray(raw.view(kind).reshape(shape))


def _quantization(table: Table | None, shape: tuple[int, ...], where: str) -> tuple[np.ndarray, np.ndarray, int]:
    if table is None:
        return np.zeros(0, np.float32), np.zeros(0, np.int64), 0
    scale, zero, axis = table.vector(2, "<f4"), table.vector(3, "<i8"), table.number(6, "i", 0)
    if zero.size != scale.size:
        if zero.size:
            raise FormatError(
                "as many scales as zero points are needed", where=where, got=f"{scale.size} and {zero.size}"
            )
        zero = np.zeros(scale.shape, np.int64)
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise FormatError("a scale must be positive and finite", where=where, got=scale[:4].tolist())
    if scale.size > 1 and not (0 <= axis < len(shape) and shape[axis] == scale.size):
        raise FormatError(
            "scales do not fit the channels", where=where, got=f"{scale.size} along axis {axis} of {shape}"
        )
    return scale, zero, axis


def _operator(table: Table, kinds: Sequence[str], count: int, where: str) -> Operator:
    which = table.number(0, "I", 0)
    if which >= len(kinds):
        raise FormatError(
            "an operator names a code that is not there", where=where, got=which, expected=f"0 to {len(kinds) - 1}"
        )
    kind = kinds[which]
    inputs, outputs = _numbers(table, 1, count, where), _numbers(table, 2, count, where)
    if outputs and min(outputs) < 0:
        raise FormatError("an operator without an output", where=where, got=kind)
    own = table.table(4)
    options: dict[str, Any] = {}
    for field, (name, form, default) in enumerate(schema.OPTIONS.get(kind, ())):
        value = default if own is None else own.number(field, form, default)
        words = {"activation": schema.ACTIVATIONS, "padding": schema.PADDINGS}.get(name)
        if words is not None and not 0 <= value < len(words):
            raise FormatError(f"an unknown {name}", where=f"{where}: {kind}", got=value)
        options[name] = value if words is None else words[value]
    return Operator(kind, inputs, outputs, options)
