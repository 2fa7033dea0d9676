"""``mx.operator``: operators written in Python, run eagerly. Forward alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError, UnsupportedError, nearest
from requant.mx.ndarray.ndarray import NDArray

_registered: dict[str, type[CustomOpProp]] = {}


class CustomOp:
    """Base of operators: subclasses write ``forward``."""

    def forward(self, is_train: bool, req: Sequence[str], in_data: Any, out_data: Any, aux: Any) -> None:
        """Compute ``out_data`` from ``in_data``, with ``assign``."""
        raise NotImplementedError

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        """Never called: requant does not train."""
        raise UnsupportedError("requant runs and quantizes trained models; it does not compute gradients")

    def assign(self, dst: NDArray, req: str, src: Any) -> None:
        """Store a result as ``req`` says: ``null``, ``write``, ``inplace`` or ``add``."""
        if req in ("write", "inplace"):
            dst[:] = src
        elif req == "add":
            dst[:] = dst + src
        elif req != "null":
            raise InputError("unknown req", got=req, expected="null, write, inplace or add")


class CustomOpProp:
    """Base of descriptions: how many inputs and outputs, of which shapes, and how to make the operator."""

    def __init__(self, need_top_grad: bool = True) -> None:
        self.need_top_grad_ = need_top_grad

    def infer_shape(self, in_shape: list[Any]) -> Any:
        """Shapes of inputs, outputs and auxiliary states."""
        return in_shape, [in_shape[0]] * len(self.list_outputs()), []

    def infer_type(self, in_type: list[Any]) -> Any:
        """Types of inputs, outputs and auxiliary states."""
        return in_type, [in_type[0]] * len(self.list_outputs()), [in_type[0]] * len(self.list_auxiliary_states())

    def list_arguments(self) -> list[str]:
        return ["data"]

    def list_outputs(self) -> list[str]:
        return ["output"]

    def list_auxiliary_states(self) -> list[str]:
        return []

    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> CustomOp:
        """The operator for inputs of these shapes and types."""
        return CustomOp()


def register(reg_name: str) -> Callable[[type[CustomOpProp]], type[CustomOpProp]]:
    """Make a description known by name; a decorator."""

    def keep(prop: type[CustomOpProp]) -> type[CustomOpProp]:
        _registered[reg_name] = prop
        return prop

    return keep


def get_all_registered_operators() -> list[str]:
    """Names of the operators registered here."""
    return list(_registered)


def run_custom(op_type: str, inputs: Sequence[NDArray], arguments: dict[str, Any]) -> Any:
    """Run a registered operator on arrays.

    Returns:
        Its output, or a list.
    Raises:
        InputError: none of that name, or another number of inputs.
    """
    if op_type not in _registered:
        raise InputError("no custom operator of that name", got=op_type, next=nearest(op_type, _registered))
    made_by: Any = _registered[op_type]
    named = {k: v for k, v in arguments.items() if isinstance(v, NDArray)}
    prop = made_by(**{k: str(v) for k, v in arguments.items() if k not in named and k != "name"})
    names, aux = prop.list_arguments(), prop.list_auxiliary_states()
    if named:
        rest = iter(inputs)
        given = [named.pop(n) if n in named else next(rest, None) for n in (*names, *aux)]
        inputs = [x for x in given if x is not None]
        if named:
            unknown = next(iter(named))
            raise InputError("no input of that name", where=op_type, got=unknown, next=nearest(unknown, [*names, *aux]))
    if len(inputs) != len(names) + len(aux):
        raise InputError("another number of inputs", where=op_type, got=len(inputs), expected=[*names, *aux])
    data, states = list(inputs[: len(names)]), list(inputs[len(names) :])
    shapes = [list(x.shape) for x in data]
    _, out_shapes, *_ = prop.infer_shape(shapes)
    _, out_types, *_ = prop.infer_type([x.dtype for x in data])
    outs = [NDArray(np.zeros(tuple(s), t), data[0].context) for s, t in zip(out_shapes, out_types)]
    made = prop.create_operator(data[0].context if data else None, shapes, [x.dtype for x in data])
    made.forward(False, ["write"] * len(outs), data, outs, states)
    return outs[0] if len(outs) == 1 else outs
