"""``BucketingModule``: one network for inputs of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from requant.mx.context import Context
from requant.mx.io import DataBatch
from requant.mx.module.module import Module, ModuleError, Params
from requant.mx.ndarray.ndarray import NDArray
from requant.mx.symbol.symbol import Symbol


class BucketingModule:
    """A module for each of several input sizes (buckets), sharing parameters.

    Args:
        sym_gen: gives ``(symbol, data_names, label_names)`` for a bucket key.
        default_bucket_key: the key that ``bind`` uses.
        context: the device in name.
    """

    def __init__(
        self,
        sym_gen: Callable[[Any], tuple[Symbol, Sequence[str], Sequence[str]]],
        default_bucket_key: Any = None,
        logger: Any = None,
        context: Context | Sequence[Context] | None = None,
        **kwargs: Any,
    ) -> None:
        self._sym_gen, self._default, self._context = sym_gen, default_bucket_key, context
        self._modules: dict[Any, Module] = {}
        self._current: Module | None = None

    def _make(self, key: Any) -> Module:
        symbol, data_names, label_names = self._sym_gen(key)
        return Module(symbol, data_names, label_names, context=self._context)

    @property
    def module(self) -> Module:
        """The module of the last bucket.

        Raises:
            ModuleError: not bound.
        """
        if self._current is None:
            raise ModuleError("the module is not bound", next="module.bind(data_shapes, for_training=False)")
        return self._current

    def bind(self, data_shapes: Any, label_shapes: Any = None, for_training: bool = True, **kwargs: Any) -> None:
        """Bind the default bucket."""
        made = self._make(self._default)
        made.bind(data_shapes, label_shapes, for_training, **kwargs)
        self._modules = {self._default: made}
        self._current = made

    def set_params(self, arg_params: Params, aux_params: Params, **kwargs: Any) -> None:
        """Take these parameters, for all buckets."""
        self._modules[self._default].set_params(arg_params, aux_params, **kwargs)

    init_params = set_params

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Copies of arguments and auxiliary states, by name."""
        return self._modules[self._default].get_params()

    def switch_bucket(self, bucket_key: Any, data_shapes: Any, label_shapes: Any = None) -> None:
        """Make a bucket's module the current one; it is bound if it is new."""
        default = self._modules.get(self._default) or self.module
        if bucket_key not in self._modules:
            made = self._make(bucket_key)
            made.bind(data_shapes, label_shapes, default.for_training, shared_module=default)
            self._modules[bucket_key] = made
        self._current = self._modules[bucket_key]

    def forward(self, data_batch: DataBatch, is_train: bool | None = None) -> None:
        """Run one batch in the bucket of its ``bucket_key``."""
        key = self._default if data_batch.bucket_key is None else data_batch.bucket_key
        self.switch_bucket(key, data_batch.provide_data, data_batch.provide_label)
        self.module.forward(data_batch, is_train)

    def get_outputs(self, merge_multi_context: bool = True) -> list[NDArray]:
        """The outputs of the last run."""
        return self.module.get_outputs()
