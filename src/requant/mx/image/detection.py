"""``ImageDetIter``: batches of pictures with boxes, and the augmenters that keep boxes true.

Labels are rows of class and corners (xmin, ymin, xmax, ymax), relative to the picture's size.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.errors import InputError, ShapeError, UnsupportedError
from requant.mx.image.augment import Augmenter, ForceResizeAug, ResizeAug, colour_augmenters
from requant.mx.image.iterator import ImageIter
from requant.mx.io import DataDesc
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray

__all__ = [
    "CreateDetAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomSelectAug",
    "ImageDetIter",
]

Labelled = tuple[NDArray, np.ndarray]


class DetAugmenter:
    """Base of augmenters of a picture (H, W, C) and its boxes."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def dumps(self) -> Any:
        """Its name and arguments as JSON text."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: NDArray, label: np.ndarray) -> Labelled:
        """The changed picture and its boxes."""
        raise NotImplementedError


class DetBorrowAug(DetAugmenter):
    """An augmenter of pictures that leaves boxes where they are."""

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise TypeError(f"an Augmenter can be borrowed, not a {type(augmenter).__name__}")
        super().__init__(augmenter=augmenter.dumps())
        self.augmenter = augmenter

    def __call__(self, src: NDArray, label: np.ndarray) -> Labelled:
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """One of several augmenters at random, or none with probability ``skip_prob``."""

    def __init__(self, aug_list: DetAugmenter | Sequence[DetAugmenter], skip_prob: float = 0) -> None:
        super().__init__(skip_prob=skip_prob)
        self.aug_list = list(aug_list) if isinstance(aug_list, (list, tuple)) else [aug_list]
        self.skip_prob = skip_prob if self.aug_list else 1

    def __call__(self, src: NDArray, label: np.ndarray) -> Labelled:
        if random.random() < self.skip_prob:
            return src, label
        made: Labelled = random.choice(self.aug_list)(src, label)  # type: ignore[operator]
        return made


class DetHorizontalFlipAug(DetAugmenter):
    """Picture and boxes turned around, with probability ``p``."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray, label: np.ndarray) -> Labelled:
        if random.random() < self.p:
            src = array(src.asnumpy()[:, ::-1], dtype=src.dtype)
            label = label.copy()
            label[:, [1, 3]] = 1.0 - label[:, [3, 1]]
        return src, label


def CreateDetAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    **others: Any,
) -> list[DetAugmenter]:
    """The augmenters of those names, in MXNet's order; the picture gets the size of ``data_shape`` (C, H, W).

    Raises:
        UnsupportedError: random crops and pads, which move boxes: they belong to training.
    """
    if rand_crop or rand_pad:
        raise UnsupportedError(
            "crops and pads that move boxes belong to training",
            where="CreateDetAugmenter",
            got=f"rand_crop={rand_crop}, rand_pad={rand_pad}",
            next="leave them 0, or give an aug_list of your own",
        )
    borrowed: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
    found: list[DetAugmenter] = [DetBorrowAug(a) for a in borrowed]
    if rand_mirror:
        found.append(DetHorizontalFlipAug(0.5))
    borrowed = [
        ForceResizeAug((data_shape[2], data_shape[1]), inter_method),
        *colour_augmenters(mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray),
    ]
    return found + [DetBorrowAug(a) for a in borrowed]


class ImageDetIter(ImageIter):
    """Batches of (N, C, H, W) with boxes (N, most boxes, numbers of a box); rows without a box are -1.

    A record's label is ``width of the header, width of a box, ..., then the boxes``. Boxes without extent are left out.

    Args:
        aug_list: ``DetAugmenter`` objects; made by ``CreateDetAugmenter`` from the other arguments if not given.
        Others are those of ``ImageIter``.
    Raises:
        ShapeError: a label of another form.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[DetAugmenter] | None = None,
        imglist: Sequence[Sequence[Any]] | None = None,
        data_name: str = "data",
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        self.label_shape: tuple[int, int] = (0, 5)
        super().__init__(
            batch_size, data_shape, 1, path_imgrec, path_imglist, path_root, path_imgidx, shuffle, part_index,
            num_parts, [], imglist, data_name, label_name, last_batch_handle=last_batch_handle,
        )  # fmt: skip
        self.det_auglist = list(CreateDetAugmenter(data_shape, **kwargs) if aug_list is None else aug_list)
        self.label_shape = self._largest_label()

    def _largest_label(self) -> tuple[int, int]:
        most, width = 0, 5
        while True:
            try:
                boxes = self._boxes(self.next_sample()[0])
            except StopIteration:
                self.hard_reset()
                return most, width
            most, width = max(most, len(boxes)), boxes.shape[1]

    def _boxes(self, label: Any) -> np.ndarray:
        """The boxes of a raw label that have extent."""
        raw = np.asarray(label.asnumpy() if isinstance(label, NDArray) else label, np.float32).ravel()
        head, width = (int(raw[0]), int(raw[1])) if raw.size >= 7 else (0, 0)
        if width < 5 or (raw.size - head) % width:
            raise ShapeError(
                "not a label of boxes", where="ImageDetIter", got=raw[:8].tolist(),
                expected="width of the header (2), width of a box (5), then class and corners of each box",
            )  # fmt: skip
        rows = raw[head:].reshape(-1, width)
        return rows[(rows[:, 3] > rows[:, 1]) & (rows[:, 4] > rows[:, 2])]

    @property
    def provide_label(self) -> list[DataDesc]:
        return [DataDesc(self.label_name, (self.batch_size, *self.label_shape))]

    def augmentation_transform(self, data: NDArray, label: np.ndarray | None = None) -> Any:
        """Picture and boxes after all augmenters."""
        boxes: Any = label
        for augment in self.det_auglist:
            data, boxes = augment(data, boxes)
        return data, boxes

    def _sample(self) -> tuple[np.ndarray, np.ndarray]:
        while True:
            label, raw = self.next_sample()
            boxes = self._boxes(label)
            if not len(boxes):
                continue  # MXNet leaves pictures without boxes out
            data, boxes = self.augmentation_transform(self.imdecode(raw), boxes)
            return self.postprocess_data(data), boxes

    def _empty_labels(self) -> np.ndarray:
        return np.full((self.batch_size, *self.label_shape), -1, np.float32)

    def reshape(
        self, data_shape: tuple[int, int, int] | None = None, label_shape: tuple[int, int] | None = None
    ) -> None:
        """Give room for more boxes a picture, or another size to the pictures of augmenters that follow it.

        Raises:
            ShapeError: less room than the data needs.
        """
        if label_shape is not None:
            if len(label_shape) != 2 or label_shape[0] < self.label_shape[0] or label_shape[1] != self.label_shape[1]:
                raise ShapeError(
                    "labels do not fit", where="ImageDetIter.reshape", got=label_shape,
                    expected=f"at least {self.label_shape[0]} boxes of {self.label_shape[1]} numbers",
                )  # fmt: skip
            self.label_shape = label_shape
        if data_shape is not None:
            if len(data_shape) != 3:
                raise InputError("the shape of a picture is (C, H, W)", got=data_shape)
            self.data_shape = tuple(data_shape)

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Give both iterators room for as many boxes as either needs."""
        most = max(self.label_shape[0], it.label_shape[0])
        self.reshape(label_shape=(most, self.label_shape[1]))
        it.reshape(label_shape=(most, it.label_shape[1]))
        return it
