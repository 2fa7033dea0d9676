"""Data for calibration and verification: batches of named arrays, from files or from what a program holds.

A ``Dataset`` is a list of *samples* that is read batch by batch and can be read again: memory holds one batch. What a
batch size leaves over comes as a smaller last batch; nothing is dropped or repeated.
"""

from __future__ import annotations

import abc
import glob
import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from requant.errors import CalibrationError, FormatError, counted
from requant.formats.arrays import for_inputs, read_npy, read_npz
from requant.formats.images import Preprocess, is_image, read_image
from requant.formats.recordio import MXIndexedRecordIO, MXRecordIO, unpack
from requant.formats.samples import check_size, joined

Batch = dict[str, np.ndarray]
log = logging.getLogger(__name__)


class Dataset(abc.ABC):
    """Samples that can be read in batches, any number of times.

    Attributes:
        names: the model inputs that it feeds.
        what: where it came from, for messages.
        prepare: the preprocessing that its images go through; None for arrays, which go in as they are.
    """

    names: tuple[str, ...]
    what: str
    prepare: Preprocess | None = None

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many samples there are."""

    @abc.abstractmethod
    def samples(self, start: int, stop: int) -> Batch:
        """Samples ``start`` to ``stop`` as one batch.

        Raises:
            FormatError: a file cannot be read; the message names it.
        """

    def batches(self, size: int) -> Iterator[Batch]:
        """All samples, ``size`` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield self.samples(start, min(start + size, len(self)))

    def readable(self) -> Dataset:
        """The samples that can be read; a warning names each that is left out.

        Raises:
            CalibrationError: none can be read.
        """
        return self

    def part(self, start: int, stop: int) -> Dataset:
        """A view of some samples."""
        return _Part(self, start, min(stop, len(self)))

    def split(self, held_out: int) -> tuple[Dataset, Dataset]:
        """The samples without the last ``held_out``, and those."""
        cut = len(self) - held_out
        return self.part(0, cut), self.part(cut, len(self))


class _Part(Dataset):
    def __init__(self, whole: Dataset, start: int, stop: int) -> None:
        self.whole, self.start, self.stop = whole, start, stop
        self.names, self.what, self.prepare = whole.names, whole.what, whole.prepare

    def __len__(self) -> int:
        return max(0, self.stop - self.start)

    def samples(self, start: int, stop: int) -> Batch:
        return self.whole.samples(self.start + start, min(self.start + stop, self.stop))


class Picked(Dataset):
    """Some samples of a dataset, by number."""

    def __init__(self, whole: Dataset, numbers: Sequence[int]) -> None:
        self.whole, self.numbers = whole, list(numbers)
        self.names, self.what, self.prepare = whole.names, whole.what, whole.prepare

    def __len__(self) -> int:
        return len(self.numbers)

    def samples(self, start: int, stop: int) -> Batch:
        ones = [self.whole.samples(i, i + 1) for i in self.numbers[start:stop]]
        return {n: joined([one[n] for one in ones], self.what) for n in self.names}


def nonfinite(data: Dataset) -> list[tuple[int, str]]:
    """Samples with NaN or Inf in them: the number of each, and the input's name."""
    found: list[tuple[int, str]] = []
    if data.prepare is not None and np.isfinite(data.prepare.ends()).all():  # no pixel becomes anything else
        return found
    for number in range(len(data)):
        for name, array in data.samples(number, number + 1).items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                found.append((number, name))
                break
    return found


class Arrays(Dataset):
    """Arrays whose first dimension counts the samples (they may be memory maps)."""

    def __init__(self, arrays: Mapping[str, np.ndarray], what: str = "arrays") -> None:
        self.arrays, self.what = dict(arrays), what
        self.names = tuple(self.arrays)
        counts = {n: len(a) if a.ndim else 0 for n, a in self.arrays.items()}
        if not counts or len(set(counts.values())) != 1 or 0 in counts.values():
            raise CalibrationError(
                "each array needs the same number of samples in its first dimension",
                where=what,
                got=", ".join(f"{n}: {a.shape}" for n, a in self.arrays.items()) or "no array",
                expected="at least one sample",
                next="let all arrays begin with the batch, and cut them to one number of samples",
            )
        self._count = next(iter(counts.values()))

    def __len__(self) -> int:
        return self._count

    def samples(self, start: int, stop: int) -> Batch:
        return {n: np.ascontiguousarray(a[start:stop]) for n, a in self.arrays.items()}


class Images(Dataset):
    """Image files through a preprocessing, read when they are needed."""

    prepare: Preprocess

    def __init__(self, name: str, files: Sequence[Path], prepare: Preprocess, what: str = "images") -> None:
        self.names, self.files, self.prepare, self.what = (name,), list(files), prepare, what

        self._shape: tuple[int, ...] | None = None

    def __len__(self) -> int:
        return len(self.files)

    def samples(self, start: int, stop: int) -> Batch:
        return {self.names[0]: joined([self._one(f) for f in self.files[start:stop]], self.what)}

    def readable(self) -> Dataset:
        kept = []
        for file in self.files:
            try:
                read_image(file, self.prepare.color)
            except (FormatError, OSError) as fault:
                log.warning("left out, for it cannot be read: %s", str(fault).replace("\n", ";"))
            else:
                kept.append(file)
        if not kept:
            raise CalibrationError(
                "none of the images can be read",
                where=self.what,
                got=counted(len(self), "file"),
                next="the warnings above say what is wrong with each",
            )
        return self if len(kept) == len(self.files) else Images(self.names[0], kept, self.prepare, self.what)

    def _one(self, file: Path) -> np.ndarray:
        array = self.prepare.array(read_image(file, self.prepare.color))
        self._shape = self._shape or array.shape[1:]
        check_size(array.shape[1:], self._shape, file)
        return array


