"""``mx.attribute``: attributes given to all nodes of a block."""

from __future__ import annotations

from requant.symbol.naming import AttrScope

__all__ = ["AttrScope"]
