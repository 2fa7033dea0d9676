"""``NDArray``: MXNet's array, backed by numpy. Computing is done by the operators of requant, eagerly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from requant import eager
from requant.dtypes import as_dtype
from requant.errors import DTypeError, InputError, ShapeError, UnsupportedError
from requant.mx.context import Context, checked, current_context
from requant.mx.ndarray.by_name import Array, number, prepared, run
from requant.mx.ndarray.indexing import get_item, set_item
from requant.ops import registry

#: Writes to any array so far, one number in a list: while it stays the same, no array has changed.
ALL_WRITES = [0]


class NDArray:
    """An n-dimensional array with MXNet's behaviour.

    What differs from numpy: shapes of scalars are ``(1,)``, comparisons give the dtype of their operands, operands must
    have one dtype, Python numbers take the array's dtype, and nothing ever becomes float64 by itself.

    Basic slices that are contiguous share memory with their array, all others are copies.

    Args:
        data: the numpy array; it is held, not copied.
        ctx: the device that the array says it is on; computing is always on the CPU.
        writes: the count of writes of the array that this is a view of; NaN where others write to the memory too.
    """

    __slots__ = ("_ctx", "_data", "_writes")

    # numpy must leave ``array + ndarray`` to the methods below
    __array_priority__ = 1000.0
    __array_ufunc__ = None
    stype = "default"
    #: Gradients are not kept: requant does not train.
    grad = None

    def __init__(self, data: Array, ctx: Context | None = None, writes: list[float] | None = None) -> None:
        self._data = data
        self._ctx = current_context() if ctx is None else ctx
        # How often the memory was written to, shared by all views of it: whoever compiled these values in can tell.
        self._writes: list[float] = [0] if writes is None else writes

    if TYPE_CHECKING:  # methods of operators, attached by requant.mx.ndarray.methods

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._data.shape)

    @property
    def dtype(self) -> type[np.generic]:
        """The numpy scalar type: ``numpy.float32``."""
        kind: type[np.generic] = self._data.dtype.type
        return kind

    @property
    def size(self) -> int:
        return self._data.size

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def context(self) -> Context:
        return self._ctx

    ctx = context
    device = context

    @property
    def T(self) -> NDArray:
        """A copy with the order of dimensions reversed."""
        return NDArray(np.ascontiguousarray(self._data.T), self._ctx)

    def __len__(self) -> int:
        if not self._data.ndim:
            raise TypeError("an array without dimensions has no length")
        return int(self._data.shape[0])

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"\n{self._data!s}\n<{type(self).__name__} {shape} @{self._ctx}>"

    # -- to other things -------------------------------------------------------------------------------------------

    def asnumpy(self) -> Array:
        """A copy as a numpy array."""
        return self._data.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if dtype is not None and np.dtype(dtype) != self._data.dtype:
            return self._data.astype(dtype)
        if copy:
            return self._data.copy()
        shared = self._data.view()
        shared.flags.writeable = False  # writes go through the NDArray, which counts them
        return shared

    def asscalar(self) -> Any:
        """The value of an array with one element.

        Raises:
            InputError: it has more or fewer.
        """
        if self.size != 1:
            raise InputError("not a scalar", got=f"shape {self.shape}", expected="an array with one element")
        return self._data.reshape(-1)[0]

    item = asscalar

    def __bool__(self) -> bool:
        if self.size > 1:
            raise ValueError("the truth value of an NDArray with several elements is ambiguous")
        return bool(self._data.any())

    def __float__(self) -> float:
        return float(self.asscalar())

    def __int__(self) -> int:
        return int(self.asscalar())

    def __index__(self) -> int:
        if self._data.dtype.kind not in "iu":
            raise TypeError("only integer arrays with one element can be used as an index")
        return int(self.asscalar())

    def astype(self, dtype: object, copy: bool = True) -> NDArray:
        """A copy of another dtype; with ``copy=False`` the array itself if it has it already."""
        target = as_dtype(dtype)
        if not copy and target == self._data.dtype:
            return self
        with np.errstate(invalid="ignore", over="ignore"):  # float to integer out of range: as the C cast has it
            return NDArray(self._data.astype(target), self._ctx)

    def copy(self) -> NDArray:
        return NDArray(self._data.copy(), self._ctx)

    def __copy__(self) -> NDArray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> NDArray:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._data, self._ctx)

    def copyto(self, other: NDArray | Context) -> NDArray:
        """Copy into another array of the same shape (its dtype is kept), or onto a device.

        Raises:
            ShapeError: shapes differ. InputError: not an array and not a context.
        """
        if isinstance(other, Context):
            return NDArray(self._data.copy(), checked(other))
        if not isinstance(other, NDArray):
            raise InputError("cannot copy to that", got=type(other).__name__, expected="an NDArray or a Context")
        if other.shape != self.shape:
            raise ShapeError("cannot copy between different shapes", got=self.shape, expected=other.shape)
        other._assign(self._data)
        return other

    def as_in_context(self, context: Context) -> NDArray:
        """The array itself if it is on that device, else a copy that says so."""
        return self if context == self._ctx else self.copyto(context)

    as_in_ctx = as_in_context
    to_device = as_in_context

    def as_nd_ndarray(self) -> NDArray:
        return self

    def tostype(self, stype: str) -> Any:
        """The array in another storage type: ``default``, ``csr`` or ``row_sparse``."""
        from requant.mx.ndarray import sparse

        return sparse.cast_storage(self, stype)

    def detach(self) -> NDArray:
        """The same values; there is no gradient to cut."""
        return NDArray(self._data, self._ctx, self._writes)

    def wait_to_read(self) -> None:
        """Does nothing: values are always there."""

    wait_to_write = wait_to_read

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Accepted and ignored: requant does not train."""

    def backward(self, out_grad: object = None, retain_graph: bool = False, train_mode: bool = True) -> None:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError("requant runs and quantizes trained models; it does not compute gradients")

    # -- shape -----------------------------------------------------------------------------------------------------

    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """A view of another shape; MXNet's codes 0, -1, -2, -3, -4 and ``reverse`` are understood.

        Raises:
            ShapeError: the number of elements does not fit.
        """
        target = kwargs.pop("shape", shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
        reverse = bool(kwargs.pop("reverse", False))
        if kwargs:
            raise TypeError(f"reshape takes shape and reverse, not {sorted(kwargs)}")
        dims = tuple(int(d) for d in target) if np.iterable(target) else (int(target),)
        if dims == self._data.shape:
            return NDArray(self._data, self._ctx, self._writes)
        if all(d > 0 for d in dims) and not reverse:
            if registry.product(dims) != self.size:
                raise ShapeError("cannot reshape", got=f"{self.shape} of size {self.size}", expected=f"size of {dims}")
            return NDArray(self._data.reshape(dims), self._ctx, self._writes)
        [probe] = run("Reshape", [self._data], (("shape", dims), ("reverse", reverse)))
        return NDArray(self._data.reshape(probe.shape), self._ctx, self._writes)

    def broadcast_to(self, shape: Any) -> NDArray:
        """Repeated along dimensions of size 1 to that shape; 0 keeps a dimension, missing leading ones are added."""
        dims = tuple(shape) if np.iterable(shape) else (shape,)
        data = self._data.reshape((1,) * (len(dims) - self.ndim) + self.shape)
        return NDArray(run("broadcast_to", [data], (("shape", dims),))[0], self._ctx)

    def expand_dims(self, axis: int, inplace: bool = False) -> NDArray:
        """A dimension of size 1 inserted before ``axis``; a view if ``inplace``."""
        if not -self.ndim - 1 <= axis <= self.ndim:
            raise ShapeError("axis out of range", got=axis, expected=f"{-self.ndim - 1} to {self.ndim}")
        data = np.expand_dims(self._data, axis)
        return NDArray(data, self._ctx, self._writes) if inplace else NDArray(data.copy(), self._ctx)

    def squeeze(self, axis: int | Sequence[int] | None = None, inplace: bool = False) -> NDArray:
        """Dimensions of size 1 dropped; a view if ``inplace``."""
        [made] = run("squeeze", [self._data], (("axis", axis),))
        if inplace:
            return NDArray(self._data.reshape(made.shape), self._ctx, self._writes)
        return NDArray(made, self._ctx)

    def flatten(self, inplace: bool = False) -> NDArray:
        """Shape (N, everything else); a view if ``inplace``."""
        data = self._data.reshape(self.shape[0], -1)
        return NDArray(data, self._ctx, self._writes) if inplace else NDArray(data.copy(), self._ctx)

    # -- elements --------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NDArray:
        found, is_view = get_item(self._data, key)
        return NDArray(found, self._ctx, self._writes if is_view else None)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self._data.flags.writeable:  # mapped from a file, or an engine's memory
            self._data = self._data.copy()
        self._writes[0] += 1
        ALL_WRITES[0] += 1
        with np.errstate(invalid="ignore", over="ignore"):
            set_item(self._data, key, value)

    def __iter__(self) -> Iterator[NDArray]:
        return (self[i] for i in range(len(self)))

    def _assign(self, values: Array) -> None:
        self[:] = values

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def __hash__(self) -> int:
        return id(self) >> 4

    def __add__(self, other: Any) -> NDArray:
        return binary("broadcast_add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> NDArray:
        return binary("broadcast_sub", self, other)

    def __rsub__(self, other: Any) -> NDArray:
        return binary("broadcast_sub", other, self)

    def __mul__(self, other: Any) -> NDArray:
        return binary("broadcast_mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> NDArray:
        return binary("broadcast_div", self, other)

    def __rtruediv__(self, other: Any) -> NDArray:
        return binary("broadcast_div", other, self)

    def __mod__(self, other: Any) -> NDArray:
        return binary("broadcast_mod", self, other)

    def __rmod__(self, other: Any) -> NDArray:
        return binary("broadcast_mod", other, self)

    def __pow__(self, other: Any) -> NDArray:
        return binary("broadcast_power", self, other)

    def __rpow__(self, other: Any) -> NDArray:
        return binary("broadcast_power", other, self)

    def __neg__(self) -> NDArray:
        return binary("broadcast_mul", self, -1)

    def __abs__(self) -> NDArray:
        return NDArray(run("abs", [self._data])[0], self._ctx)

    def __eq__(self, other: object) -> NDArray:  # type: ignore[override]
        return binary("broadcast_equal", self, other)

    def __ne__(self, other: object) -> NDArray:  # type: ignore[override]
        return binary("broadcast_not_equal", self, other)

    def __gt__(self, other: Any) -> NDArray:
        return binary("broadcast_greater", self, other)

    def __ge__(self, other: Any) -> NDArray:
        return binary("broadcast_greater_equal", self, other)

    def __lt__(self, other: Any) -> NDArray:
        return binary("broadcast_lesser", self, other)

    def __le__(self, other: Any) -> NDArray:
        return binary("broadcast_lesser_equal", self, other)

    def _in_place(self, result: NDArray) -> NDArray:
        if result.shape != self.shape:
            raise ShapeError("an in-place operation must keep the shape", got=result.shape, expected=self.shape)
        self._assign(result._data)
        return self

    def __iadd__(self, other: Any) -> NDArray:
        return self._in_place(self + other)

    def __isub__(self, other: Any) -> NDArray:
        return self._in_place(self - other)

    def __imul__(self, other: Any) -> NDArray:
        return self._in_place(self * other)

    def __itruediv__(self, other: Any) -> NDArray:
        return self._in_place(self / other)

    def __imod__(self, other: Any) -> NDArray:
        return self._in_place(self % other)


def wrap(outputs: Sequence[Array], ctx: Context) -> Any:
    """One NDArray, or a list if there are several."""
    if len(outputs) == 1:
        return NDArray(outputs[0], ctx)
    return [NDArray(o, ctx) for o in outputs]


def binary(name: str, lhs: Any, rhs: Any) -> NDArray:
    """A broadcasting operator on two arrays, or an array and a number (which takes the array's dtype, as in MXNet).

    Raises:
        TypeError: an operand is neither. DTypeError: two arrays of different dtypes.
    """
    if isinstance(lhs, NDArray):
        a, ctx = lhs._data, lhs._ctx
        b = rhs._data if isinstance(rhs, NDArray) else number(rhs, a.dtype)
        if a.dtype != b.dtype:
            raise DTypeError(
                "operands must have one dtype",
                where=name,
                got=f"{a.dtype.name} and {b.dtype.name}",
                next=f"x.astype({a.dtype.name!r})",
            )
    elif isinstance(rhs, NDArray):
        b, ctx = rhs._data, rhs._ctx
        a = number(lhs, b.dtype)
    else:
        raise TypeError(f"{name} takes NDArrays and numbers, not {type(lhs).__name__} and {type(rhs).__name__}")
    op, parsed = prepared(name, ())
    return NDArray(eager.invoke(op, parsed, (a, b))[0], ctx)


def as_numpy(x: Any) -> Array:
    """The values of an NDArray, or of anything that numpy takes."""
    return x.asnumpy() if isinstance(x, NDArray) else np.asarray(x)
