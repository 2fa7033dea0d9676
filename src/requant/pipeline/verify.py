"""Verification: the saved int8 file beside the float model, on data that calibration did not see."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.memory import check_arrays
from requant.engines.session import Session
from requant.errors import QuantizationError, shown
from requant.formats.dataset import Batch, Dataset
from requant.pipeline.timing import by_turns
from requant.pipeline.watch import watching
from requant.report import LayerError, Speed

#: A user's own figure: given an iterator of (inputs, outputs) per batch, it returns a number; higher is better.
Metric = Callable[[Iterator[tuple[Batch, list[np.ndarray]]]], float]

#: Samples that the signal to noise of inner tensors is measured on: each costs a run with large outputs.
LAYER_SAMPLES = 4
#: Seconds that latencies are measured for, at each batch size.
SECONDS = 2.0
#: Engines' layer types that multiply and accumulate: those whose precision decides the speed.
COMPUTE_LAYERS = frozenset(
    {"Convolution", "Deconvolution", "FullyConnected", "MatMul", "Conv", "ConvTranspose", "Gemm", "QLinearConv"}
    | {"GroupConvolution", "GroupDeconvolution"}
    | {"FullyConnectedQuantized", "FullyConnectedQuantizedLegacy", "FullyConnectedCompressed"}
    | {"QLinearMatMul", "MatMulInteger", "QGemm", "FusedConv", "FusedMatMul", "FusedGemm", "ConvInteger", "NhwcConv"}
    | {"NhwcFusedConv", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"}
)


@dataclass
class Accuracy:
    """How close the int8 model is to the float model.

    Attributes:
        outputs: signal to quantization noise of each output, in decibel.
        agreement: share of samples with the same best class; None where no output is (N, classes).
        metric: the user's figure for float and int8.
    """

    outputs: dict[str, float]
    agreement: float | None
    metric: tuple[float, float] | None = None


@dataclass
class _Noise:
    """Running sums behind a signal to noise ratio."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, reference: np.ndarray, other: np.ndarray) -> None:
        a, b = reference.astype(np.float64), other.astype(np.float64)
        self.signal += float(np.square(a).sum())
        self.noise += float(np.square(a - b).sum())

    @property
    def decibel(self) -> float:
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal > 0 else -math.inf


