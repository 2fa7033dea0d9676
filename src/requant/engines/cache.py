"""Sessions by input signature: built once each, the least recently used dropped."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from requant.engines.tensors import Feeds
from requant.errors import EngineError

S = TypeVar("S")


class SessionCache(Generic[S]):
    """Sessions by input signature: the least recently used goes when it is full, and each is built once.

    Threads that ask for a signature that another thread is building wait for it. A build that fails fails for all
    who wait, and is tried again at the next ``get``. A session that is dropped is not closed: another thread may be
    running it; it is freed with its last user.
    """

    def __init__(self, capacity: int = 8) -> None:
        if capacity < 1:
            raise EngineError("a session cache holds at least one session", got=capacity)
        self.capacity = capacity
        self._lock = threading.Lock()
        self._slots: OrderedDict[Hashable, tuple[Future[S], int]] = OrderedDict()

    @staticmethod
    def signature(feeds: Feeds) -> Hashable:
        """What a session may depend on: names, shapes and dtypes, not the order of names."""
        return tuple(sorted(((n, a.shape, a.dtype) for n, a in feeds.items()), key=lambda item: item[0]))

    def get(self, signature: Hashable, build: Callable[[], S]) -> S:
        """The session of a signature; ``build`` makes it if need be.

        Raises:
            EngineError: ``build`` asked this cache for the signature that it was building.
        """
        me = threading.get_ident()
        with self._lock:
            slot = self._slots.get(signature)
            if slot is None:
                future: Future[S] = Future()
                self._slots[signature] = (future, me)
                self._shrink()
            else:
                future = slot[0]
                self._slots.move_to_end(signature)
        if slot is not None:
            if slot[1] == me and not future.done():
                raise EngineError("a session's build asks for the session itself", got=signature)
            return future.result()
        try:
            session = build()
        except BaseException as fault:
            with self._lock:
                if self._slots.get(signature, (None,))[0] is future:
                    del self._slots[signature]
            future.set_exception(fault)
            raise
        future.set_result(session)
        return session

    def _shrink(self) -> None:
        for key, (future, _) in list(self._slots.items()):
            if len(self._slots) <= self.capacity:
                return
            if future.done():  # those being built have threads waiting for them
                del self._slots[key]

    def clear(self) -> None:
        """Forget all sessions."""
        with self._lock:
            self._slots.clear()

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, signature: Hashable) -> bool:
        return signature in self._slots
