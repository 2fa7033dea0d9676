"""What a quantization did, as data: accuracy, speed, size, and how each layer really runs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from requant.errors import counted


@dataclass(frozen=True)
class LayerError:
    """How far a tensor of the int8 model is from the float model's.

    Attributes:
        tensor: the float graph's name of it.
        sqnr: signal to quantization noise, in decibel; higher is better, infinite for equal.
    """

    tensor: str
    sqnr: float


@dataclass(frozen=True)
class Speed:
    """Float and int8 on one machine, by turns in one run.

    Attributes:
        batch: samples a run.
        float_ms, int8_ms: medians of one run, in milliseconds.
        speedup: median of the ratios of each turn; above 1 the int8 model is faster.
        float_rate, int8_rate: samples a second with many requests under way; 0 where it was not measured.
    """

    batch: int
    float_ms: float
    int8_ms: float
    speedup: float
    float_rate: float = 0.0
    int8_rate: float = 0.0


@dataclass(frozen=True)
class Candidate:
    """One way to run a model that was measured.

    Attributes:
        name: what it is.
        int8: how many nodes compute on integers.
        precision: arithmetic of the rest.
        milliseconds: median of one run.
        ratio: median over the turns of its time over that of the model all in float; below 1 it is faster.
        sqnr: signal to noise of its worst output, in decibel; None if it was never judged, because it was not fastest.
        final: it was in the last comparison, in which all were measured by turns; others were compared with the best
            that there was at the time, and their ratio is a product.
        chosen: it is the result.
    """

    name: str
    int8: int
    precision: str
    milliseconds: float
    ratio: float
    sqnr: float | None = None
    final: bool = False
    chosen: bool = False


@dataclass(frozen=True)
class LayerTime:
    """One layer, measured both ways in models that are all float and all int8.

    Attributes:
        node: name of the ONNX node.
        op_type: its operator.
        block: name of the block of layers that it belongs to.
        chosen: ``int8`` or ``float``.
        float_us, int8_us: microseconds of one run, with what is fused into it and the conversions right before it.
    """

    node: str
    op_type: str
    block: str
    chosen: str
    float_us: float
    int8_us: float


@dataclass(frozen=True)
class Choice:
    """What mode ``measured`` measured, and chose.

    Attributes:
        batch: samples of one run.
        candidates: the model all in float, the one all in int8, and the result if it is another: measured by turns at
            the end; then what else was tried, fastest first.
        layers: every layer that could be int8, with its times.
        seconds: how long it took.
        complete: everything that was worth trying was tried within the budget.
        reused: how many figures came from the file of measurements.
    """

    batch: int
    candidates: tuple[Candidate, ...]
    layers: tuple[LayerTime, ...]
    seconds: float
    complete: bool
    reused: int = 0

    @property
    def chosen(self) -> Candidate:
        """The candidate that is the result."""
        return next(c for c in self.candidates if c.chosen)

    def rows(self) -> list[tuple[str, str]]:
        """The choice as (what, figure) lines for a table."""
        found = []
        for c in (c for c in self.candidates if c.final):
            quality = "" if c.sqnr is None else f", {_decibel(c.sqnr)}"
            word = "; chosen" if c.chosen else ""
            times = f"{c.milliseconds:.2f} ms, {c.ratio:.3f} of float's time"
            text = f"{times}, {counted(c.int8, 'int8 layer')}{quality}{word}"
            found.append((f"measured, {c.name}", text))
        tried = f"{counted(len(self.candidates), 'candidate')} in {self.seconds:.1f} s"
        tried += f", {counted(self.reused, 'figure')} from earlier runs" if self.reused else ""
        found.append(("search", tried + ("" if self.complete else "; the budget ended before everything was tried")))
        return found


@dataclass(frozen=True)
class Report:
    """The outcome of a quantization, measured on the saved and reloaded file.

    Attributes:
        source: the float model.
        engine: what it was quantized for and measured on.
        mode, calibrator: how.
        samples, held_out: how many samples calibrated it, and how many (others) it was judged by.
        decisions: how many nodes of the plan are int8, through, fused, float.
        reasons: why nodes stayed float, with counts.
        executed: layers as the engine executed them, by precision (``{"i8": 53, "f32": 2}``).
        outputs: signal to noise of each output.
        layers: signal to noise of tensors on the way, worst first.
        agreement: share of held-out samples whose best class is the float model's; None where outputs are not classes.
        metric: the user's own figure for the float and the int8 model, if given.
        speed: latency and throughput by batch.
        float_bytes, int8_bytes: sizes of the files.
        seconds: what took how long.
        goals: for each goal that was set, what was reached.
        met: whether all of them were.
        notes: what the reader should know.
        choice: what mode ``measured`` measured; None in the other modes.
    """

    source: str
    engine: str
    mode: str
    calibrator: str
    samples: int
    held_out: int
    decisions: Mapping[str, int]
    reasons: Mapping[str, int]
    executed: Mapping[str, int]
    outputs: Mapping[str, float]
    layers: tuple[LayerError, ...]
    agreement: float | None
    metric: tuple[float, float] | None
    speed: tuple[Speed, ...]
    float_bytes: int
    int8_bytes: int
    seconds: Mapping[str, float]
    goals: Mapping[str, str] = field(default_factory=dict)
    met: bool = True
    notes: tuple[str, ...] = ()
    choice: Choice | None = None

    @property
    def sqnr(self) -> float:
        """The worst output's signal to noise, in decibel."""
        return min(self.outputs.values(), default=math.inf)

    @property
    def size_ratio(self) -> float:
        """Bytes of the int8 file over bytes of the float file."""
        return self.int8_bytes / self.float_bytes if self.float_bytes else math.nan

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; infinite decibels are None."""
        plain: dict[str, Any] = _finite(dataclasses.asdict(self))
        return plain

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.as_dict(), indent=2)

    def rows(self) -> list[tuple[str, str]]:
        """The report as (what, figure) lines for a table."""
        found = [
            ("engine, mode, calibrator", f"{self.engine}, {self.mode}, {self.calibrator}"),
            ("samples: calibration, held out", f"{self.samples}, {self.held_out}"),
            ("nodes in the plan", ", ".join(f"{n} {k}" for k, n in self.decisions.items() if n)),
            ("layers as executed", ", ".join(f"{n} {k}" for k, n in self.executed.items()) or "not measured"),
        ]
        found += [(f"signal to noise of {n}", _decibel(v)) for n, v in self.outputs.items()]
        if self.layers:
            found.append(("weakest tensor", f"{self.layers[0].tensor}: {_decibel(self.layers[0].sqnr)}"))
        if self.agreement is not None:
            found.append(("best class as the float model's", f"{100 * self.agreement:.2f} %"))
        if self.metric is not None:
            found.append(("metric: float, int8", f"{self.metric[0]:.6g}, {self.metric[1]:.6g}"))
        for s in self.speed:
            rates = f"; {s.float_rate:.1f} -> {s.int8_rate:.1f} samples/s" if s.float_rate else ""
            found.append(
                (
                    f"batch {s.batch}: float, int8",
                    f"{s.float_ms:.2f} ms, {s.int8_ms:.2f} ms: {s.speedup:.2f} times{rates}",
                )
            )
        if self.choice is not None:
            found += self.choice.rows()
        sizes = f"{self.float_bytes / 2**20:.2f} MiB, {self.int8_bytes / 2**20:.2f} MiB: {self.size_ratio:.2f}"
        found.append(("file: float, int8", sizes))
        found += [(f"goal {name}", text) for name, text in self.goals.items()]
        found += [("note", text) for text in self.notes]
        return found

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(name) for name, _ in rows)
        return "\n".join([f"{self.source} as INT8", *(f"  {name:<{width}}  {text}" for name, text in rows)])


def _decibel(value: float) -> str:
    return "equal" if math.isinf(value) else f"{value:.1f} dB"


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
