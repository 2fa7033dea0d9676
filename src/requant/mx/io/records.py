"""``ImageRecordIter`` and ``ImageDetRecordIter``: batches of pictures from RecordIO files, read ahead by threads."""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from requant.errors import FormatError, InputError, ShapeError, nearest
from requant.formats.image_codec import decode_image
from requant.formats.recordio import MXRecordIO, unpack
from requant.formats.resample import resize
from requant.mx.io.io import DataBatch, DataDesc, MXDataIter
from requant.mx.ndarray.ndarray import NDArray

Array = np.ndarray[Any, Any]

#: Arguments of MXNet's iterators that change nothing in what is computed here.
_ACCEPTED = {
    "path_imgidx", "path_imglist", "verbose", "prefetch_buffer", "shuffle_chunk_size", "shuffle_chunk_seed",
    "seed_aug", "device_id", "ctx", "data_name", "label_name", "mean_a", "std_a", "fill_value", "cache", "mean_img",
}  # fmt: skip
#: Arguments that change pictures at random, and the value at which they do nothing: evaluation leaves them there.
_RANDOM: dict[str, Any] = {
    "max_rotate_angle": 0, "max_aspect_ratio": 0, "max_shear_ratio": 0, "max_crop_size": -1, "min_crop_size": -1,
    "max_random_scale": 1, "min_random_scale": 1, "max_img_size": 1e10, "min_img_size": 0, "rotate": -1, "random_h": 0,
    "random_s": 0, "random_l": 0, "brightness": 0, "contrast": 0, "saturation": 0, "pca_noise": 0,
    "random_resized_crop": 0,
    "max_random_contrast": 0, "max_random_illumination": 0, "pad": 0, "rand_crop_prob": 0, "rand_pad_prob": 0,
    "num_crop_sampler": 0, "rand_gray_prob": 0, "rand_gray": 0,
}  # fmt: skip


def offsets(path: str) -> list[int]:
    """Where each record of a RecordIO file begins.

    Raises:
        FormatError: the file is damaged.
    """
    found: list[int] = []
    with MXRecordIO(path, "r") as reader:
        file = reader._file(writing=False)
        while True:
            at = file.tell()
            if reader.read() is None:
                return found
            found.append(at)


