"""Samples of one size, joined into a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from requant.errors import InputError


def check_size(sample: tuple[int, ...], first: tuple[int, ...], where: object) -> None:
    """Refuse a sample of another size than the first; images come in many.

    Args:
        sample, first: shapes without the batch.
        where: what the samples are, for messages.

    Raises:
        InputError: they differ; the message says how images get one size.
    """
    if sample != first:
        raise InputError(
            "the samples differ in size",
            where=where,
            got=f"{sample} after {first}",
            expected="one size for all, and the model's",
            next="give images a size: --size 224 on the command line, size=(224, 224) in Preprocess",
        )


def joined(arrays: Sequence[np.ndarray], where: object) -> np.ndarray:
    """Arrays of (samples, ...) as one array, in order.

    Raises:
        InputError: their samples differ in size.
    """
    for array in arrays[1:]:
        check_size(array.shape[1:], arrays[0].shape[1:], where)
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
