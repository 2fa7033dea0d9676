"""``Symbol``: requant's expression tree with MXNet's operators, methods and ways to bind it."""

from __future__ import annotations

import logging
import numbers
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from requant.dtypes import as_dtype
from requant.errors import InputError, UnsupportedError
from requant.formats import symbol_file
from requant.mx.base import NotImplementedForSymbol
from requant.ops import registry
from requant.rewrite import fuse
from requant.symbol import infer, tree

if TYPE_CHECKING:
    from requant.mx.context import Context
    from requant.mx.executor import Executor
    from requant.mx.ndarray import NDArray

log = logging.getLogger(__name__)

Shape = tuple[int, ...]
S = TypeVar("S")
Three = tuple[list[S] | None, list[S] | None, list[S] | None]


class Symbol(tree.Symbol):
    """An expression of operators and variables. Immutable; see ``requant.symbol`` for what it is made of."""

    __slots__ = ()
    __array_ufunc__ = None

    if TYPE_CHECKING:  # methods of operators, attached by requant.mx.methods

        def __getattr__(self, name: str) -> Callable[..., Any]: ...

    # -- operators -------------------------------------------------------------------------------------------------
    # MXNet composes `a + b` by the alias `_Plus`: that is why the node is called `_plus0` and its op elemwise_add.

    def __add__(self, other: Any) -> Symbol:
        return operate("_Plus", "_PlusScalar", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Symbol:
        return operate("_Minus", "_MinusScalar", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return operate("", "_RMinusScalar", self, other)

    def __mul__(self, other: Any) -> Symbol:
        return operate("_Mul", "_MulScalar", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Symbol:
        return operate("_Div", "_DivScalar", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return operate("", "_RDivScalar", self, other)

    def __mod__(self, other: Any) -> Symbol:
        return operate("_Mod", "_ModScalar", self, other)

    def __rmod__(self, other: Any) -> Symbol:
        return operate("", "_RModScalar", self, other)

    def __pow__(self, other: Any) -> Symbol:
        return operate("_Power", "_PowerScalar", self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return operate("", "_rpower_scalar", self, other)

    def __neg__(self) -> Symbol:
        return operate("", "_MulScalar", self, -1.0)

    def __abs__(self) -> Symbol:
        return compose("abs", self)

    def __eq__(self, other: object) -> Symbol:  # type: ignore[override]
        return operate("_equal", "_equal_scalar", self, other)

    def __ne__(self, other: object) -> Symbol:  # type: ignore[override]
        return operate("_not_equal", "_not_equal_scalar", self, other)

    def __gt__(self, other: Any) -> Symbol:
        return operate("_greater", "_greater_scalar", self, other)

    def __ge__(self, other: Any) -> Symbol:
        return operate("_greater_equal", "_greater_equal_scalar", self, other)

    def __lt__(self, other: Any) -> Symbol:
        return operate("_lesser", "_lesser_scalar", self, other)

    def __le__(self, other: Any) -> Symbol:
        return operate("_lesser_equal", "_lesser_equal_scalar", self, other)

    def __hash__(self) -> int:
        return super().__hash__()

    def __bool__(self) -> bool:
        raise NotImplementedForSymbol("a symbol has no truth value", where=repr(self), next="it is an expression")

    def astype(self, dtype: object) -> Symbol:
        """The same values in another dtype."""
        return compose("Cast", self, hint="cast", dtype=as_dtype(dtype).name)

    def squeeze(self, axis: int | Sequence[int] | None = None, inplace: bool = False, **kwargs: Any) -> Symbol:
        """Dimensions of size 1 dropped; ``inplace`` means nothing to a symbol."""
        return compose("squeeze", self, axis=str(axis), **kwargs)

    def expand_dims(self, axis: int, inplace: bool = False, **kwargs: Any) -> Symbol:
        """A dimension of size 1 inserted before ``axis``."""
        return compose("expand_dims", self, axis=axis, **kwargs)

    def flatten(self, inplace: bool = False, **kwargs: Any) -> Symbol:
        """Shape (N, everything else)."""
        return compose("Flatten", self, **kwargs)

    def as_nd_ndarray(self) -> Symbol:
        return self

    # -- files -----------------------------------------------------------------------------------------------------

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The symbol as JSON text, in MXNet 1.9.1's layout."""
        return symbol_file.dumps(self, remove_amp_cast=remove_amp_cast)

    def save(self, fname: str | os.PathLike[str], remove_amp_cast: bool = True) -> None:
        """Write the symbol file."""
        symbol_file.save(self, fname, remove_amp_cast=remove_amp_cast)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (symbol_file.dumps(self),)

    # -- shapes and types ------------------------------------------------------------------------------------------

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if args and kwargs:
            raise InputError("give shapes or types by position or by name, not both", where=repr(self))
        if args:
            return {n: a for n, a in zip(self.list_arguments(), args) if a is not None}
        return {n: a for n, a in kwargs.items() if a is not None}

    def _infer_shape(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
        known = {n: tuple(int(d) for d in s) for n, s in self._by_name(args, kwargs).items()}
        names = set(self.list_inputs())  # MXNet ignores what it does not know, and scripts rely on it
        return infer.infer_shape(self, {n: s for n, s in known.items() if n in names}, partial=True)

    def infer_shape(self, *args: Any, **kwargs: Any) -> Three[Shape]:
        """Shapes of arguments, outputs and auxiliary states from those of some inputs, by position or by name.

        Returns:
            Three lists, or three times None (and a log line that names them) if some stay unknown.
        Raises:
            ShapeError: shapes contradict each other.
        """
        found = self._infer_shape(args, kwargs)
        names = [self.list_arguments(), self.list_outputs(), self.list_auxiliary_states()]
        missing = [n for ns, ss in zip(names, found) for n, s in zip(ns, ss) if s is None or not all(s)]
        if missing:
            log.warning("the shapes of these cannot be inferred: %s", ", ".join(missing))
            return None, None, None
        return found

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> tuple[list[Shape], list[Shape], list[Shape]]:
        """``infer_shape`` that leaves what is unknown: 0 for a dimension, () for a shape."""
        found = self._infer_shape(args, kwargs)
        return tuple([() if s is None else s for s in part] for part in found)  # type: ignore[return-value]

    def infer_type(self, *args: Any, **kwargs: Any) -> Three[type[np.generic]]:
        """Scalar types of arguments, outputs and auxiliary states from those of some inputs.

        Returns:
            Three lists; three times None if nothing at all is known.
        """
        known = self._by_name(args, kwargs)
        declared = any("__dtype__" in n.attrs for n in self.nodes)
        if not known and not declared and not any(hasattr(n.parsed, "dtype") for n in self.nodes if not n.is_variable):
            return None, None, None
        found = infer.infer_type(self, known)
        return tuple([t.type for t in part] for part in found)  # type: ignore[return-value]

    infer_type_partial = infer_type

    def debug_str(self) -> str:
        """The nodes as text: name, inputs and attributes of each."""
        lines = ["Symbol Outputs:"]
        lines += [f"\toutput[{i}]={n.name}({k})" for i, (n, k) in enumerate(self.entries)]
        for node in self.nodes:
            if node.op is None:
                lines.append(f"Variable:{node.name}")
                continue
            lines += ["--------------------", f"Op:{node.op.name}, Name={node.name}", "Inputs:"]
            lines += [f"\targ[{i}]={s.name}({k}) version=0" for i, (s, k) in enumerate(node.inputs)]
            lines += ["Attrs:"] if node.attrs else []
            lines += [f"\t{key}={node.attrs[key]}" for key in sorted(node.attrs)]
        return "\n".join(lines) + "\n"

    # -- running ---------------------------------------------------------------------------------------------------

    def bind(
        self,
        ctx: Context | None,
        args: Mapping[str, NDArray] | Sequence[NDArray],
        args_grad: object = None,
        grad_req: object = "null",
        aux_states: Mapping[str, NDArray] | Sequence[NDArray] | None = None,
        group2ctx: object = None,
        shared_exec: object = None,
    ) -> Executor:
        """An executor that reads these arrays. Gradients are not computed, so ``args_grad`` is not used.

        Raises:
            ParameterError: an argument or auxiliary state is missing.
        """
        from requant.mx.executor import Executor

        return Executor.bind(self, args, aux_states, ctx)

    def simple_bind(
        self,
        ctx: Context | None = None,
        grad_req: object = "null",
        type_dict: Mapping[str, object] | None = None,
        stype_dict: object = None,
        group2ctx: object = None,
        shared_arg_names: object = None,
        shared_exec: object = None,
        shared_buffer: object = None,
        force_rebind: object = None,
        **kwargs: Any,
    ) -> Executor:
        """An executor with arrays of its own, of zeros, with shapes inferred from those given by name.

        Raises:
            ShapeError: shapes contradict each other, or some cannot be inferred.
        """
        from requant.mx.executor import Executor

        return Executor.simple_bind(self, ctx, type_dict, kwargs)

    def eval(self, ctx: Context | None = None, **kwargs: NDArray) -> list[NDArray]:
        """The outputs for the given arrays, at once."""
        return list(self.bind(ctx, kwargs, aux_states=kwargs).forward())

    def get_backend_symbol(self, backend: str) -> Symbol:
        """The network as MXNet's oneDNN backends partition it: ``MKLDNN``, ``MKLDNN_QUANTIZE`` (or ``ONEDNN...``).

        For files and for quantization in MXNet's words; requant's engines need none of it.

        Raises:
            QuantizationError: no such backend; the message lists them.
        """
        return Symbol(fuse.backend_symbol(self, backend).entries)

    def optimize_for(
        self,
        backend: str,
        args: Mapping[str, NDArray] | Sequence[NDArray] | None = None,
        aux: Mapping[str, NDArray] | Sequence[NDArray] | None = None,
        ctx: Context | None = None,
        shape_dict: Mapping[str, Shape] | None = None,
        type_dict: Mapping[str, object] | None = None,
        stype_dict: object = None,
        skip_infer: bool = False,
        **kwargs: Any,
    ) -> Symbol:
        """The network, to be run by a backend: ``OpenVINO``, ``ONNXRuntime``, ``TensorRT``, ``MKLDNN`` or ``ONEDNN``.

        ``bind``, ``simple_bind`` and ``Module`` of what it returns use that backend. With ``int8_mode=True`` and
        ``calibration_iters=N`` it answers in float, calibrates on its first N batches, and then becomes INT8.

        Args:
            backend: its name. oneDNN's backends without options partition the graph (``get_backend_symbol``).
            args, aux, ctx, shape_dict, type_dict, stype_dict, skip_infer: not needed, and not changed.
            kwargs: options, see ``requant.mx.backend.backend``.
        Raises:
            InputError: an unknown backend or option; the message lists those that exist.
            EngineError: the backend's engine is not installed.
        """
        from requant.mx import backend as backends
        from requant.mx.symbol.optimized import OptimizedSymbol

        if backend in fuse.BACKENDS and not kwargs:
            return self.get_backend_symbol(backend)
        return OptimizedSymbol(self.entries, backends.backend(backend, kwargs))

    def gradient(self, wrt: object) -> Symbol:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError("requant runs and quantizes trained models; it does not compute gradients")

    def _only_arrays(self, *args: object, **kwargs: object) -> Any:
        raise NotImplementedForSymbol(
            "a symbol has no values", where=repr(self), next="bind it, or call eval(data=mx.nd.array(...))"
        )

    wait_to_read = asnumpy = asscalar = copy = as_in_context = detach = backward = _only_arrays


def _unpickle(text: str) -> Symbol:
    return Symbol(symbol_file.loads(text).entries)


def compose(op: str, *args: Symbol, hint: str | None = None, name: str | None = None, **kwargs: Any) -> Symbol:
    """Apply the operator of that name or alias; the node is named after it, if it is given no name."""
    return Symbol(tree.compose(registry.get(op), args, kwargs, name=name, hint=hint or op).entries)


def operate(two: str, scalar: str, lhs: Symbol, rhs: Any) -> Symbol:
    """An operator of two symbols (``two``), or of a symbol and a number (``scalar``).

    Raises:
        TypeError: the other operand is neither.
    """
    if isinstance(rhs, tree.Symbol) and two:
        return compose(two, lhs, Symbol(rhs.entries))
    if isinstance(rhs, numbers.Number | np.generic):
        return compose(scalar, lhs, scalar=rhs)
    raise TypeError(f"type {type(rhs).__name__} is not supported beside a Symbol")
