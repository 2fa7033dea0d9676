"""``Parameter`` and ``Constant``: named arrays of a network, whose shapes may become known later."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from requant.dtypes import as_dtype
from requant.errors import DTypeError, InputError, ParameterError, ShapeError, UnsupportedError
from requant.mx import initializer
from requant.mx.context import Context, checked
from requant.mx.ndarray.create import array
from requant.mx.ndarray.ndarray import ALL_WRITES, NDArray
from requant.mx.symbol.create import var
from requant.mx.symbol.symbol import Symbol

log = logging.getLogger(__name__)

_NO_GRADIENTS = "requant runs and quantizes trained models; it does not compute gradients"


class DeferredInitializationError(ParameterError):
    """A parameter was read before its shape, and so its value, was known."""


def contexts(ctx: Context | Sequence[Context] | None) -> list[Context]:
    """Devices as a list; the current one if none is given."""
    if ctx is None:
        return [checked(None)]
    return [checked(ctx)] if isinstance(ctx, Context) else [checked(c) for c in ctx]


def shape_of(shape: Any) -> tuple[int, ...] | None:
    """A shape as a tuple; -1 is unknown as 0 is."""
    if shape is None:
        return None
    dims = (shape,) if isinstance(shape, (int, np.integer)) else shape
    return tuple(max(0, int(d)) for d in dims)


def is_full(shape: tuple[int, ...] | None) -> bool:
    """Whether every dimension is known."""
    return shape is not None and all(d > 0 for d in shape)


class Parameter:
    """A named array of a block.

    Args:
        name: its name in the network.
        grad_req: kept for scripts that read it; gradients are not computed.
        shape: 0 for a dimension that is not known yet.
        dtype: its type.
        lr_mult, wd_mult: kept, as they stand in exported symbols.
        init: its own initializer, an object or a name.
        allow_deferred_init: whether ``initialize`` may wait for the shape.
        stype, grad_stype: storage types; values are kept dense.
    """

    def __init__(
        self,
        name: str,
        grad_req: str = "write",
        shape: Any = None,
        dtype: object = np.float32,
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
    ) -> None:
        self.name, self.init = name, init
        self.lr_mult, self.wd_mult = lr_mult, wd_mult
        self.allow_deferred_init = allow_deferred_init
        self._differentiable = differentiable
        self._grad_req = "null"
        self.grad_req = grad_req
        self._stype, self._grad_stype = stype, grad_stype
        self._shape = shape_of(shape)
        self._dtype = as_dtype(dtype)
        self._data: NDArray | None = None
        self._ctx: list[Context] = []
        self._var: Symbol | None = None
        #: (initializer, devices, default initializer, value) while the shape is awaited
        self._deferred: tuple[Any, list[Context], Any, NDArray | None] | None = None

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def grad_req(self) -> str:
        """``write``, ``add`` or ``null``; it has no effect."""
        return self._grad_req

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req not in ("write", "add", "null"):
            raise InputError("unknown grad_req", where=repr(self.name), got=req, expected="write, add or null")
        self._grad_req = req if self._differentiable else "null"

    @property
    def stype(self) -> str:
        return self._stype

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Its shape; 0 for a dimension, or None, where it is not known."""
        return self._data.shape if self._data is not None else self._shape

    @shape.setter
    def shape(self, new: Any) -> None:
        dims = shape_of(new)
        assert dims is not None
        known = self._shape
        if known is not None and (len(known) != len(dims) or any(k and k != d for k, d in zip(known, dims))):
            raise ShapeError("the shape differs", where=f"parameter {self.name!r}", got=dims, expected=known)
        self._shape = dims

    @property
    def dtype(self) -> type[np.generic]:
        kind: type[np.generic] = self._dtype.type
        return kind

    @dtype.setter
    def dtype(self, dtype: object) -> None:
        self.cast(dtype)

    # -- values ----------------------------------------------------------------------------------------------------

    def initialize(
        self,
        init: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        default_init: Any = None,
        force_reinit: bool = False,
    ) -> None:
        """Give it a first value, now or when its shape is known.

        Args:
            init: an initializer; its own otherwise, else ``default_init``, else uniform over [-0.07, 0.07].
            ctx: devices that it says it is on.
            force_reinit: also if it has a value.
        Raises:
            ParameterError: the shape is not known, and the parameter may not wait for it.
        """
        if self._data is not None and not force_reinit:
            log.info("parameter %s has a value already: force_reinit=True replaces it", self.name)
            return
        self._hold(None)
        default = initializer.Uniform() if default_init is None else default_init
        chosen = init if init is not None else (default if self.init is None else self.init)
        self._deferred = (chosen, contexts(ctx), default, None)
        if is_full(self._shape):
            self.finish_deferred_init()
        elif not self.allow_deferred_init:
            self._deferred = None
            raise ParameterError(
                "the shape is not known",
                where=f"parameter {self.name!r}",
                got=self._shape,
                next="give in_units, in_channels and the like when the layer is made",
            )

    def finish_deferred_init(self) -> None:
        """Make the value that ``initialize`` left for later.

        Raises:
            ShapeError: the shape is still not known.
        """
        if self._deferred is None:
            return
        init, ctx, default, value = self._deferred
        shape = self._shape
        if shape is None or not is_full(shape):
            raise ShapeError(
                "the shape is still not known", where=f"parameter {self.name!r}", got=shape, next="run the block once"
            )
        self._deferred = None
        if value is None:
            value = NDArray(np.zeros(shape, self._dtype), ctx[0])
            initializer.create(default)(initializer.InitDesc(self.name, {"__init__": init}), value)
        self._take(value, ctx)

    _finish_deferred_init = finish_deferred_init

    def _take(self, value: NDArray, ctx: list[Context]) -> None:
        self._ctx = ctx
        self._shape, self._dtype = value.shape, value._data.dtype
        if self._data is None or self._data._data.dtype != value._data.dtype:
            self._hold(NDArray(value._data, ctx[0]))
        else:
            self._data[:] = value

    def _hold(self, value: NDArray | None) -> None:
        """Have another array from now on, which whoever compiled the former one in must notice."""
        self._data = value
        ALL_WRITES[0] += 1

    def set_data(self, data: NDArray | np.ndarray) -> None:
        """Give it a value.

        Raises:
            ShapeError: another shape than the network's.
        """
        value = data if isinstance(data, NDArray) else array(data, dtype=self._dtype)
        known = self._shape or value.shape
        if len(known) != len(value.shape) or any(k > 0 and k != d for k, d in zip(known, value.shape)):
            raise ShapeError("the shape differs", where=f"parameter {self.name!r}", got=value.shape, expected=known)
        ctx = self._ctx or (self._deferred[1] if self._deferred is not None else [value.context])
        self._deferred = None
        self._take(value.copy(), ctx)

    def load_value(
        self,
        data: NDArray,
        ctx: Context | Sequence[Context] | None = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Take a value from a file.

        Args:
            cast_dtype: convert where dtypes differ: the value to the parameter's (``dtype_source`` ``current``), or the
                parameter to the value's (``saved``).
        Raises:
            ShapeError: shapes differ. DTypeError: dtypes differ, and ``cast_dtype`` is not set.
        """
        if data._data.dtype != self._dtype:
            if not cast_dtype:
                raise DTypeError(
                    "the file has another dtype",
                    where=f"parameter {self.name!r}",
                    got=data._data.dtype,
                    expected=self._dtype,
                    next="cast_dtype=True converts; with dtype_source='saved' the block takes the file's dtype",
                )
            if dtype_source not in ("current", "saved"):
                raise InputError("unknown dtype_source", got=dtype_source, expected="current or saved")
            if dtype_source == "current":
                data = data.astype(self._dtype)
        if ctx is not None:
            self._ctx = contexts(ctx)
        self.set_data(data)

    def _must_have(self) -> NDArray:
        if self._data is not None:
            return self._data
        if self._deferred is not None:
            raise DeferredInitializationError(
                "the parameter has no value yet: its shape is not known",
                where=repr(self.name),
                got=self._shape,
                next="run the network once, or give in_units and in_channels when its layers are made",
            )
        raise ParameterError(
            "the parameter has no value yet",
            where=repr(self.name),
            next="net.initialize(), load parameters, or set_data(x)",
        )

    def data(self, ctx: Context | None = None) -> NDArray:
        """The array.

        Raises:
            ParameterError: it has no value yet. DeferredInitializationError: nor a shape.
        """
        return self._data if self._data is not None else self._must_have()

    def list_data(self) -> list[NDArray]:
        """The array, once for each device."""
        return [self.data()] * max(1, len(self._ctx))

    def list_ctx(self) -> list[Context]:
        """Its devices."""
        if self._data is None and self._deferred is not None:
            return list(self._deferred[1])
        return list(self._ctx) or [self.data().context]

    def cast(self, dtype: object) -> None:
        """Change its type."""
        self._dtype = as_dtype(dtype)
        self._var = None
        if self._data is not None:
            self._hold(self._data.astype(dtype, copy=False))

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Say that it is on other devices."""
        self._ctx = contexts(ctx)
        if self._data is not None:
            self._hold(self._data.as_in_context(self._ctx[0]))
        elif self._deferred is not None:
            init, _, default, value = self._deferred
            self._deferred = (init, self._ctx, default, value)

    def var(self) -> Symbol:
        """A symbol variable of its name: the same one at every call."""
        if self._var is None:
            init = self.init
            if init is not None and not isinstance(init, (str, initializer.Initializer)):
                init = None
            self._var = var(
                self.name, shape=self.shape, dtype=self._dtype, lr_mult=self.lr_mult, wd_mult=self.wd_mult, init=init
            )
        return self._var

    # -- training, which there is none of ---------------------------------------------------------------------------

    def grad(self, ctx: Context | None = None) -> NDArray:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError(_NO_GRADIENTS)

    list_grad = grad

    def zero_grad(self) -> None:
        """Does nothing: there are no gradients."""

    def __repr__(self) -> str:
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={self.dtype})"


