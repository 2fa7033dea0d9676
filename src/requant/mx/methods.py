"""Operators as methods: ``x.sum(axis=1)`` is ``nd.sum(x, axis=1)``. Attached to ``NDArray`` and to ``Symbol``."""

from __future__ import annotations

from typing import Any

from requant.mx.generate import Function, Namespace, names

#: What MXNet 1.9.1 offers as methods of both classes, besides those that the classes define themselves.
_NAMES = """
    abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmax_channel argmin argsort broadcast_axes
    broadcast_like broadcast_to cbrt ceil clip cos cosh degrees depth_to_space diag exp expand_dims expm1 fix flatten
    flip floor log log10 log1p log2 log_softmax max mean min nanprod nansum norm one_hot ones_like pad pick prod
    radians rcbrt reciprocal relu repeat reshape reshape_like rint round rsqrt shape_array sigmoid sign sin sinh
    size_array slice slice_axis slice_like softmax softmin sort space_to_depth split sqrt square squeeze sum
    swapaxes take tan tanh tile topk transpose trunc zeros_like
"""
METHODS = tuple(_NAMES.split())
#: Attributes that these methods of MXNet pass on even if they are not given, so that they stand in symbol files.
_WRITTEN = {"squeeze": ("axis", None), "diag": ("k", 0)}


def _method(name: str, functions: Namespace) -> Function:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name in _WRITTEN and not args:
            kwargs.setdefault(*_WRITTEN[name])
        return functions.get(name)(self, *args, **kwargs)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"``{name}(self, ...)``: see the function of that name."
    return method


def attach(cls: type, functions: Namespace, split_v2: Function) -> None:
    """Give a class the methods that it does not define itself. Operators that are not registered are left out."""
    known = names("")
    cls.split_v2 = split_v2  # type: ignore[attr-defined]
    for name in METHODS:
        if name not in vars(cls) and name in known:
            setattr(cls, name, _method(name, functions))
