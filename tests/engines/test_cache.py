"""SessionCache: bounded, least recently used goes first, each signature built once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from requant.engines import SessionCache
from requant.errors import EngineError


def test_a_signature_is_names_shapes_and_dtypes() -> None:
    a, b = np.zeros((1, 2), np.float32), np.zeros(3, np.int64)
    same = SessionCache.signature({"a": a, "b": b})
    assert same == SessionCache.signature({"b": b + 1, "a": a + 1}) and hash(same) is not None
    others = [{"a": a}, {"a": a.T, "b": b}, {"a": a, "b": b.astype(np.int32)}, {"a": a, "c": b}]
    assert all(SessionCache.signature(o) != same for o in others)


def test_the_least_recently_used_goes() -> None:
    cache: SessionCache[str] = SessionCache(capacity=2)
    for key in ("a", "b", "a", "c"):
        assert cache.get(key, lambda key=key: key.upper()) == key.upper()
    assert len(cache) == 2 and "a" in cache and "c" in cache and "b" not in cache
    assert cache.get("a", lambda: "built again") == "A"


def test_many_threads_build_once() -> None:
    cache: SessionCache[int] = SessionCache()
    built, start = [], threading.Barrier(8)

    def build() -> int:
        built.append(threading.get_ident())
        time.sleep(0.05)
        return 5

    def ask(_: int) -> int:
        start.wait()
        return cache.get("key", build)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [5] * 8
    assert len(built) == 1


def test_signatures_are_built_side_by_side() -> None:
    cache: SessionCache[int] = SessionCache()
    both = threading.Barrier(2, timeout=10)
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda k: cache.get(k, both.wait), "ab")) == [0, 1]


def test_a_failed_build_fails_for_all_who_wait_and_is_tried_again() -> None:
    cache: SessionCache[int] = SessionCache()
    start = threading.Barrier(4)

    def build() -> int:
        time.sleep(0.05)
        raise EngineError("no")

    def ask(_: int) -> str:
        start.wait()
        with pytest.raises(EngineError) as caught:
            cache.get("key", build)
        return str(caught.value)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == ["no"] * 4
    assert len(cache) == 0 and cache.get("key", lambda: 3) == 3


def test_those_being_built_are_not_dropped() -> None:
    cache: SessionCache[int] = SessionCache(capacity=1)
    assert cache.get("outer", lambda: cache.get("inner", lambda: 1) + 1) == 2
    cache.get("last", lambda: 0)
    assert len(cache) == 1 and "last" in cache


def test_a_build_that_asks_for_itself_is_an_error_and_no_deadlock() -> None:
    cache: SessionCache[int] = SessionCache()
    with pytest.raises(EngineError, match="asks for the session itself"):
        cache.get("key", lambda: cache.get("key", lambda: 1))


def test_capacity_is_at_least_one() -> None:
    with pytest.raises(EngineError, match="at least one"):
        SessionCache(capacity=0)
