"""What callers feed a model, as arrays by input name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from requant.errors import InputError, nearest, shown
from requant.symbol.infer import infer
from requant.symbol.tree import Symbol

Feeds = Mapping[str, Any]
#: What ``run`` takes: one array for a model with one input, a sequence in input order, or a mapping by name.
Data = np.ndarray | Sequence[np.ndarray] | Feeds


def by_name(
    data: Data, extra: Feeds | None, names: Sequence[str], optional: Sequence[str], source: str
) -> dict[str, np.ndarray]:
    """Arrays by input name, in the order of the inputs.

    Args:
        data: what the caller fed.
        extra: what came by keyword.
        names: the true inputs, in order.
        optional: those of them that may be absent, all together.
        source: what the model came from, for messages.

    Raises:
        InputError: a name is wrong or missing, or something is no array; the message lists the true inputs.
    """
    if isinstance(data, Mapping):
        given = {**data, **(extra or {})}
    else:
        arrays = data if isinstance(data, (list, tuple)) else [data]
        takers = names if len(arrays) == len(names) else [n for n in names if n not in optional]
        given = {**dict(zip(takers, arrays)), **(extra or {})}
        if len(arrays) > len(names):
            raise InputError(
                "too many arrays",
                where=source,
                got=len(arrays),
                expected=f"{len(names)}: {names}",
                next="a batch is one array (N, ...); numpy.stack makes one of samples",
            )
    for name in given:
        if name not in names:
            raise InputError("no input of that name", where=source, got=name, expected=names, next=nearest(name, names))
    feeds = {n: _as_array(given[n], f"{source}: input {n!r}") for n in names if n in given}
    if not all(n in given or n in optional for n in names):
        raise InputError(
            "an input is missing",
            where=source,
            got=list(given) or "nothing",
            expected=names,
            next="run({" + ", ".join(f"{n!r}: ..." for n in names[:4]) + "})",
        )
    return feeds


def _as_array(value: Any, where: str) -> np.ndarray:
    try:
        found = np.asarray(value)
    except (ValueError, TypeError) as fault:  # rows of several lengths
        got = f"{shown(value)}: {str(fault).split('.')[0]}"
        raise InputError("not an array", where=where, got=got, expected=_NUMBERS, next=_NEXT) from None
    if found.dtype.kind in "OUSM":
        got = f"{shown(value)}, dtype {found.dtype}"
        raise InputError("data that are no numbers", where=where, got=got, expected=_NUMBERS, next=_NEXT)
    return found


_NUMBERS = "a numpy array of numbers"
_NEXT = "read files into arrays first, and fill in what is None; `requant run` takes files"


def begin_states(
    symbol: Symbol, arrays: Mapping[str, np.ndarray], states: Sequence[str], source: str
) -> dict[str, np.ndarray]:
    """Zeros for recurrent states at the begin of a sequence, of the sizes that follow from everything else.

    Args:
        symbol: the network.
        arrays: its parameters and the other inputs, by name.
        states: names of the inputs that are to be zeros.
        source: what the model came from, for messages.

    Raises:
        InputError: a size does not follow; the message says how to feed the state.
    """
    variables = {n.name: n for n in symbol.variables()}
    shapes = {n: a.shape for n, a in arrays.items() if n in variables}
    types = {n: arrays[n].dtype for n in shapes}
    found = infer(symbol, shapes, types, partial=True)
    if any(found.shape(variables[n]) is None for n in states):  # of an unrolled cell: (batch, units)
        shapes.update({n: (0, 0) for n in states if found.shape(variables[n]) is None})
        found = infer(symbol, shapes, types, partial=True)
    zeros = {}
    for name in states:
        shape = found.shape(variables[name])
        if shape and not shape[0]:
            shape = (1, *shape[1:])  # the batch; sizes above 1 are told by the other inputs
        if shape is None or not all(shape):
            raise InputError(
                "the begin state is not given, and its size cannot be told",
                where=f"{source}: input {name!r}",
                got=shape,
                next=f"feed it: run(..., {name}=np.zeros(...))",
            )
        zeros[name] = np.zeros(shape, found.dtype(variables[name]) or np.float32)
    return zeros
