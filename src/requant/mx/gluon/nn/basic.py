"""Containers, dense layers, and layers that wrap functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from requant.errors import InputError
from requant.mx import ndarray, symbol
from requant.mx.gluon.block_base import Block
from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.nn.activations import Activation
from requant.mx.gluon.parameter_dict import ParameterDict


class _Stack(Block):
    """What both kinds of sequential blocks share: blocks by position."""

    def add(self, *blocks: Any) -> None:
        """Put blocks at the end."""
        for block in blocks:
            self.register_child(block)

    def _through(self, x: Any, *args: Any) -> Any:
        """The output of the last block; each gets all outputs of the one before."""
        for block in self._children.values():
            x = block(x, *args)
            args = ()
            if isinstance(x, (tuple, list)):
                args, x = tuple(x[1:]), x[0]
        return (x, *args) if args else x

    def __repr__(self) -> str:
        lines = "\n".join(f"  ({n}): " + repr(b).replace("\n", "\n  ") for n, b in self._children.items())
        return f"{type(self).__name__}(\n{lines}\n)"

    def __getitem__(self, key: int | slice) -> Any:
        found = list(self._children.values())[key]
        if isinstance(found, list):
            part = type(self)(prefix=self._prefix)
            part.add(*found)
            return part
        return found

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator[Block]:
        return iter(list(self._children.values()))

    def __bool__(self) -> bool:
        return True


class Sequential(_Stack):
    """Blocks one after another."""

    def forward(self, x: Any, *args: Any) -> Any:
        """The output of the last block."""
        return self._through(x, *args)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Compile each hybrid block in it; a HybridSequential is compiled as a whole, which is faster."""
        super().hybridize(active, **kwargs)


class HybridSequential(_Stack, HybridBlock):
    """Blocks one after another, compiled as a whole when hybridized."""

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._through(x, *args)


class _Joined(_Stack):
    axis: int

    def _all(self, F: Any, x: Any) -> Any:
        return F.concat(*[block(x) for block in self._children.values()], dim=self.axis)


class Concatenate(_Joined, Sequential):
    """The outputs of several blocks on one input, concatenated along ``axis``."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any, *args: Any) -> Any:
        """The concatenated outputs."""
        return self._all(ndarray, x)


class HybridConcatenate(_Joined, HybridSequential):
    """``Concatenate``, compiled as a whole when hybridized."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._all(F, x)


class Identity(HybridBlock):
    """The input, as it is."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return x


class Dense(HybridBlock):
    """activation(x · weightᵀ + bias).

    Args:
        units: size of the output.
        activation: as ``Activation`` takes it; none if left out.
        flatten: whether all dimensions but the first are one; otherwise the last is transformed.
        in_units: size of the input; found out at the first run if 0.
    """

    def __init__(
        self,
        units: int,
        activation: str | None = None,
        use_bias: bool = True,
        flatten: bool = True,
        dtype: object = "float32",
        weight_initializer: Any = None,
        bias_initializer: Any = "zeros",
        in_units: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._flatten, self._units, self._in_units = flatten, units, in_units
        self.bias: Any
        self.act: Any
        with self.name_scope():
            self.weight = self.params.get(
                "weight", shape=(units, in_units), init=weight_initializer, dtype=dtype, allow_deferred_init=True
            )
            if use_bias:
                self.bias = self.params.get(
                    "bias", shape=(units,), init=bias_initializer, dtype=dtype, allow_deferred_init=True
                )
            else:
                self.bias = None
            self.act = Activation(activation, prefix=activation + "_") if activation is not None else None

    def hybrid_forward(self, F: Any, x: Any, weight: Any, bias: Any = None) -> Any:
        out = F.FullyConnected(
            x, weight, bias, no_bias=bias is None, num_hidden=self._units, flatten=self._flatten, name="fwd"
        )
        return out if self.act is None else self.act(out)

    def __repr__(self) -> str:
        shape = self.weight.shape or (0, 0)
        act = self.act if self.act is not None else "linear"
        return f"{type(self).__name__}({shape[1] or None} -> {shape[0]}, {act})"


class Dropout(HybridBlock):
    """The input, as it is: dropout acts in training alone."""

    def __init__(self, rate: float, axes: Any = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._rate, self._axes = rate, axes

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd", cudnn_off=False)
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"


class Embedding(HybridBlock):
    """Rows of a table by number: (...) → (..., output_dim)."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: object = "float32",
        weight_initializer: Any = None,
        sparse_grad: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {
            "input_dim": input_dim,
            "output_dim": output_dim,
            "dtype": dtype,
            "sparse_grad": sparse_grad,
        }
        self.weight = self.params.get(
            "weight", shape=(input_dim, output_dim), init=weight_initializer, dtype=dtype, allow_deferred_init=True
        )

    def hybrid_forward(self, F: Any, x: Any, weight: Any) -> Any:
        return F.Embedding(x, weight, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        k = self._kwargs
        return f"{type(self).__name__}({k['input_dim']} -> {k['output_dim']}, {k['dtype']})"


class Flatten(HybridBlock):
    """(N, ...) → (N, everything else)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__


class Lambda(Block):
    """A function as a block; a string names one of ``mx.nd``."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            self._func_impl, self._func_name = getattr(ndarray, function), function
        elif callable(function):
            self._func_impl, self._func_name = function, getattr(function, "__name__", repr(function))
        else:
            raise InputError("not a function", where="Lambda", got=repr(function), expected="a callable or a name")

    def forward(self, *args: Any) -> Any:
        """What the function returns."""
        return self._func_impl(*args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"


class HybridLambda(HybridBlock):
    """A function of F and the inputs as a block; a string names one of ``mx.nd`` and ``mx.sym``."""

    def __init__(self, function: str | Callable[..., Any], prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if isinstance(function, str):
            name = function
            getattr(symbol, name), getattr(ndarray, name)  # both must exist
            self._func: Callable[..., Any] = lambda F, *args: getattr(F, name)(*args)
            self._func_name = name
        elif callable(function):
            self._func, self._func_name = function, getattr(function, "__name__", repr(function))
        else:
            raise InputError(
                "not a function", where="HybridLambda", got=repr(function), expected="a callable or a name"
            )

    def hybrid_forward(self, F: Any, x: Any, *args: Any) -> Any:
        return self._func(F, x, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._func_name})"
