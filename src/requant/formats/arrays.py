"""Arrays in numpy's files: ``.npy`` holds one, ``.npz`` some with names."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from requant.errors import FormatError, InputError, nearest
from requant.formats.sniff import recognize

Array = np.ndarray[Any, np.dtype[Any]]
_NEXT = "write it with numpy.save (.npy) or numpy.savez (.npz), from arrays of numbers"


def read_npy(path: Path, mapped: bool = False) -> Array:
    """The array of a ``.npy`` file.

    Args:
        mapped: read from disk as its parts are used.
    Raises:
        FormatError: the file is cut short, of another format, or holds anything but numbers.
    """
    try:
        # Read in full first: of a file that is cut short, mapping says less.
        array = np.asarray(np.load(path, allow_pickle=False, mmap_mode="r" if mapped else None))
    except (ValueError, EOFError, OSError) as fault:
        raise FormatError(
            "not an array file",
            where=path,
            got=_reason(fault, path, b"\x93NUMPY"),
            expected="an image, .npy or .npz",
            next=_NEXT,
        ) from fault
    return _numbers(array, str(path))


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of a ``.npz`` file by name.

    Raises:
        FormatError: the file is cut short, of another format, or an array holds anything but numbers.
    """
    try:
        # Opened here: numpy leaves a file open whose archive is broken.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
    except Exception as fault:  # zipfile, zlib and numpy each raise their own
        raise FormatError(
            "not an .npz file", where=path, got=_reason(fault, path, b"PK"), expected="an archive of arrays", next=_NEXT
        ) from fault
    return {name: _numbers(array, f"{path}: {name}") for name, array in found.items()}


def for_inputs(arrays: Mapping[str, Array], names: Sequence[str], where: object) -> dict[str, Array]:
    """The arrays that a model's inputs take, by input name.

    A single array goes to a single input, however it is named; so does an array ``x`` beside others, such as labels.

    Raises:
        InputError: an input has no array.
    """
    if set(names) <= set(arrays):
        return {name: arrays[name] for name in names}
    if len(names) == 1 and len(arrays) == 1:
        return {names[0]: next(iter(arrays.values()))}
    if len(names) == 1 and "x" in arrays:
        return {names[0]: arrays["x"]}
    missing = next(name for name in names if name not in arrays)
    raise InputError(
        f"no array for input {missing!r}",
        where=where,
        got=sorted(arrays),
        expected=list(names),
        next=nearest(missing, arrays) or f"numpy.savez(file, {missing}=array, ...)",
    )


def _numbers(array: Array, where: str) -> Array:
    if array.dtype.kind in "biufV" and array.dtype.names is None:  # V: bfloat16 comes as raw bytes
        return array
    raise FormatError(
        "an array that holds no numbers", where=where, got=f"dtype {array.dtype}", expected="numbers", next=_NEXT
    )


def _reason(fault: Exception, path: Path, magic: bytes) -> str:
    text = str(fault)
    if path.is_dir():
        return "a folder"
    with contextlib.suppress(OSError), open(path, "rb") as file:
        start = file.read(64)
        if not start.startswith(magic):
            kind = recognize(start)
            return kind[0] if kind else f"a file that begins with {start[:8]!r}"
        if "not a zip file" in text:
            return "an archive whose end is missing (not fully written?)"
    if "allow_pickle" in text or "Python objects" in text:
        return "Python objects, which could run code when they are read"
    if "mmap length" in text:
        return "fewer bytes than its header says (not fully written?)"
    return text or type(fault).__name__
