"""What all metrics are made of: sums since the last reset, and since the last reset of everything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from requant.errors import ShapeError

Array = numpy.ndarray[Any, Any]


def as_numpy(x: Any) -> Array:
    """An array of any kind as numpy's."""
    made: Array = x.asnumpy() if hasattr(x, "asnumpy") else numpy.asarray(x)
    return made


def as_list(x: Any) -> list[Any]:
    """A list or tuple as a list; anything else as a list of one."""
    return list(x) if isinstance(x, (list, tuple)) else [x]


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Check that there are as many labels as predictions (or that shapes agree).

    Raises:
        ShapeError: they do not.
    """
    got = (labels.shape, preds.shape) if shape else (len(labels), len(preds))
    if got[0] != got[1]:
        raise ShapeError("labels do not fit predictions", got=f"labels {got[0]}, predictions {got[1]}")
    return (as_list(labels), as_list(preds)) if wrap else (labels, preds)


class EvalMetric:
    """A sum over samples, divided by their number. A subclass gives ``measure``, or ``update``.

    There are two sums: the local one, which ``reset_local`` forgets (as after each interval of a log), and the global
    one, which only ``reset`` forgets.

    Args:
        name: what ``get`` calls it.
        output_names, label_names: which of named outputs and labels ``update_dict`` takes; all by default.
        has_global_stats: whether ``get_global`` has sums of its own; else it says what ``get`` says. A subclass that
            overrides ``update`` says so if it adds to both.
        kwargs: more that ``get_config`` tells.
    """

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        has_global_stats: bool = False,
        **kwargs: Any,
    ) -> None:
        self.name = str(name)
        self.output_names, self.label_names = output_names, label_names
        self._has_global_stats, self._kwargs = has_global_stats, kwargs
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.sum_metric, self.num_inst = 0.0, 0
        self.global_sum_metric, self.global_num_inst = 0.0, 0

    def reset_local(self) -> None:
        """Forget the local sum."""
        self.sum_metric, self.num_inst = 0.0, 0

    def take(self, total: float, count: int) -> None:
        """Add to both sums."""
        self.sum_metric += total
        self.global_sum_metric += total
        self.num_inst += count
        self.global_num_inst += count

    def measure(self, label: Array, pred: Array) -> tuple[float, int]:
        """Sum and count for one label array and its prediction."""
        raise NotImplementedError

    def update(self, labels: Any, preds: Any) -> None:
        """Take in lists of label and prediction arrays.

        Raises:
            ShapeError: they do not fit together.
        """
        labels, preds = check_label_shapes(as_list(labels), as_list(preds), wrap=True)
        for label, pred in zip(labels, preds):
            self.take(*self.measure(as_numpy(label), as_numpy(pred)))

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """Take in arrays by name."""
        preds = [pred[n] for n in self.output_names] if self.output_names else list(pred.values())
        labels = [label[n] for n in self.label_names] if self.label_names else list(label.values())
        self.update(labels, preds)

    def figure(self, total: float, count: int) -> float:
        """The figure that a sum and a count make; NaN before the first update."""
        return total / count if count else math.nan

    def get(self) -> tuple[Any, Any]:
        """Name and figure."""
        return self.name, self.figure(self.sum_metric, self.num_inst)

    def get_global(self) -> tuple[Any, Any]:
        """Name and figure since everything was reset."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self.figure(self.global_sum_metric, self.global_num_inst)

    def get_name_value(self) -> list[tuple[str, float]]:
        """Name and figure as a list of pairs."""
        name, value = self.get()
        return list(zip(as_list(name), as_list(value)))

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """The same since everything was reset."""
        name, value = self.get_global()
        return list(zip(as_list(name), as_list(value)))

    def get_config(self) -> dict[str, Any]:
        """What ``create`` makes the same metric of."""
        config = {**self._kwargs, "metric": type(self).__name__, "name": self.name}
        return {**config, "output_names": self.output_names, "label_names": self.label_names}

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"


class BothSums(EvalMetric):
    """A metric that keeps both sums, as all of MXNet's own do."""

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, output_names, label_names, has_global_stats=True, **kwargs)
