"""``ImageIter``: batches of pictures from RecordIO files or lists of files."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.errors import InputError
from requant.formats.recordio import MXIndexedRecordIO, MXRecordIO, unpack
from requant.mx.image.augment import Augmenter, CreateAugmenter
from requant.mx.image.image import imdecode
from requant.mx.io import DataBatch, DataDesc, DataIter
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray

Sample = tuple[Any, bytes]


class ImageIter(DataIter):
    """Batches of (N, C, H, W) float32 with labels.

    Args:
        data_shape: (C, H, W) of a picture.
        label_width: numbers per label.
        path_imgrec: a RecordIO file. path_imgidx: its index, needed to shuffle.
        path_imglist: a text file of ``number, labels..., file`` by tab. imglist: the same as a list of lists.
        path_root: folder of the files.
        shuffle: random order at each pass.
        part_index, num_parts: which part of the data.
        aug_list: augmenters; made by ``CreateAugmenter`` from the other arguments if not given.
        last_batch_handle: ``pad``, ``discard`` or ``roll_over``.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        label_width: int = 1,
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Augmenter] | None = None,
        imglist: Sequence[Sequence[Any]] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size)
        if len(data_shape) != 3:
            raise InputError("the shape of a picture is (C, H, W)", got=data_shape)
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise InputError("unknown last_batch_handle", got=last_batch_handle, expected="pad, discard or roll_over")
        self.data_shape, self.label_width, self.dtype = tuple(data_shape), label_width, dtype
        self.path_root, self.shuffle, self.last_batch_handle = path_root or "", shuffle, last_batch_handle
        self.imgrec: MXRecordIO | None = None
        self.imglist: dict[Any, tuple[np.ndarray, str]] = {}
        self.seq: list[Any] | None = None
        if path_imgrec:
            self._open_records(path_imgrec, path_imgidx)
        if path_imglist or imglist is not None:
            self._read_list(path_imglist, imglist)
        if self.imgrec is None and not self.imglist:
            raise InputError("no pictures", expected="path_imgrec, path_imglist or imglist")
        if self.seq is not None and num_parts > 1:
            per = len(self.seq) // num_parts
            self.seq = self.seq[part_index * per : (part_index + 1) * per]
        if shuffle and self.seq is None:
            raise InputError("shuffling needs an index", next="give path_imgidx")
        self.auglist = CreateAugmenter(data_shape, **kwargs) if aug_list is None else list(aug_list)
        self.data_name, self.label_name = data_name, label_name
        self._rolled: list[tuple[np.ndarray, np.ndarray]] | None = None
        self._ended = False
        self.cur = 0
        self.reset()

    def _open_records(self, path: str, index: str | None) -> None:
        index = index or (os.path.splitext(path)[0] + ".idx")
        if os.path.exists(index):
            indexed = MXIndexedRecordIO(index, path, "r")
            self.imgrec, self.seq = indexed, list(indexed.keys)
        else:
            self.imgrec = MXRecordIO(path, "r")

    def _read_list(self, path: str | None, given: Sequence[Sequence[Any]] | None) -> None:
        if path is not None:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    parts = line.strip().split("\t")
                    if len(parts) > 2:
                        self.imglist[int(parts[0])] = np.array(parts[1:-1], np.float32), parts[-1]
        else:
            for i, entry in enumerate(given or ()):
                label = np.array(entry[0] if len(entry) == 2 else entry[:-1], np.float32).reshape(-1)
                self.imglist[i] = label, str(entry[-1])
        self.seq = list(self.imglist)

    @property
    def provide_data(self) -> list[DataDesc]:
        return [DataDesc(self.data_name, (self.batch_size, *self.data_shape), self.dtype)]

    @property
    def provide_label(self) -> list[DataDesc]:
        shape = (self.batch_size,) if self.label_width == 1 else (self.batch_size, self.label_width)
        return [DataDesc(self.label_name, shape, self.dtype)]

    def reset(self) -> None:
        """Start a new pass; samples that were rolled over come first."""
        if self._rolled is None:
            self.hard_reset()

    def hard_reset(self) -> None:
        """Start a new pass, without samples that were rolled over."""
        if self.shuffle and self.seq is not None:
            random.shuffle(self.seq)
        self._rolled, self._ended = None, False
        self._rewind()

    def _rewind(self) -> None:
        if self.seq is None and self.imgrec is not None:
            self.imgrec.reset()
        self.cur = 0

    def next_sample(self) -> Sample:
        """The next label and the bytes of its picture.

        Raises:
            StopIteration: at the end.
        """
        if self.seq is None:
            assert self.imgrec is not None
            record = self.imgrec.read()
            if record is None:
                raise StopIteration
            header, data = unpack(record)
            return header.label, data
        if self.cur >= len(self.seq):
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if self.imgrec is not None:
            assert isinstance(self.imgrec, MXIndexedRecordIO)
            record = self.imgrec.read_idx(key)
            if record is None:
                raise StopIteration
            header, data = unpack(record)
            return (self.imglist[key][0] if self.imglist else header.label), data
        label, name = self.imglist[key]
        with open(os.path.join(self.path_root, name), "rb") as file:
            return label, file.read()

    def imdecode(self, s: bytes) -> NDArray:
        """The picture of those bytes."""
        return imdecode(s)

    def augmentation_transform(self, data: NDArray) -> NDArray:
        """The picture after all augmenters."""
        for augment in self.auglist:
            data = augment(data)
        return data

    def postprocess_data(self, datum: NDArray) -> np.ndarray:
        """(H, W, C) to (C, H, W)."""
        return np.moveaxis(datum.asnumpy(), -1, 0)

    def _sample(self) -> tuple[np.ndarray, np.ndarray]:
        """The next picture (C, H, W), and its label."""
        label, data = self.next_sample()
        made = self.postprocess_data(self.augmentation_transform(self.imdecode(data)))
        return made, np.atleast_1d(np.asarray(label, np.float32))[: self.label_width]

    def _fill(self, found: list[tuple[np.ndarray, np.ndarray]]) -> None:
        while len(found) < self.batch_size:
            try:
                found.append(self._sample())
            except StopIteration:
                return

    def _empty_labels(self) -> np.ndarray:
        """Labels of a batch, to be filled: (N, numbers...)."""
        return np.zeros((self.batch_size, self.label_width), np.float32)

    def next(self) -> DataBatch:
        """The next batch; its ``pad`` says how many of its samples only fill it up.

        Raises:
            StopIteration: at the end.
        """
        rolled, self._rolled = self._rolled, None
        found = rolled or []
        if rolled is None and not self._ended:
            self._fill(found)
        if not found:
            raise StopIteration
        pad = self.batch_size - len(found)
        if pad:
            if self.last_batch_handle != "discard":
                self._rewind()
            if self.last_batch_handle == "discard":
                self._ended = True
                raise StopIteration
            if self.last_batch_handle == "roll_over" and rolled is None:
                self._rolled = found
                raise StopIteration
            self._fill(found)  # from the start of the data, as in MXNet
            self._ended = self.last_batch_handle == "pad"
        data = np.zeros((self.batch_size, *self.data_shape), self.dtype)
        labels = self._empty_labels()
        for i, (picture, label) in enumerate(found):
            data[i] = picture
            labels[i, : len(label)] = label
        out = labels[:, 0] if labels.shape[1:] == (1,) else labels
        return DataBatch([array(data, dtype=self.dtype)], [array(out)], pad=pad)
