"""Iterators over files of numbers: comma-separated, and MNIST's."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.errors import FormatError
from requant.mx.io.io import NDArrayIter


def CSVIter(
    data_csv: str,
    data_shape: Sequence[int],
    label_csv: str | None = None,
    label_shape: Sequence[int] = (1,),
    batch_size: int = 1,
    round_batch: bool = True,
    dtype: str = "float32",
    **kwargs: Any,
) -> NDArrayIter:
    """Batches from files of comma-separated numbers, one sample a line; labels are 0 without a file.

    Raises:
        FormatError: a line has other than numbers, or not as many as ``data_shape`` says.
    """

    def read(path: str, shape: Sequence[int]) -> np.ndarray:
        try:
            values = np.loadtxt(path, dtype=dtype, delimiter=",", ndmin=2)
            return values.reshape(-1, *shape)
        except ValueError as fault:
            raise FormatError("not lines of numbers of that shape", where=path, got=fault, expected=shape) from fault

    data = read(data_csv, data_shape)
    label = read(label_csv, label_shape) if label_csv else np.zeros((len(data), *label_shape), np.float32)
    if tuple(label_shape) == (1,):
        label = label[:, 0]
    return NDArrayIter(
        data, label, batch_size, last_batch_handle="pad" if round_batch else "discard", label_name="label"
    )


def _read_idx(path: str) -> np.ndarray:
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        head = file.read(4)
        if len(head) < 4 or head[:3] != b"\x00\x00\x08":
            raise FormatError("not an IDX file of bytes", where=path, got=head.hex(), expected="000008nn")
        dims = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
        values = np.frombuffer(file.read(), np.uint8)
    count = 1
    for d in dims:
        count *= int(d)
    if len(values) != count:
        raise FormatError("the file has not the length it declares", where=path, got=len(values), expected=dims)
    return values.reshape(dims)


def MNISTIter(
    image: str,
    label: str,
    batch_size: int = 128,
    shuffle: bool = True,
    flat: bool = False,
    seed: int = 0,
    **kwargs: Any,
) -> NDArrayIter:
    """Batches of MNIST's IDX files (``.gz`` too), scaled to 0..1: (N, 1, 28, 28), or (N, 784) if ``flat``.

    Raises:
        FormatError: a file is not what it should be.
    """
    images, labels = _read_idx(image).astype(np.float32) / np.float32(255), _read_idx(label).astype(np.float32)
    images = images.reshape(len(images), -1) if flat else images[:, None]
    if shuffle:
        order = np.random.RandomState(seed).permutation(len(images))
        images, labels = images[order], labels[order]
    return NDArrayIter(images, labels, batch_size, last_batch_handle="discard")
