"""From a MODEL argument to the files of one model.

A model may be named by its symbol JSON, by the prefix of a checkpoint, by an ``.onnx`` or ``.tflite`` file, by a folder
that holds one model, or by a packed ``model.tar.gz`` (as SageMaker stores it).
"""

from __future__ import annotations

import bz2
import contextlib
import dataclasses
import functools
import gzip
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, Literal, cast

from requant.errors import FormatError, counted, nearest
from requant.formats.sniff import recognize
from requant.formats.target import check_load

#: Files that hold a whole model, by their ending.
_WHOLE: dict[str, Literal["onnx", "tflite"]] = {".onnx": "onnx", ".tflite": "tflite"}
_TAR_NAMES = (".tar.gz", ".tgz", ".tar", ".tar.bz2", ".tar.xz")
_MAX_MEMBERS, _MAX_BYTES = 10_000, 16 << 30
#: Weights hardly compress; an archive that promises to grow this much beyond the slack is no model.
_MAX_RATIO, _SLACK = 200, 64 << 20
_CHUNK = 1 << 20


class _MissingFile(FormatError, FileNotFoundError):
    """Nothing is there under the given name."""

    __str__ = FormatError.__str__  # FileNotFoundError would show errno


@dataclasses.dataclass(frozen=True)
class ModelFiles:
    """The files of one model. Use it as a context manager: files unpacked from an archive are removed at its end.

    Args:
        kind: ``"mxnet"``, ``"onnx"`` or ``"tflite"``.
        symbol: the symbol JSON, or the ``.onnx`` or ``.tflite`` file.
        params: the parameters; None for ONNX and TFLite, and for a symbol that lies alone.
        epoch: epoch number in the name of ``params``, if it has one.
    """

    kind: Literal["mxnet", "onnx", "tflite"]
    symbol: Path
    params: Path | None = None
    epoch: int | None = None
    _remove: weakref.finalize[..., object] | None = dataclasses.field(default=None, repr=False, compare=False)

    def close(self) -> None:
        """Remove what was unpacked. Arrays that were mapped from it stay valid, except on Windows."""
        if self._remove is not None:
            self._remove()

    def __enter__(self) -> ModelFiles:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()


def _say(names: Sequence[str], limit: int = 12) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "") if names else "nothing"


