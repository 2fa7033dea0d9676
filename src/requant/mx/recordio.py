"""``mx.recordio``: RecordIO files and packed images."""

from __future__ import annotations

from requant.formats.recordio import (
    IRHeader,
    MXIndexedRecordIO,
    MXRecordIO,
    pack,
    pack_img,
    unpack,
    unpack_img,
)

__all__ = ["IRHeader", "MXIndexedRecordIO", "MXRecordIO", "pack", "pack_img", "unpack", "unpack_img"]
