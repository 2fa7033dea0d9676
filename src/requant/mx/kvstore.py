"""``mx.kvstore``: names that training scripts import; requant does not train."""

from __future__ import annotations

from typing import Any

from requant.errors import UnsupportedError


class KVStore:
    """Raises UnsupportedError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("requant runs and quantizes trained models; it has no parameter server")


def create(name: str = "local") -> KVStore:
    """Raises UnsupportedError: requant does not train."""
    return KVStore(name)
