"""Recurrent layers: the fused RNN operator (vanilla, LSTM, GRU) and the concatenation of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from requant.attrs import Attrs
from requant.errors import AttributeValueError, ShapeError, UnsupportedError, counted
from requant.ops.emit import Emit, NeedsShape, Value
from requant.ops.registry import Quant, Shape, op

#: How many gates a mode has, and which of MXNet's gates stands at each place of ONNX's order.
#: LSTM: i f c o -> i o f c; GRU: r z h -> z r h.
_GATES: dict[str, tuple[int, ...]] = {"rnn_relu": (0,), "rnn_tanh": (0,), "lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}


@dataclass(frozen=True, kw_only=True)
class RNNAttrs(Attrs):
    state_size: int
    num_layers: int
    bidirectional: bool = False
    mode: Literal["rnn_relu", "rnn_tanh", "lstm", "gru"]
    p: float = 0.0
    state_outputs: bool = False
    projection_size: int | None = None
    lstm_state_clip_min: float | None = None
    lstm_state_clip_max: float | None = None
    lstm_state_clip_nan: bool = False
    use_sequence_length: bool = False

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def gates(self) -> int:
        return len(_GATES[self.mode])

    @property
    def hidden(self) -> int:
        """Size of the state that is handed on: projected, if there is a projection."""
        return self.projection_size or self.state_size

    def parameter_count(self, features: int) -> int:
        """Length of the parameter vector for that many input features."""
        rows = self.gates * self.state_size
        count = 0
        for layer in range(self.num_layers):
            size = features if layer == 0 else self.hidden * self.directions
            one = rows * (size + self.hidden) + 2 * rows
            one += self.hidden * self.state_size if self.projection_size else 0
            count += self.directions * one
        return count


def _inputs(a: RNNAttrs) -> tuple[str, ...]:
    names = ["data", "parameters", "state"]
    if a.mode == "lstm":
        names.append("state_cell")
    if a.use_sequence_length:
        names.append("sequence_length")
    return tuple(names)


def _outputs(a: RNNAttrs) -> tuple[str, ...]:
    if not a.state_outputs:
        return ("output",)
    return ("output", "state_output", *(["statecell_output"] if a.mode == "lstm" else []))


def _shapes(a: RNNAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    data = shapes["data"]
    if data is None or len(data) != 3:
        return {}
    out: dict[str, Shape] = {}
    if data[2]:
        out["parameters"] = (a.parameter_count(data[2]),)
    count = a.num_layers * a.directions
    for name, size in (("state", a.hidden), ("state_cell", a.state_size)):
        given = shapes.get(name)
        if given is None or not all(given):  # a state of batch 1 serves every batch
            out[name] = (count, data[1], size)
    if a.use_sequence_length and data[1]:
        out["sequence_length"] = (data[1],)
    return out


@dataclass
class _Reader:
    """Cuts the parameter vector into matrices, front to back."""

    g: Emit
    vector: Value
    at: int = 0

    def take(self, *shape: int) -> Value:
        size = int(np.prod(shape))
        piece = self.g.slice(self.vector, [self.at], [self.at + size], [0])
        self.at += size
        return self.g.reshape(piece, list(shape))


@dataclass
class _Layer:
    """Parameters of one layer, each with a leading dimension of directions, gates in ONNX's order."""

    inner: Value  #: (D, G · H, features)
    recurrent: Value  #: (D, G · H, hidden)
    projection: Value | None  #: (D, hidden, H)
    bias: Value  #: (D, 2 · G · H)


def _stacked(g: Emit, pieces: list[Value]) -> Value:
    raised = [g.unsqueeze(p, [0]) for p in pieces]
    return raised[0] if len(raised) == 1 else g("Concat", *raised, axis=0)


def _ordered(g: Emit, a: RNNAttrs, matrix: Value, columns: int) -> Value:
    """Gates of a matrix (G · H, columns) in ONNX's order."""
    order = _GATES[a.mode]
    if order == tuple(range(len(order))):
        return matrix
    gates = g.reshape(matrix, [a.gates, a.state_size * columns])
    return g.reshape(g("Gather", gates, np.array(order, np.int64), axis=0), [a.gates * a.state_size, columns])