class Constant(Parameter):
    """A parameter with a fixed value, such as the anchors of a detector.

    Args:
        name: its name in the network.
        value: an array, or what ``mx.nd.array`` takes.
    """

    def __init__(self, name: str, value: Any) -> None:
        held = value if isinstance(value, NDArray) else array(value)
        self.value = held
        super().__init__(
            name,
            grad_req="null",
            shape=held.shape,
            dtype=held.dtype,
            init=_Fixed(held),
            differentiable=False,
        )

    @Parameter.grad_req.setter  # type: ignore[attr-defined,untyped-decorator]
    def grad_req(self, req: str) -> None:
        if req != "null":
            log.warning("constant %s is not learnable: grad_req stays null", self.name)
        self._grad_req = "null"

    def initialize(
        self,
        init: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        default_init: Any = None,
        force_reinit: bool = False,
    ) -> None:
        """Take the fixed value, whatever the initializer."""
        super().initialize(self.init, ctx, default_init, force_reinit)


class _Fixed(initializer.Initializer):
    """Fills in the value of a constant."""

    def __init__(self, value: NDArray) -> None:
        super().__init__()
        self.value = value

    def dumps(self) -> str:
        return '["constant", {"value": "see the parameter file"}]'

    def _fill(self, arr: NDArray) -> None:
        arr[:] = self.value
