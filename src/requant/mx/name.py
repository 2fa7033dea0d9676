"""``mx.name``: automatic names of nodes."""

from __future__ import annotations

from requant.symbol.naming import NameManager, Prefix

__all__ = ["NameManager", "Prefix"]
