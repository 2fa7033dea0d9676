"""``mx.monitor``: a figure of every tensor of an executor, every so many batches."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from requant.mx.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    from requant.mx.executor import Executor

#: Batch, name of the tensor, its figure.
Figure = tuple[int, str, str]


def _magnitude(x: NDArray) -> NDArray:
    """``‖x‖ / sqrt(size)``."""
    length: NDArray = x.norm() / math.sqrt(x.size)
    return length


class Monitor:
    """Watches outputs of operators (and inputs, if asked to), and parameters, of the executors it is installed in.

    Args:
        interval: batches from one look to the next. stat_func: the figure, an array or a list of arrays, of an array;
            by default its length over the root of its size.
        pattern: regular expression that a name must match from its start. sort: by name.
        monitor_all: also inputs of operators.
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[NDArray], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ) -> None:
        self.interval, self.sort, self.monitor_all = interval, sort, monitor_all
        self.stat_func = stat_func or _magnitude
        self.re_prog = re.compile(pattern)
        self.activated = False
        self.step = 0
        self.exes: list[Executor] = []
        self.queue: list[tuple[int, str, Any]] = []

    def take(self, name: str, array: NDArray) -> None:
        """Take in a tensor, if it is time to."""
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def install(self, exe: Executor) -> None:
        """Watch an executor."""
        exe.set_monitor_callback(self.take, self.monitor_all)
        self.exes.append(exe)

    def tic(self) -> None:
        """Before a run: look, if it is time to."""
        if self.step % self.interval == 0:
            self.queue, self.activated = [], True
        self.step += 1

    def toc(self) -> list[Figure]:
        """After a run: what was seen."""
        if not self.activated:
            return []
        for exe in self.exes:
            for name, array in {**exe.arg_dict, **exe.aux_dict}.items():
                self.take(name, array)
        self.activated = False
        seen = sorted(self.queue, key=lambda f: f[1]) if self.sort else self.queue
        self.queue = []
        return [(step, name, _text(value)) for step, name, value in seen]

    def toc_print(self) -> None:
        """The same, to the log."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %30s %s", step, name, text)


def _text(value: Any) -> str:
    parts = value if isinstance(value, list) else [value]
    return "".join(f"{p.asscalar() if p.shape == (1,) else p.asnumpy()}\t" for p in parts)
