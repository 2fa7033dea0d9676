"""Recurrent layers over whole sequences: ``RNN``, ``LSTM``, ``GRU``."""

from __future__ import annotations

from typing import Any

from requant.errors import InputError
from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.ndarray.create import zeros
from requant.mx.ndarray.ndarray import NDArray


class _RNNLayer(HybridBlock):
    """Layers of recurrent cells: (T, N, C) → (T, N, hidden), and states if states are given.

    Args:
        hidden_size: size of a state. num_layers: layers on top of each other.
        layout: ``TNC`` or ``NTC``.
        dropout: between layers, in training.
        bidirectional: both directions, outputs concatenated.
        input_size: C; found out at the first run if 0.
        projection_size: size of an LSTM's projected output.
    """

    def __init__(
        self,
        hidden_size: int,
        num_layers: int,
        layout: str,
        dropout: float,
        bidirectional: bool,
        input_size: int,
        i2h_weight_initializer: Any,
        h2h_weight_initializer: Any,
        i2h_bias_initializer: Any,
        h2h_bias_initializer: Any,
        mode: str,
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        dtype: object = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if layout not in ("TNC", "NTC"):
            raise InputError("unknown layout", where=self.name, got=layout, expected="TNC or NTC")
        self._hidden_size, self._num_layers, self._layout, self._mode = hidden_size, num_layers, layout, mode
        self._dropout, self._dir = dropout, 2 if bidirectional else 1
        self._input_size, self._projection_size, self._dtype = input_size, projection_size, dtype
        self._clip = {
            "lstm_state_clip_min": state_clip_min,
            "lstm_state_clip_max": state_clip_max,
            "lstm_state_clip_nan": state_clip_nan,
        }
        self._gates = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}[mode]
        rows, out = self._gates * hidden_size, projection_size or hidden_size
        inner = input_size
        for i in range(num_layers):
            for side in ("l", "r")[: self._dir]:
                parts: list[tuple[str, tuple[int, ...], Any]] = [
                    ("i2h_weight", (rows, inner), i2h_weight_initializer),
                    ("h2h_weight", (rows, out), h2h_weight_initializer),
                    ("i2h_bias", (rows,), i2h_bias_initializer),
                    ("h2h_bias", (rows,), h2h_bias_initializer),
                ]
                if projection_size:
                    parts.append(("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer))
                for part, shape, init in parts:
                    name = f"{side}{i}_{part}"
                    made = self.params.get(name, shape=shape, init=init, allow_deferred_init=True, dtype=dtype)
                    setattr(self, name, made)
            inner = out * self._dir

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """Shape and layout of each state."""
        count = self._num_layers * self._dir
        first = {"shape": (count, batch_size, self._projection_size or self._hidden_size), "__layout__": "LNC"}
        if self._mode != "lstm":
            return [first]
        return [first, {"shape": (count, batch_size, self._hidden_size), "__layout__": "LNC"}]

    def begin_state(self, batch_size: int = 0, func: Any = zeros, **kwargs: Any) -> list[Any]:
        """First states: zeros, or what ``func(shape=...)`` makes."""
        return [func(shape=info["shape"], **kwargs) for info in self.state_info(batch_size)]

    def _find_sizes(self, inputs: Any) -> None:
        size = inputs.shape[2]
        for side in ("l", "r")[: self._dir]:
            weight = getattr(self, f"{side}0_i2h_weight")
            weight.shape = (self._gates * self._hidden_size, size)
        self._input_size = size

    def infer_shape(self, *args: Any) -> None:
        """Tell the first layer's weights the size of the input."""
        self._find_sizes(args[0])

    def __call__(self, inputs: Any, states: Any = None, sequence_length: Any = None, **kwargs: Any) -> Any:
        """Outputs, or outputs and states if states are given."""
        if isinstance(inputs, NDArray) and self._input_size == 0:
            self._find_sizes(inputs)
            for parameter in self._reg_params.values():
                parameter.finish_deferred_init()
        given = [] if states is None else [[states] if not isinstance(states, (list, tuple)) else list(states)]
        out = super().__call__(inputs, *given)
        return out if states is not None else out[0]

    def _first_states(self, F: Any, inputs: Any) -> list[Any]:
        """Zeros for the batch of (T, N, C)."""
        column = F.zeros_like(F.slice_axis(F.slice_axis(inputs, axis=0, begin=0, end=1), axis=2, begin=0, end=1))
        return [F.tile(column, reps=(i["shape"][0], 1, i["shape"][2])) for i in self.state_info(1)]

    def hybrid_forward(self, F: Any, inputs: Any, states: Any = None, **params: Any) -> Any:
        if self._layout == "NTC":
            inputs = F.swapaxes(inputs, 0, 1)
        if states is None:
            states = self._first_states(F, inputs)
        kinds = (("i2h_weight", "h2h_weight", "h2r_weight"), ("i2h_bias", "h2h_bias"))
        flat = [
            F.reshape(params[name], shape=(-1,))
            for group in kinds
            for i in range(self._num_layers)
            for side in ("l", "r")[: self._dir]
            for part in group
            if (name := f"{side}{i}_{part}") in params
        ]
        clip = self._clip if self._mode == "lstm" and self._clip["lstm_state_clip_min"] is not None else {}
        found = F.RNN(
            inputs, F.concat(*flat, dim=0), *states, state_size=self._hidden_size,
            projection_size=self._projection_size, num_layers=self._num_layers, bidirectional=self._dir == 2,
            p=self._dropout, state_outputs=True, mode=self._mode, **clip,
        )  # fmt: skip
        output, new = found[0], [found[i] for i in range(1, 3 if self._mode == "lstm" else 2)]
        if self._layout == "NTC":
            output = F.swapaxes(output, 0, 1)
        return output, new

    def __repr__(self) -> str:
        shape = self._reg_params["l0_i2h_weight"].shape or (0, 0)
        text = f"{shape[1] or None} -> {self._hidden_size}, {self._layout}"
        if self._num_layers != 1:
            text += f", num_layers={self._num_layers}"
        return f"{type(self).__name__}({text}{', bidirectional' if self._dir == 2 else ''})"


class RNN(_RNNLayer):
    """Plain recurrent layers (Elman 1990), ``relu`` or ``tanh``."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        activation: str = "relu",
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        dtype: object = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            hidden_size, num_layers, layout, dropout, bidirectional, input_size, i2h_weight_initializer,
            h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer, "rnn_" + activation, dtype=dtype,
            **kwargs,
        )  # fmt: skip


class LSTM(_RNNLayer):
    """Long short-term memory (Hochreiter 1997), optionally with a projection (Sak 2014)."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        projection_size: int | None = None,
        h2r_weight_initializer: Any = None,
        state_clip_min: float | None = None,
        state_clip_max: float | None = None,
        state_clip_nan: bool = False,
        dtype: object = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            hidden_size, num_layers, layout, dropout, bidirectional, input_size, i2h_weight_initializer,
            h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer, "lstm", projection_size,
            h2r_weight_initializer, state_clip_min, state_clip_max, state_clip_nan, dtype, **kwargs,
        )  # fmt: skip


class GRU(_RNNLayer):
    """Gated recurrent units (Cho 2014)."""

    def __init__(
        self,
        hidden_size: int,
        num_layers: int = 1,
        layout: str = "TNC",
        dropout: float = 0,
        bidirectional: bool = False,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        dtype: object = "float32",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            hidden_size, num_layers, layout, dropout, bidirectional, input_size, i2h_weight_initializer,
            h2h_weight_initializer, i2h_bias_initializer, h2h_bias_initializer, "gru", dtype=dtype, **kwargs,
        )  # fmt: skip
