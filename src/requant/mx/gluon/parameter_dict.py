"""``ParameterDict``: the parameters of a block by name, with the prefix that new names get."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any

from requant.dtypes import as_dtype
from requant.errors import InputError, ParameterError, ShapeError, counted, nearest
from requant.mx.context import Context
from requant.mx.gluon.parameter import Constant, Parameter, shape_of
from requant.mx.ndarray.ndarray import NDArray, as_numpy
from requant.mx.ndarray.saving import load as load_arrays
from requant.mx.ndarray.saving import save as save_arrays


class ParameterDict:
    """Parameters by name, in the order in which they were made.

    Args:
        prefix: what names of new parameters start with.
        shared: parameters to reuse where a name is asked for that they have.
    """

    def __init__(self, prefix: str = "", shared: ParameterDict | None = None) -> None:
        self._prefix, self._shared = prefix, shared
        self._params: OrderedDict[str, Parameter] = OrderedDict()

    @property
    def prefix(self) -> str:
        return self._prefix

    def __getitem__(self, name: str) -> Parameter:
        try:
            return self._params[name]
        except KeyError:
            raise ParameterError("no parameter of that name", got=name, next=nearest(name, self._params)) from None

    def __setitem__(self, name: str, parameter: Parameter) -> None:
        self._params[name] = parameter

    def __contains__(self, name: object) -> bool:
        return name in self._params

    def __iter__(self) -> Iterator[str]:
        return iter(self._params)

    def __len__(self) -> int:
        return len(self._params)

    def __bool__(self) -> bool:
        return True

    def items(self) -> ItemsView[str, Parameter]:
        return self._params.items()

    def keys(self) -> KeysView[str]:
        return self._params.keys()

    def values(self) -> ValuesView[Parameter]:
        return self._params.values()

    # -- making ----------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Parameter | None:
        """The parameter of that full name, here or among the shared ones; a shared one is adopted."""
        if name in self._params:
            return self._params[name]
        if self._shared is not None and name in self._shared._params:
            self._params[name] = self._shared._params[name]
            return self._params[name]
        return None

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """The parameter ``prefix + name``, made with these arguments if there is none.

        Raises:
            ParameterError: there is one, with other attributes.
        """
        full = self._prefix + name
        found = self.find(full)
        if found is None:
            found = self._params[full] = Parameter(full, **kwargs)
            return found
        for key, value in kwargs.items():
            self._agree(found, key, value)
        return found

    @staticmethod
    def _agree(found: Parameter, key: str, value: Any) -> None:
        if key == "shape":
            dims = shape_of(value)
            known = found.shape
            if dims is None:
                return
            if known is None:
                found.shape = dims
                return
            if len(known) != len(dims) or any(a and b and a != b for a, b in zip(known, dims)):
                raise ShapeError(
                    "the shared parameter has another shape", where=repr(found.name), got=known, expected=dims
                )
            found._shape = tuple(a or b for a, b in zip(known, dims))
            return
        if not hasattr(found, key):
            setattr(found, key, value)
            return
        known = getattr(found, key)
        same = as_dtype(known) == as_dtype(value) if key == "dtype" else value is None or known == value
        if not same and key not in ("init", "allow_deferred_init", "grad_req", "lr_mult", "wd_mult"):
            raise ParameterError(
                f"the shared parameter has another {key}", where=repr(found.name), got=known, expected=value
            )

    def get_constant(self, name: str, value: Any = None) -> Constant:
        """The constant ``prefix + name``, made with this value if there is none.

        Raises:
            ParameterError: there is none, and no value is given; or it has another value.
        """
        full = self._prefix + name
        found = self.find(full)
        if found is None:
            if value is None:
                raise ParameterError("no constant of that name", got=full, next="give its value when it is made")
            made = self._params[full] = Constant(full, value)
            return made
        if not isinstance(found, Constant):
            raise ParameterError("the parameter of that name is no constant", got=repr(found))
        if value is not None:
            given = as_numpy(value)
            if found.value.shape != given.shape or not (found.value.asnumpy() == given).all():
                raise ParameterError("the constant of that name has another value", got=repr(found))
        return found

    def update(self, other: ParameterDict | Mapping[str, Parameter], select: str | None = None) -> None:
        """Take the parameters of another dict, those whose names match if ``select`` is given.

        Raises:
            ParameterError: a name stands for two parameters.
        """
        pattern = None if select is None else re.compile(select)
        for name, parameter in other.items():
            if pattern is not None and not pattern.match(name):
                continue
            if self._params.get(name, parameter) is not parameter:
                raise ParameterError(
                    "two parameters have the same name", got=name, next="give the blocks different prefixes"
                )
            self._params[name] = parameter

    # -- all of them -----------------------------------------------------------------------------------------------

    def initialize(self, init: Any = None, ctx: Any = None, verbose: bool = False, force_reinit: bool = False) -> None:
        """First values for all; each parameter's own initializer goes before ``init``."""
        from requant.mx import initializer

        default = initializer.Uniform() if init is None else initializer.create(init)
        for parameter in self.values():
            parameter.initialize(None, ctx, default, force_reinit=force_reinit)

    def zero_grad(self) -> None:
        """Does nothing: there are no gradients."""

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Say that they are on other devices."""
        for parameter in self.values():
            parameter.reset_ctx(ctx)

    def list_ctx(self) -> list[Context]:
        """All devices that they say they are on."""
        return list(dict.fromkeys(c for p in self.values() for c in p.list_ctx()))

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of each: ``setattr("grad_req", "null")``."""
        for parameter in self.values():
            setattr(parameter, name, value)

    def select(self, pattern: str) -> ParameterDict:
        """Those whose names match a regular expression."""
        found = ParameterDict(self._prefix)
        found.update(self, pattern)
        return found

    # -- files -----------------------------------------------------------------------------------------------------

    def save(self, filename: str | os.PathLike[str], strip_prefix: str = "") -> None:
        """Write their values.

        Raises:
            ParameterError: a name does not start with ``strip_prefix``, or a parameter has no value.
        """
        for name in self._params:
            if not name.startswith(strip_prefix):
                raise ParameterError(
                    "the name does not start with the prefix to strip", got=name, expected=f"{strip_prefix}..."
                )
        save_arrays(filename, {n[len(strip_prefix) :]: p.data() for n, p in self.items()})

    def load(
        self,
        filename: str | os.PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Take values from a file; names there may carry ``arg:`` and ``aux:``, and lack ``restore_prefix``.

        Raises:
            ParameterError: parameters are missing or too many, unless allowed.
        """
        found = load_arrays(filename)
        if not isinstance(found, dict):
            raise ParameterError(
                "the arrays have no names", where=os.fspath(filename), got=counted(len(found), "array")
            )
        values = {restore_prefix + n.removeprefix("arg:").removeprefix("aux:"): v for n, v in found.items()}
        take(
            dict(self._params), values, os.fspath(filename), ctx, allow_missing, ignore_extra, cast_dtype, dtype_source
        )

    def __repr__(self) -> str:
        head = self._prefix + " " if self._prefix else ""
        return head + "(\n" + "\n".join(f"  {p!r}" for p in self.values()) + "\n)"


def take(
    parameters: Mapping[str, Parameter],
    values: Mapping[str, Any],
    where: str,
    ctx: Context | Sequence[Context] | None,
    allow_missing: bool,
    ignore_extra: bool,
    cast_dtype: bool,
    dtype_source: str,
) -> None:
    """Give parameters the values of a file, by name.

    Raises:
        ParameterError: some are missing or too many, unless allowed. ShapeError, DTypeError: a value does not fit.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in parameters.items():
        names.setdefault(id(parameter), []).append(name)  # one of the names of a shared parameter is enough
    if not allow_missing:
        for aliases in names.values():
            if not any(n in values for n in aliases):
                raise ParameterError(
                    f"parameter {aliases[0]!r} is missing",
                    where=where,
                    next=f"allow_missing=True if it is set later; {nearest(aliases[0], values)}",
                )
    extra = [n for n in values if n not in parameters]
    if extra and not ignore_extra:
        raise ParameterError(
            "the file has parameters that the network does not have",
            where=where,
            got=", ".join(extra[:8]),
            next=f"ignore_extra=True leaves them out; {nearest(extra[0], parameters)}",
        )
    for name, value in values.items():
        if name not in parameters:
            continue
        dense = value if isinstance(value, NDArray) else value.todense()
        if not isinstance(dense, NDArray):
            raise InputError("not an array", where=f"{where}: {name}", got=type(value).__name__)
        parameters[name].load_value(dense, ctx, cast_dtype, dtype_source)
