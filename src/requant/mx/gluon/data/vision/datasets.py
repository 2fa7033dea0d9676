"""Datasets of pictures. They read local files; nothing is downloaded."""

from __future__ import annotations

import gzip
import logging
import os
import struct
import tarfile
from collections.abc import Callable
from typing import Any

import numpy as np

from requant.errors import FormatError, InputError, counted
from requant.formats.recordio import unpack
from requant.mx.gluon.data.dataset import Dataset, RecordFileDataset
from requant.mx.image.image import imdecode, imread
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray

log = logging.getLogger(__name__)

Transform = Callable[[NDArray, Any], Any] | None


class _Pairs(Dataset):
    """Pictures and labels in memory."""

    def __init__(self, root: str, transform: Transform) -> None:
        self._root, self._transform = os.path.expanduser(root), transform
        data, self._label = self._read()
        self._data = array(data, dtype="uint8")

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError

    def _find(self, *names: str) -> str:
        for name in names:
            path = os.path.join(self._root, name)
            if os.path.exists(path):
                return path
        raise InputError(
            "the dataset is not here, and requant fetches nothing from the network",
            where=self._root,
            expected=" or ".join(names),
            next=f"put the file into {self._root}",
        )

    def __getitem__(self, idx: int) -> Any:
        if self._transform is not None:
            return self._transform(self._data[idx], self._label[idx])
        return self._data[idx], self._label[idx]

    def __len__(self) -> int:
        return len(self._label)


class MNIST(_Pairs):
    """Handwritten digits, (28, 28, 1) uint8, from the original ``idx`` files (gzipped or not) in ``root``."""

    _name = "mnist"

    def __init__(self, root: str | None = None, train: bool = True, transform: Transform = None) -> None:
        self._train = train
        super().__init__(root or os.path.join("~", ".mxnet", "datasets", self._name), transform)

    def _open(self, name: str) -> bytes:
        path = self._find(name + ".gz", name)
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            return bytes(file.read())

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        kind = "train" if self._train else "t10k"
        labels, pictures = self._open(f"{kind}-labels-idx1-ubyte"), self._open(f"{kind}-images-idx3-ubyte")
        if len(pictures) < 16 or len(labels) < 8:
            raise FormatError("an idx file is truncated", where=self._root)
        _, count, high, wide = struct.unpack(">IIII", pictures[:16])
        data = np.frombuffer(pictures, np.uint8, offset=16)
        if len(data) != count * high * wide or len(labels) - 8 != count:
            raise FormatError("an idx file has another length than it says", where=self._root, got=len(data))
        return data.reshape(count, high, wide, 1), np.frombuffer(labels, np.uint8, offset=8).astype(np.int32)


class FashionMNIST(MNIST):
    """Pictures of clothes in MNIST's form."""

    _name = "fashion-mnist"


