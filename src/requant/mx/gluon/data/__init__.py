"""``mx.gluon.data``: datasets, samplers and the loader."""

from __future__ import annotations

import importlib
from typing import Any

from requant.mx.gluon.data.dataloader import DataLoader
from requant.mx.gluon.data.dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
from requant.mx.gluon.data.sampler import BatchSampler, FilterSampler, RandomSampler, Sampler, SequentialSampler

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "FilterSampler",
    "RandomSampler",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "SimpleDataset",
]


def __getattr__(name: str) -> Any:
    if name not in ("vision", "batchify"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
