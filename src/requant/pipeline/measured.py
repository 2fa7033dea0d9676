"""Mode ``measured``: which layers become INT8 is decided by what the engine measures as faster on this machine.

The model all in float and the one all in int8 are profiled layer by layer, which proposes mixtures: blocks, kinds and
single layers back to float where they are slower in int8. Every mixture is then compiled and timed as a whole, by
turns with the best so far, since conversions at borders and fusions are in no layer's own time. What wins must keep
the error bound. At the end the two pure models and the winner are timed by turns once more, and the fastest is taken:
so the result is slower than neither, and where float is fastest the result is the float model.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from requant import engines
from requant.engines.base import EngineOptions
from requant.engines.session import Session
from requant.errors import CalibrationError, QuantizationError
from requant.formats.dataset import Batch
from requant.pipeline.layer_times import node_times
from requant.pipeline.measurements import Measurements
from requant.pipeline.timing import by_turns
from requant.quant.blocks import Block, blocks, kinds
from requant.quant.plan import Plan
from requant.report import Candidate, Choice, LayerTime

log = logging.getLogger(__name__)

Precision = Literal["f32", "bf16", "f16"]
#: Seconds that a search takes, calibration and verification not counted.
BUDGET = 60.0
#: Share of the budget that is kept for the last comparison, and share after which no more profiles are made.
LAST, PROFILING = 0.15, 0.1
#: Profiles of each pure model, at most.
PROFILES = 3
#: Seconds of one comparison, and rounds at least.
SECONDS, ROUNDS = 1.2, 9
#: How much faster a mixture must be to be taken; differences below are noise.
MARGIN = 0.01
#: A block is tried the other way round only where its profile is not clearly against it.
HOPELESS = 0.75

#: Differences up to this are none: of two equals the one with more int8 is taken, whose file is smaller.
EQUAL = 0.005
#: Reasons in plans: why a node is float, and what stands before the figures.
FASTER_FLOAT, MEASURED = "faster in float on this machine", " (measured: "

#: Microseconds of each node in float and in int8.
Times = Mapping[str, tuple[float, float]]
#: Builds the plan and model whose given nodes stay in float.
Make = Callable[[frozenset[str]], tuple[Plan, ir.Model]]
#: Judges a model: whether it keeps the error bound, and the signal to noise of its worst output.
Judge = Callable[[Plan, ir.Model, Precision], tuple[bool, float]]


@dataclass(frozen=True)
class Variant:
    """One way to run the model.

    Attributes:
        name: what it is called in the report.
        floats: int8 nodes of the first plan that stay in float.
        precision: arithmetic of what is float.
    """

    name: str
    floats: frozenset[str]
    precision: Precision = "f32"

    @property
    def key(self) -> str:
        """Equal for equal variants, whatever they are called."""
        words = "\n".join((self.precision, *sorted(self.floats)))
        return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:24]


@dataclass(frozen=True)
class Outcome:
    """What was chosen: its plan (decisions say why), the model, the arithmetic of its float layers, and all figures."""

    plan: Plan
    model: ir.Model
    precision: Precision
    choice: Choice


def all_float(plan: Plan, why: str) -> Plan:
    """The plan with every node in float."""
    decisions = (
        d if d.chosen == "float" else dataclasses.replace(d, chosen="float", why=why, inputs=(), weight=None, bias=None)
        for d in plan.decisions
    )
    return dataclasses.replace(plan, decisions=tuple(decisions), tensors=())


class Search:
    """The search for the fastest mixture within an error bound.

    Args:
        floating: the optimized float model.
        first: the plan of the model all in int8.
        make: builds mixtures.
        judge: judges them; the float model itself needs no judge.
        feeds: what one measured run reads.
        engine: name of the engine.
        figures: where measurements are kept, and found again.
        budget: seconds of the whole search.
        precisions: arithmetic that the float layers may use, beside float32.

    Raises:
        QuantizationError: the budget is no positive number.
        EngineError: the engine has no such arithmetic here.
    """

    def __init__(
        self,
        floating: ir.Model,
        first: Plan,
        make: Make,
        judge: Judge,
        feeds: Batch,
        *,
        engine: str,
        figures: Measurements,
        budget: float = BUDGET,
        precisions: Iterable[Precision] = (),
    ) -> None:
        if not (budget > 0 and math.isfinite(budget)):
            raise QuantizationError(
                "the budget must be a positive number of seconds",
                got=budget,
                next="leave it out to search for a minute",
            )
        self.floating, self.first, self._make, self._judge = floating, first, make, judge
        self.feeds, self.engine, self.figures, self.budget = feeds, engine, figures, budget
        self.precisions = tuple(p for p in precisions if p != "f32")
        self.nodes = tuple(d.node for d in first.decisions if d.chosen == "int8")
        self.compute = {d.node for d in first.decisions if d.chosen == "int8" and d.op_type in first.scheme.compute}
        self.float, self.int8 = Variant("all in float", frozenset(self.nodes)), Variant("all in int8", frozenset())
        self.best = self.float
        self.sessions: dict[str, Session] = {}
        self.verdicts: dict[str, tuple[bool, float]] = {self.float.key: (True, math.inf)}
        self.tried: dict[str, tuple[Variant, float, float]] = {self.float.key: (self.float, math.nan, 1.0)}
        self.reused = 0
        self.complete = True

    def run(self) -> Outcome:
        """Search until everything worth trying was tried, or the budget ends."""
        self.start = time.perf_counter()
        try:
            times = self._profiles()
            self._try(self.int8)
            for variant in self._mixtures(times):
                self._try(variant)
            for precision in self.precisions:
                for variant in dict.fromkeys((self.best, self.float, self.int8)):
                    self._try(dataclasses.replace(variant, name=f"{variant.name}, {precision}", precision=precision))
            return self._decide(times)
        finally:
            for session in self.sessions.values():
                session.close()

    # -- building ----------------------------------------------------------------------------------------------------

    def _built(self, variant: Variant) -> tuple[Plan, ir.Model]:
        if variant.floats >= self.compute:
            return all_float(self.first, FASTER_FLOAT), self.floating.clone()
        return self._make(variant.floats)

    def _session(self, variant: Variant) -> Session:
        if variant.key not in self.sessions:
            options = EngineOptions(precision=variant.precision)
            self.sessions[variant.key] = self._load(self._built(variant)[1], options)
        return self.sessions[variant.key]

    def _load(self, model: ir.Model, options: EngineOptions) -> Session:
        return engines.get(self.engine).load(model, options, {n: a.shape for n, a in self.feeds.items()})

    def _keeps_bound(self, variant: Variant) -> bool:
        if variant.key not in self.verdicts:
            self.verdicts[variant.key] = self._judge(*self._built(variant), variant.precision)
        return self.verdicts[variant.key][0]

    # -- measuring ---------------------------------------------------------------------------------------------------

    def _profiles(self) -> dict[str, tuple[float, float]]:
        """Microseconds of each int8 node in float and in int8."""
        if (known := self.figures.get("profiles")) is not None:
            self.reused += 1
            return {node: (float(known[node][0]), float(known[node][1])) for node in self.nodes}
        profiled, found = EngineOptions(profile=True), []
        start = time.perf_counter()
        for _ in range(PROFILES):  # engines tell means: of several, the least was disturbed least
            with self._load(self.floating, profiled) as one, self._load(self._built(self.int8)[1], profiled) as two:
                calls = {"float": _runner(one, self.feeds), "int8": _runner(two, self.feeds)}
                by_turns(calls, min(SECONDS, self.budget / 20), least=5)
                found.append([node_times(s.profile(), self.floating, self.first) for s in (one, two)])
            if time.perf_counter() - start > PROFILING * self.budget:
                break
        times = {n: (min(f[0].get(n, 0.0) for f in found), min(f[1].get(n, 0.0) for f in found)) for n in self.nodes}
        self.figures.put("profiles", times)
        return times

    def _try(self, other: Variant) -> None:
        """Measure a variant beside the best so far; it takes its place if it is faster and keeps the bound."""
        best, name = self.best, f"{self.best.key} or {other.key}"
        known = self.figures.get(name)
        if known is not None:
            self.reused += 1
        else:
            if other != self.int8 and time.perf_counter() - self.start > self.budget * (1 - LAST):
                self.complete = False
                return
            try:
                known = self._compare(best, other)
            except CalibrationError as fault:  # the table of an earlier run lacks a tensor that this mixture needs
                log.info("%s cannot be built: %s", other.name, fault)
                self.complete = False
                return
            self.figures.put(name, known)
        ratio, noise = float(known["ratio"]), float(known["noise"])
        if math.isnan(self.tried[best.key][1]):
            self.tried[best.key] = (best, float(known["best_ms"]), 1.0)
        self.tried[other.key] = (other, float(known["other_ms"]), self.tried[best.key][2] * ratio)
        log.info("%s: %.3f of the time of %s (noise %.3f)", other.name, ratio, best.name, noise)
        if ratio < 1 - max(MARGIN, 2 * noise) and self._keeps_bound(other):
            self.best = other
        for variant in (best, other):
            if variant.key not in (self.best.key, self.float.key, self.int8.key) and variant.key in self.sessions:
                self.sessions.pop(variant.key).close()

    def _compare(self, best: Variant, other: Variant) -> dict[str, float]:
        one, two = self._session(best), self._session(other)
        calls = {"best": _runner(one, self.feeds), "other": _runner(two, self.feeds)}
        times = by_turns(calls, min(SECONDS, self.budget / 8), least=ROUNDS)
        ratio, noise = ratio_of(times["other"], times["best"])
        return {
            "ratio": ratio,
            "noise": noise,
            "best_ms": 1e3 * float(np.median(times["best"])),
            "other_ms": 1e3 * float(np.median(times["other"])),
        }

    # -- what to try -------------------------------------------------------------------------------------------------

    def _mixtures(self, times: Times) -> Iterator[Variant]:
        """Mixtures that the profiles recommend, then the best so far with one group of nodes the other way round."""
        parts = blocks(self.floating, self.first)
        sorts = [Block(k, n) for k, n in kinds(self.floating, self.first.decisions).items()]
        singles = [Block(n, (n,)) for n in self.nodes if n in self.compute]
        seen = {self.float.key, self.int8.key}

        def fresh(name: str, floats: Iterable[str]) -> Iterator[Variant]:
            variant = Variant(name, frozenset(floats))
            if variant.key not in seen and not variant.floats >= self.compute:
                seen.add(variant.key)
                yield variant

        for name, groups in (("blocks", parts), ("kinds of layers", sorts), ("layers", singles)):
            slower = [n for g in groups if _gain(g, times) > 0 for n in g.nodes]
            yield from fresh(f"{name} that are slower in int8 stay float", slower)
        least = MARGIN * sum(max(t) for t in times.values())
        for group in sorted((*sorts, *parts, *singles), key=lambda g: -abs(_gain(g, times))):
            nodes, (in_float, in_int8) = set(group.nodes), _sums(group, times)
            is_float = nodes <= self.best.floats
            now, then = (in_float, in_int8) if is_float else (in_int8, in_float)
            if max(now, then) < least or now < HOPELESS * then:
                continue  # too small to be seen, or clearly right as it is
            floats = self.best.floats - nodes if is_float else self.best.floats | nodes
            yield from fresh(f"{group.name} in {'int8' if is_float else 'float'} too", floats)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _decide(self, times: Times) -> Outcome:
        """The last comparison: both pure models and the best, by turns."""
        finalists = list(dict.fromkeys((self.int8, self.best, self.float)))  # in the order of preference among equals
        sessions = {v.name: self._session(v) for v in finalists}
        calls = {name: _runner(session, self.feeds) for name, session in sessions.items()}
        measured = by_turns(calls, max(SECONDS, LAST * self.budget), least=2 * ROUNDS)
        ratios = {v: ratio_of(measured[v.name], measured[self.float.name])[0] for v in finalists}
        allowed = [v for v in finalists if self._keeps_bound(v)]
        fastest = min(ratios[v] for v in allowed)
        chosen = next(v for v in allowed if ratios[v] <= fastest * (1 + EQUAL))
        plan, model = self._built(chosen)
        candidates = [
            self._candidate(v, 1e3 * float(np.median(measured[v.name])), ratios[v], True, v == chosen)
            for v in finalists
        ]
        rest = [t for t in self.tried.values() if t[0] not in finalists]
        candidates += [self._candidate(v, ms, ratio) for v, ms, ratio in sorted(rest, key=lambda t: t[2])]
        batch = max((len(a) for a in self.feeds.values() if a.ndim), default=1)
        layers = tuple(self._layers(plan, times))
        choice = Choice(batch, tuple(candidates), layers, time.perf_counter() - self.start, self.complete, self.reused)
        log.info("chosen: %s, %.3f of the time of float", chosen.name, ratios[chosen])
        return Outcome(_explained(plan, layers), model, chosen.precision, choice)

    def _candidate(
        self, variant: Variant, milliseconds: float, ratio: float, final: bool = False, chosen: bool = False
    ) -> Candidate:
        count = len(set(self.nodes) - variant.floats) if not variant.floats >= self.compute else 0
        verdict = self.verdicts.get(variant.key)
        sqnr = None if verdict is None else verdict[1]
        return Candidate(variant.name, count, variant.precision, milliseconds, ratio, sqnr, final, chosen)

    def _layers(self, plan: Plan, times: Times) -> Iterator[LayerTime]:
        block_of = {n: b.name for b in blocks(self.floating, self.first) for n in b.nodes}
        for decision in plan.decisions:
            if decision.node in times:
                chosen = "int8" if decision.chosen == "int8" else "float"
                a, b = times[decision.node]
                yield LayerTime(decision.node, decision.op_type, block_of[decision.node], chosen, a, b)


def _runner(session: Session, feeds: Batch) -> Callable[[], object]:
    return lambda: session.run(feeds)


def _explained(plan: Plan, layers: Iterable[LayerTime]) -> Plan:
    """The plan with what was measured in its reasons."""
    known = {layer.node: layer for layer in layers}
    decisions = []
    for d in plan.decisions:
        if (layer := known.get(d.node)) is not None:
            figures = f"{MEASURED}{layer.float_us:.1f} µs in float, {layer.int8_us:.1f} in int8)"
            why = FASTER_FLOAT if d.why.startswith("excluded ") else d.why  # by this search: these are no user's nodes
            d = dataclasses.replace(d, why=why + figures)
        decisions.append(d)
    return dataclasses.replace(plan, mode="measured", decisions=tuple(decisions))


def reason(why: str) -> str:
    """A decision's reason without the figures that were measured, so that equal ones can be counted."""
    return why.split(MEASURED)[0]


def ratio_of(times: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The median ratio of two calls measured by turns, and how uncertain it is (one standard error, robustly)."""
    ratios = times / others
    middle = float(np.median(ratios))
    spread = 1.4826 * float(np.median(np.abs(ratios - middle)))
    return middle, 1.2533 * spread / math.sqrt(len(ratios))


def _sums(group: Block, times: Times) -> tuple[float, float]:
    """Microseconds of a group in float and in int8."""
    return sum(times[n][0] for n in group.nodes), sum(times[n][1] for n in group.nodes)


def _gain(group: Block, times: Times) -> float:
    """Microseconds that a group saves in float; negative if it is faster in int8."""
    in_float, in_int8 = _sums(group, times)
    return in_int8 - in_float
