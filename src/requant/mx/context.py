"""Devices in MXNet's words. All of them compute on the CPU: requant has no other device for single operators."""

from __future__ import annotations

import contextvars
import logging
from types import TracebackType

from requant.errors import InputError, nearest

log = logging.getLogger(__name__)

_CODES = {"cpu": 1, "gpu": 2, "cpu_pinned": 3, "cpu_shared": 5}
_told = False


class Context:
    """A device as MXNet names it: ``cpu(0)``, ``gpu(1)``.

    Arrays remember it and programs can compare it, but the computing is done on the CPU; a log line says so when the
    first array is put on another device. As a context manager it sets the default for new arrays.

    Args:
        device_type: ``cpu``, ``gpu``, ``cpu_pinned``, ``cpu_shared``, or another context.
        device_id: number of the device.
    Raises:
        InputError: an unknown device type.
    """

    __slots__ = ("_tokens", "device_id", "device_type")

    device_type: str
    device_id: int

    def __init__(self, device_type: str | Context, device_id: int = 0) -> None:
        kind: str
        if isinstance(device_type, Context):
            kind, device_id = device_type.device_type, device_type.device_id
        else:
            kind = device_type
        if kind not in _CODES:
            raise InputError("unknown device type", got=kind, next=nearest(str(kind), _CODES))
        self.device_type = kind
        self.device_id = int(device_id)
        self._tokens: list[contextvars.Token[Context]] = []

    @property
    def device_typeid(self) -> int:
        """MXNet's number of the device type, as it stands in files."""
        return _CODES[self.device_type]

    def empty_cache(self) -> None:
        """Does nothing: there is no memory pool."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Context) and self.device_type == other.device_type and self.device_id == other.device_id
        )

    def __hash__(self) -> int:
        return hash((self.device_type, self.device_id))

    def __repr__(self) -> str:
        return f"{self.device_type}({self.device_id})"

    def __reduce__(self) -> tuple[type[Context], tuple[str, int]]:
        return Context, (self.device_type, self.device_id)

    def __enter__(self) -> Context:
        self._tokens.append(_current.set(checked(self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _current.reset(self._tokens.pop())


_CPU = Context("cpu", 0)
_current: contextvars.ContextVar[Context] = contextvars.ContextVar("context", default=_CPU)


def current_context() -> Context:
    """The context that new arrays get: that of the innermost ``with`` block, else ``cpu(0)``."""
    return _current.get()


def checked(ctx: Context | None) -> Context:
    """``ctx``, or the current one; says once in the log that other devices are computed on the CPU."""
    global _told
    if ctx is None:
        return _current.get()
    if not isinstance(ctx, Context):
        raise InputError("not a context", got=repr(ctx), expected="mx.cpu(), mx.gpu() or another Context")
    if ctx.device_type == "gpu" and not _told:
        _told = True
        log.warning("%s was asked for: requant computes single operators and mx executors on the CPU", ctx)
    return ctx


def cpu(device_id: int = 0) -> Context:
    """The CPU."""
    return Context("cpu", device_id)


def gpu(device_id: int = 0) -> Context:
    """A GPU, in name only: see ``Context``."""
    return Context("gpu", device_id)


def cpu_pinned(device_id: int = 0) -> Context:
    """Pinned memory, in name only: see ``Context``."""
    return Context("cpu_pinned", device_id)


def num_gpus() -> int:
    """0: scripts that choose their device by this number choose the CPU."""
    return 0


def gpu_memory_info(device_id: int = 0) -> tuple[int, int]:
    """Free and total bytes of a GPU.

    Raises:
        InputError: always, as there is none.
    """
    raise InputError("there is no such GPU", got=gpu(device_id), expected="mx.context.num_gpus() is 0")
