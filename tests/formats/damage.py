"""Ways to damage a valid file."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import strategies as st


@st.composite
def damaged(draw: Callable[..., object], originals: list[bytes]) -> bytes:
    """One of ``originals``, cut off anywhere or with a few bytes changed, removed or repeated."""
    data = bytearray(draw(st.sampled_from(originals)))  # type: ignore[call-overload]
    kind = draw(st.sampled_from(["cut", "flip", "byte", "remove", "repeat"]))
    at = draw(st.integers(0, len(data) - 1))
    if kind == "cut":
        return bytes(data[:at])  # type: ignore[misc]
    if kind == "remove":
        del data[at : at + draw(st.integers(1, 16))]  # type: ignore[operator, misc]
    elif kind == "repeat":
        data[at:at] = data[at : at + draw(st.integers(1, 16))]  # type: ignore[operator, misc]
    else:
        for _ in range(draw(st.integers(1, 4))):  # type: ignore[call-overload]
            place = draw(st.integers(0, len(data) - 1))
            if kind == "flip":
                data[place] ^= 1 << draw(st.integers(0, 7))  # type: ignore[operator, index]
            else:
                data[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))  # type: ignore[index]
    return bytes(data)


@contextmanager
def small_memory(limit: int = 4 << 20) -> Iterator[None]:
    """Fails if the block allocates more than ``limit`` bytes at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit, f"{peak} bytes were allocated"
