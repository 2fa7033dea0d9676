"""What the networks share: a function for each that builds it and takes trained parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from requant.mx.context import Context, cpu
from requant.mx.gluon.hybrid import HybridBlock
from requant.mx.gluon.model_zoo.model_store import get_model_file
from requant.mx.gluon.nn import HybridSequential


class Classifier(HybridBlock):
    """A network of two parts: ``features``, and ``output`` to class scores."""

    features: Any
    output: Any

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.output(self.features(x))


def chain(*blocks: Any, prefix: str = "") -> Any:
    """Blocks one after another, by default without a prefix of their own."""
    made = HybridSequential(prefix=prefix)
    made.add(*blocks)
    return made


def maker(name: str, doc: str, build: Callable[..., Any]) -> Callable[..., Any]:
    """The public function of a network.

    Args:
        name: that of its parameter file.
        doc: what it is.
        build: makes it from ``classes`` and the like.
    """

    def function(pretrained: bool = False, ctx: Context | None = None, root: str | None = None, **kwargs: Any) -> Any:
        net = build(**kwargs)
        if pretrained:
            net.load_parameters(get_model_file(name, root), ctx=ctx or cpu())
        return net

    function.__name__ = function.__qualname__ = name.replace(".", "_")
    function.__doc__ = f"{doc}\n\nArgs:\n    pretrained: read trained parameters from a local file in ``root``.\n"
    return function
