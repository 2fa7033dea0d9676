"""``Block``: a part of a network, with parameters, children and a name."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from requant.errors import ParameterError, counted
from requant.mx.context import Context
from requant.mx.gluon.parameter import Parameter
from requant.mx.gluon.parameter_dict import ParameterDict, take
from requant.mx.gluon.scope import BlockScope
from requant.mx.ndarray.saving import load as load_arrays
from requant.mx.ndarray.saving import save as save_arrays

Hook = Callable[..., Any]


class HookHandle:
    """What ``register_forward_hook`` returns: ``detach()`` removes the hook. A context manager, too."""

    def __init__(self, hooks: OrderedDict[int, Hook], key: int) -> None:
        self._hooks, self._key = hooks, key

    def detach(self) -> None:
        """Remove the hook."""
        self._hooks.pop(self._key, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *args: object) -> None:
        self.detach()


class Block:
    """Base of all blocks. A subclass makes its children in ``__init__`` and computes in ``forward``.

    Args:
        prefix: what names of its parameters start with; numbered after the class if not given.
        params: parameters to share with another block.
    """

    def __init__(self, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        #: such a block gives its names to the block around it
        self._empty_prefix = prefix == ""
        self._prefix, self._params = BlockScope.create(prefix, params, self._alias())
        self._name = self._prefix.removesuffix("_")
        self._scope = BlockScope(self)
        self._children: OrderedDict[str, Block] = OrderedDict()
        self._reg_params: dict[str, Parameter] = {}
        self._forward_hooks: OrderedDict[int, Hook] = OrderedDict()
        self._forward_pre_hooks: OrderedDict[int, Hook] = OrderedDict()
        self._hooks_made = 0

    def _alias(self) -> str:
        return type(self).__name__.lower()

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dict__.get(name)
        if known is not None and isinstance(known, (Parameter, Block)) and not isinstance(value, type(known)):
            kind, other = type(known).__name__, type(value).__name__
            if not (isinstance(known, Block) and isinstance(value, Block)):
                raise TypeError(f"attribute {name!r} of {self.name} is a {kind}; it cannot become a {other}")
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            self._reg_params[name] = value
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        if not self._children:
            return f"{type(self).__name__}(\n\n)"
        lines = "\n".join(f"  ({n}): " + repr(b).replace("\n", "\n  ") for n, b in self._children.items())
        return f"{type(self).__name__}(\n{lines}\n)"

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def prefix(self) -> str:
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without its last underscore."""
        return self._name

    @property
    def params(self) -> ParameterDict:
        """Its own parameters, without those of its children."""
        return self._params

    def name_scope(self) -> BlockScope:
        """``with self.name_scope():`` gives blocks and parameters made inside this block's prefix."""
        return self._scope

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Parameters of it and of all below; those whose names match a regular expression if one is given."""
        found = ParameterDict(self._params.prefix)
        found.update(self._params, select)
        for child in self._children.values():
            found.update(child.collect_params(select))
        return found

    def _collect_params_with_prefix(self, prefix: str = "") -> dict[str, Parameter]:
        if prefix:
            prefix += "."
        found = {prefix + n: p for n, p in self._reg_params.items()}
        for name, child in self._children.items():
            found.update(child._collect_params_with_prefix(prefix + name))
        return found

    # -- structure -------------------------------------------------------------------------------------------------

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Add a child; blocks set as attributes are added by themselves."""
        self._children[str(len(self._children)) if name is None else name] = block

    def apply(self, fn: Callable[[Block], Any]) -> Block:
        """Call a function on every block below, then on this one.

        Returns:
            This block.
        """
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def register_forward_hook(self, hook: Hook) -> HookHandle:
        """Call ``hook(block, inputs, outputs)`` after each forward."""
        return self._hook(self._forward_hooks, hook)

    def register_forward_pre_hook(self, hook: Hook) -> HookHandle:
        """Call ``hook(block, inputs)`` before each forward."""
        return self._hook(self._forward_pre_hooks, hook)

    def _hook(self, hooks: OrderedDict[int, Hook], hook: Hook) -> HookHandle:
        self._hooks_made += 1
        hooks[self._hooks_made] = hook
        return HookHandle(hooks, self._hooks_made)

    def register_op_hook(self, callback: Callable[[str, str, Any], None], monitor_all: bool = False) -> None:
        """Call ``callback(name, opr_name, array)`` with outputs (and inputs, if ``monitor_all``) of the blocks below.

        Operators are fused by engines, so what is shown are the arrays between blocks; the block runs eagerly then.
        """

        def show(block: Block, inputs: Any, outputs: Any) -> None:
            if monitor_all:
                for i, value in enumerate(inputs):
                    callback(f"{block.name}_input{i}", type(block).__name__, value)
            listed = outputs if isinstance(outputs, (list, tuple)) else [outputs]
            for i, value in enumerate(listed):
                callback(f"{block.name}_output{i}" if len(listed) > 1 else f"{block.name}_output", "", value)

        def attach(block: Block) -> None:
            block.hybridize(False)
            block.register_forward_hook(show)

        self.apply(attach)

    # -- parameters ------------------------------------------------------------------------------------------------

    def initialize(self, init: Any = None, ctx: Any = None, verbose: bool = False, force_reinit: bool = False) -> None:
        """First values for all parameters: uniform over [-0.07, 0.07] unless an initializer is given."""
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Compile all hybrid blocks below; a plain block itself runs as Python."""
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    def cast(self, dtype: object) -> None:
        """Change the type of all parameters; give inputs of that type then."""
        for child in self._children.values():
            child.cast(dtype)
        for parameter in self.params.values():
            parameter.cast(dtype)

    def save_parameters(self, filename: str | os.PathLike[str], deduplicate: bool = False) -> None:
        """Write the parameters by place (``features.0.weight``): they load into any block built the same way.

        Args:
            deduplicate: write a shared parameter once.
        """
        found: dict[str, Parameter] = self._collect_params_with_prefix()
        if deduplicate:
            seen: set[int] = set()
            found = {n: p for n, p in found.items() if not (id(p) in seen or seen.add(id(p)))}  # type: ignore[func-returns-value]
        save_arrays(filename, {n: p.data() for n, p in found.items()})

    def save_params(self, filename: str | os.PathLike[str]) -> None:
        """Write the parameters by name without this block's prefix: MXNet's older form."""
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_parameters(
        self,
        filename: str | os.PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Take the parameters of a file: named by place, by full name, or with ``arg:`` and ``aux:`` as exported.

        Args:
            allow_missing: whether parameters may be missing in the file. ignore_extra: or be too many.
            cast_dtype, dtype_source: see ``Parameter.load_value``.
        Raises:
            ParameterError: parameters are missing or too many, unless allowed.
        """
        where = os.fspath(filename)
        found = load_arrays(filename)
        if not isinstance(found, dict):
            raise ParameterError("the arrays have no names", where=where, got=counted(len(found), "array"))
        mine = self._collect_params_with_prefix()
        if not found and not mine:
            return
        values = found
        if not any("." in n for n in found):
            bare = {n.removeprefix("arg:").removeprefix("aux:"): v for n, v in found.items()}
            full = dict(self.collect_params().items())
            if set(bare) & set(mine) and not set(bare) & set(full):
                values = bare  # a flat block: places and names look alike
            else:
                mine = full
                with_prefix = any(n in mine for n in bare)
                values = bare if with_prefix else {self.prefix + n: v for n, v in bare.items()}
        take(mine, values, where, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)

    load_params = load_parameters

    # -- computing -------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward``, and the hooks around it."""
        for hook in self._forward_pre_hooks.values():
            hook(self, args)
        out = self.forward(*args, **kwargs)
        for hook in self._forward_hooks.values():
            hook(self, args, out)
        return out

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the block computes; subclasses write it."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def summary(self, *inputs: Any) -> None:
        """Print a table of the blocks: output shapes and numbers of parameters, for these inputs."""
        from requant.mx.gluon.summary import print_summary

        print_summary(self, inputs)
