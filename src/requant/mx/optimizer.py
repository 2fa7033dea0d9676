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


class Updater(Optimizer):
    """What applies an optimizer to parameters: a name alone."""


def get_updater(optimizer: Any) -> Updater:
    """Raises UnsupportedError: requant does not train."""
    return Updater(optimizer)


def _named(name: str) -> type[Optimizer]:
    return Optimizer.register(type(name, (Optimizer,), {"__doc__": "A name alone.", "__module__": __name__}))


AdaDelta, AdaGrad, Adam, Adamax = map(_named, ("AdaDelta", "AdaGrad", "Adam", "Adamax"))
DCASGD, FTML, Ftrl, LAMB, LARS = map(_named, ("DCASGD", "FTML", "Ftrl", "LAMB", "LARS"))
LBSGD, NAG, Nadam, RMSProp, SGD = map(_named, ("LBSGD", "NAG", "Nadam", "RMSProp", "SGD"))
SGLD, Signum = map(_named, ("SGLD", "Signum"))
