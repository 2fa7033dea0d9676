"""``mx.util``: questions that scripts ask about modes which requant does not have."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from requant.errors import UnsupportedError
from requant.mx.context import num_gpus


def is_np_array() -> bool:
    """False: arrays are ``mx.nd`` arrays."""
    return False


def is_np_shape() -> bool:
    """False: scalars have shape (1,), and 0 in a shape is an unknown size."""
    return False


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """Raises UnsupportedError: there is no numpy mode.

    Raises:
        UnsupportedError: always, unless both switches are off.
    """
    if shape or array:
        raise UnsupportedError("MXNet's numpy mode is not supported", next="use mx.nd arrays, and drop npx.set_np()")


def reset_np() -> None:
    """Does nothing: numpy mode is always off."""


def use_np(func: object) -> object:
    """Raises UnsupportedError: there is no numpy mode."""
    raise UnsupportedError("MXNet's numpy mode is not supported", next="use mx.nd arrays, and drop use_np")


use_np_array = use_np_shape = use_np


def set_np_shape(active: bool) -> bool:
    """False, as before.

    Raises:
        UnsupportedError: asked to turn it on.
    """
    set_np(shape=bool(active), array=False)
    return False


def np_shape(active: bool = True) -> AbstractContextManager[None]:
    """A block without numpy's shapes, which is every block.

    Raises:
        UnsupportedError: asked to turn them on.
    """
    set_np_shape(active)
    return nullcontext()


np_array = np_shape


def get_gpu_count() -> int:
    """0, see ``mx.num_gpus``."""
    return num_gpus()


def makedirs(d: str) -> None:
    """Make a folder and those above it."""
    import os

    os.makedirs(os.path.expanduser(d), exist_ok=True)
