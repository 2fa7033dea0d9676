"""What an ``nd`` function does: put its arguments in order and run the operator at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from requant import eager
from requant.errors import InputError, ShapeError
from requant.mx import autograd
from requant.mx.context import checked
from requant.mx.generate import HIDDEN_KEYS, Function, Parsed, Spelling, read_attributes
from requant.mx.ndarray.ndarray import NDArray


def function(spelling: Spelling) -> Function:
    """The function that runs an operator on NDArrays and returns an NDArray, or a list of them."""
    op, inputs, where = spelling.op, spelling.inputs, spelling.name
    cache: Parsed = {}
    plain = not callable(op.inputs) and op.variadic is None

    def call(
        *args: Any, out: Any = None, name: str | None = None, attr: Any = None, ctx: Any = None, **kwargs: Any
    ) -> Any:
        arrays: list[np.ndarray] = []
        first: NDArray | None = None
        if op.variadic is not None:
            given = [*args, *(kwargs.pop(k) for k in [k for k in kwargs if isinstance(kwargs[k], NDArray)])]
            kwargs.setdefault(op.variadic, len(given))
            for value in given:
                arrays.append(_array(value, where))
            first = given[0] if given else None
            attrs = read_attributes(op, cache, kwargs)
        else:
            bound = spelling.bind(args, kwargs) if args else kwargs
            found = {n: v for n in inputs if (v := bound.pop(n, None)) is not None}
            attrs = read_attributes(op, cache, _visible(bound))
            order = inputs if plain else op.input_names(attrs, len(found))
            for n in order:
                value = found.pop(n, None)
                if value is not None:
                    arrays.append(_array(value, where, n))
                    first = first if first is not None else value
            if found:
                raise InputError(
                    "no input of that name for these attributes", where=where, got=list(found), expected=list(order)
                )
        results = eager.invoke(op, attrs, arrays, autograd.is_training())
        context = first._ctx if first is not None else checked(ctx)
        if out is not None:
            return _store(results, out, where)
        if len(results) == 1:
            return NDArray(results[0], context)
        return [NDArray(r, context) for r in results]

    return call


def _visible(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Without attributes that only symbols carry."""
    if HIDDEN_KEYS.isdisjoint(kwargs):
        return kwargs
    return {k: v for k, v in kwargs.items() if k not in HIDDEN_KEYS}


def _array(value: Any, where: str, name: str = "input") -> np.ndarray:
    if isinstance(value, NDArray):
        return value._data
    raise InputError(
        f"{name} must be an NDArray", where=where, got=type(value).__name__, next="mx.nd.array(x) makes one from x"
    )


def _store(results: Sequence[np.ndarray], out: Any, where: str) -> Any:
    """Write the results into the arrays that the caller gave."""
    targets = list(out) if isinstance(out, (list, tuple)) else [out]
    if len(targets) > len(results):
        raise InputError("more arrays given as out than there are results", where=where, got=len(targets))
    for target, result in zip(targets, results):
        if target.shape != result.shape:
            raise ShapeError("out does not fit the result", where=where, got=target.shape, expected=result.shape)
        target._assign(result)
    return out
