"""What goes into a session and comes out: names, dtypes and shapes, as the graph and the caller say them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from requant.errors import EngineError, InputError, nearest

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Shape = tuple[int | str | None, ...]
Shapes = Mapping[str, tuple[int | None, ...]]


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One input or output of a session.

    Args:
        name: its name in the ONNX graph.
        dtype: numpy dtype of the arrays.
        shape: a number where the size is fixed, a name or None where it is free; None if even the rank is unknown.
    """

    name: str
    dtype: np.dtype[Any]
    shape: Shape | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.dtype.name}, any shape"
        dims = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name}: {self.dtype.name} ({dims}{',' if len(self.shape) == 1 else ''})"

    def demands(self) -> tuple[int | None, tuple[tuple[int, int], ...]]:
        """The rank (None = any), and the fixed sizes by axis."""
        shape = self.shape or ()
        return None if self.shape is None else len(shape), tuple(
            (i, d) for i, d in enumerate(shape) if isinstance(d, int)
        )

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of that shape may be fed here."""
        rank, fixed = self.demands()
        return rank is None or (len(shape) == rank and all(shape[i] == n for i, n in fixed))


def numpy_dtype(value: ir.Value, engine: str) -> np.dtype[Any]:
    """The dtype of a graph input or output, or an EngineError if sessions cannot carry it."""
    kind = value.dtype
    if kind is None or not isinstance(value.type, ir.TensorType):
        raise EngineError("an input of the graph has no tensor type", where=value.name, got=value.type)
    if kind == ir.DataType.STRING or kind.bitwidth < 8:
        raise EngineError(f"{kind.name} tensors cannot cross the border of a graph", where=f"{engine}: {value.name}")
    return kind.numpy()


def dims(value: ir.Value) -> Shape | None:
    """The shape of a value as the graph says it: an open dimension is its name or None."""
    if value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape)


def true_inputs(model: ir.Model) -> list[ir.Value]:
    """The inputs that must be fed: models of IR version 3 list their weights among the inputs, too."""
    return [v for v in model.graph.inputs if v.name not in model.graph.initializers]


def bind(model: ir.Model, shapes: Shapes | None, engine: str) -> tuple[tuple[TensorSpec, ...], dict[str, int]]:
    """The true inputs of a model once ``shapes`` are fixed, and the sizes of the named dimensions that this fixed.

    Raises:
        InputError: a name that is no input, a wrong rank, a size that the model fixes otherwise, or one dimension
            name with two sizes.
        EngineError: an input of a type that sessions cannot carry.
    """
    inputs = true_inputs(model)
    known = [str(v.name) for v in inputs]
    wanted = dict(shapes or {})
    for name in wanted:
        if name not in known:
            raise InputError(f"shape given for {name!r}, which is no input", next=nearest(name, known))
    sizes: dict[str, int] = {}
    for value in inputs:
        want, have = wanted.get(str(value.name)), dims(value)
        if want is None or have is None:
            continue
        if len(want) != len(have):
            raise InputError("shape of another rank than the input", where=value.name, got=want, expected=have)
        for axis, (new, old) in enumerate(zip(want, have)):
            if new is None:
                continue
            if (isinstance(old, int) and old != new) or (isinstance(old, str) and sizes.get(old, new) != new):
                fixed = old if isinstance(old, int) else f"{sizes[old]} (dimension {old!r} of another input)"
                raise InputError(
                    f"axis {axis} is fixed",
                    where=value.name,
                    got=new,
                    expected=fixed,
                    next=f"the input takes {_said(have)}, and {_said(want)} was given",
                )
            if isinstance(old, str):
                sizes[old] = new
    specs = []
    for value in inputs:
        want, have = wanted.get(str(value.name)), dims(value)
        base: Shape | None = have if have is not None else want
        if base is not None and want is not None:
            base = tuple(new if new is not None else old for new, old in zip(want, base))
        specs.append(TensorSpec(str(value.name), numpy_dtype(value, engine), fix(base, sizes)))
    return tuple(specs), sizes


def _said(shape: Shape) -> str:
    return "(" + ", ".join("?" if d is None else str(d) for d in shape) + ")"


def fix(shape: Shape | None, sizes: Mapping[str, int]) -> Shape | None:
    """A shape with the named dimensions replaced whose sizes are known."""
    return None if shape is None else tuple(sizes.get(d, d) if isinstance(d, str) else d for d in shape)


def output_shape(value: ir.Value, sizes: Mapping[str, int], known: Shape | None) -> Shape | None:
    """Shape of a graph output: what the engine knows to be fixed, else the model's own words."""
    said = fix(dims(value), sizes)
    if known is None or said is None or len(known) != len(said):
        return said if known is None else known
    return tuple(k if isinstance(k, int) else s for k, s in zip(known, said))