class CIFAR10(_Pairs):
    """Small pictures, (32, 32, 3) uint8, from the binary version (``*.bin``, or its ``tar.gz``) in ``root``."""

    _name, _archive, _folder, _labels = "cifar10", "cifar-10-binary.tar.gz", "cifar-10-batches-bin", 1

    def __init__(self, root: str | None = None, train: bool = True, transform: Transform = None) -> None:
        self._train = train
        super().__init__(root or os.path.join("~", ".mxnet", "datasets", self._name), transform)

    def _files(self) -> list[str]:
        return [f"data_batch_{i}.bin" for i in range(1, 6)] if self._train else ["test_batch.bin"]

    def _bytes(self, name: str) -> bytes:
        for path in (os.path.join(self._root, name), os.path.join(self._root, self._folder, name)):
            if os.path.exists(path):
                with open(path, "rb") as file:
                    return file.read()
        with tarfile.open(self._find(self._archive, name)) as tar:
            member = tar.extractfile(f"{self._folder}/{name}")
            if member is None:
                raise FormatError("the archive lacks a file", where=self._archive, expected=name)
            return member.read()

    def _label_column(self) -> int:
        return 0

    def _read(self) -> tuple[np.ndarray, np.ndarray]:
        row = 3072 + self._labels
        rows = []
        for name in self._files():
            raw = np.frombuffer(self._bytes(name), np.uint8)
            if raw.size % row:
                raise FormatError(
                    "not a CIFAR file", where=name, got=counted(raw.size, "byte"), expected=f"{row} per picture"
                )
            rows.append(raw.reshape(-1, row))
        whole = np.concatenate(rows)
        pictures = whole[:, self._labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return pictures, whole[:, self._label_column()].astype(np.int32)


class CIFAR100(CIFAR10):
    """CIFAR with 20 coarse or 100 fine labels."""

    _name, _archive, _folder, _labels = "cifar100", "cifar-100-binary.tar.gz", "cifar-100-binary", 2

    def __init__(
        self, root: str | None = None, fine_label: bool = False, train: bool = True, transform: Transform = None
    ) -> None:
        self._fine = fine_label
        super().__init__(root, train, transform)

    def _files(self) -> list[str]:
        return ["train.bin" if self._train else "test.bin"]

    def _label_column(self) -> int:
        return int(self._fine)


class ImageRecordDataset(RecordFileDataset):
    """Pictures packed into a RecordIO file, with their labels."""

    def __init__(self, filename: str, flag: int = 1, transform: Transform = None) -> None:
        super().__init__(filename)
        self._flag, self._transform = flag, transform

    def __getitem__(self, idx: int) -> Any:
        header, data = unpack(super().__getitem__(idx))
        picture = imdecode(data, self._flag)
        if self._transform is not None:
            return self._transform(picture, header.label)
        return picture, header.label


class ImageFolderDataset(Dataset):
    """Pictures in one folder per class: ``root/cat/1.jpg``. Classes are numbered by name.

    Attributes:
        synsets: names of the classes. items: (file, class number) of each picture.
    """

    def __init__(self, root: str, flag: int = 1, transform: Transform = None) -> None:
        self._root, self._flag, self._transform = os.path.expanduser(root), flag, transform
        self._exts = (".jpg", ".jpeg", ".png")
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        self._list_images(self._root)

    def _list_images(self, root: str) -> None:
        for folder in sorted(os.listdir(root)):
            path = os.path.join(root, folder)
            if not os.path.isdir(path):
                log.warning("%s is no folder and is left out", path)
                continue
            label = len(self.synsets)
            self.synsets.append(folder)
            for name in sorted(os.listdir(path)):
                if os.path.splitext(name)[1].lower() in self._exts:
                    self.items.append((os.path.join(path, name), label))
                else:
                    log.warning("%s is no picture and is left out", os.path.join(path, name))

    def __getitem__(self, idx: int) -> Any:
        name, label = self.items[idx]
        picture = imread(name, self._flag)
        return (picture, label) if self._transform is None else self._transform(picture, label)

    def __len__(self) -> int:
        return len(self.items)


class ImageListDataset(Dataset):
    """Pictures named by a ``.lst`` file (number, labels, file, by tab) or by a list of [label..., file]."""

    def __init__(self, root: str = ".", imglist: Any = None, flag: int = 1) -> None:
        self._root, self._flag = os.path.expanduser(root), flag
        self.items: list[tuple[str, Any]] = []
        if isinstance(imglist, str):
            with open(os.path.join(self._root, imglist), encoding="utf-8") as file:
                rows = [line.strip().split("\t")[1:] for line in file if line.strip()]
        elif imglist is not None:
            rows = [list(r) for r in imglist]
        else:
            raise InputError("no list of pictures", next="give imglist: a file name or a list")
        for *label, name in rows:
            numbers = np.array(label, np.float32).reshape(-1)
            self.items.append((os.path.join(self._root, str(name)), numbers[0] if len(numbers) == 1 else numbers))

    def __getitem__(self, idx: int) -> Any:
        name, label = self.items[idx]
        return imread(name, self._flag), label

    def __len__(self) -> int:
        return len(self.items)
