"""Run a float symbol and hand out tensors between its nodes, by MXNet's names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from requant import engines
from requant.errors import CalibrationError, nearest
from requant.lower import needed_nodes
from requant.pipeline.model import Model
from requant.rewrite.graph import entry_name
from requant.symbol.tree import Entry, Symbol

Array = np.ndarray[Any, Any]


class SymbolObserver:
    """A float network that tells the values of some of its tensors.

    Args:
        symbol: the network.
        params: values of its arguments and auxiliary states.
        tensors: names of the tensors to tell, as ``get_internals().list_outputs()`` lists them; every tensor if None.
        engine: what runs it.
    Raises:
        CalibrationError: the network has no tensor of a name.
    """

    def __init__(
        self,
        symbol: Symbol,
        params: Mapping[str, Array],
        tensors: Collection[str] | None = None,
        engine: str = engines.DEFAULT,
    ) -> None:
        nodes, _ = needed_nodes(symbol)
        entries: dict[str, Entry] = {}
        for node in nodes:
            for i in range(len(node.output_names())):
                entries.setdefault(entry_name((node, i)), (node, i))
        for name in tensors or ():
            if name not in entries:
                raise CalibrationError("the network has no tensor of that name", got=name, next=nearest(name, entries))
        wanted = entries if tensors is None else {n: e for n, e in entries.items() if n in set(tensors)}
        #: how many nodes read each variable: MXNet's monitor tells it as often
        self.readers: dict[str, int] = {}
        for node in nodes:
            for source in {id(n): n for n, _ in node.inputs}.values():
                if source.is_variable:
                    self.readers[source.name] = self.readers.get(source.name, 0) + 1
        self.params = dict(params)
        self.computed = [n for n, (node, _) in wanted.items() if not node.is_variable]
        self.variables = [n for n, (node, _) in wanted.items() if node.is_variable]
        self._order = list(wanted)
        self._model = None
        if self.computed:
            watched = Symbol([wanted[n] for n in self.computed])
            used = {n.name for n in needed_nodes(watched)[0] if n.is_variable}
            given = {n: a for n, a in self.params.items() if n in used}
            self._names = [n for n in used if n not in given]
            self._model = Model.from_symbol(watched, given, source="the float network").compile(engine)

    def observe(self, feeds: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        """Names and values for one batch: in the order of the network, a variable once for each node that reads it.

        Args:
            feeds: the network's inputs by name.
        """
        found: dict[str, Array] = {}
        if self._model is not None:
            outs = self._model.run({n: feeds[n] for n in self._names if n in feeds})
            found = dict(zip(self.computed, outs))
        for name in self._order:
            if name in found:
                yield name, found[name]
            else:
                value = feeds[name] if name in feeds else self.params[name]
                for _ in range(max(1, self.readers.get(name, 1))):
                    yield name, value
