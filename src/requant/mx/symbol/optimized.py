"""A symbol that remembers the backend it was optimized for."""

from __future__ import annotations

from collections.abc import Sequence

from requant.mx.backend import Backend
from requant.mx.symbol.symbol import Symbol
from requant.symbol.tree import Entry


class OptimizedSymbol(Symbol):
    """What ``Symbol.optimize_for`` returns: the same network, run by a backend when it is bound.

    What is made of it by indexing or composing is a plain symbol again.

    Attributes:
        backend: the backend, with its options.
    """

    __slots__ = ("backend",)

    def __init__(self, entries: Sequence[Entry], backend: Backend) -> None:
        super().__init__(entries)
        self.backend = backend
