"""``mx.autograd``: requant never records; scripts that say so explicitly run as they are.

Training mode is what it is in MXNet for whoever only computes forward: ``is_training`` says so, and BatchNorm takes the
statistics of the batch (some blocks compute a group norm in that way). Blocks run operator by operator in it,
hybridized or not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from requant.errors import UnsupportedError

_NO_GRADIENTS = "requant runs and quantizes trained models; it does not compute gradients"


class _Mode(threading.local):
    """Whether this thread is in training mode."""

    training = False


_mode = _Mode()


@contextmanager
def _in_mode(training: bool) -> Iterator[None]:
    before, _mode.training = _mode.training, training
    try:
        yield
    finally:
        _mode.training = before


def record(train_mode: bool = True) -> AbstractContextManager[None]:
    """Raises UnsupportedError: gradients are not computed."""
    raise UnsupportedError(_NO_GRADIENTS)


def train_mode() -> AbstractContextManager[None]:
    """A block in training mode.

    What is random in it (Dropout) is refused when it is called.
    """
    return _in_mode(True)


def pause(train_mode: bool = False) -> AbstractContextManager[None]:
    """A block without recording, which is every block; in training mode if asked to."""
    return _in_mode(train_mode)


def predict_mode() -> AbstractContextManager[None]:
    """A block at inference, which is every block outside ``train_mode``."""
    return _in_mode(False)


def is_recording() -> bool:
    """False."""
    return False


def is_training() -> bool:
    """Whether this thread is in training mode."""
    return _mode.training


def set_recording(is_recording: bool) -> bool:
    """False, as before.

    Raises:
        UnsupportedError: asked to record.
    """
    if is_recording:
        raise UnsupportedError(_NO_GRADIENTS)
    return False


def set_training(train_mode: bool) -> bool:
    """Enter or leave training mode in this thread. Returns whether it was in it before."""
    before, _mode.training = _mode.training, bool(train_mode)
    return before


def backward(*args: object, **kwargs: object) -> None:
    """Raises UnsupportedError: gradients are not computed."""
    raise UnsupportedError(_NO_GRADIENTS)


grad = backward


def mark_variables(*args: object, **kwargs: object) -> None:
    """Raises UnsupportedError: gradients are not computed."""
    raise UnsupportedError(_NO_GRADIENTS)


get_symbol = mark_variables


class Function:
    """A function with a gradient of its own; a subclass gives ``forward``, which is all that is called here."""

    saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *args: Any) -> None:
        """Keep arrays; nothing asks for them here."""
        self.saved_tensors = args

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)

    def forward(self, *inputs: Any) -> Any:
        """What it computes."""
        raise NotImplementedError

    def backward(self, *output_grads: Any) -> Any:
        """Never called."""
        raise UnsupportedError(_NO_GRADIENTS)
