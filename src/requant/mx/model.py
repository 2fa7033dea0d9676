"""``mx.model``: checkpoints, which are ``<prefix>-symbol.json`` and ``<prefix>-<epoch>.params``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from requant.errors import FormatError, UnsupportedError, counted
from requant.formats.params import split_arg_aux, write_params
from requant.mx.context import Context
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.ndarray.saving import load as load_arrays
from requant.mx.ndarray.saving import unwrap
from requant.mx.symbol.create import load as load_symbol
from requant.mx.symbol.symbol import Symbol

if TYPE_CHECKING:
    from requant.mx.io import DataIter

Params = dict[str, NDArray]


def params_file(prefix: str, epoch: int) -> str:
    """``<prefix>-0012.params``."""
    return f"{prefix}-{epoch:04d}.params"


def load_params(prefix: str, epoch: int) -> tuple[Params, Params]:
    """Arguments and auxiliary states of a checkpoint, by name.

    Raises:
        FormatError: the file has no names, or is corrupt. FileNotFoundError: there is none.
    """
    path = params_file(prefix, epoch)
    found = load_arrays(path)
    if not isinstance(found, dict):
        raise FormatError(
            "the arrays of a checkpoint have names", where=path, got=f"a list of {counted(len(found), 'array')}"
        )
    args, aux, bare = split_arg_aux(found)
    return {**args, **bare}, aux


def load_checkpoint(prefix: str, epoch: int) -> tuple[Symbol, Params, Params]:
    """Symbol, arguments and auxiliary states of a checkpoint.

    Raises:
        FormatError, GraphError: a file is corrupt. FileNotFoundError: one is missing.
    """
    symbol = load_symbol(f"{prefix}-symbol.json")
    return (symbol, *load_params(prefix, epoch))


def save_checkpoint(
    prefix: str,
    epoch: int,
    symbol: Symbol | None,
    arg_params: Mapping[str, NDArray],
    aux_params: Mapping[str, NDArray],
    remove_amp_cast: bool = True,
) -> None:
    """Write a checkpoint that MXNet can read."""
    if symbol is not None:
        symbol.save(f"{prefix}-symbol.json", remove_amp_cast=remove_amp_cast)
    arrays = {f"arg:{n}": unwrap(v) for n, v in arg_params.items()}
    arrays.update({f"aux:{n}": unwrap(v) for n, v in aux_params.items()})
    write_params(params_file(prefix, epoch), arrays)


class FeedForward:
    """MXNet's oldest model class, as far as it loads and predicts.

    Args:
        symbol: the network. arg_params, aux_params: its parameters.
    """

    def __init__(
        self,
        symbol: Symbol,
        ctx: Context | None = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        numpy_batch_size: int = 128,
        **kwargs: Any,
    ) -> None:
        self.symbol, self.ctx = symbol, ctx
        self.arg_params, self.aux_params = dict(arg_params or {}), dict(aux_params or {})
        self.numpy_batch_size = numpy_batch_size

    @staticmethod
    def load(prefix: str, epoch: int, ctx: Context | None = None, **kwargs: Any) -> FeedForward:
        """From a checkpoint."""
        symbol, args, aux = load_checkpoint(prefix, epoch)
        return FeedForward(symbol, ctx, args, aux, **kwargs)

    def save(self, prefix: str, epoch: int = 0, remove_amp_cast: bool = True) -> None:
        """Write a checkpoint."""
        save_checkpoint(prefix, epoch, self.symbol, self.arg_params, self.aux_params, remove_amp_cast)

    def predict(self, X: DataIter | np.ndarray | NDArray, num_batch: int | None = None) -> Any:
        """The outputs for all data, as numpy: one array, or a list if the network has several outputs."""
        from requant.mx.io import DataIter, NDArrayIter
        from requant.mx.module import Module

        data = X if isinstance(X, DataIter) else NDArrayIter(X, batch_size=min(self.numpy_batch_size, len(X)))
        names = [d.name for d in data.provide_data]
        module = Module(self.symbol, data_names=names, label_names=None, context=self.ctx)
        module.bind(data.provide_data, for_training=False)
        module.set_params(self.arg_params, self.aux_params, allow_extra=True)
        outputs = module.predict(data, num_batch=num_batch, always_output_list=True)
        arrays = [o.asnumpy() for o in outputs]
        return arrays[0] if len(arrays) == 1 else arrays

    def fit(self, *args: Any, **kwargs: Any) -> None:
        """Raises UnsupportedError: requant does not train."""
        raise UnsupportedError("requant runs and quantizes trained models; it does not train")
