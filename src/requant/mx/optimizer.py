"""``mx.optimizer``: names that training scripts import; requant does not train."""

from __future__ import annotations

from typing import Any, ClassVar

from requant.errors import UnsupportedError


class Optimizer:
    """Base of optimizers, so that scripts can derive their own. Raises UnsupportedError when one is made."""

    opt_registry: ClassVar[dict[str, type]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise UnsupportedError("requant runs and quantizes trained models; it has no optimizers")

    @staticmethod
    def register(klass: type) -> type:
        """Make a class known; a decorator."""
        Optimizer.opt_registry[klass.__name__.lower()] = klass
        return klass


def register(klass: type) -> type:
    """Make a class known; a decorator."""
    return Optimizer.register(klass)


def create(name: str, **kwargs: Any) -> Optimizer:
    """Raises UnsupportedError: requant does not train."""
    raise UnsupportedError("requant runs and quantizes trained models; it has no optimizers", got=name)


class SGD(Optimizer):
    """A name alone, as all optimizers here."""


class Adam(Optimizer):
    """A name alone, as all optimizers here."""
