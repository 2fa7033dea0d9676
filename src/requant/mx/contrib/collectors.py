"""Collectors: what MXNet's quantization keeps of each layer's values while the float network runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from requant.engines.machine import usable_cores
from requant.errors import CalibrationError
from requant.mx.ndarray.ndarray import NDArray, as_numpy
from requant.quant.kl_threshold import find_threshold
from requant.quant.mxnet_histogram import MXNetHistogram

#: A ``logging.Logger``, or the module ``logging`` itself, as scripts pass it.
Logger = Any
#: Minimum and maximum by tensor name.
Ranges = dict[str, tuple[float, float]]


class CalibrationCollector:
    """Base of collectors that users write (``calib_mode='customize'``).

    A subclass has ``collect(name, arr)``, or ``collect(name, op_name, arr)`` as in MXNet 2.0, and fills
    ``min_max_dict``; ``post_collect()`` is called at the end and may return the final ranges.

    Attributes:
        include_layer: names of the tensors to look at; None lets the quantization flow set it.
        min_max_dict: (minimum, maximum) by tensor name.
    """

    def __init__(self) -> None:
        self.include_layer: Collection[str] | None = None
        self.min_max_dict: Ranges = {}

    def collect(self, *args: Any) -> None:
        """Look at one tensor of one batch: ``collect(name, arr)`` with arr an NDArray."""
        raise NotImplementedError(f"{type(self).__name__} must have collect(self, name, arr)")

    def post_collect(self) -> Ranges:
        """The ranges, when all batches were seen."""
        return self.min_max_dict


class LayerOutputMinMaxCollector(CalibrationCollector):
    """Minimum and maximum over all batches (``naive``)."""

    def __init__(
        self, quantized_dtype: str = "int8", include_layer: Collection[str] | None = None, logger: Logger = None
    ) -> None:
        super().__init__()
        self.quantized_dtype, self.include_layer, self.logger = quantized_dtype, include_layer, logger

    def collect(self, name: str, arr: Any) -> None:
        """Widen the range of a tensor.

        Raises:
            CalibrationError: it holds NaN or Inf.
        """
        if self.include_layer is not None and name not in self.include_layer:
            return
        values = as_numpy(arr)
        low, high = float(values.min()), float(values.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            raise CalibrationError("NaN or Inf in an activation", where=f"tensor {name!r}", got=(low, high))
        old = self.min_max_dict.get(name, (low, high))
        self.min_max_dict[name] = min(low, old[0]), max(high, old[1])
        if self.logger:
            self.logger.debug("Collecting layer %s min_range=%f, max_range=%f", name, low, high)


class LayerHistogramCollector(CalibrationCollector):
    """MXNet's growing histogram of each tensor (``entropy``)."""

    def __init__(
        self,
        num_bins: int = 8001,
        include_layer: Collection[str] | None = None,
        logger: Logger = None,
        quantized_dtype: str = "int8",
    ) -> None:
        super().__init__()
        self.num_bins, self.include_layer, self.logger = num_bins, include_layer, logger
        self.quantized_dtype = quantized_dtype
        self.histograms: dict[str, MXNetHistogram] = {}

    @property
    def hist_dict(self) -> dict[str, tuple[Any, ...]]:
        """MXNet's own form: (hist, hist_edges, min, max, th) by tensor name."""
        return {n: h.as_tuple() for n, h in self.histograms.items()}

    def collect(self, name: str, arr: Any) -> None:
        """Count the values of a tensor.

        Raises:
            CalibrationError: it holds NaN or Inf.
        """
        if self.include_layer is not None and name not in self.include_layer:
            return
        values = as_numpy(arr)
        if self.logger:
            self.logger.debug("Collecting layer %s histogram of shape %s", name, values.shape)
        self.histograms.setdefault(name, MXNetHistogram(self.num_bins)).collect(values, name)

    def post_collect(self) -> Ranges:
        """The range of each tensor by MXNet's entropy search."""
        self.min_max_dict = self.thresholds(self.quantized_dtype)
        return self.min_max_dict

    def thresholds(self, quantized_dtype: str, logger: Logger = None) -> Ranges:
        """The range of each tensor: (0, th) with 511 quantized bins where it is never negative and may become uint8,
        else (-th, th) with 255."""
        log = logger or self.logger
        if log:
            log.info("Calculating optimal thresholds for quantization using KL divergence with num_quantized_bins=255")

        def search(histogram: MXNetHistogram) -> tuple[float, float, float]:
            unsigned = histogram.low >= 0 and quantized_dtype in ("auto", "uint8")
            found = find_threshold(histogram.counts, histogram.edges, 511 if unsigned else 255)
            return (0.0 if unsigned else -found.value), found.value, found.divergence

        with ThreadPoolExecutor(usable_cores()) as pool:
            searched = list(pool.map(search, self.histograms.values()))
        ranges: Ranges = {}
        for (name, histogram), (low, high, divergence) in zip(self.histograms.items(), searched):
            ranges[name] = low, high
            if log:
                log.debug(
                    "layer=%s, min_val=%f, max_val=%f, th=%f, divergence=%f",
                    name,
                    histogram.low,
                    histogram.high,
                    high,
                    divergence,
                )
        return ranges


#: The names that these have in MXNet 1.9.
_LayerOutputMinMaxCollector = LayerOutputMinMaxCollector
_LayerHistogramCollector = LayerHistogramCollector


def caller(collector: Any) -> Callable[[str, str, NDArray], None]:
    """A function that hands a tensor to ``collector.collect``, with or without the operator's name, as it takes it.

    Raises:
        CalibrationError: the collector has no ``collect``.
    """
    collect = getattr(collector, "collect", None)
    if not callable(collect):
        raise CalibrationError(
            "a collector has a method collect(name, arr)", where="LayerOutputCollector", got=type(collector).__name__
        )
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [p for p in inspect.signature(collect).parameters.values() if p.kind in kinds]
    if len(wanted) >= 3:
        return lambda name, op, values: collect(name, op, values)
    return lambda name, op, values: collect(name, values)


def ranges_of(collector: Any, calib_mode: str, quantized_dtype: str, logger: Logger = None) -> Ranges:
    """The ranges that a collector found.

    Raises:
        CalibrationError: it has none to give.
    """
    if isinstance(collector, LayerHistogramCollector):
        if logger:
            logger.info("Calculating optimal thresholds for quantization")
        return collector.thresholds(quantized_dtype, logger)
    post = getattr(collector, "post_collect", None)
    found = post() if callable(post) else None
    if not isinstance(found, Mapping):
        found = getattr(collector, "min_max_dict", None)
    if not isinstance(found, Mapping):
        raise CalibrationError(
            "the collector has no ranges",
            where=f"calib_mode={calib_mode!r}",
            got=type(collector).__name__,
            expected="an attribute min_max_dict: (minimum, maximum) by tensor name",
        )
    return {str(n): (float(r[0]), float(r[1])) for n, r in found.items()}
