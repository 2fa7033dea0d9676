"""Calibration tables as bytes: requant's own JSON file, and TensorRT's calibration cache.

The JSON file holds, per tensor, a statistic: its kind, some numbers and some integer or float arrays. What they mean
is known to `requant.quant.table`. Arrays are stored as base64 of the deflated bytes, little endian, the first bytes of
all elements first, then all second bytes, and so on (small counts then deflate to little more than their entropy)::

    {"format": "requant calibration table", "version": 1, "model": "sha256...", "calibrator": "entropy", "options": {},
     "samples": 512, "held_out_samples": 0, "skipped": 0, "metadata": {},
     "tensors": {"conv0": {"statistic": {"kind": "histogram", "count": 9, ..., "cells": {"dtype": "int64", "length": 4,
                                         "data": "..."}}}}}

TensorRT's cache is text: a line ``TRT-<version>-<algorithm>``, then ``<tensor>: <hexadecimal>``, the bits of the
float32 scale (largest magnitude / 127).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from requant.errors import FormatError, counted
from requant.formats.atomic import atomic_write

FORMAT, VERSION = "requant calibration table", 1
#: Bounds on what a file may claim: far above any real table, far below what would exhaust the memory.
MAX_FILE_BYTES = 1 << 30
MAX_TENSORS = 1 << 17
MAX_ARRAY = 1 << 18
MAX_ELEMENTS = 1 << 27
MAX_NAME = 1 << 14
_DTYPES: dict[str, np.dtype[Any]] = {"int64": np.dtype("<i8"), "float32": np.dtype("<f4")}

Number: TypeAlias = int | float
#: A statistic as plain data: its kind, numbers and 1-D arrays (int64 or float32) by name.
StoredStatistic: TypeAlias = Mapping[str, "str | Number | npt.NDArray[Any]"]


@dataclass(frozen=True)
class StoredTable:
    """A calibration table as plain data.

    Attributes:
        model: fingerprint of the model it belongs to.
        calibrator, options: the calibrator that the ranges are meant for.
        samples, held_out_samples, skipped: how many samples were seen, kept apart, and left out.
        tensors: by name, ``{"statistic": ..., "held_out": ..., "mean": ...}`` (all but the first may be missing).
        metadata: what the maker noted (preprocessing, for instance).
    """

    model: str
    calibrator: str
    tensors: Mapping[str, Mapping[str, StoredStatistic]]
    options: Mapping[str, Number] = field(default_factory=dict)
    samples: int = 0
    held_out_samples: int = 0
    skipped: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


def _fail(what: str, where: str, **parts: object) -> FormatError:
    parts.setdefault("next", "the file is damaged or was not written by requant: calibrate again")
    return FormatError(what, where=where, **parts)


# --- JSON -----------------------------------------------------------------------------------------------------------


def write_table(table: StoredTable, path: str | os.PathLike[str]) -> None:
    """Write a table; the file is replaced as a whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    with atomic_write(path) as file:
        file.write(dump_table(table))


