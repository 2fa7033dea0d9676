"""The contract of every engine: many runs at a time, from threads, streams and forked processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from engine_graphs import OPTIONS, conv_relu, conv_relu_by_hand, data, parse

from requant.engines import Engine, EngineOptions, Session
from requant.errors import EngineError, InputError


def test_eight_threads_share_a_session(engine: Engine) -> None:
    loaded = engine.load(parse("g (float[N] x) => (float[N] y, float[N] z) { y = Mul(x, x) z = Neg(x) }"), OPTIONS)
    start = threading.Barrier(8)

    def work(seed: int) -> bool:
        start.wait()
        right = True
        for i in range(60):
            x = np.full(50 + seed, seed * 1000 + i, np.float32)
            y, z = loaded.run({"x": x})
            right &= bool((y == x * x).all() and (z == -x).all())
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize("hint", ["latency", "throughput"])
def test_stream_keeps_the_order_and_copies_feeds(engine: Engine, hint: str) -> None:
    loaded = engine.load(conv_relu(), EngineOptions(threads=2, hint=hint), shapes={"data": (1, 3, 8, 8)})
    buffer = np.empty((1, 3, 8, 8), np.float32)

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        for i in range(40):
            buffer[...] = i  # the same memory again and again, as data iterators do
            yield {"data": buffer}
        buffer[...] = -1

    results = [r[0] for r in loaded.stream(feeds())]
    expected = [loaded.run({"data": np.full((1, 3, 8, 8), i, np.float32)})[0] for i in range(40)]
    np.testing.assert_array_equal(np.stack(results), np.stack(expected))


def test_stream_takes_shapes_as_they_come(session: Session) -> None:
    batches = [data(n, 3, 8, 8, seed=n) for n in (4, 4, 1, 2)]
    for x, (out,) in zip(batches, session.stream({"data": x} for x in batches), strict=True):
        np.testing.assert_allclose(out, conv_relu_by_hand(conv_relu(), x), atol=1e-5)


def test_stream_takes_few_inputs_ahead(session: Session) -> None:
    taken = 0

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        nonlocal taken
        while taken < 1000:
            taken += 1
            yield {"data": data(1, 3, 8, 8)}

    results = session.stream(feeds())
    assert taken == 0
    next(results)
    assert 1 <= taken <= 2 * session.workers + 2
    results.close()
    assert session.run({"data": data(1, 3, 8, 8)})[0].shape == (1, 16, 8, 8)


def test_stream_delivers_what_came_before_a_fault(session: Session) -> None:
    def feeds() -> Iterator[dict[str, np.ndarray]]:
        yield {"data": data(1, 3, 8, 8)}
        yield {"data": data(2, 3, 8, 8)}
        raise OSError("disk gone")

    got = []
    with pytest.raises(OSError, match="disk gone"):
        for (out,) in session.stream(feeds()):
            got.append(len(out))
    assert got == [1, 2]


def test_submit_copies_feeds(session: Session) -> None:
    x = data(1, 3, 8, 8)
    expected = session.run({"data": x})[0]
    future = session.submit({"data": x})
    x[...] = 0
    np.testing.assert_array_equal(future.result(timeout=20)[0], expected)


def test_a_closed_session_says_so(engine: Engine) -> None:
    loaded = engine.load(conv_relu(), OPTIONS)
    feeds = {"data": data(1, 3, 8, 8)}
    future = loaded.submit(feeds)
    loaded.close()
    loaded.close()
    assert future.result(timeout=20)[0].shape == (1, 16, 8, 8)
    for call in (loaded.run, loaded.submit, loaded.stream, lambda _: loaded.profile()):
        with pytest.raises(EngineError, match="closed\n  next:     load the model again"):
            call(feeds)


FORKED = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from engine_graphs import *
from requant import engines
loaded = engines.get(sys.argv[1]).load(conv_relu(), EngineOptions(threads=2))
feeds = {"data": data(2, 3, 8, 8)}
expected = loaded.run(feeds)[0]
loaded.submit(feeds).result(), list(loaded.stream([feeds] * 3))
child = os.fork()
if child == 0:
    signal.alarm(20)
    results = [loaded.run(feeds), loaded.submit(feeds).result(), *loaded.stream([feeds] * 3)]
    os._exit(0 if all((r[0] == expected).all() for r in results) else 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="data loaders fork on Linux only")
def test_a_session_works_in_a_forked_process(engine: Engine) -> None:
    """Data loaders run transformations in forked workers, where the engine's threads do not exist."""
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", FORKED, engine.name, here], capture_output=True, text=True, timeout=60)
    assert done.stdout == "0\n", done.stderr


@pytest.mark.parametrize("options", [OPTIONS, EngineOptions(hint="throughput", streams=2)])
def test_many_are_looked_at_in_order(engine: Engine, options: EngineOptions) -> None:
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((2, 3, 8, 8)).astype(np.float32) for _ in range(9)]
    seen: list[np.ndarray] = []
    thread = threading.get_ident()

    def at(outs: list[np.ndarray]) -> None:
        assert threading.get_ident() == thread
        seen.append(outs[0].copy())

    with engine.load(conv_relu(), options) as loaded:
        loaded.look_many(({"data": b} for b in batches), at)
        loaded.look_many([], at)
        assert len(seen) == 9
        for array, batch in zip(seen, batches):
            np.testing.assert_allclose(array, loaded.run({"data": batch})[0], rtol=1e-5, atol=1e-5)


def test_a_fault_among_many_stops_the_looking(session: Session) -> None:
    good, seen = np.zeros((1, 3, 8, 8), np.float32), [0]

    def count(outs: list[np.ndarray]) -> None:
        seen[0] += 1

    with pytest.raises(InputError, match="wrong rank"):
        session.look_many([{"data": good}, {"data": good}, {"data": good[0]}], count)

    def fail(outs: list[np.ndarray]) -> None:
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        session.look_many([{"data": good}] * 5, fail)
    seen[0] = 0
    session.look_many([{"data": good}] * 5, count)
    assert seen[0] == 5
