"""``mx.callback``: what training loops call after batches; it works for evaluation too."""

from __future__ import annotations

import logging
import time
from typing import Any


class Speedometer:
    """Log samples per second every ``frequent`` batches."""

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True) -> None:
        self.batch_size, self.frequent, self.auto_reset = batch_size, frequent, auto_reset
        self._last: float | None = None

    def __call__(self, param: Any) -> None:
        if self._last is not None and param.nbatch % self.frequent == 0:
            speed = self.frequent * self.batch_size / max(1e-9, time.perf_counter() - self._last)
            logging.info("Epoch[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, param.nbatch, speed)
            self._last = time.perf_counter()
        elif self._last is None:
            self._last = time.perf_counter()
