"""Recurrent cells: one step at a time, or unrolled over a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from requant.errors import InputError
from requant.mx import ndarray, symbol
from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.ndarray.ndarray import NDArray
from requant.symbol import tree

State = list[Any]


def module_of(value: Any) -> Any:
    """``mx.sym`` for a symbol, else ``mx.nd``."""
    first = value[0] if isinstance(value, (list, tuple)) else value
    return symbol if isinstance(first, tree.Symbol) else ndarray


def steps_of(inputs: Any, length: int, layout: str) -> tuple[list[Any], int, Any]:
    """The steps of a sequence, each (N, C); the axis of time; and F.

    Raises:
        InputError: another length than the sequence has.
    """
    F = module_of(inputs)
    axis = layout.find("T")
    if isinstance(inputs, (list, tuple)):
        return list(inputs), axis, F
    if isinstance(inputs, NDArray) and inputs.shape[axis] != length:
        raise InputError("the sequence has another length", got=inputs.shape[axis], expected=length)
    if length == 1:
        return [F.squeeze(inputs, axis=axis)], axis, F
    return list(F.split(inputs, num_outputs=length, axis=axis, squeeze_axis=True)), axis, F


class RecurrentCell(HybridBlock):
    """Base of cells: ``output, states = cell(input, states)``.

    A cell is a hybrid block, so that sequences can be compiled as a whole.
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._modified = False
        self.reset()

    def reset(self) -> None:
        """Forget the steps counted so far."""
        self._init_counter = self._counter = -1
        for child in self._children.values():
            if isinstance(child, RecurrentCell):
                child.reset()

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        raise NotImplementedError

    def begin_state(self, batch_size: int = 0, func: Callable[..., Any] | None = None, **kwargs: Any) -> State:
        """First states: zeros, or what ``func(shape=...)`` makes.

        Raises:
            InputError: states of a cell that a modifier has taken over.
        """
        if self._modified:
            raise InputError("the cell belongs to a modifier", where=self.name, next="call begin_state of the modifier")
        make = ndarray.zeros if func is None else func
        states = []
        for info in self.state_info(batch_size):
            self._init_counter += 1
            given = {**kwargs, "shape": info["shape"]}
            if func is not None and make is not ndarray.zeros:
                given["name"] = f"{self._prefix}begin_state_{self._init_counter}"
            states.append(make(**given))
        return states

    def _zeros_like_first(self, F: Any, step: Any) -> State:
        """States of zeros for the batch of a step (N, ...)."""
        if isinstance(step, NDArray):
            return self.begin_state(step.shape[0], ctx=step.context, dtype=step.dtype)
        states = []
        for info in self.state_info(1):
            column = F.zeros_like(F.slice_axis(F.Flatten(step), axis=1, begin=0, end=1))
            shape = info["shape"]
            column = F.reshape(column, shape=(-1,) + (1,) * (len(shape) - 1))
            states.append(F.tile(column, reps=(1, *shape[1:])))
        return states

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: State | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, State]:
        """Run over a sequence.

        Args:
            inputs: (N, T, C) or as ``layout`` says; or a list of steps.
            merge_outputs: one array of outputs, or a list; as the inputs came if None.
            valid_length: length of each sequence; outputs beyond it are 0, and states are those at it.
        Returns:
            Outputs and last states.
        """
        self.reset()
        steps, axis, F = steps_of(inputs, length, layout)
        states = begin_state if begin_state is not None else self._zeros_like_first(F, steps[0])
        outputs: list[Any] = []
        all_states: list[State] = []
        for step in steps:
            output, states = self(step, states)
            outputs.append(output)
            all_states.append(states)
        if valid_length is not None:
            states = [
                F.SequenceLast(F.stack(*column, axis=0), valid_length, use_sequence_length=True, axis=0)
                for column in zip(*all_states)
            ]
            stacked = F.stack(*outputs, axis=axis)
            masked = F.SequenceMask(stacked, valid_length, use_sequence_length=True, axis=axis)
            if merge_outputs is False:
                return list(F.split(masked, num_outputs=length, axis=axis, squeeze_axis=True)), states
            return masked, states
        merge = not isinstance(inputs, (list, tuple)) if merge_outputs is None else merge_outputs
        return (F.stack(*outputs, axis=axis) if merge else outputs), states

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """One step: output and states."""
        self._counter += 1
        return super().forward(x, *args, **kwargs)


class HybridRecurrentCell(RecurrentCell):
    """Base of cells that write ``hybrid_forward``."""


