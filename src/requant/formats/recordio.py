"""RecordIO: MXNet's container of packed records (``.rec``, with an ``.idx`` of byte offsets), and its image records.

Classes, functions, names and bytes are those of ``mxnet.recordio`` 1.9.1. One record::

    u32 0xced7230a | u32 kind << 29 | length | bytes | zeros up to a multiple of 4

kind 0 is a whole record; where a record itself holds the magic at a multiple of 4, it is cut there into parts (1 first,
2 middle, 3 last) and the magic is left out; the reader puts it back.
"""

from __future__ import annotations

import numbers
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from requant.errors import FormatError, InputError, counted
from requant.formats.image_codec import decode_image, encode_image

MAGIC = 0xCED7230A
_MAGIC_BYTES = struct.pack("<I", MAGIC)
_MAX_LENGTH = (1 << 29) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = 0, 1, 2, 3
_ADVICE = "the file is truncated or corrupt: copy or pack it again"

_seeking = threading.Lock()


def _parts(payload: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut a record at every magic that stands at a multiple of 4."""
    start, at = 0, payload.find(_MAGIC_BYTES)
    while at >= 0:
        if at % 4 == 0:
            yield (_FIRST if start == 0 else _MIDDLE), payload[start:at]
            start = at + 4
        at = payload.find(_MAGIC_BYTES, at + (4 if at % 4 == 0 else 1))
    yield (_LAST if start else _WHOLE), payload[start:]


class MXRecordIO:
    """Reads or writes records one after the other.

    Args:
        uri: path of the ``.rec`` file.
        flag: ``"r"`` or ``"w"``.

    Raises:
        ValueError: another flag.
        OSError: the file cannot be opened.
    """

    handle: BinaryIO | None

    def __init__(self, uri: str | os.PathLike[str], flag: str) -> None:
        self.uri = os.fspath(uri)
        self.flag = flag
        self.handle = None
        self.pid: int | None = None
        self.is_open = False
        self.open()

    def open(self) -> None:
        """Open the file; a writer truncates it."""
        if self.flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {self.flag}")
        self.writable = self.flag == "w"
        self.handle = cast(BinaryIO, open(self.uri, self.flag + "b"))  # noqa: SIM115 - closed by close()
        self.pid = os.getpid()
        self.is_open = True

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()

    def __enter__(self) -> MXRecordIO:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """A record file can be sent to a worker: it is opened anew there. As in MXNet, this closes it here."""
        was_open = self.is_open
        self.close()
        return {**self.__dict__, "is_open": was_open, "handle": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = {**state, "is_open": False}
        if state["is_open"]:
            self.open()

    def _file(self, writing: bool, allow_reset: bool = False) -> BinaryIO:
        if self.handle is None:
            raise InputError("the record file is closed", where=self.uri, next="call open() or reset() first")
        if self.writable != writing:
            raise InputError(
                f"the record file is open for {'writing' if self.writable else 'reading'} only",
                where=self.uri,
                got=f"flag {self.flag!r}",
                expected=f"flag {'w' if writing else 'r'!r}",
            )
        if self.pid != os.getpid():  # a fork shares the position: reading on in two processes would mix records
            if not allow_reset:
                raise RuntimeError("Forbidden operation in multiple processes")
            self.reset()
        return self.handle

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self.is_open and self.handle is not None:
            self.handle.close()
        self.handle, self.pid, self.is_open = None, None, False

    def reset(self) -> None:
        """Go back to the first record. A writer truncates the file."""
        self.close()
        self.open()

    def write(self, buf: bytes) -> None:
        """Append one record.

        Raises:
            InputError: the file is open for reading, or the record is longer than the format can hold (512 MiB).
        """
        file = self._file(writing=True)
        if len(buf) > _MAX_LENGTH:
            raise InputError(
                "a record is too long",
                where=self.uri,
                got=counted(len(buf), "byte"),
                expected=f"at most {_MAX_LENGTH}",
            )
        for kind, part in _parts(bytes(buf)):
            file.write(_MAGIC_BYTES + struct.pack("<I", kind << 29 | len(part)) + part + bytes(-len(part) % 4))

    def _fail(self, what: str, at: int, **parts: object) -> FormatError:
        return FormatError(what, where=f"{self.uri}, byte {at}", **{"next": _ADVICE, **parts})

    def _read_part(self, file: BinaryIO) -> tuple[int, bytes] | None:
        at = file.tell()
        header = file.read(8)
        if not header:
            return None
        if len(header) < 8:
            raise self._fail(
                "the file ends inside a record's header", at, got=counted(len(header), "byte"), expected="8"
            )
        magic, word = struct.unpack("<II", header)
        if magic != MAGIC:
            raise self._fail("this is not the start of a record", at, got=f"0x{magic:08x}", expected=f"0x{MAGIC:08x}")
        length = word & _MAX_LENGTH
        padded = length + -length % 4
        left = os.fstat(file.fileno()).st_size - at - 8
        if padded > left:
            raise self._fail(
                "the file ends inside a record",
                at,
                got=f"{counted(left, 'byte')} left",
                expected=counted(padded, "byte"),
            )
        return word >> 29, file.read(padded)[:length]

    def read(self) -> bytes | None:
        """The next record, or None at the end.

        Raises:
            FormatError: the file is truncated or corrupt.
            InputError: the file is open for writing.
        """
        file = self._file(writing=False)
        at = file.tell()
        found = self._read_part(file)
        if found is None:
            return None
        kind, payload = found
        if kind == _WHOLE:
            return payload
        parts = [payload]
        expected: tuple[int, ...] = (_FIRST,)
        while kind in expected and kind != _LAST:
            following = self._read_part(file)
            if following is None:
                raise self._fail("the file ends inside a record of several parts", at)
            kind, payload = following
            parts.append(payload)
            expected = (_MIDDLE, _LAST)
        if kind not in expected:
            raise self._fail("the parts of a record are out of order", at, got=f"a part of kind {kind}")
        return _MAGIC_BYTES.join(parts)


class MXIndexedRecordIO(MXRecordIO):
    """Reads or writes records by key, with an index file of lines ``key<tab>byte offset``.

    Args:
        idx_path: path of the ``.idx`` file.
        uri: path of the ``.rec`` file.
        flag: ``"r"`` or ``"w"``.
        key_type: makes a key from its text.

    Raises:
        FormatError: a line of the index cannot be read.
    """

    def __init__(
        self,
        idx_path: str | os.PathLike[str],
        uri: str | os.PathLike[str],
        flag: str,
        key_type: Callable[[Any], Any] = int,
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.key_type = key_type
        self.fidx: TextIO | None = None
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        self.idx, self.keys = {}, []
        try:
            self.fidx = cast(TextIO, open(self.idx_path, self.flag, encoding="utf-8"))  # noqa: SIM115 - closed by close()
            if not self.writable:
                self._read_index(self.fidx)
        except BaseException:
            self.close()
            raise

    def _read_index(self, file: TextIO) -> None:
        assert self.handle is not None
        size = os.fstat(self.handle.fileno()).st_size
        try:
            for number, line in enumerate(file, 1):
                key, tab, offset = line.strip().partition("\t")
                try:
                    place = int(offset) if tab else -1
                    name = self.key_type(key)
                except (ValueError, TypeError):
                    place = -1
                if not 0 <= place <= size:
                    raise FormatError(
                        "a line of the index cannot be read",
                        where=f"{self.idx_path}, line {number}",
                        got=repr(line[:60]),
                        expected=f"key, tab, byte offset from 0 to {size}",
                        next="check that the .idx belongs to this .rec, or make it again",
                    )
                self.idx[name] = place
                self.keys.append(name)
        except UnicodeDecodeError:
            raise FormatError(
                "the index is not text", where=self.idx_path, next="give the .idx file first, the .rec file second"
            ) from None

    def close(self) -> None:
        super().close()
        if self.fidx is not None:
            self.fidx.close()
            self.fidx = None

    def seek(self, idx: Any) -> None:
        """Move to the record of a key.

        Raises:
            KeyError: the index does not hold it.
        """
        self._file(writing=False, allow_reset=True)
        assert self.handle is not None
        self.handle.seek(self.idx[idx])

    def tell(self) -> int:
        """The byte offset at which the next record will be written."""
        return self._file(writing=True).tell()

    def read_idx(self, idx: Any) -> bytes | None:
        """The record of a key. Threads may share the reader."""
        with _seeking:  # between the two another thread must not move the file's position
            self.seek(idx)
            return self.read()

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Append a record and its line in the index."""
        key = self.key_type(idx)
        position = self.tell()
        self.write(buf)
        assert self.fidx is not None
        self.fidx.write(f"{key}\t{position}\n")
        self.idx[key] = position
        self.keys.append(key)


class IRHeader(NamedTuple):
    """What stands before the payload of an image record.

    Args:
        flag: number of labels if ``label`` is an array, else 0; `pack` sets it.
        label: one number, or a float32 array.
        id: number of the image.
        id2: high bits of the number, usually 0.
    """

    flag: int
    label: Any
    id: int
    id2: int


_IR_FORMAT = "<IfQQ"
_IR_SIZE = struct.calcsize(_IR_FORMAT)


def pack(header: Sequence[Any], s: bytes) -> bytes:
    """Put a header before a payload.

    Args:
        header: an `IRHeader`. A number as label sets ``flag`` to 0; an array of labels sets it to their number.
        s: the payload, usually an encoded image.
    """
    header = IRHeader(*header)
    if isinstance(header.label, numbers.Number):
        header = header._replace(flag=0)
    else:
        label = np.asarray(header.label, dtype=np.float32)
        header = header._replace(flag=label.size, label=0)
        s = label.astype("<f4").tobytes() + s
    return struct.pack(_IR_FORMAT, *header) + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """The `IRHeader` and the payload of a packed record.

    Raises:
        FormatError: the record is too short for its header or its labels.
    """
    if len(s) < _IR_SIZE:
        raise FormatError(
            "an image record is too short",
            got=counted(len(s), "byte"),
            expected=f"at least {_IR_SIZE}",
            next="give a file of image records, as im2rec packs them; this one is damaged or holds others",
        )
    header = IRHeader(*struct.unpack_from(_IR_FORMAT, s))
    s = s[_IR_SIZE:]
    if header.flag > 0:
        if header.flag * 4 > len(s):
            raise FormatError(
                "an image record is too short for its labels",
                got=f"{counted(len(s), 'byte')} after the header",
                expected=f"{counted(header.flag, 'label')} of 4 bytes",
                next="give a file of image records, as im2rec packs them; this one is damaged or holds others",
            )
        labels = np.frombuffer(s, "<f4", header.flag).astype(np.float32, copy=False)
        header = header._replace(label=labels)
        s = s[header.flag * 4 :]
    return header, s


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, NDArray[Any]]:
    """The `IRHeader` and the decoded image of a packed record.

    Returns:
        The image as ``cv2.imdecode`` gives it: uint8, **BGR** order, shape (H, W, 3); see `decode_image`.

    Raises:
        FormatError: the record is too short, or its image cannot be decoded.
        UnsupportedError: Pillow is not installed.
    """
    header, payload = unpack(s)
    return header, decode_image(payload, iscolor)


def pack_img(header: Sequence[Any], img: NDArray[Any], quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Encode an image and put a header before it.

    Args:
        header: an `IRHeader`.
        img: uint8, **BGR** order, shape (H, W, 3), or gray, shape (H, W); see `encode_image`.
        quality: 1 to 100 for JPEG; the compression level, 0 to 9, for PNG.
        img_fmt: ``".jpg"`` or ``".png"``.

    Raises:
        InputError: the image or the format does not fit.
        UnsupportedError: Pillow is not installed.
    """
    return pack(header, encode_image(img, quality, img_fmt))
