"""Metrics of two classes, and correlations: F1, Matthews' and Pearson's coefficients."""

from __future__ import annotations

import math
from typing import Any

import numpy

from requant.errors import InputError, ShapeError, counted
from requant.mx.metric_base import Array, BothSums, as_list, as_numpy, check_label_shapes


def _counts(label: Array, pred: Array, classes: int) -> Array:
    """How often each predicted class (row) met each label (column)."""
    if label.size != pred.size:
        raise ShapeError("labels do not fit predictions", got=f"labels {label.shape}, predictions {pred.shape}")
    pairs = pred.reshape(-1).astype(numpy.int64) * classes + label.reshape(-1).astype(numpy.int64)
    return numpy.bincount(pairs, minlength=classes * classes).reshape(classes, classes).astype(numpy.float64)


class _Counted(BothSums):
    """Tables of counts (predicted, label), since the last reset of each kind."""

    def reset(self) -> None:
        super().reset()
        self._local, self._all = numpy.zeros((2, 2)), numpy.zeros((2, 2))

    def reset_local(self) -> None:
        super().reset_local()
        self._local = numpy.zeros((2, 2))


class _TwoClasses(_Counted):
    """A figure of the four counts of predictions (argmax over axis 1) and labels, 1 being the positive class.

    Args:
        average: "macro": the mean of the figures of each update; "micro": one figure of all counts.
    """

    def __init__(self, name: str, average: str = "macro", **kwargs: Any) -> None:
        if average not in ("macro", "micro"):
            raise InputError("a way to average", got=average, expected="macro or micro")
        self.average = average
        super().__init__(name, **kwargs)

    def of(self, counts: Array) -> float:
        """The figure of counts: (predicted, label)."""
        raise NotImplementedError

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(as_list(labels), as_list(preds), wrap=True)
        counts = numpy.zeros((2, 2))
        for label, pred in zip(map(as_numpy, labels), map(as_numpy, preds)):
            if len(numpy.unique(label.astype(numpy.int32))) > 2:
                raise InputError(
                    f"{type(self).__name__} is for two classes", got=counted(len(numpy.unique(label)), "label")
                )
            counts += _counts(label.astype(numpy.int32) == 1, pred.argmax(axis=1) == 1, 2)
        if self.average == "macro":
            self.take(self.of(counts), 1)
            return
        self._local += counts
        self._all += counts
        self.num_inst, self.global_num_inst = int(self._local.sum()), int(self._all.sum())
        self.sum_metric = self.of(self._local) * self.num_inst
        self.global_sum_metric = self.of(self._all) * self.global_num_inst


class F1(_TwoClasses):
    """Harmonic mean of precision and recall of class 1."""

    def __init__(self, name: str = "f1", average: str = "macro", **kwargs: Any) -> None:
        super().__init__(name, average, **kwargs)

    def of(self, counts: Array) -> float:
        hits, wrong = counts[1, 1], counts[1, 0] + counts[0, 1]
        return float(2 * hits / (2 * hits + wrong)) if hits else 0.0


class MCC(_TwoClasses):
    """Matthews' correlation coefficient of two classes; margins that are zero count as one."""

    def __init__(self, name: str = "mcc", average: str = "macro", **kwargs: Any) -> None:
        super().__init__(name, average, **kwargs)

    def of(self, counts: Array) -> float:
        margins = numpy.concatenate([counts.sum(axis=0), counts.sum(axis=1)])
        determinant = counts[1, 1] * counts[0, 0] - counts[1, 0] * counts[0, 1]
        return float(determinant / math.sqrt(numpy.prod(margins[margins != 0])))


class PCC(_Counted):
    """Matthews' coefficient for any number of classes (Gorodkin, 2004), of all counts."""

    def __init__(self, name: str = "pcc", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)

    @staticmethod
    def of(counts: Array) -> float:
        """The figure of counts: (predicted, label)."""
        n, x, y = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
        own = float((x * (n - x)).sum() * (y * (n - y)).sum())
        return float((counts.diagonal() * n - x * y).sum() / math.sqrt(own)) if own else math.nan

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(as_list(labels), as_list(preds), wrap=True)
        for label, pred in zip(map(as_numpy, labels), map(as_numpy, preds)):
            if pred.shape != label.shape:
                pred = pred.argmax(axis=1)
            classes = max(2, int(label.max()) + 1, int(pred.max()) + 1)
            found = _counts(label.astype(numpy.int32), pred.astype(numpy.int32), classes)
            self._local, self._all = _sum(self._local, found), _sum(self._all, found)
        self.num_inst += 1
        self.global_num_inst += 1
        self.sum_metric = self.of(self._local) * self.num_inst
        self.global_sum_metric = self.of(self._all) * self.global_num_inst


def _sum(a: Array, b: Array) -> Array:
    """The sum of two square tables of counts, of which one may have more classes."""
    made = numpy.zeros((max(len(a), len(b)),) * 2)
    made[: len(a), : len(a)] += a
    made[: len(b), : len(b)] += b
    return made


class PearsonCorrelation(BothSums):
    """Pearson's correlation of predictions and labels.

    Args:
        average: "macro": the mean over arrays; "micro": of all values together.
    """

    def __init__(self, name: str = "pearsonr", average: str = "macro", **kwargs: Any) -> None:
        if average not in ("macro", "micro"):
            raise InputError("a way to average", got=average, expected="macro or micro")
        self.average = average
        super().__init__(name, **kwargs)

    def reset(self) -> None:
        super().reset()
        # Count, means, and the sums of squares and products around them, in float64, merged batch by batch.
        self._seen = 0
        self._mean: Array = numpy.zeros(2)
        self._moments: Array = numpy.zeros((2, 2))

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(as_list(labels), as_list(preds), wrap=True)
        for label, pred in zip(map(as_numpy, labels), map(as_numpy, preds)):
            check_label_shapes(label, pred, shape=True)
            both = numpy.stack([label.reshape(-1), pred.reshape(-1)]).astype(numpy.float64)
            table: Array = numpy.asarray(numpy.corrcoef(both))
            self.take(float(table[0, 1]) if self.average == "macro" else 0.0, 1)
            self._merge(both)

    def _merge(self, both: Array) -> None:
        count = both.shape[1]
        mean: Array = both.mean(axis=1)
        apart, total = mean - self._mean, self._seen + count
        centred = both - mean[:, None]
        self._moments = self._moments + centred @ centred.T + numpy.outer(apart, apart) * self._seen * count / total
        self._mean, self._seen = self._mean + apart * count / total, total

    def figure(self, total: float, count: int) -> float:
        if self.average == "macro" or not count:
            return super().figure(total, count)
        return float(self._moments[0, 1] / math.sqrt(self._moments[0, 0] * self._moments[1, 1]))