@dataclass
class Pair:
    """A float and an int8 model on one engine, with sessions by input shape."""

    float_model: ir.Model
    int8_model: ir.Model
    engine: str
    #: how the int8 model is compiled
    options: EngineOptions = field(default_factory=EngineOptions)
    sessions: dict[object, tuple[Session, Session]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names = [str(v.name) for v in self.float_model.graph.outputs]
        other = [str(v.name) for v in self.int8_model.graph.outputs]
        if self.names != other:
            raise QuantizationError("the int8 model has other outputs", got=other, expected=self.names)

    def on(self, feeds: Batch) -> tuple[Session, Session]:
        """Sessions for the shapes of these feeds."""
        key = tuple((n, a.shape) for n, a in feeds.items())
        if key not in self.sessions:
            shapes = {n: a.shape for n, a in feeds.items()}
            load = engines.get(self.engine).load
            one, two = load(self.float_model, EngineOptions(), shapes), load(self.int8_model, self.options, shapes)
            self.sessions[key] = (one, two)
        return self.sessions[key]


def accuracy(pair: Pair, data: Dataset, batch: int = 16, metric: Metric | None = None) -> Accuracy:
    """Compare the outputs over a dataset."""
    found = compare(pair, data.batches(batch))
    if metric is not None:
        found.metric = _figure(metric(_results(pair, data, batch, 0))), _figure(metric(_results(pair, data, batch, 1)))
    return found


def _figure(found: object) -> float:
    """What a metric returned, as a number."""
    try:
        return float(found)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise QuantizationError(
            "the metric returned no number",
            where="quantize: metric",
            got=shown(found),
            expected="a number; higher is better",
            next="return float(figure) from it",
        ) from None


def compare(pair: Pair, batches: Iterable[Batch]) -> Accuracy:
    """Compare the outputs over batches, each at its own size."""
    noises = {n: _Noise() for n in pair.names}
    same = total = 0
    classes: int | None = None
    for feeds in batches:
        first, second = pair.on(feeds)
        wanted, got = first.run(feeds), second.run(feeds)
        for name, a, b in zip(pair.names, wanted, got):
            if a.dtype.kind == "f" and a.shape == b.shape:
                noises[name].add(a, b)
        if classes is None:
            classes = next((i for i, a in enumerate(wanted) if is_classes(a)), -1)
        if classes >= 0:
            same += int((wanted[classes].argmax(1) == got[classes].argmax(1)).sum())
            total += len(wanted[classes])
    measured = {n: noise.decibel for n, noise in noises.items() if noise.signal or noise.noise}
    return Accuracy(measured, same / total if total else None)


def _results(pair: Pair, data: Dataset, batch: int, which: int) -> Iterator[tuple[Batch, list[np.ndarray]]]:
    for feeds in data.batches(batch):
        yield feeds, pair.on(feeds)[which].run(feeds)


def is_classes(output: np.ndarray) -> bool:
    """Whether an output looks like scores of classes: (N, classes) floats."""
    return output.ndim == 2 and output.shape[1] > 1 and output.dtype.kind == "f"


def layers(pair: Pair, tensors: Sequence[str], data: Dataset) -> tuple[LayerError, ...]:
    """Signal to noise of tensors that both models have, worst first. Measured one sample at a time."""
    made = {str(v.name) for n in pair.int8_model.graph for v in n.outputs}
    mine = {str(v.name) for n in pair.float_model.graph for v in n.outputs}
    common = [t for t in tensors if t in made and t in mine]
    if not common:
        return ()
    inner = Pair(watching(pair.float_model, common), watching(pair.int8_model, common), pair.engine, pair.options)
    noises = [_Noise() for _ in common]
    for feeds in data.part(0, LAYER_SAMPLES).batches(1):
        first, second = inner.on(feeds)

        def compare(wanted: list[np.ndarray], got: Session = second, feeds: Batch = feeds) -> None:
            for noise, a, b in zip(noises, wanted, got.run(feeds)):
                noise.add(a, b)

        first.look(feeds, compare)
    found = [LayerError(t, noise.decibel) for t, noise in zip(common, noises)]
    return tuple(sorted(found, key=lambda e: e.sqnr))


def repeated(sample: Batch, batch: int) -> Batch:
    """One sample as a batch of that size.

    Raises:
        InputError: it does not fit into memory.
    """
    check_arrays({n: ((batch, *a.shape[1:]), a.itemsize) for n, a in sample.items()}, f"batch {batch}")
    return {n: np.repeat(a[:1], batch, axis=0) for n, a in sample.items()}


def speed(pair: Pair, sample: Batch, batch: int) -> Speed:
    """Latency of both models by turns, on one sample repeated ``batch`` times."""
    feeds = repeated(sample, batch)
    first, second = pair.on(feeds)
    times = by_turns({"float": lambda: first.run(feeds), "int8": lambda: second.run(feeds)}, SECONDS, least=15)
    return Speed(
        batch=batch,
        float_ms=1e3 * float(np.median(times["float"])),
        int8_ms=1e3 * float(np.median(times["int8"])),
        speedup=float(np.median(times["float"] / times["int8"])),
    )


def executed(model: ir.Model, engine: str, sample: Batch, options: EngineOptions | None = None) -> dict[str, int]:
    """Layers that multiply, as the engine really executed them, counted by precision: ``{"i8": 53, "f32": 1}``."""
    shapes = {n: a[:1].shape for n, a in sample.items()}
    profiled = dataclasses.replace(options or EngineOptions(), profile=True)
    session = engines.get(engine).load(model, profiled, shapes)
    session.run({n: np.ascontiguousarray(a[:1]) for n, a in sample.items()})
    counts: dict[str, int] = {}
    for layer in session.profile():
        if layer.op in COMPUTE_LAYERS:
            word = "int8" if layer.precision in ("i8", "u8") else layer.precision
            counts[word] = counts.get(word, 0) + 1
    session.close()
    return dict(sorted(counts.items()))


def drop(found: Accuracy) -> float:
    """The loss that ``max_drop`` bounds, in percent points: of the metric if there is one, else of agreement.

    Raises:
        QuantizationError: the outputs are not classes and there is no metric.
    """
    if found.metric is not None:
        before, after = found.metric
        return 100 * (before - after)
    if found.agreement is not None:
        return 100 * (1 - found.agreement)
    raise QuantizationError(
        "max_drop needs a figure of accuracy, and the outputs are not scores of classes",
        next="pass metric=..., or set min_sqnr instead",
    )
