"""Running a symbol whose parameters are arrays that may still change: what Executor and SymbolBlock share.

Engines are fastest with parameters as constants, while MXNet reads every array anew at every run. So parameters are
compiled in, and each run checks (by the arrays' counts of writes) that none of them has changed since. Where nothing at
all was written since the last check, one number tells.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from requant.lower import PARAMETER_INPUTS, needed_nodes
from requant.mx.backend import Backend
from requant.mx.ndarray.ndarray import ALL_WRITES, NDArray
from requant.pipeline import Compiled, LiveCompiled, Model
from requant.symbol.tree import Symbol

#: An array that changed so often between runs is fed at each run instead of being compiled in.
_OFTEN = 2


@dataclass
class _State:
    """What was compiled in: the arrays, with their counts of writes then.

    Attributes:
        steady: the number of all writes at the last check, and the arrays that are fed beside the inputs; -1 where
            others write to the memory of arrays, too.
    """

    fed: tuple[tuple[str, np.dtype], ...]
    baked: tuple[tuple[str, NDArray, list[float], float], ...]
    compiled: Compiled
    steady: tuple[int, Mapping[str, NDArray]] = field(default_factory=lambda: (-1, {}))

    def feeds(self, arrays: Mapping[str, NDArray], others: Mapping[str, NDArray]) -> dict[str, np.ndarray] | None:
        """What to run with, or None if a dtype is another one now."""
        found = {}
        for name, dtype in self.fed:
            data = (arrays[name] if name in arrays else others[name])._data
            if data.dtype != dtype:
                return None
            found[name] = data
        return found

    def run(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs."""
        return self.compiled.run(*feeds.values() if len(feeds) == 1 else (feeds,))

    def changed(self, arrays: Mapping[str, NDArray]) -> list[str]:
        """Names of compiled-in arrays that are others now, or were written to."""
        return [n for n, a, w, count in self.baked if arrays[n] is not a or a._writes is not w or w[0] != count]


class Runner:
    """A symbol on the default engine, or on that of a backend.

    Args:
        symbol: the network.
        inputs: variables that differ from run to run; those that do not look like parameters if not given.
        source: what it is called in messages.
        backend: what the network was optimized for.
    """

    def __init__(
        self,
        symbol: Symbol,
        inputs: Iterable[str] | None = None,
        source: str = "symbol",
        backend: Backend | None = None,
    ) -> None:
        self.symbol, self.source, self.backend = symbol, source, backend
        nodes, cuts = needed_nodes(symbol)
        #: names of the variables that inference needs, and of the labels that it does not
        self.needed = list(dict.fromkeys(n.name for n in nodes if n.is_variable))
        self.cut = [c.variable for c in cuts if c.variable not in self.needed]
        self._fed = set(_guess_inputs(symbol) if inputs is None else inputs) & set(self.needed)
        self._changes: dict[str, int] = {}
        self._state: _State | None = None
        self._lock = threading.Lock()

    def feed(self, *names: str) -> None:
        """Say that these variables are inputs, which differ from run to run."""
        self._fed.update(n for n in names if n in self.needed)

    def run(self, arrays: Mapping[str, NDArray]) -> list[np.ndarray]:
        """The outputs for these values of all needed variables."""
        with self._lock:
            state = self._ready(arrays)
        return state.run({n: arrays[n]._data for n, _ in state.fed})

    def call(self, arrays: Mapping[str, NDArray], others: Callable[[], Mapping[str, NDArray]]) -> list[np.ndarray]:
        """The outputs for these inputs. The arrays of all other variables are asked for where one may have changed."""
        state = self._state
        if state is not None and state.steady[0] == ALL_WRITES[0]:
            feeds = state.feeds(arrays, state.steady[1])
            if feeds is not None:
                return state.run(feeds)
        writes = ALL_WRITES[0]
        known = {**others(), **arrays}
        with self._lock:
            state = self._ready(known)
        if not any(math.isnan(count) for _, _, _, count in state.baked):
            state.steady = writes, {n: known[n] for n, _ in state.fed if n not in arrays}
        return state.run({n: known[n]._data for n, _ in state.fed})

    def _ready(self, arrays: Mapping[str, NDArray]) -> _State:
        state = self._state
        fed = tuple((n, arrays[n]._data.dtype) for n in self.needed if n in self._fed)
        if state is not None:
            changed = state.changed(arrays)
            if not changed and state.fed == fed:
                return state
            for name in changed:
                self._changes[name] = self._changes.get(name, 0) + 1
                if self._changes[name] >= _OFTEN:
                    self._fed.add(name)
            fed = tuple((n, arrays[n]._data.dtype) for n in self.needed if n in self._fed)
        baked = tuple((n, a := arrays[n], a._writes, a._writes[0]) for n in self.needed if n not in self._fed)
        values = {n: a._data for n, a, _, _ in baked}
        model = Model.from_symbol(self.symbol, values, dtypes=dict(fed), source=self.source)
        compiled = model.compile() if self.backend is None else self.backend.compile(model)
        if state is not None and self.backend is not None:
            state.compiled.close()  # of other parameters, so it may not go on calibrating
        self._state = _State(fed, baked, compiled)
        return self._state

    def prepare(self, arrays: Mapping[str, NDArray]) -> None:
        """Compile for these values of all needed variables, and run nothing."""
        with self._lock:
            state = self._ready(arrays)
        state.compiled.prepare({n: arrays[n].shape for n, _ in state.fed})

    @property
    def live_model(self) -> LiveCompiled | None:
        """The model that becomes INT8 while it runs, if it was optimized to do so and has run."""
        found = None if self._state is None else self._state.compiled
        return found if isinstance(found, LiveCompiled) else None


def _guess_inputs(symbol: Symbol) -> set[str]:
    """Variables that look like data: those that do not go where parameters go.

    A wrong guess costs time, not truth: data that was compiled in is noticed when it changes.
    """
    found: set[str] = set()
    for node in symbol.nodes:
        if node.op is None:
            if any(node is n for n, _ in symbol.entries):
                found.add(node.name)
            continue
        for name, (source, _) in zip(node.input_names, node.inputs):
            if source.is_variable and name not in PARAMETER_INPUTS:
                found.add(source.name)
    return found
