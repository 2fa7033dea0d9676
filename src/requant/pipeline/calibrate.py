"""Calibration: run the float model over data and keep statistics of the tensors that a plan will quantize.

Only those tensors are looked at, and they never leave the engine's memory as a whole: min and max are reduced inside
the graph, histograms are counted in place. Statistics do not depend on how the data is cut into batches, so batches are
cut small enough for the observed tensors of one to stay within a bounded memory.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines.base import Engine, EngineOptions
from requant.engines.machine import usable_cores
from requant.engines.session import Session
from requant.engines.split import NEAR
from requant.errors import CalibrationError, counted
from requant.formats.dataset import Batch, Dataset
from requant.formats.images import METADATA_KEY, Preprocess
from requant.passes.rewrite import users_names
from requant.pipeline.watch import Reduction, averaged, averaging, by_depth, reducing, watching
from requant.qmath import Range
from requant.quant.bias import mean_axes
from requant.quant.calibrators import calibrator as calibrator_of
from requant.quant.declared import compare_declared
from requant.quant.fingerprint import fingerprint
from requant.quant.histogram import MinMax
from requant.quant.nonfinite import NonFiniteActivation, NonFiniteEnds
from requant.quant.plan import Plan
from requant.quant.table import CalibrationTable, Policy
from requant.scheme import Scheme

log = logging.getLogger(__name__)

#: Bytes of observed tensors that the batches under way may hold.
MEMORY = 384 * 2**20
#: Runs side by side: more cores than this wait for the counting, which runs on one.
STREAMS = 4
#: Share of the samples that ``auto`` keeps apart to judge candidate ranges by.
HELD_OUT = 0.25

#: Samples whose range is compared with what was declared of the data.
_LOOK_AT = 32
_ALONE = EngineOptions(split=False)  # a batch is looked at as a whole, where it lies

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Calibrated:
    """A filled table, and how long it took."""

    table: CalibrationTable
    seconds: float


def calibrate(
    model: ir.Model,
    plan: Plan,
    data: Dataset,
    *,
    calibrator: str = "auto",
    options: Mapping[str, float] | None = None,
    engine: str = engines.DEFAULT,
    batch: int = 16,
    policy: Policy = "error",
    threads: int | None = None,
    also: Sequence[str] = (),
    progress: Progress | None = None,
) -> CalibrationTable:
    """Observe the tensors of a plan over data.

    Args:
        model: the optimized float model that was planned.
        plan: says which tensors to observe.
        data: the calibration samples.
        calibrator: ``naive``, ``entropy``, ``percentile``, ``mse`` or ``auto``.
        options: the calibrator's own settings.
        engine: what runs the float model.
        batch: samples a run, at most; fewer where the observed tensors are large.
        policy: ``error`` or ``skip`` for samples that make NaN or Inf.
        threads: CPU threads for counting; all that are usable by default.
        also: more tensors to observe, beside those of the plan.
        progress: called with (samples done, samples in all).
    Returns:
        A table with the model's fingerprint, ready to be saved, merged, or asked for ranges.
    Raises:
        NonFiniteActivation: NaN or Inf in an activation; the message names tensor, node and sample.
        CalibrationError: there is no data, or it does not fit the model.
    """
    if len(data) == 0:
        raise CalibrationError(
            "there is no calibration data",
            where=data.what,
            expected="at least one sample",
            next="give data (--data PATH)",
        )
    tensors = tuple(dict.fromkeys((*plan.observed, *also)))
    made = CalibrationTable(tensors, calibrator, options=options)
    cores = usable_cores()
    # One batch is counted on one core while the others compute the next; small operators, as those that reduce ends,
    # share no work between cores, so several runs at a time do more there too.
    streams = min(threads or cores, cores, STREAMS)
    observer = Observer(
        model,
        tensors,
        made,
        engines.get(engine),
        policy,
        1 if streams > 1 else threads or cores,
        mean_axes(model, plan),
        EngineOptions(hint="throughput", streams=streams, threads=threads, split=False) if streams > 1 else _ALONE,
    )
    size = observer.batch_size(data, batch, streams + 1 if streams > 1 else 1)
    apart = int(len(data) * HELD_OUT) if calibrator == "auto" and len(data) >= 8 else 0
    done = 0
    start = time.perf_counter()

    def added(samples: int) -> None:
        nonlocal done
        done += samples
        if progress is not None:
            progress(done, len(data))

    # Hashing hundreds of megabytes needs no lock of Python's, and compiling keeps one core busy.
    with ThreadPoolExecutor(1) as beside:
        mark = beside.submit(fingerprint, model)
        for part, held_out in (
            (data.part(0, len(data) - apart), False),
            (data.part(len(data) - apart, len(data)), True),
        ):
            observer.observe_all(part.batches(size), done, held_out, added)
    made.model = mark.result()
    if made.skipped:
        log.warning("skipped, for making NaN or Inf: %d of %s", made.skipped, counted(len(data), "sample"))
    log.info(
        "calibrated %s with %r on %s in %.2f s",
        counted(len(made), "tensor"),
        calibrator,
        counted(done, "sample"),
        time.perf_counter() - start,
    )
    return made


def misfit(data: Dataset, metadata: Mapping[str, str]) -> str | None:
    """A sentence of warning where data are one number, or far from what the preprocessing in a model's metadata makes.

    The usual cause: arrays of raw pixels for a network that wants mean and standard deviation, or the reverse.

    Args:
        data: calibration samples. Images went through the preprocessing, and are not looked at.
        metadata: of the model; without preprocessing in it there is nothing to compare with.
    """
    if data.prepare is not None or not len(data):
        return None
    first = data.samples(0, min(_LOOK_AT, len(data)))
    for name, array in first.items():
        if array.dtype.kind == "f" and array.size > 1 and float(array.min()) == float(array.max()):
            return (
                f"input {name!r}: all values are {float(array.flat[0]):g} in the {counted(len(array), 'sample')} "
                "looked at; ranges calibrated on such data do not fit real ones"
            )
    if METADATA_KEY not in metadata:
        return None
    declared = Range(*Preprocess.from_json(metadata[METADATA_KEY]).ends())
    image = next((n for n, a in first.items() if a.ndim == 4 and a.dtype.kind == "f"), None)
    if image is None:
        return None
    table = CalibrationTable([image], "naive")
    seen = table.observe({image: first[image]}, policy="skip")
    return compare_declared(image, table.entry(image).statistic.range, declared) if seen.samples else None


class Observer:
    """Runs the model and feeds the table: ends that the graph reduces, or whole tensors looked at in place."""

    def __init__(
        self,
        model: ir.Model,
        tensors: Sequence[str],
        table: CalibrationTable,
        engine: Engine,
        policy: Policy,
        threads: int,
        axes: Mapping[str, int],
        options: EngineOptions = _ALONE,
    ) -> None:
        self.model, self.table, self.engine, self.policy, self.threads = model, table, engine, policy, threads
        self.options = options
        inputs = {str(v.name) for v in model.graph.inputs}
        self.fed = [t for t in tensors if t in inputs]
        self.made = [t for t in tensors if t not in inputs]
        ends = calibrator_of(table.calibrator).needs is MinMax and policy == "error"
        # Means of channels are for bias correction: of inputs by hand, of inner tensors inside the graph.
        self.fed_axes = {t: a for t, a in axes.items() if t in self.fed}
        self.axes = averaged(model, {t: a for t, a in axes.items() if t in self.made})
        self.reduction = reducing(model, self.made) if ends and self.made else None
        self.sessions: dict[tuple[tuple[int, ...], ...], Session] = {}
        self.places: list[int] = []  # where each output stands among those of the sessions
        self.values = {str(v.name): v for n in model.graph for v in n.outputs}

    def batch_size(self, data: Dataset, wanted: int, flying: int = 1) -> int:
        """Samples a run: few enough for the caches, and for the observed tensors of ``flying`` runs to be bounded."""
        sample = data.samples(0, 1)
        largest = max(v.nbytes for v in sample.values())
        sizes = [self._bytes(t, largest) for t in self.made]
        near = max(2, NEAR // (2 * max(sizes, default=1)))
        if self.reduction:
            return min(wanted, near)
        return max(1, min(wanted, near, MEMORY // (flying * max(1, sum(sizes)))))

    def _bytes(self, tensor: str, otherwise: int) -> int:
        shape = self.values[tensor].shape
        dims = [] if shape is None else list(shape)[1:]
        if shape is None or not all(isinstance(d, int) for d in dims):
            return 4 * otherwise  # a guess on the safe side for most networks: wider than its input
        return 4 * int(np.prod([int(d) for d in dims if isinstance(d, int)]))

    def _session(self, feeds: Batch) -> Session:
        key = tuple(a.shape for a in feeds.values())
        if key not in self.sessions:
            if self.reduction:
                watched = self.reduction.model.clone()
            else:
                watched = watching(self.model, self.made, channels_last=self.engine.channels_last)
            averaging(watched, self.axes)
            self.places = by_depth(watched)
            self.sessions[key] = self.engine.load(watched, self.options, {n: a.shape for n, a in feeds.items()})
        return self.sessions[key]

    def _padded(self, feeds: Batch, samples: int) -> Batch:
        """A last, smaller batch filled up with its first sample to a size that is compiled already."""
        for shapes in self.sessions:
            size = shapes[0][0]
            if size > samples and all(s == (size, *a.shape[1:]) for s, a in zip(shapes, feeds.values())):
                return {n: np.concatenate([a, np.repeat(a[:1], size - samples, axis=0)]) for n, a in feeds.items()}
        return feeds

    def observe(self, feeds: Batch, first: int, held_out: bool) -> None:
        """Add one batch. ``first`` is the number of its first sample, for messages."""
        self.observe_all([feeds], first, held_out)

    def observe_all(
        self, batches: Iterable[Batch], first: int, held_out: bool, added: Callable[[int], None] | None = None
    ) -> None:
        """Add batches, the next ones under way while one is counted.

        Args:
            batches: feeds of the model.
            first: number of their first sample, for messages.
            held_out: keep them apart, to judge ranges by.
            added: called with the number of samples of each batch, once it is added.
        """
        flying: deque[tuple[Batch, Batch, int]] = deque()
        at = first

        def fill(session: Session | None, source: Iterator[Batch]) -> Iterator[Batch]:
            """What the session takes, until a batch of another shape comes, which is put back."""
            for feeds in source:
                samples = len(next(iter(feeds.values())))
                whole = self._padded(feeds, samples)
                if self._session(whole) is not session:
                    waiting.append(feeds)
                    return
                flying.append((feeds, whole, samples))
                yield whole

        def land(found: list[np.ndarray]) -> None:
            nonlocal at
            feeds, whole, samples = flying.popleft()
            outs = [found[i] for i in self.places]
            try:
                if self.reduction:
                    self._count_ends(feeds, whole, outs, samples, self.reduction)
                else:
                    self._count(feeds, outs, samples, held_out)
            except NonFiniteActivation as fault:
                raise self._named(fault, at) from fault
            at += samples
            if added is not None:
                added(samples)

        waiting: list[Batch] = []
        source = iter(batches)
        while (feeds := waiting.pop() if waiting else next(source, None)) is not None:
            if not self.made:
                samples = len(next(iter(feeds.values())))
                flying.append((feeds, feeds, samples))
                land([])
            else:
                session = self._session(self._padded(feeds, len(next(iter(feeds.values())))))
                session.look_many(fill(session, itertools.chain([feeds], source)), land)

    def _count(self, feeds: Batch, outs: list[np.ndarray], samples: int, held_out: bool) -> None:
        # What was filled up is cut off again; tensors without a batch axis are taken as they are.
        cut = [a[:samples] if a.ndim and a.shape[0] > samples else a for a in outs]
        batch = {**dict(zip(self.made, cut)), **{t: feeds[t] for t in self.fed}}
        self.table.observe(batch, samples=samples, held_out=held_out, policy=self.policy, threads=self.threads)
        self._average(feeds, cut[len(self.made) :])

    def _average(self, feeds: Batch, means: Sequence[np.ndarray]) -> None:
        found = dict(zip(self.axes, means))
        for tensor, axis in self.fed_axes.items():
            array = feeds[tensor]
            over = tuple(a for a in range(1, array.ndim) if a != axis % array.ndim)
            found[tensor] = array.mean(axis=over) if over else array
        self.table.observe_means(found)

    def _count_ends(
        self, feeds: Batch, whole: Batch, outs: list[np.ndarray], samples: int, reduction: Reduction
    ) -> None:
        ends: dict[str, tuple[float, float]] = {t: (float(feeds[t].min()), float(feeds[t].max())) for t in self.fed}
        values = {t: feeds[t].size for t in self.fed}
        # Filling up with a sample changes neither minimum nor maximum.
        made, sizes, finite = reduction.read(outs)
        share = samples / len(next(iter(whole.values())))
        try:
            if not finite:
                raise NonFiniteEnds(self.made[0], float("nan"), float("nan"))
            counts = {t: max(1, round(n * share)) for t, n in sizes.items()}
            self.table.observe_ends({**ends, **made}, samples=samples, values={**values, **counts})
            self._average(feeds, [a[:samples] for a in outs[len(reduction.outputs) :]])
        except NonFiniteEnds:
            # Look again, at the tensors themselves: the message must name the tensor and the sample.
            scratch = CalibrationTable(self.table, self.table.calibrator)
            watched = watching(self.model, self.made)
            session = self.engine.load(watched, _ALONE, {n: a.shape for n, a in feeds.items()})

            def look(outs: list[np.ndarray]) -> None:
                scratch.observe({**dict(zip(self.made, outs)), **{t: feeds[t] for t in self.fed}}, samples=samples)

            session.look(feeds, look)
            self.table.merge(scratch)  # nothing there after all: only a sum overflowed

    def _named(self, fault: NonFiniteActivation, first: int) -> CalibrationError:
        node = self.values[fault.tensor].producer() if fault.tensor in self.values else None
        origin = "an input of the model" if node is None else f"node {users_names(node)[0]!r} ({node.op_type})"
        where = f"tensor {fault.tensor!r}, {origin}"
        sample = None if fault.sample is None else first + fault.sample
        return CalibrationError(
            fault.what,
            where=where,
            got=fault.got if sample is None else f"{fault.got}; sample {sample} of the data",
            expected=fault.expected,
            next=fault.next,
        )


def ranges(table: CalibrationTable, plan: Plan, calibrator: str | None = None) -> dict[str, Range]:
    """The ranges that a plan needs, from a table. A tensor without elements, which samples came to, has range 0 to 0.

    Raises:
        CalibrationError: a tensor was not observed.
    """
    entries = {t: table.entry(t) for t in plan.observed} if table.samples else {}
    empty = [t for t, e in entries.items() if e.fixed is None and not e.statistic.count]
    wanted = [t for t in plan.observed if t not in empty]
    together = {name: members for members in plan.groups.values() for name in members}
    by_scheme: dict[Scheme, list[str]] = {}
    for name in wanted:
        by_scheme.setdefault(plan.scheme_of(together[name]), []).append(name)
    found: dict[str, Range] = {}
    for scheme, names in by_scheme.items():
        found |= table.ranges(names, calibrator, scheme=scheme, threads=usable_cores())
    return {**found, **{t: Range(0.0, 0.0) for t in empty}}
