"""``gluon.contrib.rnn``: further recurrent cells."""

from __future__ import annotations

from typing import Any

from requant.mx.gluon.parameter_dict import ParameterDict
from requant.mx.gluon.rnn import HybridRecurrentCell, ModifierCell

__all__ = ["LSTMPCell", "VariationalDropoutCell"]

State = list[Any]


class VariationalDropoutCell(ModifierCell):
    """Drops the same units at every step in training (Gal 2016); at inference the cell below as it is."""

    def __init__(
        self, base_cell: Any, drop_inputs: float = 0.0, drop_states: float = 0.0, drop_outputs: float = 0.0
    ) -> None:
        super().__init__(base_cell)
        self.drop_inputs, self.drop_states, self.drop_outputs = drop_inputs, drop_states, drop_outputs

    def _alias(self) -> str:
        return "vardrop"

    def hybrid_forward(self, F: Any, inputs: Any, states: State) -> tuple[Any, State]:
        out: tuple[Any, State] = self.base_cell(inputs, states)
        return out


class LSTMPCell(HybridRecurrentCell):
    """LSTM whose output is projected to fewer numbers (Sak 2014), gates in the order input, forget, cell, output.

    Args:
        hidden_size: size of the memory. projection_size: size of the output.
        input_size: size of the inputs; told by the first of them if 0.
    """

    def __init__(
        self,
        hidden_size: int,
        projection_size: int,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        h2r_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        input_size: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size, self._projection_size, self._input_size = hidden_size, projection_size, input_size
        for name, shape, init in (
            ("i2h_weight", (4 * hidden_size, input_size), i2h_weight_initializer),
            ("h2h_weight", (4 * hidden_size, projection_size), h2h_weight_initializer),
            ("h2r_weight", (projection_size, hidden_size), h2r_weight_initializer),
            ("i2h_bias", (4 * hidden_size,), i2h_bias_initializer),
            ("h2h_bias", (4 * hidden_size,), h2h_bias_initializer),
        ):
            setattr(self, name, self.params.get(name, shape=shape, init=init, allow_deferred_init=True))

    def _alias(self) -> str:
        return "lstmp"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The projected output (N, projection_size), and the memory (N, hidden_size)."""
        sizes = (self._projection_size, self._hidden_size)
        return [{"shape": (batch_size, size), "__layout__": "NC"} for size in sizes]

    def hybrid_forward(
        self,
        F: Any,
        inputs: Any,
        states: State,
        i2h_weight: Any,
        h2h_weight: Any,
        h2r_weight: Any,
        i2h_bias: Any,
        h2h_bias: Any,
    ) -> tuple[Any, State]:
        name, units = f"t{self._counter}_", 4 * self._hidden_size
        i2h = F.FullyConnected(inputs, i2h_weight, i2h_bias, num_hidden=units, name=name + "i2h")
        h2h = F.FullyConnected(states[0], h2h_weight, h2h_bias, num_hidden=units, name=name + "h2h")
        gates = F.SliceChannel(i2h + h2h, num_outputs=4, name=name + "slice")
        kinds = ("i", "sigmoid"), ("f", "sigmoid"), ("c", "tanh"), ("o", "sigmoid")
        enter, forget, new, leave = (
            F.Activation(gate, act_type=kind, name=name + short) for gate, (short, kind) in zip(gates, kinds)
        )
        memory = F.elemwise_add(forget * states[1], enter * new, name=name + "state")
        hidden = F.elemwise_mul(leave, F.Activation(memory, act_type="tanh"), name=name + "hidden")
        projected = F.FullyConnected(
            hidden, h2r_weight, no_bias=True, num_hidden=self._projection_size, name=name + "out"
        )
        return projected, [projected, memory]