class Records(Dataset):
    """Images of an MXNet record file (``.rec``), through a preprocessing."""

    prepare: Preprocess

    def __init__(self, name: str, file: Path, prepare: Preprocess) -> None:
        self.names, self.what, self.prepare = (name,), str(file), prepare
        self._file, self._index = file, file.with_suffix(".idx")
        if self._index.exists():
            self._reader: MXRecordIO = MXIndexedRecordIO(str(self._index), str(file), "r")
            self._keys: list[Any] = list(self._reader.keys)
        else:
            self._reader = MXRecordIO(str(file), "r")
            self._keys = list(range(self._count()))
            self._reader.reset()
        self._at = 0
        if not self._keys:
            raise CalibrationError("the file holds no records", where=self.what, expected="at least one", next=_KINDS)

    def _count(self) -> int:
        return sum(1 for _ in iter(self._reader.read, None))

    def __len__(self) -> int:
        return len(self._keys)

    def samples(self, start: int, stop: int) -> Batch:
        return {self.names[0]: joined([self._one(i) for i in range(start, stop)], self.what)}

    def _one(self, i: int) -> np.ndarray:
        where = f"{self.what}: record {i}"
        try:
            _, image = unpack(self._record(i))
        except FormatError as fault:
            raise FormatError(
                fault.what, where=where, got=fault.got, expected=fault.expected, next=fault.next
            ) from None
        return self.prepare.array(read_image(io.BytesIO(image), self.prepare.color, where))

    def _record(self, i: int) -> bytes:
        if isinstance(self._reader, MXIndexedRecordIO):
            return self._reader.read_idx(self._keys[i]) or b""
        if i < self._at:
            self._reader.reset()
            self._at = 0
        record = b""
        while self._at <= i:
            record = self._reader.read() or b""
            self._at += 1
        return record


class Stored(Dataset):
    """Batches that came from a one-shot iterable, kept because they are needed twice."""

    def __init__(self, batches: Sequence[Batch], what: str) -> None:
        self.names, self.what = tuple(batches[0]), what
        self._batches = list(batches)
        self._ends = np.cumsum([len(next(iter(b.values()))) for b in self._batches])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def samples(self, start: int, stop: int) -> Batch:
        parts: list[Batch] = []
        for batch, end in zip(self._batches, self._ends):
            begin = int(end) - len(next(iter(batch.values())))
            if begin < stop and start < end:
                parts.append({n: a[max(start - begin, 0) : stop - begin] for n, a in batch.items()})
        return {n: joined([p[n] for p in parts], self.what) for n in self.names}

    def batches(self, size: int) -> Iterator[Batch]:
        yield from self._batches  # as they came: the caller chose their size


def open_files(text: str, names: Sequence[str], prepare: Preprocess) -> Dataset:
    """The dataset that a command line names: a folder of images, a ``.npz``, a ``.rec``, or ``.npy`` files.

    Args:
        text: the path or glob pattern.
        names: the model's inputs, in order; images and ``.npy`` go to the first.
        prepare: preprocessing of images.
    Raises:
        CalibrationError: nothing there. InputError: no array for an input. FormatError: it cannot be read.
    """
    path = Path(text)
    if path.is_dir():
        images = sorted(p for p in path.rglob("*") if p.is_file() and is_image(p))
        if images:
            return Images(names[0], images, prepare, text)
        arrays = sorted(path.glob("*.npy"))
        if arrays:
            return _from_npy(arrays, names, text)
        found = sorted(p.name for p in path.iterdir())[:8]
        raise CalibrationError(
            "the folder holds no images and no .npy files", where=text, got=found or "an empty folder", next=_KINDS
        )
    if path.suffix == ".npz" and path.exists():
        return Arrays(for_inputs(read_npz(path), names, path), str(path))
    if path.suffix == ".rec" and path.exists():
        return Records(names[0], path, prepare)
    files = [Path(p) for p in sorted(glob.glob(text, recursive=True))]
    if not files:
        raise CalibrationError("there is no data", where=text, next=_KINDS)
    if all(is_image(f) for f in files):
        return Images(names[0], files, prepare, text)
    if all(f.suffix == ".npy" for f in files):
        return _from_npy(files, names, text)
    raise CalibrationError("data of a kind that is not known", where=text, got=files[0].name, next=_KINDS)


_KINDS = "give a folder of images, an .npz with one array per input, a .rec, or a pattern such as 'batches/*.npy'"


def _from_npy(files: Sequence[Path], names: Sequence[str], what: str) -> Dataset:
    if len(names) != 1:
        raise CalibrationError("the model has several inputs", where=what, got=list(names), next="put them in one .npz")
    arrays = [read_npy(f, mapped=True) for f in files]
    if len(arrays) == 1:
        return Arrays({names[0]: arrays[0]}, what)
    return Stored([{names[0]: a} for a in arrays], what)
