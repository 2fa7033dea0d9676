"""``mx.gluon.utils``: splitting batches, files by checksum."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.errors import InputError, UnsupportedError, counted
from requant.mx.context import Context
from requant.mx.gluon.block_base import HookHandle
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.util import is_np_array, is_np_shape

__all__ = [
    "HookHandle",
    "check_sha1",
    "clip_global_norm",
    "download",
    "is_np_array",
    "is_np_shape",
    "replace_file",
    "shape_is_known",
    "split_and_load",
    "split_data",
]


def split_data(data: NDArray, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[NDArray]:
    """A batch in ``num_slice`` parts along ``batch_axis``.

    Raises:
        InputError: it does not divide evenly and ``even_split`` is set.
    """
    size = data.shape[batch_axis]
    if even_split and size % num_slice:
        raise InputError(
            "the batch does not divide evenly",
            got=f"{counted(size, 'sample')} in {counted(num_slice, 'part')}",
            next="another batch size, or even_split=False",
        )
    if not even_split and size < num_slice:
        num_slice = size
    step = size // num_slice
    bounds = [*(i * step for i in range(num_slice)), size]
    if not even_split:  # MXNet spreads the rest from the front
        bounds = [round(i * size / num_slice) for i in range(num_slice)] + [size]
    return [data.slice_axis(axis=batch_axis, begin=a, end=b) for a, b in itertools.pairwise(bounds)]


def split_and_load(
    data: Any, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """A batch in one part per device."""
    whole = data if isinstance(data, NDArray) else array(data, ctx=ctx_list[0])
    if len(ctx_list) == 1:
        return [whole.as_in_context(ctx_list[0])]
    parts = split_data(whole, len(ctx_list), batch_axis, even_split)
    return [p.as_in_context(c) for p, c in zip(parts, ctx_list)]


def clip_global_norm(arrays: Sequence[NDArray], max_norm: float, check_isfinite: bool = True) -> Any:
    """Scale arrays in place so that the 2-norm of all together is at most ``max_norm``.

    Returns:
        The norm that they had.
    """
    norm = float(np.sqrt(sum(float(np.square(a.asnumpy().astype(np.float64)).sum()) for a in arrays)))
    if norm > max_norm:
        for a in arrays:
            a[:] = a * (max_norm / (norm + 1e-8))
    return norm if check_isfinite else array([norm])


def check_sha1(filename: str | os.PathLike[str], sha1_hash: str) -> bool:
    """Whether a file has that SHA-1 sum."""
    digest = hashlib.sha1()
    with open(filename, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == sha1_hash


def download(
    url: str,
    path: str | None = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """The local file that a download would have gone to, if it is there; nothing is fetched from the network.

    Raises:
        UnsupportedError: the file is not there; the message says where to put it.
    """
    name = url.split("/")[-1]
    if path is None:
        target = name
    else:
        path = os.path.expanduser(path)
        target = os.path.join(path, name) if os.path.isdir(path) else path
    if os.path.exists(target) and (not sha1_hash or check_sha1(target, sha1_hash)):
        return target
    raise UnsupportedError(
        "requant fetches nothing from the network", where=url, next=f"put the file at {os.path.abspath(target)}"
    )


def replace_file(src: str, dst: str) -> None:
    """Move a file over another."""
    os.replace(src, dst)


def shape_is_known(shape: Sequence[int] | None) -> bool:
    """Whether a shape has no unknown dimension."""
    return shape is not None and len(shape) > 0 and all(d > 0 for d in shape)