def _parameters(g: Emit, a: RNNAttrs, vector: Value, features: int) -> list[_Layer]:
    """The layers' parameters. MXNet's vector holds all weights first, then all biases, by layer and direction."""
    reader, rows = _Reader(g, vector), a.gates * a.state_size
    weights: list[tuple[list[Value], list[Value], list[Value]]] = []
    for layer in range(a.num_layers):
        size = features if layer == 0 else a.hidden * a.directions
        inner: list[Value] = []
        recurrent: list[Value] = []
        projection: list[Value] = []
        for _ in range(a.directions):
            inner.append(_ordered(g, a, reader.take(rows, size), size))
            recurrent.append(_ordered(g, a, reader.take(rows, a.hidden), a.hidden))
            if a.projection_size:
                projection.append(reader.take(a.hidden, a.state_size))
        weights.append((inner, recurrent, projection))
    layers = []
    for inner, recurrent, projection in weights:
        biases = []
        for _ in range(a.directions):
            pair = [_ordered(g, a, reader.take(rows, 1), 1) for _ in ("of the input", "of the state")]
            biases.append(g.reshape(g("Concat", *pair, axis=0), [2 * rows]))
        layers.append(
            _Layer(
                _stacked(g, inner),
                _stacked(g, recurrent),
                _stacked(g, projection) if projection else None,
                _stacked(g, biases),
            )
        )
    return layers


def _features(g: Emit, a: RNNAttrs, data: Value, vector: Value) -> int:
    """Size of data's last dimension: as it is known, else as the length of the parameters implies."""
    size, length = g.dims(data)[2], g.dims(vector)[0]
    if size is None:
        if length is None:
            raise NeedsShape("the number of input features is needed", where=g.node)
        size, rest = divmod(length - a.parameter_count(0), a.directions * a.gates * a.state_size)
        if rest or size < 1:
            size = -1
    if length is not None and (size < 1 or length != a.parameter_count(size)):
        raise ShapeError(
            "the length of an RNN's parameters does not fit",
            where=g.node,
            got=length,
            expected=f"{a.parameter_count(max(size, 1))} for {counted(max(size, 1), 'feature')}",
        )
    return size


def _initial(g: Emit, a: RNNAttrs, state: Value, data: Value, layer: int, size: int) -> Value | None:
    """The begin states of one layer, (D, N, size); None for zeros. A state of batch 1 serves every batch."""
    known = g.value_of(state)
    if known is not None and not known.any():
        return None
    first = layer * a.directions
    if a.num_layers > 1:
        state = g.slice(state, [first], [first + a.directions], [0])
    assert state.shape is not None and data.shape is not None
    if state.shape[1] == data.shape[1]:
        return state
    return g("Expand", state, g.concat_sizes([a.directions, g.size_of(data, [1]), size]))


def _at_first_step(g: Emit, data: Value, state: Value, direction: int, lengths: Value | None) -> Value:
    """(T, N, hidden): the state (N, hidden) at the step where the direction begins, zeros elsewhere."""
    steps = g.dims(data)[0]
    if steps is None:
        n = g.squeeze(g.size_of(data, [0]), [0])
        places = g("Range", g.const(np.int64(0)), n, g.const(np.int64(1)))
        last = g("Sub", n, 1)
    else:
        places, last = g.const(np.arange(steps)), g.const(np.int64(steps - 1))
    places = g.unsqueeze(places, [1, 2])
    begin = g.const(np.int64(0)) if direction == 0 else last
    if direction and lengths is not None:
        begin = g.unsqueeze(g("Sub", g.cast(lengths, np.int64), 1), [0, 2])
    return g("Where", g("Equal", places, begin), state, g.const(0.0, data))


def _projected(
    g: Emit, a: RNNAttrs, data: Value, layer: _Layer, state: Value | None, lengths: Value | None
) -> tuple[Value, Value, Value]:
    """Data, input and recurrent weights of a plain LSTM that does what one with a projection does.

    The projected state r = P h enters the gates as R r = (R P) h. Only the begin state is not a projection of anything:
    it comes in as further input features, which are zero after the first step.
    """
    assert layer.projection is not None
    inner = layer.inner
    recurrent = g("MatMul", layer.recurrent, layer.projection)
    if state is not None:
        extra, weights = [], []
        for d in range(a.directions):
            own = g.squeeze(g.slice(state, [d], [d + 1], [0]), [0])
            extra.append(_at_first_step(g, data, own, d, lengths))
            masked = np.zeros((a.directions, 1, 1))
            masked[d] = 1
            weights.append(g("Mul", layer.recurrent, g.const(masked, data)))
        data = g("Concat", data, *extra, axis=2)
        inner = g("Concat", inner, *weights, axis=2)
    return data, inner, recurrent


