"""Making symbols: variables, groups, files, constants."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from requant.dtypes import as_dtype, to_code
from requant.errors import InputError
from requant.formats import symbol_file
from requant.mx.symbol.symbol import Symbol, compose
from requant.symbol import tree

_STORAGE = {"default": 0, "row_sparse": 1, "csr": 2}


def var(
    name: str,
    attr: Mapping[str, str] | None = None,
    shape: Sequence[int] | None = None,
    lr_mult: float | None = None,
    wd_mult: float | None = None,
    dtype: object = None,
    init: Any = None,
    stype: str | None = None,
    profiler_scope: str | None = None,
    **kwargs: Any,
) -> Symbol:
    """A variable: a free input, or a parameter that a file or an array will give a value.

    Args:
        shape, dtype, stype: what is known of it; written as ``__shape__`` and so on.
        lr_mult, wd_mult, init: for training; kept in the file.
        kwargs: other attributes, as ``__name__=...``.
    Raises:
        TypeError: the name is no string. InputError: an attribute without underscores.
    """
    if not isinstance(name, str):
        raise TypeError(f"a variable's name is a string, not {type(name).__name__}")
    attrs = {k: str(v) for k, v in (attr or {}).items()}
    for key, value in (
        ("__shape__", None if shape is None else tuple(int(d) for d in shape)),
        ("__lr_mult__", lr_mult),
        ("__wd_mult__", wd_mult),
        ("__dtype__", None if dtype is None else to_code(dtype)),
        ("__storage_type__", None if stype is None else _STORAGE.get(stype, stype)),
        ("__profiler_scope__", profiler_scope),
    ):
        if value is not None:
            attrs[key] = str(value)
    if init is not None:
        attrs["__init__"] = init if isinstance(init, str) else init.dumps()
    for key, value in kwargs.items():
        if not (key.startswith("__") and key.endswith("__")):
            raise InputError("unknown argument of a variable", got=key, expected=f"your own attributes as __{key}__")
        attrs[key] = str(value)
    return Symbol(tree.variable(name, attrs).entries)


Variable = var


def Group(symbols: Sequence[tree.Symbol], create_fn: type[Symbol] = Symbol) -> Symbol:
    """One symbol with the outputs of all.

    Raises:
        TypeError: something that is no symbol, or none at all.
    """
    symbols = list(symbols)
    if not symbols:
        raise TypeError("a group needs at least one symbol")
    for value in symbols:
        if not isinstance(value, tree.Symbol):
            raise TypeError(f"a group is made of symbols, not {type(value).__name__}")
    return create_fn(tree.group(symbols).entries)


def load(fname: str | os.PathLike[str]) -> Symbol:
    """Read a symbol file of any MXNet version.

    Raises:
        FormatError, GraphError: it names the place.
    """
    return Symbol(symbol_file.load(fname).entries)


def load_json(json_str: str) -> Symbol:
    """Read a symbol from JSON text."""
    if not isinstance(json_str, str):
        raise TypeError(f"JSON text is a string, not {type(json_str).__name__}")
    return Symbol(symbol_file.loads(json_str).entries)


fromjson = load_json


def _name(dtype: object) -> str:
    return as_dtype(dtype).name


def zeros(shape: int | Sequence[int], dtype: object = None, **kwargs: Any) -> Symbol:
    """A constant of zeros."""
    return _constant("_zeros", kwargs, shape=_dims(shape), dtype=_name(dtype))


def ones(shape: int | Sequence[int], dtype: object = None, **kwargs: Any) -> Symbol:
    """A constant of ones."""
    return _constant("_ones", kwargs, shape=_dims(shape), dtype=_name(dtype))


def full(shape: int | Sequence[int], val: float, dtype: object = None, **kwargs: Any) -> Symbol:
    """A constant of one value."""
    return _constant("_full", kwargs, shape=_dims(shape), dtype=_name(dtype), value=float(val))


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    name: str | None = None,
    dtype: object = None,
) -> Symbol:
    """Evenly spaced values of [start, stop); of [0, start) without ``stop``."""
    given = {"start": start, "stop": "None" if stop is None else stop, "step": step, "repeat": repeat}
    return _constant("_arange", {"name": name}, **given, infer_range=infer_range, dtype=_name(dtype))


def linspace(
    start: float, stop: float, num: int, endpoint: bool = True, name: str | None = None, dtype: object = None
) -> Symbol:
    """``num`` evenly spaced values from start to stop."""
    given = {"start": start, "stop": stop, "num": num, "endpoint": endpoint, "dtype": _name(dtype)}
    return _constant("_linspace", {"name": name}, **given)


def eye(N: int, M: int = 0, k: int = 0, dtype: object = None, **kwargs: Any) -> Symbol:
    """A matrix with ones on the ``k``-th diagonal; M columns (N if 0)."""
    return _constant("_eye", kwargs, N=N, M=M, k=k, dtype=_name(dtype))


def _dims(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(int(d) for d in shape)


def _constant(op: str, kwargs: Mapping[str, Any], **attrs: Any) -> Symbol:
    from requant.mx.symbol import _internal

    made: Symbol = getattr(_internal, op)(**attrs, **kwargs)
    return made


def split_v2(
    ary: Symbol, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
) -> Symbol:
    """Pieces along ``axis``: so many equal ones, or cut at the given indices."""
    if isinstance(indices_or_sections, int):
        indices, sections = [], indices_or_sections
    else:
        indices, sections = [0, *(int(i) for i in indices_or_sections)], 0
    written = json.dumps(indices)  # MXNet's own function passes a list, and a list stands in its files
    return compose("_split_v2", ary, indices=written, sections=sections, axis=axis, squeeze_axis=squeeze_axis)