def _listing(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
    except OSError:
        return []


def _model_names(folder: Path) -> list[str]:
    """Names in a folder that could belong to a model."""
    return [name for name in _listing(folder) if name.endswith((".json", ".params", *_WHOLE, *_TAR_NAMES))]


def _looks_like_symbol(path: Path) -> bool:
    """Whether a JSON file holds a graph (others describe shapes, labels, configurations)."""
    try:
        with open(path, "rb") as file:
            start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False
    return start.startswith(b"{") and re.search(rb'"(nodes|arg_nodes|heads|node_row_ptr)"\s*:', start) is not None


def _epochs(folder: Path, prefix: str) -> dict[int, str]:
    """Epoch to file name of all ``<prefix>-<epoch>.params``."""
    pattern = re.compile(re.escape(prefix) + r"-(-?\d{1,9})\.params")
    found = ((pattern.fullmatch(name), name) for name in _listing(folder))
    return {int(match[1]): name for match, name in found if match}


def _epoch_of(path: Path) -> int | None:
    return int(match[1]) if (match := re.search(r"-(-?\d{1,9})\.params$", path.name)) else None


def _prefix_of(symbol: Path) -> str:
    return symbol.name.removesuffix(".json").removesuffix("-symbol").removesuffix("_symbol")


def _params_for(symbol: Path, epoch: int | None, required: bool) -> Path | None:
    """The parameters that go with a symbol by their name.

    Raises:
        FormatError: the epoch is not there, or parameters are, but none that goes with the symbol by name.
    """
    folder, prefix = symbol.parent, _prefix_of(symbol)
    epochs = _epochs(folder, prefix)
    if epoch is not None:
        if epoch not in epochs:
            raise _MissingFile(
                f"there are no parameters of epoch {epoch}",
                where=symbol,
                got="epochs " + (", ".join(map(str, sorted(epochs))) or "none"),
                expected=str(folder / f"{prefix}-{epoch:04d}.params"),
            )
        return folder / epochs[epoch]
    if epochs:
        return folder / epochs[max(epochs)]
    for name in (f"{prefix}.params", f"{symbol.name.removesuffix('.json')}.params"):
        if (folder / name).is_file():
            return folder / name
    others = [name for name in _listing(folder) if name.endswith(".params")]
    if others or required:
        raise _MissingFile(
            "no parameters go with this symbol by their name",
            where=symbol,
            got=f"{_say(others)} in {folder}",
            expected=f"{prefix}-0000.params, or any other epoch",
            next="say which parameters to use, for instance params="
            + repr(str(folder / (others or ["NAME.params"])[0])),
        )
    return None


def _from_symbol(symbol: Path, params: Path | None, epoch: int | None, required: bool = False) -> ModelFiles:
    chosen = params if params is not None else _params_for(symbol, epoch, required)
    return ModelFiles("mxnet", symbol, chosen, None if chosen is None else _epoch_of(chosen))


def _from_folder(folder: Path, params: Path | None, epoch: int | None) -> ModelFiles:
    names = _listing(folder)
    symbols = [name for name in names if name.endswith(".json") and _looks_like_symbol(folder / name)]
    whole = [name for name in names if name.endswith(tuple(_WHOLE))]
    if len(symbols) + len(whole) != 1:
        what = "no model is in the folder" if not symbols and not whole else "more than one model is in the folder"
        raise (_MissingFile if not symbols and not whole else FormatError)(
            what,
            where=folder,
            got=_say(symbols + whole or names),
            expected="one symbol JSON with its parameters, or one .onnx or .tflite file",
            next="name the model's file itself" if symbols or whole else "check the path",
        )
    if whole:
        return _from_whole(folder / whole[0], params, epoch)
    symbol = folder / symbols[0]
    others = [name for name in names if name.endswith(".params")]
    if params is None and epoch is None and len(others) == 1:
        return _from_symbol(symbol, folder / others[0], None)  # the only ones: names need not agree
    return _from_symbol(symbol, params, epoch, required=True)


def _from_whole(path: Path, params: Path | None, epoch: int | None) -> ModelFiles:
    if params is not None or epoch is not None:
        raise FormatError(
            f"a file {path.suffix} holds its parameters itself",
            where=path,
            got=f"params={str(params)!r}" if params is not None else f"epoch={epoch}",
            next="leave them out",
        )
    return ModelFiles(_WHOLE[path.suffix], path)


def _from_prefix(prefix: Path, params: Path | None, epoch: int | None) -> ModelFiles:
    folder, stem = prefix.parent, prefix.name
    for name in (f"{stem}-symbol.json", f"{stem}_symbol.json", f"{stem}.json"):
        if (folder / name).is_file():
            return _from_symbol(folder / name, params, epoch, required=True)
    for ending in _WHOLE:
        if (folder / f"{stem}{ending}").is_file():
            return _from_whole(folder / f"{stem}{ending}", params, epoch)
    names = _model_names(folder)
    if not folder.is_dir():
        got, advice = f"no folder {str(folder)!r}", "check the path"
    else:
        stems = {_prefix_of(Path(name)) for name in names if name.endswith(".json")}
        got = f"{_say(names)} in {folder}"
        advice = nearest(stem, sorted({*names, *stems})) if names else "check the path"
    raise _MissingFile(
        "there is no model of this name",
        where=prefix,
        got=got,
        expected=f"{stem}-symbol.json and {stem}-0000.params, or an .onnx or .tflite file, a folder, a .tar.gz",
        next=advice,
    )


def _member_path(name: str, where: str) -> PurePosixPath:
    windows = PureWindowsPath(name)  # sees both kinds of separators
    if len(name) > 1000 or any(len(os.fsencode(part)) > 255 for part in windows.parts):
        raise FormatError("the archive holds a member of absurd name", where=where, got=repr(name[:60]) + "...")
    if not name or "\0" in name or windows.drive or windows.root or ".." in windows.parts:
        raise FormatError(
            "the archive holds a member that would leave its folder",
            where=where,
            got=repr(name[:200]),
            expected="relative names without '..'",
            next="mistrust the archive",
        )
    return PurePosixPath(*windows.parts)


def _copy_members(archive: tarfile.TarFile, root: Path, where: str, limit: int) -> None:
    total = 0
    for count, member in enumerate(archive):
        path = _member_path(member.name, where)
        if count >= _MAX_MEMBERS:
            raise FormatError("the archive holds too many members", where=where, expected=f"at most {_MAX_MEMBERS}")
        if member.isdir():
            (root / path).mkdir(parents=True, exist_ok=True)
            continue
        source = archive.extractfile(member) if member.isreg() else None
        if source is None:
            raise FormatError(
                "the archive holds something other than plain files",
                where=where,
                got=f"{member.name!r} ({'a link to ' + repr(member.linkname) if member.linkname else 'a device'})",
                expected="files and folders only",
                next="pack it again with links followed (tar -h)",
            )
        total += member.size
        if total > limit:
            raise FormatError(
                "the archive would grow too large",
                where=where,
                got=f"{total} bytes and more",
                expected=f"at most {limit} bytes for an archive of this size",
            )
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        with source, open(root / path, "xb") as target:
            shutil.copyfileobj(source, target, _CHUNK)


class _Bounded:
    """The unpacked stream of an archive. Member data is read in small pieces; a larger read is a hostile header."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            start = file.read(6)
        openers: dict[bytes, Callable[[Path], Any]] = {
            b"\x1f\x8b": gzip.open,
            b"BZh": bz2.open,
            b"\xfd7zXZ": lzma.open,
        }
        plain: Callable[[Path], Any] = functools.partial(open, mode="rb")
        self._file = next((opener for magic, opener in openers.items() if start.startswith(magic)), plain)(path)
        self.seek, self.tell, self.close = self._file.seek, self._file.tell, self._file.close

    def read(self, size: int) -> bytes:
        if not 0 <= size <= 4 * _CHUNK:
            raise tarfile.ReadError(f"a header of {counted(size, 'byte')}")
        data: bytes = self._file.read(size)
        return data


def _unpack(path: Path, root: Path) -> None:
    where = os.fspath(path)
    limit = min(_MAX_BYTES, _SLACK + _MAX_RATIO * path.stat().st_size)
    try:
        with (
            contextlib.closing(_Bounded(path)) as stream,
            tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as archive,
        ):
            _copy_members(archive, root, where, limit)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as fault:
        raise FormatError("the archive holds a name twice", where=where, got=fault.filename) from None
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OSError) as fault:
        # OSError: a broken gzip or bzip2 stream reports itself so. A disk error keeps its own number.
        if isinstance(fault, FormatError) or (isinstance(fault, OSError) and fault.errno is not None):
            raise
        raise FormatError(
            "the archive cannot be read",
            where=where,
            got=f"{type(fault).__name__}: {fault}",
            expected="a whole .tar.gz",
            next="the file is truncated or corrupt: copy or download it again",
        ) from None


def _roots(root: Path) -> Iterator[Path]:
    """The unpacked folder, then those inside it, nearest first."""
    level = [root]
    for _ in range(4):
        yield from level
        level = [Path(entry.path) for folder in level for entry in os.scandir(folder) if entry.is_dir()]


def _search(root: Path, archive: Path, params: Path | None, epoch: int | None) -> ModelFiles:
    # What the first folder lacks. Not the exception itself: it would keep this call's frames, and the files, alive.
    first: tuple[str, object, object] | None = None
    for folder in _roots(root):
        try:
            return _from_folder(folder, params, epoch)
        except _MissingFile as fault:
            first = first or (fault.what, fault.expected, fault.next)
    assert first is not None
    inside = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    raise _MissingFile(first[0], where=archive, got=_say(inside), expected=first[1], next=first[2])


def _from_archive(path: Path, params: Path | None, epoch: int | None) -> ModelFiles:
    root = Path(tempfile.mkdtemp(prefix="requant-"))
    try:
        _unpack(path, root)
        found = _search(root, path, params, epoch)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    remove = weakref.finalize(found, shutil.rmtree, root, ignore_errors=True)
    object.__setattr__(found, "_remove", remove)  # it watches the object, so it cannot be made before it
    return found


def locate(
    path: str | os.PathLike[str], params: str | os.PathLike[str] | None = None, epoch: int | None = None
) -> ModelFiles:
    """Find the files of the model that ``path`` names.

    - ``net-symbol.json`` (or any symbol JSON): with ``params``, else with the highest ``net-<epoch>.params`` beside it,
      or the given epoch, or ``net.params``. A symbol in a folder without any parameters comes alone.
    - ``net``: a prefix; the same with ``net-symbol.json`` or ``net.json``.
    - ``net.onnx``, ``net.tflite``, or a prefix of it.
    - a folder with exactly one model.
    - ``model.tar.gz``: unpacked to a temporary folder, which `ModelFiles.close` removes.

    Raises:
        InputError: a name is no name, or the epoch no number.
        FormatError: the model is ambiguous, or the archive is broken or hostile.
        FileNotFoundError: there is nothing of that name (also a FormatError). The message lists what is there.
    """
    check_load(path, params, epoch)
    target = Path(path)
    chosen = None if params is None else Path(params)
    if chosen is not None and not chosen.is_file():
        names = [name for name in _listing(chosen.parent) if name.endswith(".params")]
        raise _MissingFile("there is no such parameter file", where=chosen, got=f"{_say(names)} in {chosen.parent}")
    if chosen is not None and epoch is not None:
        raise FormatError("a parameter file and an epoch are both given", where=chosen, got=f"epoch {epoch}")
    if target.is_dir():
        return _from_folder(target, chosen, epoch)
    if not target.is_file():
        return _from_prefix(target, chosen, epoch)
    if target.name.endswith(_TAR_NAMES):
        return _from_archive(target, chosen, epoch)
    if target.suffix in _WHOLE:
        return _from_whole(target, chosen, epoch)
    if target.suffix == ".params":
        raise FormatError(
            "these are parameters, not a model",
            where=target,
            got=_say(_model_names(target.parent)),
            expected="a symbol JSON, a prefix, an .onnx or .tflite file, a folder or a .tar.gz",
            next=f"give the symbol first, and params={str(target)!r}",
        )
    if _looks_like_symbol(target):
        return _from_symbol(target, chosen, epoch)
    if target.suffix == ".json":
        return ModelFiles("mxnet", target, chosen)  # the reader says what is wrong with it
    with contextlib.suppress(_MissingFile):
        return _from_prefix(target, chosen, epoch)
    raise _no_model(target)


def _no_model(path: Path) -> FormatError:
    with open(path, "rb") as file:
        start = file.read(64)
    what, advice = recognize(start) or ("", None)
    return FormatError(
        "this is not a model" + (f" but {what}" if what else ""),
        where=path,
        got=repr(start[:16]),
        expected="a symbol JSON, a prefix, an .onnx or .tflite file, a folder or a .tar.gz",
        next=advice,
    )