def part(starts: list[int], size: int, index: int, count: int) -> list[int]:
    """The records of one part of a file: those that begin in its share of the bytes, as MXNet divides them."""
    step = -(-size // count)
    step += -step % 4
    return [s for s in starts if index * step <= s < (index + 1) * step]


class ImageRecordIter(MXDataIter):
    """Batches of (N, C, H, W) from a RecordIO file, decoded and cut by threads.

    Pictures are resized, cut to the shape (in the middle, or at random), normalized as ``(pixel - mean) / std * scale``
    and mirrored. Where the last batch is short, it takes from the start of the next pass, which then begins behind that
    (``round_batch``); ``pad`` says how many.

    Args:
        path_imgrec: the RecordIO file.
        data_shape: (C, H, W). batch_size: pictures a batch. label_width: numbers a label.
        resize: pixels of the shorter side before cutting; -1 leaves pictures as they are. inter_method: how, as in
            ``mx.image.imresize``.
        mean_r, mean_g, mean_b, std_r, std_g, std_b, scale: normalization.
        rand_crop, rand_mirror: at random; mirror: always.
        shuffle, seed: random order at each pass.
        num_parts, part_index: which part of the file.
        round_batch: fill the last batch; otherwise it holds zeros behind its pictures.
        dtype: ``float32``, ``uint8`` or ``int8``.
        preprocess_threads: threads.
        Others are accepted where they only tune how MXNet reads.
    Raises:
        InputError: an argument that is unknown, or that changes pictures at random in a way of training.
        FormatError: the file is damaged, or a record is no picture. ShapeError: a picture is smaller than the shape.
    """

    _label = "softmax_label"

    def __init__(
        self,
        path_imgrec: str = "",
        data_shape: Sequence[int] = (),
        batch_size: int = 1,
        label_width: int = 1,
        resize: int = -1,
        inter_method: int = 1,
        mean_r: float = 0.0,
        mean_g: float = 0.0,
        mean_b: float = 0.0,
        std_r: float = 1.0,
        std_g: float = 1.0,
        std_b: float = 1.0,
        scale: float = 1.0,
        rand_crop: bool = False,
        rand_mirror: bool = False,
        mirror: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        dtype: str = "float32",
        preprocess_threads: int = 4,
        **others: Any,
    ) -> None:
        super().__init__(batch_size)
        _check(type(self).__name__, others)
        if len(data_shape) != 3 or data_shape[0] not in (1, 3):
            raise InputError("the shape of a picture is (1 or 3, height, width)", where="data_shape", got=data_shape)
        if not 0 <= part_index < num_parts:
            raise InputError("no such part", where="part_index", got=part_index, expected=f"0 to {num_parts - 1}")
        self.path, self.data_shape, self.label_width = path_imgrec, tuple(data_shape), label_width
        self.resize, self.inter_method, self.round_batch = resize, inter_method, round_batch
        self.rand_crop, self.rand_mirror, self.mirror, self.shuffle = rand_crop, rand_mirror, mirror, shuffle
        self.dtype = np.dtype(dtype)
        self.mean = np.array([mean_r, mean_g, mean_b], np.float32)[: data_shape[0], None, None]
        self.factor = np.float32(scale) / np.array([std_r, std_g, std_b], np.float32)[: data_shape[0], None, None]
        self._names = others.get("data_name", "data"), others.get("label_name", self._label)
        self._random = random.Random(seed)
        self._reader = MXRecordIO(path_imgrec, "r")
        size = os.path.getsize(path_imgrec)
        self._starts = part(offsets(path_imgrec), size, part_index, num_parts)
        if not self._starts:
            raise InputError("there are no records in this part", where=path_imgrec, got=f"{part_index} of {num_parts}")
        self._pool = ThreadPoolExecutor(max(1, preprocess_threads), thread_name_prefix="requant-records")
        self._overflow = 0
        self._begin()

    # -- what it gives ---------------------------------------------------------------------------------------------

    @property
    def provide_data(self) -> list[DataDesc]:
        return [DataDesc(self._names[0], (self.batch_size, *self.data_shape), self.dtype.type)]

    @property
    def provide_label(self) -> list[DataDesc]:
        return [DataDesc(self._names[1], self._label_shape())]

    def _label_shape(self) -> tuple[int, ...]:
        return (self.batch_size,) if self.label_width == 1 else (self.batch_size, self.label_width)

    # -- order -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        order = list(range(len(self._starts)))
        if self.shuffle:
            self._random.shuffle(order)
        self._batches = self._plan(order[self._overflow % len(order) :], order)
        self._waiting: deque[tuple[list[Future[tuple[Array, Array]]], int]] = deque()
        self._ended = False

    def _plan(self, rest: list[int], order: list[int]) -> Iterator[tuple[list[int], int]]:
        """Numbers of the records of each batch, and how many of them only fill it up."""
        self._overflow = 0
        for i in range(0, len(rest), self.batch_size):
            batch = rest[i : i + self.batch_size]
            short = self.batch_size - len(batch)
            if short and self.round_batch:
                self._overflow = short
                batch = batch + [order[k % len(order)] for k in range(short)]
            yield batch, short

    def reset(self) -> None:
        """Start the next pass."""
        for futures, _ in self._waiting:
            for future in futures:
                future.cancel()
        self._begin()

    def next(self) -> DataBatch:
        """The next batch.

        Raises:
            StopIteration: at the end of the pass.
        """
        while not self._ended and len(self._waiting) < 3:  # the batch that is due, and two ahead
            planned = next(self._batches, None)
            if planned is None:
                self._ended = True
                break
            batch = [self._pool.submit(self._sample, self._record(n)) for n in planned[0]]
            self._waiting.append((batch, planned[1]))
        if not self._waiting:
            raise StopIteration
        futures, short = self._waiting.popleft()
        data = np.zeros((self.batch_size, *self.data_shape), self.dtype)
        labels = np.zeros(self._label_shape(), np.float32)
        for i, future in enumerate(futures):
            data[i], labels[i] = future.result()
        return DataBatch([NDArray(data)], [NDArray(labels)], pad=short)

    # -- one picture -----------------------------------------------------------------------------------------------

    def _record(self, number: int) -> bytes:
        self._reader._file(writing=False).seek(self._starts[number])
        found = self._reader.read()
        assert found is not None  # its start was found by reading it
        return found

    def _sample(self, record: bytes) -> tuple[Array, Array]:
        header, data = unpack(record)
        gray = self.data_shape[0] == 1
        pixels = decode_image(data, 0 if gray else 1)
        pixels = pixels[:, :, None] if gray else pixels[:, :, ::-1]
        made = self._placed(np.ascontiguousarray(pixels)).transpose(2, 0, 1)
        if self.mirror or (self.rand_mirror and self._random.random() < 0.5):
            made = made[:, :, ::-1]
        if self.dtype == np.float32:
            made = (made.astype(np.float32) - self.mean) * self.factor
        return made, self._told(np.atleast_1d(np.asarray(header.label, np.float32)))

    def _placed(self, pixels: Array) -> Array:
        """The picture resized and cut to the shape."""
        _, height, width = self.data_shape
        h, w = pixels.shape[:2]
        if self.resize > 0:
            h, w = (self.resize * h // w, self.resize) if h > w else (self.resize, self.resize * w // h)
            pixels = resize(pixels, w, h, self.inter_method).reshape(h, w, -1)
        if h < height or w < width:
            raise ShapeError(
                "a picture is smaller than the shape", where=self.path, got=(h, w), expected=(height, width),
                next="give resize=...",
            )  # fmt: skip
        y, x = (h - height) // 2, (w - width) // 2
        if self.rand_crop:
            y, x = self._random.randint(0, h - height), self._random.randint(0, w - width)
        return pixels[y : y + height, x : x + width]

    def _told(self, label: Array) -> Array:
        if len(label) < self.label_width:
            raise FormatError("a label is too short", where=self.path, got=len(label), expected=self.label_width)
        return label[0] if self.label_width == 1 else label[: self.label_width]


ImageRecordIter_v1 = ImageRecordIter


class ImageRecordUInt8Iter(ImageRecordIter):
    """``ImageRecordIter`` that gives the pixels themselves, as uint8."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "dtype": "uint8"})


class ImageDetRecordIter(ImageRecordIter):
    """``ImageRecordIter`` for detection: whole pictures, resized to the shape, with all their boxes.

    A label row is ``C, H, W, count of numbers, those numbers, padding``: the numbers as they stand in the record (width
    of the header, width of a box, ..., class and relative corners of each box).

    Args:
        label_pad_width: numbers a row has room for; as many as the longest label has if not given.
        label_pad_value: the padding.
        Others are those of ``ImageRecordIter``.
    """

    _label = "label"

    def __init__(self, *args: Any, label_pad_width: int = 0, label_pad_value: float = -1.0, **kwargs: Any) -> None:
        self.label_pad_value = label_pad_value
        kwargs.pop("label_width", None)
        kwargs.pop("resize_mode", None)
        super().__init__(*args, **kwargs)
        widest = max(np.atleast_1d(unpack(self._record(i))[0].label).size for i in range(len(self._starts)))
        if label_pad_width and label_pad_width < widest:
            raise InputError("labels are longer", where="label_pad_width", got=label_pad_width, expected=widest)
        self.label_width = 4 + max(label_pad_width, widest)

    def _placed(self, pixels: Array) -> Array:
        _, height, width = self.data_shape
        return resize(pixels, width, height, self.inter_method).reshape(height, width, -1)

    def _told(self, label: Array) -> Array:
        row = np.full(self.label_width, self.label_pad_value, np.float32)
        row[:4] = (*self.data_shape, len(label))
        row[4 : 4 + len(label)] = label
        if self.mirror:
            self._mirror(row[4 : 4 + len(label)])
        return row

    @staticmethod
    def _mirror(label: Array) -> None:
        """Turn the boxes of a label around with their picture."""
        boxes = label[int(label[0]) :].reshape(-1, int(label[1]))
        boxes[:, [1, 3]] = 1.0 - boxes[:, [3, 1]]


def _check(name: str, others: dict[str, Any]) -> None:
    """Refuse arguments that are unknown, or that would change pictures in ways of training."""
    for key, value in others.items():
        if key in _ACCEPTED:
            continue
        if key not in _RANDOM:
            raise InputError("unknown argument", where=name, got=key, next=nearest(key, [*_RANDOM, *_ACCEPTED]))
        if value not in (_RANDOM[key], None):
            raise InputError(
                "augmentation of training is not made here", where=name, got=f"{key}={value!r}", expected=_RANDOM[key]
            )
