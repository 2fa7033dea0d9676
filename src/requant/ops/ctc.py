"""The CTC loss, whose value needs the labels at inference too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Shape, op

#: Stands for log(0): far below every log-probability, and still finite after many additions in single precision.
_NEVER = -1e30


@dataclass(frozen=True)
class CTCLossAttrs(Attrs):
    use_data_lengths: bool = False
    use_label_lengths: bool = False
    blank_label: Literal["first", "last"] = "first"


def _inputs(a: CTCLossAttrs) -> tuple[str, ...]:
    names = ["data", "label"]
    if a.use_data_lengths:
        names.append("data_lengths")
    if a.use_label_lengths:
        names.append("label_lengths")
    return tuple(names)


def _shapes(a: CTCLossAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"]
    if data is None or len(data) != 3 or not data[1]:
        return {}
    return {"data_lengths": (data[1],), "label_lengths": (data[1],)}


def _log_sum_exp(g: Emit, *terms: Value) -> Value:
    top = g("Max", *terms)
    return g("Add", top, g("Log", g("Sum", *(g("Exp", g("Sub", t, top)) for t in terms))))


def _extended(g: Emit, label: Value, lengths: Value, blank: Value) -> Value:
    """Labels (N, L) with blanks before, between and after: (N, 2 L + 1)."""
    n, size = g.size_of(label, [0]), g.dim(label, 1)
    inside = g("Less", g.const(np.arange(size)), g.unsqueeze(lengths, [1]))
    pairs = [g("Expand", blank, g.size_of(label)), g("Where", inside, label, blank)]
    woven = g.reshape(g("Concat", *(g.unsqueeze(p, [2]) for p in pairs), axis=2), [0, 2 * size])
    return g("Concat", woven, g("Expand", blank, g.concat_sizes([n, 1])), axis=1)


def _shifted(g: Emit, x: Value, by: int) -> Value:
    """x (N, S) moved ``by`` places to the right; what comes in is impossible."""
    size = g.dim(x, 1)
    pads = np.array([0, by, 0, 0], np.int64)
    return g.slice(g("Pad", x, pads, g.const(_NEVER, x)), [0], [size], [1])


@op(
    "CTCLoss",
    "ctc_loss",
    "_contrib_ctc_loss",
    "_contrib_CTCLoss",
    "_npx_ctc_loss",
    inputs=_inputs,
    outputs=("output0",),
    named_outputs=True,
    training=True,
    hidden_outputs=1,
    param_shapes=_shapes,
)
def ctc_loss(
    g: Emit,
    a: CTCLossAttrs,
    data: Value,
    label: Value,
    data_lengths: Value | None = None,
    label_lengths: Value | None = None,
) -> Value:
    """Connectionist temporal classification loss per sample, (N,) (Graves et al., 2006).

    data (T, N, C) before softmax, label (N, L). The blank is class 0 (``first``; labels end at the first 0) or C - 1
    (``last``; labels end at the first -1), unless ``label_lengths`` (N,) says where they end. The forward recursion
    over T steps is unrolled: T and L must be known.
    """
    steps, size = g.dim(data, 0), g.dim(label, 1)
    logp = g("LogSoftmax", data, axis=2)
    label = g.cast(label, np.int64)
    first = a.blank_label == "first"
    if first:
        blank = g.const(np.int64(0))
    else:
        blank = g("Sub", g.squeeze(g.size_of(data, [2]), [0]), 1)
    if label_lengths is None:
        ended = g("CumSum", g.cast(g("Equal", label, 0 if first else -1), np.int64), g.const(np.int64(1)))
        lengths = g.reduce("Sum", g.cast(g("Equal", ended, 0), np.int64), [1])
    else:
        lengths = g.cast(label_lengths, np.int64)
    classes = _extended(g, label, lengths, blank)
    places = 2 * size + 1
    shape = g.concat_sizes([steps, g.size_of(label, [0]), places])
    scores = g("GatherElements", logp, g("Expand", g.unsqueeze(classes, [0]), shape), axis=2)
    # A path may skip a blank between two different labels.
    before = g("Pad", classes, np.array([0, 2, 0, 0], np.int64), g.const(np.int64(-1)))
    same = g("Equal", classes, g.slice(before, [0], [places], [1]))
    skip = g("And", g("Not", same), g.const(np.arange(places) % 2 == 1))
    penalty = g("Where", skip, g.const(0.0, data), g.const(_NEVER, data))
    start = g.const(np.where(np.arange(places) < 2, 0.0, _NEVER), data)
    alpha = g("Add", _step(g, scores, 0), start)
    for t in range(1, steps):
        ways = (alpha, _shifted(g, alpha, 1), g("Add", _shifted(g, alpha, 2), penalty))
        moved = g("Add", _log_sum_exp(g, *ways), _step(g, scores, t))
        if data_lengths is None:
            alpha = moved
        else:
            running = g("Less", g.const(np.float32(t)), g.unsqueeze(g.cast(data_lengths, np.float32), [1]))
            alpha = g("Where", running, moved, alpha)
    return _total(g, alpha, lengths)


def _step(g: Emit, scores: Value, t: int) -> Value:
    return g.squeeze(g.slice(scores, [t], [t + 1], [0]), [0])


def _total(g: Emit, alpha: Value, lengths: Value) -> Value:
    """Minus the log-probability of ending on the last label or on the blank after it."""
    last = g.unsqueeze(g("Mul", lengths, 2), [1])
    on_blank = g("GatherElements", alpha, last, axis=1)
    on_label = g("GatherElements", alpha, g("Max", g("Sub", last, 1), 0), axis=1)
    on_label = g("Where", g("Equal", last, 0), g.const(_NEVER, alpha), on_label)
    return g.squeeze(g("Neg", _log_sum_exp(g, on_blank, on_label)), [1])