def dump_table(table: StoredTable) -> bytes:
    """The bytes of a table. Equal tables give equal bytes: tensors are ordered by name."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "model": table.model,
        "calibrator": table.calibrator,
        "options": dict(sorted(table.options.items())),
        "samples": table.samples,
        "held_out_samples": table.held_out_samples,
        "skipped": table.skipped,
        "metadata": dict(sorted(table.metadata.items())),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in head.items()]
    rows = []
    for name in sorted(table.tensors):
        parts = {role: _dump_statistic(s) for role, s in table.tensors[name].items()}
        rows.append(f"  {json.dumps(name)}: {json.dumps(parts, allow_nan=False)}")
    lines.append(' "tensors": {\n' + ",\n".join(rows) + "\n }")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _dump_statistic(statistic: StoredStatistic) -> dict[str, object]:
    return {
        key: _dump_array(value) if isinstance(value, np.ndarray) else value
        for key, value in sorted(statistic.items(), key=lambda item: (item[0] != "kind", item[0]))
    }


def _dump_array(array: npt.NDArray[Any]) -> dict[str, object]:
    name = "int64" if array.dtype.kind in "iu" else "float32"
    data = np.ascontiguousarray(array, _DTYPES[name])
    planes = np.ascontiguousarray(data.view(np.uint8).reshape(-1, data.itemsize).T)
    packed = base64.b64encode(zlib.compress(planes.tobytes(), 6)).decode("ascii")
    return {"dtype": name, "length": len(data), "data": packed}


def read_table(path: str | os.PathLike[str]) -> StoredTable:
    """Read a table.

    Raises:
        FormatError: the file is not a table, is damaged, or is of a later version; the message names the tensor.
        OSError: the file cannot be read.
    """
    size = os.path.getsize(path)
    if size > MAX_FILE_BYTES:
        raise _fail("a calibration table cannot be so large", str(path), got=f"{size} bytes", expected=MAX_FILE_BYTES)
    return parse_table(Path(path).read_bytes(), str(path))


def parse_table(data: bytes, where: str = "calibration table") -> StoredTable:
    """The table of some bytes.

    Raises:
        FormatError: as `read_table`.
    """
    if data[:4] == b"TRT-":
        raise _fail("this is TensorRT's calibration cache", where, next="read it with read_tensorrt_cache")
    try:
        root = json.loads(data, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise _fail(f"not JSON: {error or type(error).__name__}", where) from None
    if not isinstance(root, dict) or root.get("format") != FORMAT:
        got = f"JSON that holds {'an object' if isinstance(root, dict) else type(root).__name__}"
        if isinstance(root, dict):
            got += f" with format {root['format']!r}" if "format" in root else f" with {', '.join(map(repr, root))}"
        raise _fail("not a calibration table", where, got=got[:120], expected=f"an object with format {FORMAT!r}")
    if root.get("version") != VERSION:
        later = isinstance(root.get("version"), int) and root["version"] > VERSION
        raise _fail(
            "calibration table of another version",
            where,
            got=repr(root.get("version"))[:20],
            expected=VERSION,
            next="update requant" if later else "calibrate again",
        )
    tensors = _get(root, "tensors", dict, where)
    if len(tensors) > MAX_TENSORS:
        raise _fail("too many tensors", where, got=len(tensors), expected=f"at most {MAX_TENSORS}")
    announced = sum(_announced(part) for part in tensors.values())
    if announced > MAX_ELEMENTS:
        raise _fail("too many array elements", where, got=announced, expected=f"at most {MAX_ELEMENTS}")
    return StoredTable(
        model=_get(root, "model", str, where),
        calibrator=_get(root, "calibrator", str, where),
        options=_numbers(_get(root, "options", dict, where), f"{where}, options"),
        samples=_count(root, "samples", where),
        held_out_samples=_count(root, "held_out_samples", where),
        skipped=_count(root, "skipped", where),
        metadata=_texts(_get(root, "metadata", dict, where), f"{where}, metadata"),
        tensors={name: _parse_tensor(part, f"{where}, tensor {name[:200]!r}") for name, part in tensors.items()},
    )


def _announced(part: object) -> int:
    """The array elements that a tensor announces, before any is unpacked."""
    if not isinstance(part, dict):
        return 0
    length = part.get("length")
    own = length if isinstance(length, int) and length > 0 else 0
    return own + sum(_announced(value) for value in part.values())


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a key occurs twice")
    return out


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _get(mapping: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    value = mapping.get(key)
    if not isinstance(value, kind) or (kind is str and len(str(value)) > MAX_NAME):
        raise _fail(f"{key!r} is missing or of the wrong type", where, got=repr(value)[:80], expected=kind.__name__)
    return value


def _count(mapping: Mapping[str, Any], key: str, where: str) -> int:
    value = mapping.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise _fail(f"{key!r} is not a count", where, got=repr(value)[:80], expected="an integer >= 0")
    return value


def _numbers(mapping: Mapping[str, Any], where: str) -> dict[str, Number]:
    for key, value in mapping.items():
        if not _is_number(value):
            raise _fail(f"{key[:80]!r} is not a number", where, got=repr(value)[:80])
    return dict(mapping)


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**63 if isinstance(value, int) else math.isfinite(value)


def _texts(mapping: Mapping[str, Any], where: str) -> dict[str, str]:
    for key, value in mapping.items():
        if not isinstance(value, str):
            raise _fail(f"{key[:80]!r} is not text", where, got=repr(value)[:80])
    return dict(mapping)


def _parse_tensor(part: object, where: str) -> dict[str, StoredStatistic]:
    if not isinstance(part, dict) or "statistic" not in part or set(part) - {"statistic", "held_out", "mean"}:
        raise _fail("a tensor without a statistic", where, got=repr(part)[:80], expected="{'statistic': {...}}")
    return {role: _parse_statistic(value, f"{where}, {role}") for role, value in part.items()}


def _parse_statistic(part: object, where: str) -> StoredStatistic:
    if not isinstance(part, dict) or not isinstance(part.get("kind"), str):
        raise _fail("not a statistic", where, got=repr(part)[:80], expected="an object with a 'kind'")
    out: dict[str, str | Number | npt.NDArray[Any]] = {}
    for key, value in part.items():
        if isinstance(value, dict):
            out[key] = _parse_array(value, f"{where}, {key[:80]!r}")
        elif key == "kind" or _is_number(value):
            out[key] = value
        else:
            raise _fail(f"{key[:80]!r} is neither a number nor an array", where, got=repr(value)[:80])
    return out


def _parse_array(part: dict[str, Any], where: str) -> npt.NDArray[Any]:
    dtype, length, data = part.get("dtype"), part.get("length"), part.get("data")
    if dtype not in _DTYPES or not isinstance(data, str):
        raise _fail("not an array", where, got=repr(part)[:80], expected=f"dtype {' or '.join(_DTYPES)}, length, data")
    if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= MAX_ARRAY:
        raise _fail("an array of impossible length", where, got=repr(length)[:40], expected=f"0..{MAX_ARRAY}")
    size = length * _DTYPES[dtype].itemsize
    try:
        packed = base64.b64decode(data, validate=True)
        inflater = zlib.decompressobj()
        raw = inflater.decompress(packed, size + 1)  # never more than was announced, whatever the data inflate to
    except (binascii.Error, ValueError, zlib.error) as error:
        raise _fail(f"an array that cannot be unpacked: {error}", where) from None
    if len(raw) != size or inflater.unconsumed_tail or not inflater.eof or inflater.unused_data:
        raise _fail(
            "an array of another length than announced", where, got=counted(len(raw), "byte"), expected=f"{size}"
        )
    planes = np.frombuffer(raw, np.uint8).reshape(_DTYPES[dtype].itemsize, length)
    return np.ascontiguousarray(planes.T).view(_DTYPES[dtype]).reshape(length).astype(dtype)


# --- TensorRT -------------------------------------------------------------------------------------------------------

_TRT_HEADER = re.compile(r"TRT-(\d{1,10})-([A-Za-z0-9_]{1,80})\Z")
_TRT_FIRST = "a first line such as TRT-8601-EntropyCalibration2"
_TRT_NEXT = "give the cache that TensorRT's calibrator wrote"


@dataclass(frozen=True)
class TensorRTCache:
    """TensorRT's calibration cache.

    Attributes:
        scales: by tensor: real value of one integer step, float32; 127 steps are the largest magnitude.
        version: TensorRT's version as it writes it, 8601 for 8.6.1.
        algorithm: ``EntropyCalibration2``, ``EntropyCalibration``, ``MinMaxCalibration`` or ``LegacyCalibration``.
    """

    scales: Mapping[str, float]
    version: int = 8601
    algorithm: str = "EntropyCalibration2"


def dump_tensorrt_cache(cache: TensorRTCache) -> bytes:
    """The bytes of a cache.

    Raises:
        FormatError: a scale is negative or not finite, or a name or the header cannot be written in this format.
    """
    header = f"TRT-{cache.version}-{cache.algorithm}"
    if not _TRT_HEADER.match(header):
        raise _fail("not a TensorRT calibration header", "TensorRT calibration cache", got=header[:100], next=None)
    lines = [header]
    for name, scale in cache.scales.items():
        where = f"tensor {name[:200]!r}"
        if not name or "\n" in name or "\r" in name or not name.isprintable():
            raise _fail("a name that the format cannot hold", where, next="rename the tensor")
        with np.errstate(over="ignore"):
            value = np.float32(scale)
        if not np.isfinite(value) or value < 0:
            raise _fail("a scale must be finite and not negative", where, got=scale, next="calibrate this tensor again")
        lines.append(f"{name}: {struct.pack('>f', value).hex()}")
    return ("\n".join(lines) + "\n").encode()


def write_tensorrt_cache(cache: TensorRTCache, path: str | os.PathLike[str]) -> None:
    """Write TensorRT's calibration cache; the file is replaced as a whole or not at all.

    Raises:
        FormatError: see `dump_tensorrt_cache`.
        OSError: the file cannot be written.
    """
    data = dump_tensorrt_cache(cache)
    with atomic_write(path) as file:
        file.write(data)


def parse_tensorrt_cache(data: bytes, where: str = "TensorRT calibration cache") -> TensorRTCache:
    """The cache of some bytes.

    Raises:
        FormatError: no header, a line that is not ``name: hexadecimal``, a name twice, a scale that cannot be; the
            message names the line.
    """
    try:
        lines = data.decode("utf-8").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise _fail(
            "not a TensorRT calibration cache",
            where,
            got=f"no text: {error.reason} at byte {error.start}",
            expected=_TRT_FIRST,
            next=_TRT_NEXT,
        ) from None
    found = _TRT_HEADER.match(lines[0].strip())
    if not found:
        raise _fail(
            "not a TensorRT calibration cache",
            where,
            got=repr(lines[0][:80]) if data else "an empty file",
            expected=_TRT_FIRST,
            next="a table of requant becomes a cache by: requant table to-tensorrt" if data[:1] == b"{" else _TRT_NEXT,
        )
    scales: dict[str, float] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        name, separator, digits = line.rpartition(":")
        digits = digits.strip()
        if not separator or not name or not re.fullmatch(r"[0-9a-fA-F]{1,8}", digits):
            raise _fail(
                "not a tensor and its scale", f"{where}, line {number}", got=line[:80], expected="name: 3c010a14"
            )
        scale = struct.unpack(">f", bytes.fromhex(digits.zfill(8)))[0]
        if not math.isfinite(scale) or scale < 0:
            raise _fail("an impossible scale", f"{where}, line {number}", got=scale, expected="finite, not negative")
        if name in scales:
            raise _fail("a tensor occurs twice", f"{where}, line {number}", got=name[:80])
        if len(scales) >= MAX_TENSORS:
            raise _fail("too many tensors", where, expected=f"at most {MAX_TENSORS}")
        scales[name] = scale
    return TensorRTCache(scales, int(found[1]), found[2])


def read_tensorrt_cache(path: str | os.PathLike[str]) -> TensorRTCache:
    """Read TensorRT's calibration cache.

    Raises:
        FormatError: see `parse_tensorrt_cache`.
        OSError: the file cannot be read.
    """
    size = os.path.getsize(path)
    if size > MAX_FILE_BYTES:
        raise _fail("a calibration cache cannot be so large", str(path), got=f"{size} bytes", expected=MAX_FILE_BYTES)
    return parse_tensorrt_cache(Path(path).read_bytes(), str(path))