def _run_layer(
    g: Emit,
    a: RNNAttrs,
    data: Value,
    layer: _Layer,
    state: Value | None,
    cell: Value | None,
    lengths: Value | None,
) -> tuple[Value, Value, Value | None]:
    """Output (T, N, D · hidden), last states (D, N, hidden) and cells (D, N, H) of one layer."""
    inner, recurrent = layer.inner, layer.recurrent
    if layer.projection is not None:
        data, inner, recurrent = _projected(g, a, data, layer, state, lengths)
        state = None
    if state is None and cell is not None:  # ONNX gives both or none
        state = g("Expand", g.const(0.0, data), g.size_of(cell))
    common: dict[str, object] = {"hidden_size": a.state_size}
    if a.bidirectional:
        common["direction"] = "bidirectional"
    if a.mode == "lstm" and cell is None and state is not None:
        cell = g("Expand", g.const(0.0, data), g.size_of(state))
    inputs = [data, inner, recurrent, layer.bias, lengths, state]
    last_cell: Value | None = None
    if a.mode == "lstm":
        y, last, last_cell = g.multi("LSTM", 3, *inputs, cell, **common)
    elif a.mode == "gru":
        y, last = g.multi("GRU", 2, *inputs, linear_before_reset=1, **common)
    else:
        kind = {"rnn_relu": "Relu", "rnn_tanh": "Tanh"}[a.mode]
        y, last = g.multi("RNN", 2, *inputs, activations=[kind] * a.directions, **common)
    if layer.projection is not None:
        across = g.transpose(layer.projection, [0, 2, 1])
        y, last = g("MatMul", y, across), g("MatMul", last, across)
    if a.directions == 1:
        return g.squeeze(y, [1]), last, last_cell
    return g.reshape(g.transpose(y, [0, 2, 1, 3]), [0, 0, 2 * a.hidden]), last, last_cell


def _check(g: Emit, a: RNNAttrs, data: Value) -> None:
    if a.num_layers < 1 or a.state_size < 1 or (a.projection_size or 1) < 1:
        raise AttributeValueError("sizes of an RNN must be positive", where=g.node, got=a)
    if a.projection_size and a.mode != "lstm":
        raise AttributeValueError("only an LSTM has a projection", where=g.node, got=a.mode, expected="mode=lstm")
    if a.lstm_state_clip_min is not None or a.lstm_state_clip_max is not None:
        raise UnsupportedError(
            "clipping of LSTM cells is not supported",
            where=g.node,
            got=f"lstm_state_clip_min={a.lstm_state_clip_min}, lstm_state_clip_max={a.lstm_state_clip_max}",
            expected="neither",
            next="remove both attributes if the cells never reach the bounds",
        )
    if g.rank(data) != 3:
        raise ShapeError("the data of an RNN is (time, batch, features)", where=g.node, got=f"rank {g.rank(data)}")


@op(
    "RNN",
    "_npx_rnn",
    inputs=_inputs,
    outputs=_outputs,
    named_outputs=True,
    param_shapes=_shapes,
    quant=Quant.MUST,
    quantized="_contrib_quantized_rnn",
)
def rnn(
    g: Emit,
    a: RNNAttrs,
    data: Value,
    parameters: Value,
    state: Value,
    state_cell: Value | None = None,
    sequence_length: Value | None = None,
) -> Value | tuple[Value, ...]:
    """Layers of a recurrent network: vanilla (relu or tanh), LSTM or GRU; dropout between layers is off.

    data (T, N, features), parameters one vector (weights of all layers, then biases), state (layers · directions, N,
    hidden), state_cell alike. Output (T, N, directions · hidden), and with ``state_outputs`` the last states. With
    ``use_sequence_length`` outputs beyond a sample's length are zero and its last state is that of its last step, as
    on MXNet's GPUs; its CPU ignores the lengths.
    """
    _check(g, a, data)
    dtype = g.dtype(data)
    if dtype != np.float32:  # engines have these layers in single precision
        data, parameters, state = (g.cast(v, np.float32) for v in (data, parameters, state))
        state_cell = None if state_cell is None else g.cast(state_cell, np.float32)
    lengths = None if sequence_length is None else g.cast(sequence_length, np.int32)
    layers = _parameters(g, a, parameters, _features(g, a, data, parameters))
    states, cells = [], []
    for k, layer in enumerate(layers):
        begin = _initial(g, a, state, data, k, a.hidden)
        cell = None if state_cell is None else _initial(g, a, state_cell, data, k, a.state_size)
        data, last, last_cell = _run_layer(g, a, data, layer, begin, cell, lengths)
        states.append(last)
        if last_cell is not None:
            cells.append(last_cell)
    if not a.state_outputs:
        return g.cast(data, dtype)
    found = [data, states[0] if len(states) == 1 else g("Concat", *states, axis=0)]
    if cells:
        found.append(cells[0] if len(cells) == 1 else g("Concat", *cells, axis=0))
    return tuple(g.cast(v, dtype) for v in found)


@dataclass(frozen=True)
class ParamConcatAttrs(Attrs):
    num_args: int = 0
    dim: int = 1


@op("_rnn_param_concat", "_npi_rnn_param_concat", inputs=("arg",), variadic="num_args")
def rnn_param_concat(g: Emit, a: ParamConcatAttrs, *args: Value) -> Value:
    """The concatenation of an RNN's parameters along ``dim``."""
    if len(args) == 1:
        return args[0]
    return g("Concat", *args, axis=g.axis(args[0], a.dim))
