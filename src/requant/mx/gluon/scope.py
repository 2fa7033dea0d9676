"""Name scopes of blocks: ``resnetv10_stage1_conv0_``. Counters as in MXNet, one per scope and kind of block."""

from __future__ import annotations

import contextvars
from types import TracebackType
from typing import TYPE_CHECKING

from requant.mx.gluon.parameter_dict import ParameterDict
from requant.symbol.naming import Prefix, current_names

if TYPE_CHECKING:
    from requant.mx.gluon.block_base import Block

_current: contextvars.ContextVar[BlockScope | None] = contextvars.ContextVar("block_scope", default=None)


class BlockScope:
    """The names inside one block. Entered with ``with block.name_scope():``."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._counter: dict[str, int] = {}
        self._open: list[tuple[contextvars.Token[BlockScope | None], Prefix] | None] = []

    @staticmethod
    def create(prefix: str | None, params: ParameterDict | None, hint: str) -> tuple[str, ParameterDict]:
        """The full prefix and the parameters of a new block.

        Args:
            prefix: what the caller wants; None numbers it after ``hint``.
            params: parameters to share.
            hint: the kind of block, in lower case.
        """
        scope = _current.get()
        if scope is None:
            if prefix is None:
                prefix = current_names().get(None, hint) + "_"
            return prefix, ParameterDict(prefix if params is None else params.prefix, params)
        if prefix is None:
            count = scope._counter.get(hint, 0)
            scope._counter[hint] = count + 1
            prefix = f"{hint}{count}_"
        if params is None:
            parent = scope._block.params
            made = ParameterDict(parent.prefix + prefix, parent._shared)
        else:
            made = ParameterDict(params.prefix, params)
        return scope._block.prefix + prefix, made

    def __enter__(self) -> BlockScope:
        if self._block._empty_prefix:
            self._open.append(None)
            return self
        names = Prefix(self._block.prefix)
        self._open.append((_current.set(self), names))
        names.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened = self._open.pop()
        if opened is not None:
            token, names = opened
            names.__exit__(kind, value, trace)
            _current.reset(token)
