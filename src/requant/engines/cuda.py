"""NVIDIA's driver, as far as a session needs it: devices, memory, copies. Through ctypes, so that no package is needed.

Source: the CUDA Driver API, https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import numpy as np

from requant.errors import EngineError

Array = np.ndarray[Any, Any]

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


@functools.cache
def missing() -> str | None:
    """Why there is no NVIDIA device here, or None if there is one."""
    if sys.platform == "darwin":
        return "no NVIDIA device: macOS has no driver for one"
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return f"no NVIDIA device: the driver's library {LIBRARY} is not installed"
    count = ctypes.c_int()
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return f"no NVIDIA device: the driver answers {_name(library, status)}"
    return None if count.value else "no NVIDIA device: the driver finds none"


def _name(library: Any, status: int) -> str:
    text = ctypes.c_char_p()
    if library.cuGetErrorName(status, ctypes.byref(text)) == 0 and text.value:
        return text.value.decode()
    return f"error {status}"


class Device:
    """The first device that the process sees (``CUDA_VISIBLE_DEVICES``), with the context that all libraries share.

    Raises:
        EngineError: there is none.
    """

    def __init__(self) -> None:
        if (why := missing()) is not None:
            raise EngineError(
                "there is no NVIDIA device",
                got=why,
                next="choose engine 'openvino' or 'onnxruntime', or install NVIDIA's driver; see requant doctor",
            )
        self._library = ctypes.CDLL(LIBRARY)
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode(errors="replace")
        numbers = []
        for which in (_MAJOR, _MINOR):
            number = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(number), which, device)
            numbers.append(number.value)
        self.capability = (numbers[0], numbers[1])

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            EngineError: it failed.
        """
        if status := getattr(self._library, function)(*arguments):
            raise EngineError("the NVIDIA driver failed", where=function, got=_name(self._library, status))

    def enter(self) -> None:
        """Make this device the one that the calling thread speaks to."""
        self.call("cuCtxSetCurrent", self._context)

    def stream(self) -> int:
        """A new stream of work."""
        made = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(made), 1)  # CU_STREAM_NON_BLOCKING
        return int(made.value or 0)

    def wait(self, stream: int) -> None:
        """Wait until all work of a stream is done."""
        self.call("cuStreamSynchronize", ctypes.c_void_p(stream))


@functools.cache
def device() -> Device:
    """The process-wide device.

    Raises:
        EngineError: there is none.
    """
    return Device()


class Memory:
    """Memory of the device, freed with its last user."""

    def __init__(self, owner: Device, size: int) -> None:
        self._owner, self.size = owner, max(1, size)
        made = ctypes.c_uint64()
        owner.call("cuMemAlloc_v2", ctypes.byref(made), ctypes.c_size_t(self.size))
        self.address = made.value

    def fill(self, array: Array, stream: int) -> None:
        """Copy a contiguous array to the device; it must live until the stream is waited for."""
        source, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self._owner.call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self.address), source, size, ctypes.c_void_p(stream))

    def read(self, array: Array, stream: int) -> None:
        """Copy from the device into a contiguous array, which is filled once the stream was waited for."""
        target, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
        self._owner.call("cuMemcpyDtoHAsync_v2", target, ctypes.c_uint64(self.address), size, ctypes.c_void_p(stream))

    def __del__(self) -> None:
        address, self.address = getattr(self, "address", 0), 0
        if address:
            self._owner.enter()
            self._owner.call("cuMemFree_v2", ctypes.c_uint64(address))
