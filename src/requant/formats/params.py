"""MXNet's ``.params`` files: lists of arrays, with or without names.

All four array records that MXNet ever wrote are read and written: V0 (before 0.9, no magic), V1 (0.9 to 0.11), V2
(0.12 to 1.9, the usual one; dense, row_sparse, csr) and V3 (``npx.set_np``: true scalars). Layout, little endian::

    u64 0x112 | u64 reserved | u64 count | count x array | u64 names (0 or count) | names x (u64 length, UTF-8)

Source: the bytes that MXNet 1.9.1 writes and accepts.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from requant.dtypes import MX_CODES, to_code
from requant.errors import FormatError, ShapeError, counted
from requant.formats.atomic import atomic_write
from requant.formats.sniff import recognize
from requant.formats.sparse import Csr, RowSparse

LIST_MAGIC = 0x112
V1_MAGIC, V2_MAGIC, V3_MAGIC = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DENSE, _ROW_SPARSE, _CSR = 0, 1, 2
_MAX_NDIM = 32  # what every numpy can hold; MXNet's own operators stop far below
_SMALLEST_ARRAY = 4  # bytes: a V0 record of an absent array

Array: TypeAlias = NDArray[Any]
T = TypeVar("T")

Param: TypeAlias = Array | RowSparse | Csr | None


class _Reader:
    """A position in the bytes. Nothing is sliced or allocated before its size was compared with what remains."""

    def __init__(self, buffer: bytes | mmap.mmap | memoryview, where: str) -> None:
        self.buffer, self.where, self.position, self.end = buffer, where, 0, len(buffer)
        self.item = ""

    def fail(self, what: str, at: int | None = None, **parts: object) -> FormatError:
        offset = self.position if at is None else at
        return FormatError(what, where=f"{self.where}{self.item}, byte {offset}", **parts)

    def need(self, nbytes: int, what: str) -> None:
        if nbytes > self.end - self.position:
            raise self.fail(
                f"the file ends inside {what}",
                got=f"{counted(self.end - self.position, 'byte')} left",
                expected=counted(nbytes, "byte"),
                next="the file is truncated or corrupt: copy or download it again",
            )

    def numbers(self, code: str, count: int, what: str) -> tuple[int, ...]:
        layout = f"<{count}{code}"
        size = struct.calcsize(layout)
        self.need(size, what)
        found = struct.unpack_from(layout, self.buffer, self.position)
        self.position += size
        return found

    def number(self, code: str, what: str) -> int:
        return self.numbers(code, 1, what)[0]

    def shape(self, ndim: int, code: str, what: str) -> tuple[int, ...]:
        at = self.position - 4
        if not 0 <= ndim <= _MAX_NDIM:
            raise self.fail(f"the number of dimensions of {what} is absurd", at, got=ndim, expected=f"0 to {_MAX_NDIM}")
        shape = self.numbers(code, ndim, what)
        if any(dim < 0 for dim in shape) or math.prod(dim or 1 for dim in shape) >= 1 << 59:
            raise self.fail(f"{what} is absurd", at, got=shape, expected="sizes from 0 that fit in memory")
        return shape

    def dtype(self, what: str) -> np.dtype[Any]:
        at, code = self.position, self.number("i", f"the type of {what}")
        if code not in MX_CODES:
            known = ", ".join(f"{number} ({dtype})" for number, dtype in MX_CODES.items())
            raise self.fail(f"unknown type flag of {what}", at, got=code, expected=f"one of {known}")
        return MX_CODES[code]

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> Array:
        count = math.prod(shape)
        self.need(count * dtype.itemsize, f"{what}, shape {shape} of {dtype}")
        if count == 0:
            return np.empty(shape, dtype)
        unsigned = f"u{dtype.itemsize}"
        raw: Array = np.frombuffer(self.buffer, "<" + unsigned, count, self.position)
        self.position += count * dtype.itemsize
        if dtype == np.bool_ and bool((raw > 1).any()):
            raw = (raw != 0).view(np.uint8)  # MXNet takes any byte but 0 for true; numpy holds 0 and 1 only
        if not raw.flags.aligned:  # records are not padded, so an odd int8 array shifts what follows it
            raw = raw.copy()
        return raw.astype("=" + unsigned, copy=False).view(dtype).reshape(shape)


def _indices(reader: _Reader, kind: tuple[np.dtype[Any], tuple[int, ...]], length: int, what: str) -> Array:
    dtype, shape = kind
    if dtype.kind not in "iu" or dtype.itemsize < 4 or shape != (length,):
        raise reader.fail(
            f"{what} do not fit their array", got=f"shape {shape} of {dtype}", expected=f"shape {(length,)} of int64"
        )
    return reader.array(shape, dtype, what).astype(np.int64, copy=False)


def _check_range(reader: _Reader, found: Array, limit: int, what: str) -> None:
    if found.size and (int(found.min()) < 0 or int(found.max()) >= limit):
        raise reader.fail(
            f"{what} lie outside of the array",
            got=f"{found.min()} to {found.max()}",
            expected=f"0 to {limit - 1}",
            next="the file is corrupt: copy or download it again",
        )


def _read_sparse(reader: _Reader, stype: int) -> RowSparse | Csr | None:
    stored = reader.shape(reader.number("i", "the stored shape"), "q", "the stored shape")
    shape = reader.shape(reader.number("i", "the shape"), "q", "the shape")
    if not shape:
        return None
    reader.numbers("i", 2, "the device")
    dtype = reader.dtype("the array")
    kinds = []
    for what in ("row numbers",) if stype == _ROW_SPARSE else ("row pointers", "column numbers"):
        aux = reader.dtype(what)
        kinds.append((aux, reader.shape(reader.number("i", what), "q", f"the shape of the {what}")))
    rows = stored[0] if stored else -1
    wanted = (rows, *shape[1:]) if stype == _ROW_SPARSE else (rows,)
    if stored != wanted or (stype == _CSR and len(shape) != 2):
        name = "row_sparse" if stype == _ROW_SPARSE else "csr"
        raise reader.fail(f"the stored shape does not fit a {name} array", got=f"{stored} of {shape}")
    data = reader.array(stored, dtype, "the stored values")
    if stype == _ROW_SPARSE:
        indices = _indices(reader, kinds[0], rows, "row numbers")
        _check_range(reader, indices, shape[0], "row numbers")
        if bool((np.diff(indices) <= 0).any()):
            raise reader.fail("row numbers are not strictly ascending")
        return RowSparse(data, indices, shape)
    indptr = _indices(reader, kinds[0], shape[0] + 1, "row pointers")
    columns = _indices(reader, kinds[1], rows, "column numbers")
    if int(indptr[0]) != 0 or int(indptr[-1]) != rows or bool((np.diff(indptr) < 0).any()):
        raise reader.fail("row pointers do not count the stored values", expected=f"ascending from 0 to {rows}")
    _check_range(reader, columns, shape[1], "column numbers")
    return Csr(data, indptr, columns, shape)


def _read_array(reader: _Reader) -> Param:
    magic = reader.number("I", "an array's header")
    if magic not in (V1_MAGIC, V2_MAGIC, V3_MAGIC):  # V0 has no magic: the number is its count of dimensions
        if magic > _MAX_NDIM:
            raise reader.fail(
                "this is not the start of an array",
                reader.position - 4,
                got=f"0x{magic:08X}",
                expected=f"0x{V2_MAGIC:08X}, 0x{V3_MAGIC:08X}, 0x{V1_MAGIC:08X} or 0 to {_MAX_NDIM} dimensions",
                next="the file is corrupt: copy or download it again",
            )
        shape = reader.shape(magic, "I", "the shape")
    elif magic == V1_MAGIC:
        shape = reader.shape(reader.number("i", "the shape"), "q", "the shape")
    else:
        at, stype = reader.position, reader.number("i", "the storage type")
        if magic == V2_MAGIC and stype in (_ROW_SPARSE, _CSR):
            return _read_sparse(reader, stype)
        if stype != _DENSE:
            kinds = "0 (dense), 1 (row_sparse) or 2 (csr)" if magic == V2_MAGIC else "0 (dense)"
            raise reader.fail("unknown storage type", at, got=stype, expected=kinds)
        ndim = reader.number("i", "the shape")
        if magic == V3_MAGIC and ndim == -1:
            return None
        shape = reader.shape(ndim, "q", "the shape")
    if not shape and magic != V3_MAGIC:
        return None
    reader.numbers("i", 2, "the device")
    return reader.array(shape, reader.dtype("the array"), "the values")


def _read_names(reader: _Reader, count: int) -> list[str]:
    at, found = reader.position, reader.number("Q", "the number of names")
    if found not in (0, count):
        raise reader.fail("the number of names does not fit", at, got=found, expected=f"0 or {count}")
    names: list[str] = []
    for i in range(found):
        reader.item = f", name {i} of {found}"
        length = reader.number("Q", "the length of a name")
        reader.need(length, "a name")
        raw = bytes(reader.buffer[reader.position : reader.position + length])
        try:
            names.append(raw.decode())
        except UnicodeDecodeError:
            raise reader.fail("a name is not UTF-8 text", got=raw[:40]) from None
        reader.position += length
    reader.item = ""
    return names


def _read(reader: _Reader) -> dict[str, Param] | list[Param]:
    magic = reader.number("Q", "the header") if reader.end >= 8 else None
    if magic != LIST_MAGIC:
        start = bytes(reader.buffer[:24])
        what, advice = recognize(start) or (
            "",
            "give the .params file that belongs to the symbol; other files hold no arrays",
        )
        raise reader.fail(
            "this is not a list of MXNet arrays" + (f" but {what}" if what else ""),
            0,
            got=repr(start[:8]),
            expected=f"the magic 0x{LIST_MAGIC:x}, as mx.nd.save and save_checkpoint write it",
            next=advice,
        )
    reader.number("Q", "the header")  # reserved; MXNet ignores it too
    at, count = reader.position, reader.number("Q", "the number of arrays")
    if count > (reader.end - reader.position) // _SMALLEST_ARRAY:
        left = reader.end - reader.position
        raise reader.fail(
            "more arrays are declared than the file can hold", at, got=f"{count} in {counted(left, 'byte')}"
        )
    arrays: list[Param] = []
    for i in range(count):
        reader.item = f", array {i} of {count}"
        arrays.append(_read_array(reader))
    reader.item = ""
    names = _read_names(reader, count)
    if reader.position != reader.end:
        raise reader.fail("bytes follow after the last name", got=counted(reader.end - reader.position, "byte"))
    if not names:
        return arrays
    found = dict(zip(names, arrays))
    if len(found) != count:
        twice = sorted({name for name in names if names.count(name) > 1}) if count < 10_000 else "many"
        raise reader.fail("a name stands for more than one array", got=twice)
    return found


def read_params(source: str | os.PathLike[str] | bytes, *, copy: bool = False) -> dict[str, Param] | list[Param]:
    """Read a list of arrays that MXNet saved.

    A file is mapped, not read: its arrays are read-only views, and their pages are loaded when first touched. Arrays
    that are not aligned in the file are copied. Do not change the file in place while arrays of it are in use
    (``write_params`` replaces it, which is safe).

    Args:
        source: a path, or the bytes themselves.
        copy: give writable arrays of their own memory instead of views.

    Returns:
        A dict in file order if the arrays have names, else a list. None stands for an absent array. Dense arrays keep
        their dtype (bfloat16 is ``ml_dtypes.bfloat16``); sparse ones come as `RowSparse` or `Csr`.

    Raises:
        FormatError: the file is truncated, corrupt, or something else.
        OSError: the file cannot be opened.
    """
    if isinstance(source, bytes):
        found = _read(_Reader(source, "params in memory"))
    else:
        with open(source, "rb") as file:
            empty = os.fstat(file.fileno()).st_size == 0  # an empty file cannot be mapped
            buffer = b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        found = _read(_Reader(buffer, os.fspath(source)))
    if not copy:
        return found
    if isinstance(found, dict):
        return {name: _owned(array) for name, array in found.items()}
    return [_owned(array) for array in found]


def _owned(array: Param) -> Param:
    if isinstance(array, RowSparse):
        return RowSparse(array.data.copy(), array.indices.copy(), array.shape)
    if isinstance(array, Csr):
        return Csr(array.data.copy(), array.indptr.copy(), array.indices.copy(), array.shape)
    return None if array is None else array.copy()


def _dims(shape: Sequence[int], code: str = "q") -> bytes:
    return struct.pack(f"<i{len(shape)}{code}", len(shape), *shape)


def _little(array: Array) -> Array:
    """C order, little endian, as a flat array of bytes."""
    unsigned = f"u{array.dtype.itemsize}"
    flat = np.ascontiguousarray(array).reshape(-1)
    if not flat.dtype.isnative:
        flat = flat.astype(flat.dtype.newbyteorder("="))
    return flat.view(unsigned).astype("<" + unsigned, copy=False).view(np.uint8)


_CPU = struct.pack("<ii", 1, 0)


def _records(array: Param, version: int, where: str) -> Iterator[bytes | Array]:
    """The pieces of one array record, in order."""
    magic = {0: b"", 1: struct.pack("<I", V1_MAGIC), 2: struct.pack("<I", V2_MAGIC), 3: struct.pack("<I", V3_MAGIC)}
    stype = struct.pack("<i", _DENSE) if version >= 2 else b""
    if array is None:
        yield magic[version] + stype + struct.pack("<i", -1 if version == 3 else 0)
    elif isinstance(array, (RowSparse, Csr)):
        if version != 2:
            raise FormatError("a sparse array cannot be written", where=where, got=f"version {version}", next="use 2")
        auxiliary = [array.indices] if isinstance(array, RowSparse) else [array.indptr, array.indices]
        yield magic[2] + struct.pack("<i", _ROW_SPARSE if isinstance(array, RowSparse) else _CSR)
        yield _dims(array.data.shape) + _dims(array.shape) + _CPU + struct.pack("<i", to_code(array.data.dtype))
        for aux in auxiliary:
            yield struct.pack("<i", to_code(np.int64)) + _dims(aux.shape)
        yield _little(array.data)
        for aux in auxiliary:
            yield _little(aux.astype(np.int64, copy=False))
    else:
        if array.ndim == 0 and version != 3:
            raise ShapeError(
                "a scalar cannot be written: a record without dimensions means an absent array",
                where=where,
                got="shape ()",
                next="use version=3 (numpy semantics), or reshape to (1,)",
            )
        if version == 0 and any(dim >= 1 << 32 for dim in array.shape):
            raise ShapeError("a dimension is too large for version 0", where=where, got=array.shape)
        yield magic[version] + stype + _dims(array.shape, "I" if version == 0 else "q")
        yield _CPU + struct.pack("<i", to_code(array.dtype.newbyteorder("=")))
        yield _little(array)


def _file(arrays: Mapping[str, Param] | Iterable[Param], version: int) -> Iterator[bytes | Array]:
    if version not in (0, 1, 2, 3):
        raise FormatError("unknown version of the array format", got=version, expected="0, 1, 2 or 3")
    names = list(arrays) if isinstance(arrays, Mapping) else []
    values: list[Param] = list(arrays.values()) if isinstance(arrays, Mapping) else list(arrays)
    yield struct.pack("<QQQ", LIST_MAGIC, 0, len(values))
    for i, value in enumerate(values):
        where = repr(names[i]) if names else f"array {i} of {len(values)}"
        sparse_or_none = value is None or isinstance(value, (RowSparse, Csr))
        yield from _records(value if sparse_or_none else np.asarray(value), version, where)
    yield struct.pack("<Q", len(names))
    for name in names:
        raw = name.encode()
        yield struct.pack("<Q", len(raw)) + raw


def params_bytes(arrays: Mapping[str, Param] | Iterable[Param], *, version: int = 2) -> bytes:
    """The bytes that `write_params` writes."""
    return b"".join(piece if isinstance(piece, bytes) else piece.tobytes() for piece in _file(arrays, version))


def write_params(
    path: str | os.PathLike[str], arrays: Mapping[str, Param] | Iterable[Param], *, version: int = 2
) -> None:
    """Write arrays as MXNet does; the file is replaced at once or not at all.

    Args:
        path: the file, usually ``<prefix>-<epoch, four digits>.params``.
        arrays: a dict (names are kept, in order) or a list of arrays, `RowSparse`, `Csr` or None.
        version: 2 is what MXNet 0.12 to 1.9 read; 3 is read by MXNet under ``npx.set_np`` only, and the one that has
            scalars (shape ``()``); 1 and 0 are for older ones. Sparse arrays exist in version 2 only.

    Raises:
        DTypeError: an array's type is none of MXNet's.
        ShapeError: the shape cannot be written in this version.
        FormatError: a sparse array outside of version 2, or an unknown version.
        OSError: the file cannot be written.
    """
    with atomic_write(Path(path)) as file:
        for piece in _file(arrays, version):
            file.write(piece if isinstance(piece, bytes) else piece.data)


def split_arg_aux(params: Mapping[str, T]) -> tuple[dict[str, T], dict[str, T], dict[str, T]]:
    """Sort parameters by the style of their names: ``arg:x`` and ``aux:x`` (checkpoints, exports), all others bare.

    Bare names are full names (``conv0_weight``) or structural ones (``features.0.weight``).

    Returns:
        Three dicts in file order, prefixes cut off: arguments, auxiliary states, bare.
    """
    args: dict[str, T] = {}
    aux: dict[str, T] = {}
    bare: dict[str, T] = {}
    for name, value in params.items():
        kind, colon, rest = name.partition(":")
        if colon and kind == "arg":
            args[rest] = value
        elif colon and kind == "aux":
            aux[rest] = value
        else:
            bare[name] = value
    return args, aux, bare
