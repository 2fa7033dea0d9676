"""INT8 LSTM, ``_contrib_quantized_rnn``: 8-bit products summed in int32, gates and cells in float32.

MXNet 1.9.1's own kernel always fails (fixed after the release); this is the arithmetic it was meant to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.errors import ShapeError, UnsupportedError
from requant.ops import ranges
from requant.ops.emit import Emit, Value
from requant.ops.ranges import FLOAT32, UINT8
from requant.ops.registry import Shape, find, op
from requant.ops.rnn import RNNAttrs

_INPUTS = ("data", "parameters", "state", "state_cell", "data_scale", "data_shift")


def _outputs(a: RNNAttrs) -> tuple[str, ...]:
    return ("output", "state_output", "statecell_output") if a.state_outputs else ("output",)


def _shapes(a: RNNAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    plain = find("RNN")
    assert plain is not None and plain.param_shapes is not None
    return {**plain.param_shapes(a, shapes), "data_scale": (1,), "data_shift": (1,)}


def _types(a: RNNAttrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return {**dict.fromkeys(types, FLOAT32), "data": UINT8}


@dataclass
class _Cell:
    """One direction of one layer: int8 weights (rows, 4 H), their column sums in units of the sums, and the bias."""

    inner: Value
    recurrent: Value
    totals: Value
    bias: Value


@op(
    "_contrib_quantized_rnn",
    "_npx_quantized_rnn",
    inputs=_INPUTS,
    outputs=_outputs,
    named_outputs=True,
    param_shapes=_shapes,
    param_types=_types,
)
def quantized_rnn(
    g: Emit,
    a: RNNAttrs,
    data: Value,
    parameters: Value,
    state: Value,
    state_cell: Value,
    data_scale: Value,
    data_shift: Value,
) -> Value | tuple[Value, ...]:
    """LSTM on uint8 data with a zero point: ``q = x · data_scale + data_shift`` (``_contrib_quantize_asym``).

    data (T, N, features) uint8; parameters, state and cell float32 as for ``RNN``. Weights become int8 with one scale
    for each gate and output, ``127 / max |w|`` over both matrices, all directions and layers. Hidden states are
    quantized as the data is. The output (T, N, directions · H) and the last states are float32.

    Raises:
        UnsupportedError: another mode than lstm, a projection, clipping, or lengths. NeedsShape: T is not known.
    """
    ranges.expect(g, data, "data", UINT8)
    if a.mode != "lstm" or a.projection_size or a.use_sequence_length or a.lstm_state_clip_min is not None:
        raise UnsupportedError(
            "an int8 RNN is a plain LSTM", where=g.node, got=a, next="leave this node in float (excluded_sym_names)"
        )
    steps, features = g.dim(data, 0), g.dim(data, 2)
    count = a.parameter_count(features)
    if g.dim(parameters, 0) != count:
        raise ShapeError(
            "the length of an RNN's parameters does not fit", where=g.node, got=g.dims(parameters), expected=(count,)
        )
    layers, ws = _cells(g, a, parameters, features)
    unit = g("Mul", data_scale, ws)
    x = [g.squeeze(g.slice(data, [t], [t + 1], [0]), [0]) for t in range(steps)]
    last_h: list[Value] = []
    last_c: list[Value] = []
    outputs: list[Value] = []
    for k, layer in enumerate(layers):
        found: list[list[Value]] = []
        for d, cell in enumerate(layer):
            at = k * a.directions + d
            h, c = (g.squeeze(g.slice(s, [at], [at + 1], [0]), [0]) for s in (state, state_cell))
            order = range(steps) if d == 0 else range(steps - 1, -1, -1)
            made: dict[int, Value] = {}
            for t in order:
                h, c = _step(g, a, cell, x[t], _quantized(g, h, data_scale, data_shift), c, unit, data_shift)
                made[t] = h
            found.append([made[t] for t in range(steps)])
            last_h.append(g.unsqueeze(h, [0]))
            last_c.append(g.unsqueeze(c, [0]))
        outputs = [hs[0] if len(hs) == 1 else g("Concat", *hs, axis=1) for hs in zip(*found)]
        if k + 1 < len(layers):
            x = [_quantized(g, h, data_scale, data_shift) for h in outputs]
    output = g("Concat", *(g.unsqueeze(h, [0]) for h in outputs), axis=0)
    if not a.state_outputs:
        return output
    return output, g("Concat", *last_h, axis=0), g("Concat", *last_c, axis=0)


def _quantized(g: Emit, x: Value, scale: Value, shift: Value) -> Value:
    return ranges.saturated(g, g("Add", g("Mul", x, scale), shift), UINT8)


def _cells(g: Emit, a: RNNAttrs, vector: Value, features: int) -> tuple[list[list[_Cell]], Value]:
    """The parameters of each layer and direction, and the integers per real number of each weight row, (4 H,)."""
    rows, at = 4 * a.state_size, 0
    matrices: list[Value] = []
    with g.folding():

        def take(columns: int) -> Value:
            nonlocal at
            at += rows * columns
            return g.reshape(g.slice(vector, [at - rows * columns], [at], [0]), [rows, columns])

        for layer in range(a.num_layers):
            for _ in range(a.directions):
                matrices += [take(features if layer == 0 else a.state_size * a.directions), take(a.state_size)]
        biases = [g.reshape(g("Add", take(1), take(1)), [rows]) for _ in range(a.num_layers * a.directions)]
        largest = [g.reduce("Max", g("Abs", m), [1]) for m in matrices]
        reach = g("Max", *largest)
        ws = g("Where", g("Equal", reach, np.float32(0)), np.float32(1), g("Div", np.float32(127), reach))
        whole = [g("Clip", g("Round", g("Mul", m, g.unsqueeze(ws, [1]))), -127.0, 127.0) for m in matrices]
        cells = []
        for inner, recurrent, bias in zip(whole[::2], whole[1::2], biases):
            totals = g("Add", g.reduce("Sum", inner, [1]), g.reduce("Sum", recurrent, [1]))
            weights = [g.cast(g.transpose(m, [1, 0]), np.int8) for m in (inner, recurrent)]
            cells.append(_Cell(weights[0], weights[1], totals, bias))
    return [cells[k : k + a.directions] for k in range(0, len(cells), a.directions)], ws


def _step(
    g: Emit, a: RNNAttrs, cell: _Cell, x: Value, h: Value, c: Value, unit: Value, shift: Value
) -> tuple[Value, Value]:
    """Hidden state and cell after one step; x and h are uint8."""
    sums = g("Add", g("MatMulInteger", x, cell.inner), g("MatMulInteger", h, cell.recurrent))
    centred = g("Sub", g.cast(sums, np.float32), g("Mul", cell.totals, shift))
    gates = g("Add", g("Div", centred, unit), cell.bias)
    size = a.state_size
    i, f, new, o = (g.slice(gates, [k * size], [(k + 1) * size], [1]) for k in range(4))
    c = g("Add", g("Mul", g("Sigmoid", f), c), g("Mul", g("Sigmoid", i), g("Tanh", new)))
    return g("Mul", g("Sigmoid", o), g("Tanh", c)), c
