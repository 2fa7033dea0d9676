"""Names of files: what is none, or cannot be written, is refused before any work is done for it."""

from __future__ import annotations

import os
from numbers import Integral
from pathlib import Path

from requant.errors import InputError, shown

#: Written in messages for what writes models.
MODEL_NAMES = "a name that ends in .onnx, or a prefix: net gives net-symbol.json and net-0000.params"


def check_name(value: object, where: str, next: str) -> None:
    """Refuse what cannot be the name of a file.

    Args:
        value: what a program passed.
        where: the call and its argument.
        next: how it is called.
    Raises:
        InputError: it is neither text nor a path.
    """
    if not isinstance(value, str) and not (isinstance(value, os.PathLike) and isinstance(os.fspath(value), str)):
        raise InputError(
            "not the name of a file", where=where, got=shown(value), expected="a str or a pathlib.Path", next=next
        )


def check_load(path: object, params: object, epoch: object) -> None:
    """Refuse what a program may pass by mistake as the files of a model.

    Raises:
        InputError: a name is no name, or the epoch no whole number.
    """
    check_name(
        path, "load: the model", "requant.load('net-symbol.json'), a prefix, an .onnx file, a folder or a .tar.gz"
    )
    if params is not None:
        check_name(params, "load: params", "requant.load('net-symbol.json', 'net-0000.params')")
    if epoch is not None:
        check_epoch(epoch, "load", "leave it out for the latest")


def check_epoch(epoch: object, where: str, next: str) -> None:
    """Refuse what cannot number the parameters in a file's name.

    Raises:
        InputError: it is no whole number.
    """
    if isinstance(epoch, bool) or not isinstance(epoch, Integral):
        raise InputError(
            "not an epoch", where=f"{where}: epoch", got=shown(epoch), expected="a whole number", next=next
        )


def model_files(name: str, epoch: int = 0) -> list[str]:
    """The files of a model that is saved under a name: the name itself if it ends in .onnx, else MXNet's two."""
    return [name] if name.endswith(".onnx") else [f"{name}-symbol.json", f"{name}-{epoch:04d}.params"]


def check_file(path: str | os.PathLike[str], expected: str = "the name of a file") -> None:
    """Refuse a name under which no file can be written.

    Raises:
        InputError: it is no name, empty or a folder, its folder does not exist, or must not be written to.
    """
    check_name(path, "the file to write", expected)
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
    check_file(path, MODEL_NAMES)
    name = os.fspath(path)
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


def check_apart(target: str | os.PathLike[str], source: str | os.PathLike[str]) -> None:
    """Refuse to write a model over the one that it is made of.

    Args:
        target: the model to write: ``x.onnx`` or a prefix.
        source: the model that is read: a file or a prefix.
    Raises:
        InputError: they are, or share, a file.
    """
    name, given = os.fspath(target), os.fspath(source)
    read = {os.path.realpath(p) for p in (given, f"{given}-symbol.json", f"{given}.onnx")}
    for path in model_files(name):
        if os.path.exists(path) and os.path.realpath(path) in read:
            raise InputError(
                "this would write over the model that is read",
                where=name,
                got=path,
                expected="another name",
                next="its float weights would be gone: name another file",
            )
