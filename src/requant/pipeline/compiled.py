"""A model on an engine: sessions by input signature, and the ways to run them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.cache import SessionCache
from requant.engines.session import LayerProfile, Session
from requant.errors import InputError, UnsupportedError
from requant.passes.complete import complete
from requant.pipeline.feeds import Data
from requant.pipeline.given import check_batches, check_sizes

if TYPE_CHECKING:
    from requant.pipeline.model import Model


class Compiled:
    """A model on an engine. Safe to share between threads.

    Sessions are made for each input signature (names, shapes, dtypes) that comes, and the latest are kept.
    """

    def __init__(self, model: Model, engine: str, options: EngineOptions, *, dynamic: bool, cache_size: int) -> None:
        self.model, self.options, self.dynamic = model, options, dynamic
        self._engine = engines.get(engine)
        self._cache: SessionCache[Session] = SessionCache(cache_size)
        self._last: Session | None = None
        #: shapes and session of the latest call, which most often are those of the next
        self._latest: tuple[tuple[Any, ...], Session] | None = None
        self._names = tuple(model.input_names)

    @property
    def engine(self) -> str:
        return self._engine.name

    def prepare(self, shapes: Mapping[str, Sequence[int | None]]) -> Session:
        """Build the session for these shapes now, instead of at the first call.

        Raises:
            InputError: they are not sizes by input name, or do not fit.
        """
        check_sizes(shapes, "compile: shapes", named=False)
        fixed = {n: tuple(s) for n, s in shapes.items()}
        if any(d is None for s in fixed.values() for d in s):
            self.dynamic = True
            return self._cache.get((), lambda: self._load(self.model.onnx, fixed))
        return self._session({n: tuple(int(d or 0) for d in s) for n, s in fixed.items()})

    def _session(self, shapes: Mapping[str, tuple[int, ...]]) -> Session:
        if self.dynamic:
            return self._cache.get((), lambda: self._load(self.model.onnx_for(shapes), None))
        key, latest = tuple(shapes.items()), self._latest
        if latest is not None and latest[0] == key:
            return latest[1]

        def build() -> Session:
            return self._load(self.model.onnx_for(shapes), dict(shapes))

        session = self._cache.get(key, build)
        self._latest = key, session
        return session

    def _load(self, onnx: ir.Model, shapes: Mapping[str, tuple[int | None, ...]] | None) -> Session:
        return self._engine.load(complete(onnx, self._engine.scheme), self.options, shapes)

    def _feeds(self, data: Data | None, named: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if data is None:
            return self.model.feeds(named)
        return self.model.feeds(data, named)

    def _ready(self, data: Data | None, named: Mapping[str, Any]) -> tuple[Session, dict[str, np.ndarray]]:
        if isinstance(data, np.ndarray) and len(self._names) == 1 and not named:
            feeds = {self._names[0]: data}
        else:
            feeds = self._feeds(data, named)
        session = self._session({n: a.shape for n, a in feeds.items()})
        self._last = session  # for profile() alone: another thread may set its own at any moment
        return session, feeds

    def run(self, data: Data | None = None, /, **named: Any) -> list[np.ndarray]:
        """Run once. Returns the outputs, in order.

        Raises:
            InputError: names, dtypes or ranks do not fit; the message lists the true inputs.
        """
        session, feeds = self._ready(data, named)
        return session.run(feeds)

    __call__ = run

    def submit(self, data: Data | None = None, /, **named: Any) -> Future[list[np.ndarray]]:
        """Start a run and return at once."""
        session, feeds = self._ready(data, named)
        return session.submit(feeds)

    def stream(self, batches: Iterable[Data]) -> Iterator[list[np.ndarray]]:
        """Outputs of each batch, in order. Batches of equal shape run many at a time."""
        check_batches(batches, f"{self.model.source}: batches")
        pending: list[dict[str, np.ndarray]] = []
        source = iter(batches)
        done = False
        while not done:
            session: Session | None = None

            def same_shape() -> Iterator[dict[str, np.ndarray]]:
                nonlocal session, done
                while True:
                    feeds = pending.pop() if pending else self._next(source)
                    if feeds is None:
                        done = True
                        return
                    found = self._session({n: a.shape for n, a in feeds.items()})
                    if session is not None and found is not session:
                        pending.append(feeds)
                        return
                    session = found
                    yield feeds

            group = same_shape()
            first = next(group, None)
            if first is None or session is None:
                continue
            yield from session.stream(_chain(first, group))

    def _next(self, source: Iterator[Data]) -> dict[str, np.ndarray] | None:
        for batch in source:
            return self._feeds(batch, {})
        return None

    def profile(self) -> list[LayerProfile]:
        """What the engine really executed, layer by layer, for the session used last. Needs ``profile=True``."""
        if self._last is None:
            raise InputError("nothing has run yet", where=repr(self.model), next="call run() first")
        return self._last.profile()

    def close(self) -> None:
        """Free the engine's memory."""
        self._latest = None
        self._cache.clear()

    def __reduce__(self) -> NoReturn:
        raise not_pickled(self)

    def __repr__(self) -> str:
        return f"<requant.Compiled {self.model.source} on {self.engine}>"


def not_pickled(what: object) -> UnsupportedError:
    """What to say where a model, or one on an engine, is to be pickled."""
    return UnsupportedError(
        "a model cannot be pickled: it holds locks, and an engine's memory",
        where=repr(what),
        next="give other processes the file's name, and call requant.load there",
    )


def _chain(first: dict[str, np.ndarray], rest: Iterator[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    yield first
    yield from rest
