"""``mx.io``: batches, and iterators over arrays, files and records."""

from __future__ import annotations

import importlib
from typing import Any

from requant.mx.io.files import CSVIter, MNISTIter
from requant.mx.io.io import (
    DataBatch,
    DataDesc,
    DataIter,
    MXDataIter,
    NDArrayIter,
    PrefetchingIter,
    ResizeIter,
    as_descs,
)

__all__ = [
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "MNISTIter",
    "MXDataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
    "as_descs",
]

#: Iterators over pictures: imported when asked for, because ``mx.image`` needs this package.
_RECORDS = ("ImageDetRecordIter", "ImageRecordIter", "ImageRecordIter_v1", "ImageRecordUInt8Iter")


def __getattr__(name: str) -> Any:
    if name in _RECORDS:
        return getattr(importlib.import_module(f"{__name__}.records"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_RECORDS})
