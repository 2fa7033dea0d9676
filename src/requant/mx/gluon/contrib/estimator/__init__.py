"""``gluon.contrib.estimator``: ``Estimator`` for evaluation; fitting raises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from requant.errors import UnsupportedError
from requant.mx import metric as metrics
from requant.mx.gluon.loss import Loss
from requant.mx.gluon.utils import split_and_load
from requant.mx.ndarray.ndarray import NDArray

__all__ = ["BatchProcessor", "Estimator"]


def _listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


class BatchProcessor:
    """What an estimator does with a batch; subclass it to feed a network in another way."""

    def evaluate_batch(self, estimator: Estimator, val_batch: Any, batch_axis: int = 0) -> tuple[Any, Any, Any, Any]:
        """Data, labels, predictions and losses of a batch, each a list."""
        data, label = (split_and_load(v, estimator.context, batch_axis) for v in val_batch[:2])
        predicted = [estimator.val_net(x) for x in data]
        losses = [estimator.val_loss(p, y) for p, y in zip(predicted, label)]
        return data, label, predicted, losses

    def fit_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError("requant runs and quantizes trained models; it does not train")


class Estimator:
    """A network with its loss and metrics.

    Args:
        net: the network. loss: a ``gluon.loss.Loss``.
        val_metrics: what ``evaluate`` measures; accuracy and loss if none is given.
        val_net, val_loss: instead of the others.
        context: devices. batch_processor: see ``BatchProcessor``.
        train_metrics, trainer: kept; they serve training.
        initializer: first values for a network that has none.
    Raises:
        ValueError: the loss or a metric is none.
    """

    def __init__(
        self,
        net: Any,
        loss: Loss,
        train_metrics: Any = None,
        val_metrics: Any = None,
        initializer: Any = None,
        trainer: Any = None,
        context: Any = None,
        val_net: Any = None,
        val_loss: Loss | None = None,
        batch_processor: BatchProcessor | None = None,
    ) -> None:
        from requant.mx.context import current_context

        for one in (loss, val_loss or loss):
            if not isinstance(one, Loss):
                raise ValueError(f"the loss must be a gluon.loss.Loss, not a {type(one).__name__}")
        for one in (*_listed(train_metrics), *_listed(val_metrics)):
            if not isinstance(one, metrics.EvalMetric):
                raise ValueError(f"a metric must be an EvalMetric, not a {type(one).__name__}")
        self.net, self.loss, self.trainer = net, loss, trainer
        self.val_net, self.val_loss = val_net or net, val_loss or loss
        self.train_metrics = _listed(train_metrics)
        self.val_metrics = _listed(val_metrics) or [
            metrics.Accuracy(name="validation accuracy"),
            metrics.Loss("validation loss"),
        ]
        self.context = _listed(context) or [current_context()]
        self.batch_processor = batch_processor or BatchProcessor()
        if initializer is not None:
            net.initialize(initializer, ctx=self.context)

    def evaluate(
        self, val_data: Iterable[Any], batch_axis: int = 0, event_handlers: Sequence[Any] | None = None
    ) -> None:
        """Run the network over a ``DataLoader``; the metrics tell the result (``val_metrics[0].get()``)."""
        for one in self.val_metrics:
            one.reset()
        handlers = _listed(event_handlers)
        _tell(handlers, "epoch_begin", self)
        for batch in val_data:
            _tell(handlers, "batch_begin", self, batch=batch)
            _, label, predicted, losses = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            for one in self.val_metrics:
                if isinstance(one, metrics.Loss):
                    one.update(0, _arrays(losses))
                else:
                    one.update(label, predicted)
            _tell(handlers, "batch_end", self, batch=batch, pred=predicted, label=label, loss=losses)
        _tell(handlers, "epoch_end", self)

    def fit(self, *args: Any, **kwargs: Any) -> None:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError("requant runs and quantizes trained models; it does not train")


def _arrays(losses: Any) -> list[NDArray]:
    return [v for v in _listed(losses) if isinstance(v, NDArray)]


def _tell(handlers: Sequence[Any], event: str, estimator: Estimator, **what: Any) -> None:
    """Call handlers that know this event."""
    for handler in handlers:
        if hasattr(handler, event):
            getattr(handler, event)(estimator, **what)
