"""``mx.metric``: how well outputs fit labels, as ``Module.score`` needs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from requant.errors import InputError, ShapeError, nearest

Array = numpy.ndarray[Any, Any]


def _numpy(x: Any) -> Array:
    made: Array = x.asnumpy() if hasattr(x, "asnumpy") else numpy.asarray(x)
    return made


def _as_list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Check that there are as many labels as predictions (or that shapes agree).

    Raises:
        ShapeError: they do not.
    """
    got = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if got[0] != got[1]:
        raise ShapeError("labels do not fit predictions", got=f"labels {got[0]}, predictions {got[1]}")
    return (_as_list(labels), _as_list(preds)) if wrap else (labels, preds)


class EvalMetric:
    """A sum over samples, divided by their number. A subclass gives ``measure``.

    Args:
        name: what ``get`` calls it.
        output_names, label_names: which of named outputs and labels ``update_dict`` takes; all by default.
    """

    def __init__(
        self, name: str, output_names: Sequence[str] | None = None, label_names: Sequence[str] | None = None
    ) -> None:
        self.name = name
        self.output_names, self.label_names = output_names, label_names
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.sum_metric, self.num_inst = 0.0, 0

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        """Sum and count for one label array and its prediction."""
        raise NotImplementedError

    def update(self, labels: Any, preds: Any) -> None:
        """Take in lists of label and prediction arrays.

        Raises:
            ShapeError: they do not fit together.
        """
        labels, preds = check_label_shapes(_as_list(labels), _as_list(preds), wrap=True)
        for label, pred in zip(labels, preds):
            total, count = self.measure(_numpy(label), _numpy(pred))
            self.sum_metric += total
            self.num_inst += count

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """Take in arrays by name."""
        preds = [pred[n] for n in self.output_names] if self.output_names else list(pred.values())
        labels = [label[n] for n in self.label_names] if self.label_names else list(label.values())
        self.update(labels, preds)

    def value(self) -> float:
        """The figure so far; NaN before the first update."""
        return self.sum_metric / self.num_inst if self.num_inst else math.nan

    def get(self) -> tuple[Any, Any]:
        """Name and figure."""
        return self.name, self.value()

    def get_name_value(self) -> list[tuple[str, float]]:
        """Name and figure as a list of pairs."""
        name, value = self.get()
        return list(zip(_as_list(name), _as_list(value)))

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"


def _classes(label: Array, pred: Array) -> tuple[Array, Array]:
    flat = label.astype(numpy.int64).reshape(-1)
    rows = pred.reshape(-1, pred.shape[-1])
    if len(flat) != len(rows):
        raise ShapeError("labels do not fit predictions", got=f"labels {label.shape}, predictions {pred.shape}")
    return flat, rows


class Accuracy(EvalMetric):
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


class TopKAccuracy(EvalMetric):
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


class CrossEntropy(EvalMetric):
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


class Perplexity(EvalMetric):
    """exp of the mean cross entropy, without samples of ``ignore_label``."""

    def __init__(self, ignore_label: int | None = None, axis: int = -1, name: str = "perplexity", **kw: Any) -> None:
        super().__init__(name, **kw)
        self.ignore_label, self.axis = ignore_label, axis

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        flat, rows = _classes(label, numpy.moveaxis(pred, self.axis, -1))
        chance = rows[numpy.arange(len(flat)), flat]
        kept = numpy.ones(len(flat), bool) if self.ignore_label is None else flat != self.ignore_label
        return float(-numpy.log(numpy.maximum(1e-10, chance[kept])).sum()), int(kept.sum())

    def value(self) -> float:
        return math.exp(self.sum_metric / self.num_inst) if self.num_inst else math.nan


class MAE(EvalMetric):
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
    """Square root of the mean squared difference."""

    def __init__(self, name: str = "rmse", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def value(self) -> float:
        return math.sqrt(super().value()) if self.num_inst else math.nan


class Loss(EvalMetric):
    """Mean of the outputs themselves."""

    def __init__(self, name: str = "loss", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    def update(self, labels: Any, preds: Any) -> None:
        for pred in _as_list(preds):
            values = _numpy(pred)
            self.sum_metric += float(values.sum())
            self.num_inst += values.size


class CustomMetric(EvalMetric):
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
            preds = _as_list(preds)[: len(_as_list(labels))]
        super().update(labels, preds)

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        found = self._feval(label, pred)
        return (float(found[0]), int(found[1])) if isinstance(found, tuple) else (float(found), 1)


class CompositeEvalMetric(EvalMetric):
    """Several metrics as one."""

    def __init__(self, metrics: Sequence[Any] = (), name: str = "composite", **kwargs: Any) -> None:
        self.metrics = [create(m) for m in metrics]
        super().__init__(name, **kwargs)

    def add(self, metric: Any) -> None:
        """Add one."""
        self.metrics.append(create(metric))

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def get(self) -> tuple[Any, Any]:
        pairs = [p for m in self.metrics for p in m.get_name_value()]
        return [n for n, _ in pairs], [v for _, v in pairs]


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
}


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
    found = _NAMES.get(str(metric).lower())
    if found is None:
        raise InputError("no metric of that name", got=metric, next=nearest(str(metric), _NAMES))
    return found(*args, **kwargs)


def np(numpy_feval: Callable[[Array, Array], Any], name: str | None = None) -> CustomMetric:
    """A metric from a function of numpy arrays."""
    return CustomMetric(numpy_feval, name)
