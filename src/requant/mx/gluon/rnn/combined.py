"""Cells made of cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from requant.errors import UnsupportedError
from requant.mx.gluon.rnn.cell import HybridRecurrentCell, RecurrentCell, State, steps_of


class _Cells(RecurrentCell):
    """A cell whose states are those of the cells in it."""

    def _cells(self) -> list[Any]:
        return list(self._children.values())

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """States of all its cells, in order."""
        return [info for cell in self._cells() for info in cell.state_info(batch_size)]

    def begin_state(self, batch_size: int = 0, func: Any = None, **kwargs: Any) -> State:
        """First states of all its cells, in order."""
        return [s for cell in self._cells() for s in cell.begin_state(batch_size, func, **kwargs)]


class SequentialRNNCell(_Cells):
    """Cells on top of each other."""

    def add(self, cell: RecurrentCell) -> None:
        """Put a cell on top."""
        self.register_child(cell)

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """One step through all cells."""
        self._counter += 1
        return self._step(x, args[0])

    def _step(self, inputs: Any, states: State) -> tuple[Any, State]:
        found: State = []
        at = 0
        for cell in self._cells():
            count = len(cell.state_info())
            inputs, new = cell(inputs, states[at : at + count])
            found += new
            at += count
        return inputs, found

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: State | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, State]:
        """Each cell over the whole sequence, one after another."""
        self.reset()
        cells = self._cells()
        found: State = []
        at = 0
        for i, cell in enumerate(cells):
            count = len(cell.state_info())
            states = None if begin_state is None else begin_state[at : at + count]
            merge = merge_outputs if i == len(cells) - 1 else None
            inputs, new = cell.unroll(length, inputs, states, layout, merge, valid_length)
            found += new
            at += count
        return inputs, found

    def __getitem__(self, i: int) -> Any:
        return self._cells()[i]

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cells())

    def __bool__(self) -> bool:
        return True


class HybridSequentialRNNCell(SequentialRNNCell, HybridRecurrentCell):
    """Cells on top of each other, compiled as a whole when hybridized."""

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """One step through all cells."""
        return HybridRecurrentCell.forward(self, x, *args, **kwargs)

    def hybrid_forward(self, F: Any, inputs: Any, states: State) -> tuple[Any, State]:
        return self._step(inputs, states)


class DropoutCell(HybridRecurrentCell):
    """Dropout between cells: nothing at inference."""

    def __init__(self, rate: float, axes: Any = (), prefix: str | None = None, params: Any = None) -> None:
        super().__init__(prefix, params)
        self._rate, self._axes = rate, axes

    def _alias(self) -> str:
        return "dropout"

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """No states."""
        return []

    def hybrid_forward(self, F: Any, inputs: Any, states: State) -> tuple[Any, State]:
        if self._rate > 0:
            inputs = F.Dropout(inputs, p=self._rate, axes=self._axes, name=f"t{self._counter}_fwd")
        return inputs, states


class ModifierCell(HybridRecurrentCell):
    """Base of cells that change what another cell does."""

    def __init__(self, base_cell: Any) -> None:
        base_cell._modified = True
        super().__init__(prefix=base_cell.prefix + self._alias(), params=None)
        self.base_cell = base_cell

    @property
    def params(self) -> Any:
        return self.base_cell.params

    def state_info(self, batch_size: int = 0) -> list[dict[str, Any]]:
        """The states of the cell below."""
        found: list[dict[str, Any]] = self.base_cell.state_info(batch_size)
        return found

    def begin_state(self, batch_size: int = 0, func: Any = None, **kwargs: Any) -> State:
        """First states of the cell below."""
        self.base_cell._modified = False
        try:
            states: State = self.base_cell.begin_state(batch_size, func, **kwargs)
        finally:
            self.base_cell._modified = True
        return states

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_cell!r})"


class ZoneoutCell(ModifierCell):
    """Zoneout (Krueger 2016): keeps old states at random in training; at inference the cell below as it is."""

    def __init__(self, base_cell: Any, zoneout_outputs: float = 0.0, zoneout_states: float = 0.0) -> None:
        super().__init__(base_cell)
        self.zoneout_outputs, self.zoneout_states = zoneout_outputs, zoneout_states

    def _alias(self) -> str:
        return "zoneout"

    def hybrid_forward(self, F: Any, inputs: Any, states: State) -> tuple[Any, State]:
        out: tuple[Any, State] = self.base_cell(inputs, states)
        return out


class ResidualCell(ModifierCell):
    """Adds the input to the output (Wu 2016)."""

    def hybrid_forward(self, F: Any, inputs: Any, states: State) -> tuple[Any, State]:
        output, states = self.base_cell(inputs, states)
        return output + inputs, states


class BidirectionalCell(_Cells, HybridRecurrentCell):
    """One cell forwards and one backwards over a sequence, outputs concatenated. It can only be unrolled."""

    def __init__(self, l_cell: Any, r_cell: Any, output_prefix: str = "bi_") -> None:
        super().__init__(prefix="", params=None)
        self.register_child(l_cell, "l_cell")
        self.register_child(r_cell, "r_cell")
        self._output_prefix = output_prefix

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Raises UnsupportedError: the last step is needed for the first."""
        raise UnsupportedError("a bidirectional cell cannot take single steps", next="call unroll")

    def unroll(
        self,
        length: int,
        inputs: Any,
        begin_state: State | None = None,
        layout: str = "NTC",
        merge_outputs: bool | None = None,
        valid_length: Any = None,
    ) -> tuple[Any, State]:
        """Both directions over the sequence; backwards from the end of each sequence."""
        self.reset()
        steps, axis, F = steps_of(inputs, length, layout)
        left, right = self._cells()
        count = len(left.state_info())
        states = begin_state or [None] * 0
        l_out, l_states = left.unroll(length, steps, states[:count] or None, layout, False, valid_length)
        r_out, r_states = right.unroll(
            length, self._turned(F, steps, valid_length), states[count:] or None, layout, False, valid_length
        )
        r_out = self._turned(F, r_out, valid_length)
        outputs = [
            F.concat(a, b, dim=1, name=f"{self._output_prefix}t{i}") for i, (a, b) in enumerate(zip(l_out, r_out))
        ]
        merge = not isinstance(inputs, (list, tuple)) if merge_outputs is None else merge_outputs
        return (F.stack(*outputs, axis=axis) if merge else outputs), l_states + r_states

    @staticmethod
    def _turned(F: Any, steps: list[Any], valid_length: Any) -> list[Any]:
        if valid_length is None:
            return list(reversed(steps))
        turned = F.SequenceReverse(F.stack(*steps, axis=0), valid_length, use_sequence_length=True)
        return list(F.split(turned, num_outputs=len(steps), axis=0, squeeze_axis=True)) if len(steps) > 1 else steps