class _Gated(HybridRecurrentCell):
    """Cells with one matrix for the input and one for the state, ``_gates`` parts each."""

    _gates = 1
    _hint = "rnn"

    def __init__(
        self,
        hidden_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size, self._input_size = hidden_size, input_size
        rows = self._gates * hidden_size
        get = self.params.get
        self.i2h_weight = get(
            "i2h_weight", shape=(rows, input_size), init=i2h_weight_initializer, allow_deferred_init=True
        )
        self.h2h_weight = get(
            "h2h_weight", shape=(rows, hidden_size), init=h2h_weight_initializer, allow_deferred_init=True
        )
        self.i2h_bias = get("i2h_bias", shape=(rows,), init=i2h_bias_initializer, allow_deferred_init=True)
        self.h2h_bias = get("h2h_bias", shape=(rows,), init=h2h_bias_initializer, allow_deferred_init=True)

    def _alias(self) -> str:
        return self._hint

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """One state (N, hidden_size)."""
        return [{"shape": (batch_size, self._hidden_size), "__layout__": "NC"}]

    def _both(self, F: Any, inputs: Any, state: Any, weights: Sequence[Any], name: str) -> tuple[Any, Any]:
        """The input's part and the state's part, (N, gates · hidden) each."""
        rows = self._gates * self._hidden_size
        i2h_weight, h2h_weight, i2h_bias, h2h_bias = weights
        i2h = F.FullyConnected(data=inputs, weight=i2h_weight, bias=i2h_bias, num_hidden=rows, name=name + "i2h")
        h2h = F.FullyConnected(data=state, weight=h2h_weight, bias=h2h_bias, num_hidden=rows, name=name + "h2h")
        return i2h, h2h

    def __repr__(self) -> str:
        shape = self.i2h_weight.shape or (0, 0)
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]})"


def _activate(F: Any, x: Any, activation: Any, name: str) -> Any:
    return F.Activation(x, act_type=activation, name=name) if isinstance(activation, str) else activation(x)


class RNNCell(_Gated):
    """h' = activation(Wx + b + Vh + c)."""

    def __init__(self, hidden_size: int, activation: Any = "tanh", *args: Any, **kwargs: Any) -> None:
        super().__init__(hidden_size, *args, **kwargs)
        self._activation = activation

    def hybrid_forward(
        self, F: Any, inputs: Any, states: State, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, State]:
        name = f"t{self._counter}_"
        weights = (i2h_weight, h2h_weight, i2h_bias, h2h_bias)
        i2h, h2h = self._both(F, inputs, states[0], weights, name)
        output = _activate(F, i2h + h2h, self._activation, name + "out")
        return output, [output]


class LSTMCell(_Gated):
    """Long short-term memory (Hochreiter 1997), gates in the order input, forget, cell, output."""

    _gates, _hint = 4, "lstm"

    def __init__(
        self,
        hidden_size: int,
        *args: Any,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        **kwargs: Any,
    ) -> None:
        super().__init__(hidden_size, *args, **kwargs)
        self._activation, self._recurrent = activation, recurrent_activation

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Two states (N, hidden_size): the output and the memory."""
        return super().state_info(batch_size) * 2

    def hybrid_forward(
        self, F: Any, inputs: Any, states: State, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, State]:
        name = f"t{self._counter}_"
        weights = (i2h_weight, h2h_weight, i2h_bias, h2h_bias)
        i2h, h2h = self._both(F, inputs, states[0], weights, name)
        gates = F.SliceChannel(i2h + h2h, num_outputs=4, name=name + "slice")
        enter = _activate(F, gates[0], self._recurrent, name + "i")
        forget = _activate(F, gates[1], self._recurrent, name + "f")
        new = _activate(F, gates[2], self._activation, name + "c")
        leave = _activate(F, gates[3], self._recurrent, name + "o")
        memory = forget * states[1] + enter * new
        output = leave * _activate(F, memory, self._activation, name + "state")
        return output, [output, memory]


class GRUCell(_Gated):
    """Gated recurrent unit (Cho 2014), gates in the order reset, update, new."""

    _gates, _hint = 3, "gru"

    def hybrid_forward(
        self, F: Any, inputs: Any, states: State, i2h_weight: Any, h2h_weight: Any, i2h_bias: Any, h2h_bias: Any
    ) -> tuple[Any, State]:
        name = f"t{self._counter}_"
        weights = (i2h_weight, h2h_weight, i2h_bias, h2h_bias)
        i2h, h2h = self._both(F, inputs, states[0], weights, name)
        i_reset, i_update, i_new = F.SliceChannel(i2h, num_outputs=3, name=name + "i2h_slice")
        h_reset, h_update, h_new = F.SliceChannel(h2h, num_outputs=3, name=name + "h2h_slice")
        reset = F.Activation(i_reset + h_reset, act_type="sigmoid", name=name + "r_act")
        update = F.Activation(i_update + h_update, act_type="sigmoid", name=name + "z_act")
        new = F.Activation(i_new + reset * h_new, act_type="tanh", name=name + "h_act")
        output = (1.0 - update) * new + update * states[0]
        return output, [output]
