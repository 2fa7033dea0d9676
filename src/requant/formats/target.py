"""Names of files to write: what cannot be written is refused before any work is done for it."""

from __future__ import annotations

import os
from pathlib import Path

from requant.errors import InputError

#: Written in messages for what writes models.
MODEL_NAMES = "a name that ends in .onnx, or a prefix: net gives net-symbol.json and net-0000.params"


def check_file(path: str | os.PathLike[str], expected: str = "the name of a file") -> None:
    """Refuse a name under which no file can be written.

    Raises:
        InputError: it is empty or a folder, its folder does not exist, or must not be written to.
    """
    name = os.fspath(path)
    file = Path(name)
    if not name.strip() or file.is_dir() or name.endswith(("/", os.sep)):
        raise InputError(
            "the output is a folder, not a file",
            where=repr(name),
            expected=expected,
            next=f"name a file, such as {file / 'net.onnx'}",
        )
    folder = file.absolute().parent
    if not folder.is_dir():
        raise InputError(
            "the folder to write to does not exist", where=name, expected=expected, next=f"mkdir -p {file.parent}"
        )
    if not os.access(folder, os.W_OK):
        raise InputError(
            "the folder must not be written to", where=name, expected=expected, next="name a file in another folder"
        )


def check_model(path: str | os.PathLike[str]) -> None:
    """Refuse a name under which no model can be written, or not one of the kind that it says.

    Raises:
        InputError: as ``check_file``, or the name is that of a file of another kind.
    """
    name = os.fspath(path)
    check_file(name, MODEL_NAMES)
    # A prefix may have a dot in it, as in mobilenet1.0; letters behind the last one mean a kind of file.
    suffix = Path(name).suffix
    if suffix != ".onnx" and suffix[1:].isalpha():
        raise InputError(
            "the output is named like a file of another kind",
            where=name,
            got=suffix,
            expected=MODEL_NAMES,
            next=f"{name[: -len(suffix)]}.onnx",
        )
