"""``mx.autograd``: requant never records and never trains; scripts that say so explicitly run as they are."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

from requant.errors import UnsupportedError

_NO_GRADIENTS = "requant runs and quantizes trained models; it does not compute gradients"
_NO_TRAINING = "requant runs and quantizes trained models; it has no training mode"


def record(train_mode: bool = True) -> AbstractContextManager[None]:
    """Raises UnsupportedError: gradients are not computed."""
    raise UnsupportedError(_NO_GRADIENTS)


def train_mode() -> AbstractContextManager[None]:
    """Raises UnsupportedError: operators run as at inference."""
    raise UnsupportedError(_NO_TRAINING)


def pause(train_mode: bool = False) -> AbstractContextManager[None]:
    """A block without recording, which is every block.

    Raises:
        UnsupportedError: ``train_mode``.
    """
    if train_mode:
        raise UnsupportedError(_NO_TRAINING)
    return contextlib.nullcontext()


def predict_mode() -> AbstractContextManager[None]:
    """A block at inference, which is every block."""
    return contextlib.nullcontext()


def is_recording() -> bool:
    """False."""
    return False


def is_training() -> bool:
    """False."""
    return False


def set_recording(is_recording: bool) -> bool:
    """False, as before.

    Raises:
        UnsupportedError: asked to record.
    """
    if is_recording:
        raise UnsupportedError(_NO_GRADIENTS)
    return False


def set_training(train_mode: bool) -> bool:
    """False, as before.

    Raises:
        UnsupportedError: asked to train.
    """
    if train_mode:
        raise UnsupportedError(_NO_TRAINING)
    return False


def backward(*args: object, **kwargs: object) -> None:
    """Raises UnsupportedError: gradients are not computed."""
    raise UnsupportedError(_NO_GRADIENTS)


grad = backward
