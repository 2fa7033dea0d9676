"""``mx.callback``: what training loops call after batches; it works for evaluation too."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from requant.mx.model import save_checkpoint


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


class ProgressBar:
    """Log which part of ``total`` batches is done, as a bar of ``length`` characters."""

    def __init__(self, total: int, length: int = 80) -> None:
        self.total, self.length = total, length

    def __call__(self, param: Any) -> None:
        done = round(self.length * param.nbatch / self.total)
        percent = math.ceil(100 * param.nbatch / self.total)
        logging.info("[%s] %s%%\r", "=" * done + "-" * (self.length - done), percent)


def log_train_metric(period: int, auto_reset: bool = False) -> Callable[[Any], None]:
    """A callback that logs the metric every ``period`` batches, and resets its local sum if asked to."""

    def callback(param: Any) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
            if auto_reset:
                param.eval_metric.reset_local()

    return callback


class LogValidationMetricsCallback:
    """Log the metric at the end of an evaluation."""

    def __call__(self, param: Any) -> None:
        if param.eval_metric:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)


def do_checkpoint(prefix: str, period: int = 1) -> Callable[..., None]:
    """A callback ``(epoch, symbol, arguments, auxiliary states)`` that writes every ``period``-th checkpoint."""

    def callback(epoch: int, symbol: Any, args: Mapping[str, Any], aux: Mapping[str, Any]) -> None:
        if (epoch + 1) % max(1, int(period)) == 0:
            save_checkpoint(prefix, epoch + 1, symbol, args, aux)

    return callback
