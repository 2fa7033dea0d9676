"""``mx.metric``: how well outputs fit labels, as ``Module.score`` and evaluation scripts need it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from requant.errors import InputError, ShapeError, nearest
from requant.mx.metric_base import Array, BothSums, EvalMetric, as_list, as_numpy, check_label_shapes
from requant.mx.metric_classes import F1, MCC, PCC, PearsonCorrelation

__all__ = [
    "F1",
    "MAE",
    "MCC",
    "MSE",
    "PCC",
    "RMSE",
    "Accuracy",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "Loss",
    "NegativeLogLikelihood",
    "PearsonCorrelation",
    "Perplexity",
    "TopKAccuracy",
    "check_label_shapes",
    "create",
    "np",
    "register",
]


def _classes(label: Array, pred: Array) -> tuple[Array, Array]:
    flat = label.astype(numpy.int64).reshape(-1)
    rows = pred.reshape(-1, pred.shape[-1])
    if len(flat) != len(rows):
        raise ShapeError("labels do not fit predictions", got=f"labels {label.shape}, predictions {pred.shape}")
    return flat, rows


class Accuracy(BothSums):
    """Share of samples whose largest output along ``axis`` is the label."""

    def __init__(self, axis: int = 1, name: str = "accuracy", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.axis = axis

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        if pred.shape != label.shape:
            pred = pred.argmax(axis=self.axis)
        mine, theirs = pred.astype(numpy.int64).reshape(-1), label.astype(numpy.int64).reshape(-1)
        if mine.shape != theirs.shape:
            raise ShapeError("labels do not fit predictions", got=f"labels {theirs.shape}, predictions {mine.shape}")
        return float((mine == theirs).sum()), len(mine)


class TopKAccuracy(BothSums):
    """Share of samples whose label is among the ``top_k`` largest outputs."""

    def __init__(self, top_k: int = 1, name: str = "top_k_accuracy", **kwargs: Any) -> None:
        if top_k < 2:
            raise InputError("top_k is more than 1", got=top_k, next="use Accuracy")
        super().__init__(f"{name}_{top_k}", **kwargs)
        self.top_k = top_k

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        flat, rows = _classes(label, pred)
        best = numpy.argsort(rows.astype(numpy.float32), axis=1, kind="stable")[:, -self.top_k :]
        return float((best == flat[:, None]).any(axis=1).sum()), len(flat)


class CrossEntropy(BothSums):
    """Mean of -log(p + eps) of the label's probability."""

    def __init__(self, eps: float = 1e-12, name: str = "cross-entropy", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.eps = eps

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        flat, rows = _classes(label, pred)
        return float((-numpy.log(rows[numpy.arange(len(flat)), flat] + self.eps)).sum()), len(flat)


class NegativeLogLikelihood(CrossEntropy):
    """The same as CrossEntropy, by another name."""

    def __init__(self, eps: float = 1e-12, name: str = "nll-loss", **kwargs: Any) -> None:
        super().__init__(eps, name, **kwargs)


class Perplexity(BothSums):
    """exp of the mean cross entropy, without samples of ``ignore_label``."""

    def __init__(self, ignore_label: int | None = None, axis: int = -1, name: str = "perplexity", **kw: Any) -> None:
        super().__init__(name, **kw)
        self.ignore_label, self.axis = ignore_label, axis

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        flat, rows = _classes(label, numpy.moveaxis(pred, self.axis, -1))
        chance = rows[numpy.arange(len(flat)), flat]
        kept = numpy.ones(len(flat), bool) if self.ignore_label is None else flat != self.ignore_label
        return float(-numpy.log(numpy.maximum(1e-10, chance[kept])).sum()), int(kept.sum())

    def figure(self, total: float, count: int) -> float:
        return math.exp(total / count) if count else math.nan


class MAE(BothSums):
    """Mean of |label - prediction|, averaged over batches."""

    def __init__(self, name: str = "mae", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def error(self, difference: Array) -> float:
        return float(numpy.abs(difference).mean())

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        if label.ndim == 1:
            label = label.reshape(-1, 1)
        if pred.ndim == 1:
            pred = pred.reshape(-1, 1)
        return self.error(label - pred), 1


class MSE(MAE):
    """Mean of the squared difference, averaged over batches."""

    def __init__(self, name: str = "mse", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def error(self, difference: Array) -> float:
        return float((difference**2).mean())


class RMSE(MSE):
    """Square root of the mean squared difference, averaged over batches."""

    def __init__(self, name: str = "rmse", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def error(self, difference: Array) -> float:
        return math.sqrt(super().error(difference))


class Loss(BothSums):
    """Mean of the outputs themselves."""

    def __init__(self, name: str = "loss", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def update(self, labels: Any, preds: Any) -> None:
        for pred in as_list(preds):
            values = as_numpy(pred)
            self.take(float(values.sum()), values.size)


class CustomMetric(BothSums):
    """A function of (label, prediction) as numpy arrays; it gives a number, or (sum, count)."""

    def __init__(
        self,
        feval: Callable[[Array, Array], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        **kwargs: Any,
    ) -> None:
        called = name if name is not None else f"custom({getattr(feval, '__name__', 'feval')})"
        super().__init__(called, **kwargs)
        self._feval, self._allow_extra = feval, allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        if self._allow_extra:
            preds = as_list(preds)[: len(as_list(labels))]
        super().update(labels, preds)

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        found = self._feval(label, pred)
        return (float(found[0]), int(found[1])) if isinstance(found, tuple) else (float(found), 1)


class CompositeEvalMetric(BothSums):
    """Several metrics as one."""

    def __init__(self, metrics: Sequence[Any] = (), name: str = "composite", **kwargs: Any) -> None:
        self.metrics = [create(m) for m in metrics]
        super().__init__(name, **kwargs)

    def add(self, metric: Any) -> None:
        """Add one."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """One of them."""
        return self.metrics[index]

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        for metric in self.metrics:
            metric.reset_local()

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def get(self) -> tuple[Any, Any]:
        pairs = [p for m in self.metrics for p in m.get_name_value()]
        return [n for n, _ in pairs], [v for _, v in pairs]

    def get_global(self) -> tuple[Any, Any]:
        pairs = [p for m in self.metrics for p in m.get_global_name_value()]
        return [n for n, _ in pairs], [v for _, v in pairs]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metrics": [m.get_config() for m in self.metrics]}


_NAMES: dict[str, type[EvalMetric]] = {
    "acc": Accuracy,
    "accuracy": Accuracy,
    "top_k_acc": TopKAccuracy,
    "top_k_accuracy": TopKAccuracy,
    "topkaccuracy": TopKAccuracy,
    "ce": CrossEntropy,
    "cross-entropy": CrossEntropy,
    "crossentropy": CrossEntropy,
    "nll_loss": NegativeLogLikelihood,
    "negativeloglikelihood": NegativeLogLikelihood,
    "perplexity": Perplexity,
    "mae": MAE,
    "mse": MSE,
    "rmse": RMSE,
    "loss": Loss,
    "composite": CompositeEvalMetric,
    "compositeevalmetric": CompositeEvalMetric,
    "f1": F1,
    "mcc": MCC,
    "pcc": PCC,
    "pearsonr": PearsonCorrelation,
    "pearsoncorrelation": PearsonCorrelation,
}


def register(klass: type[EvalMetric]) -> type[EvalMetric]:
    """Let ``create`` know a class by its name; a decorator."""
    _NAMES[klass.__name__.lower()] = klass
    return klass


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from its name, a function, a list of these, or a metric.

    Raises:
        InputError: no metric of that name.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(m, *args, **kwargs) for m in metric])
    if isinstance(metric, Mapping):  # as get_config gives it
        return create(**metric)
    found = _NAMES.get(str(metric).lower())
    if found is None:
        raise InputError("no metric of that name", got=metric, next=nearest(str(metric), _NAMES))
    return found(*args, **kwargs)


def np(numpy_feval: Callable[[Array, Array], Any], name: str | None = None) -> CustomMetric:
    """A metric from a function of numpy arrays."""
    return CustomMetric(numpy_feval, name)
