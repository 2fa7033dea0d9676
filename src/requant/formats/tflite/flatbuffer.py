"""FlatBuffers: tables, vectors and strings out of bytes that nobody vouches for.

Only what reading needs (https://flatbuffers.dev/internals). Every access is checked against the end of the file, and
every count against an absurd one: damaged and hostile files raise `FormatError`, never anything else.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from requant.errors import FormatError, counted

#: Tables in one vector, and bytes of one name, that a file may have.
MOST_TABLES, LONGEST_NAME = 1 << 20, 1 << 12


class Buffer:
    """The bytes of a file, and its name for messages."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.data, self.where = data, where

    def fail(self, what: str, at: int) -> FormatError:
        """An error to raise; it tells the place."""
        return FormatError(
            what, where=f"{self.where}, byte {at}", next="the file is damaged: copy or download it again"
        )

    def number(self, kind: str, at: int) -> Any:
        """A scalar of a ``struct`` format at a place."""
        if not 0 <= at <= len(self.data) - struct.calcsize(kind):
            raise self.fail("the file ends within a number", at)
        return struct.unpack_from("<" + kind, self.data, at)[0]

    def bytes(self, at: int, size: int) -> memoryview:
        """A piece of the file."""
        if at < 0 or size < 0 or at + size > len(self.data):
            raise self.fail(f"the file ends within {counted(size, 'byte')}", at)
        return self.data[at : at + size]

    def root(self) -> Table:
        """The table that the file begins with."""
        return Table(self, self.number("I", 0))


class Table:
    """One table. Fields go by their number in the schema; one that is left out has its default."""

    def __init__(self, buffer: Buffer, at: int) -> None:
        self._buffer, self._at = buffer, at
        self._fields = at - buffer.number("i", at)
        self._size = buffer.number("H", self._fields)

    def _place(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot + 2 > self._size:
            return None
        offset = self._buffer.number("H", self._fields + slot)
        return self._at + offset if offset else None

    def number(self, field: int, kind: str, default: Any) -> Any:
        """A scalar of a ``struct`` format."""
        place = self._place(field)
        return default if place is None else self._buffer.number(kind, place)

    def _target(self, field: int) -> int | None:
        place = self._place(field)
        return None if place is None else place + self._buffer.number("I", place)

    def table(self, field: int) -> Table | None:
        """A table, None if it is left out."""
        at = self._target(field)
        return None if at is None else Table(self._buffer, at)

    def tables(self, field: int) -> list[Table]:
        """A vector of tables."""
        at = self._target(field)
        if at is None:
            return []
        count = self._buffer.number("I", at)
        if count > MOST_TABLES:
            raise self._buffer.fail(f"a vector of {count} tables", at)
        places = np.frombuffer(self._buffer.bytes(at + 4, 4 * count), "<u4")
        return [Table(self._buffer, at + 4 + 4 * i + int(offset)) for i, offset in enumerate(places)]

    def vector(self, field: int, dtype: str) -> np.ndarray:
        """A vector of scalars: an array over the file's own memory, empty if it is left out."""
        at = self._target(field)
        kind = np.dtype(dtype)
        if at is None:
            return np.zeros(0, kind)
        count = self._buffer.number("I", at)
        return np.frombuffer(self._buffer.bytes(at + 4, kind.itemsize * count), kind)

    def text(self, field: int) -> str:
        """A string."""
        at = self._target(field)
        if at is None:
            return ""
        size = self._buffer.number("I", at)
        if size > LONGEST_NAME:
            raise self._buffer.fail(f"a name of {counted(size, 'byte')}", at)
        return bytes(self._buffer.bytes(at + 4, size)).decode("utf-8", "replace")
