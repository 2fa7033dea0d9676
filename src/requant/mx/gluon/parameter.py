"""``Parameter``: a named array of a network, with what a network says of it."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.dtypes import as_dtype
from requant.errors import ParameterError, ShapeError, UnsupportedError
from requant.mx.context import Context
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.ndarray.saving import save
from requant.mx.symbol.create import var
from requant.mx.symbol.symbol import Symbol


class Parameter:
    """A named array.

    Args:
        name: its name in the network.
        shape: 0 for a dimension that is not known yet.
        dtype: its type.
        grad_req: kept for scripts that read it; gradients are not computed.
    """

    def __init__(
        self, name: str, shape: Sequence[int] | None = None, dtype: object = np.float32, grad_req: str = "write"
    ) -> None:
        self.name, self.grad_req = name, grad_req
        self._shape = None if shape is None else tuple(int(d) for d in shape)
        self._dtype = as_dtype(dtype)
        self._data: NDArray | None = None

    @property
    def shape(self) -> tuple[int, ...] | None:
        return self._data.shape if self._data is not None else self._shape

    @property
    def dtype(self) -> type[np.generic]:
        kind: type[np.generic] = self._dtype.type
        return kind

    def data(self, ctx: Context | None = None) -> NDArray:
        """The array.

        Raises:
            ParameterError: it has no value yet.
        """
        if self._data is None:
            raise ParameterError(
                "the parameter has no value yet", where=repr(self.name), next="load parameters, or set_data(x)"
            )
        return self._data

    def list_data(self) -> list[NDArray]:
        return [self.data()]

    def list_ctx(self) -> list[Context]:
        return [self.data().context]

    def set_data(self, data: NDArray | np.ndarray) -> None:
        """Give it a value.

        Raises:
            ShapeError: another shape than the network's.
        """
        value = data if isinstance(data, NDArray) else array(data, dtype=self._dtype)
        known = self._shape or value.shape
        if len(known) != len(value.shape) or any(k > 0 and k != d for k, d in zip(known, value.shape)):
            raise ShapeError("the shape differs", where=f"parameter {self.name!r}", got=value.shape, expected=known)
        self._shape, self._dtype = value.shape, value._data.dtype
        if self._data is None or self._data.dtype != value.dtype:
            self._data = value.copy()
        else:
            self._data[:] = value

    def cast(self, dtype: object) -> None:
        """Change its type."""
        self._dtype = as_dtype(dtype)
        if self._data is not None:
            self._data = self._data.astype(dtype, copy=False)

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Say that it is on another device."""
        if self._data is not None:
            self._data = self._data.as_in_context(ctx if isinstance(ctx, Context) else ctx[0])

    def var(self) -> Symbol:
        """A symbol variable of its name."""
        return var(self.name, shape=self.shape, dtype=self._dtype)

    def grad(self, ctx: Context | None = None) -> NDArray:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError("requant runs and quantizes trained models; it does not compute gradients")

    def __repr__(self) -> str:
        return f"Parameter {self.name} (shape={self.shape}, dtype={self.dtype})"


class ParameterDict(OrderedDict[str, Parameter]):
    """Parameters by name, in the order of the network.

    Args:
        prefix: what their names start with.
    """

    def __init__(self, prefix: str = "") -> None:
        super().__init__()
        self.prefix = prefix

    def select(self, pattern: str) -> ParameterDict:
        """Those whose names match a regular expression."""
        found, wanted = ParameterDict(self.prefix), re.compile(pattern)
        found.update({n: p for n, p in self.items() if wanted.match(n)})
        return found

    def save(self, filename: str | os.PathLike[str], strip_prefix: str = "") -> None:
        """Write their values."""
        save(filename, {n.removeprefix(strip_prefix): p.data() for n, p in self.items()})

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Say that they are on another device."""
        for parameter in self.values():
            parameter.reset_ctx(ctx)

    def setattr(self, name: str, value: Any) -> None:
        """Set an attribute of each: ``setattr("grad_req", "null")``."""
        for parameter in self.values():
            setattr(parameter, name, value)

    def __repr__(self) -> str:
        return f"{self.prefix}(\n" + "\n".join(f"  {p}" for p in self.values()) + "\n)"
