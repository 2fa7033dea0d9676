"""``mx.gluon.block``: where MXNet keeps its kinds of blocks."""

from __future__ import annotations

from requant.mx.gluon.block_base import Block, HookHandle
from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.symbol_block import SymbolBlock

__all__ = ["Block", "HookHandle", "HybridBlock", "SymbolBlock"]
