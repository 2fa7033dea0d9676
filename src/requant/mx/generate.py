"""``nd.*`` and ``sym.*`` functions from the registry: one description of how an operator is called, for both.

MXNet puts an operator into a namespace by the prefix of its registered name (``_contrib_box_nms`` is
``nd.contrib.box_nms``), inputs before attributes, and names nodes after the function that was called. All of it is
derived here; nothing is listed by hand.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from requant import ops as _ops  # noqa: F401  (registers all operators)
from requant.attrs import Attrs
from requant.errors import InputError, nearest
from requant.ops import registry
from requant.ops.registry import OpDef

#: Prefix of a registered name -> the namespace it is exposed in. The empty name is ``nd`` itself.
_PREFIXES = {
    "_contrib_": "contrib",
    "_linalg_": "linalg",
    "_sparse_": "sparse",
    "_image_": "image",
    "_random_": "random",
}
#: MXNet 2.0's spellings of numpy operators; they stand in symbol files only.
_NUMPY = ("_np_", "_npi_", "_npx_")
#: Attributes that MXNet keeps for itself; given to a function without underscores, they are written with them.
HIDDEN_KEYS = frozenset({"ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "profiler_scope"})

Function = Callable[..., Any]


class _Required:
    """The default of an attribute that must be given. (Inputs come first and may be left out, so Python sees one.)"""

    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()


@dataclass(frozen=True)
class Spelling:
    """How one operator is called under one name.

    Attributes:
        op: the operator.
        name: the function's name in its namespace.
        namespace: ``""``, ``contrib``, ``linalg``, ``sparse``, ``image``, ``random`` or ``_internal``.
        inputs: names of all inputs that it can have, in order; those of a variadic operator have none.
        attributes: names of its attributes, in order.
    """

    op: OpDef
    name: str
    namespace: str
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]

    @property
    def variadic(self) -> bool:
        """Whether all positional arguments are inputs."""
        return self.op.variadic is not None

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, positional ones in the order of inputs, then attributes; None inputs are left out.

        Raises:
            InputError: more arguments than the function has, or one is given twice.
        """
        names = (*self.inputs, *self.attributes)
        if len(args) > len(names):
            raise InputError("too many arguments", where=self.name, got=len(args), expected=", ".join(names))
        found = dict(zip(names, args))
        for key, value in kwargs.items():
            if key in found:
                raise InputError("an argument is given twice", where=self.name, got=key)
            found[key] = value
        return {k: v for k, v in found.items() if v is not None or k not in self.inputs}

    def signature(self) -> inspect.Signature:
        """The signature that ``help`` shows: inputs, attributes with their defaults, ``name`` and ``out``."""
        parameter, keyword = inspect.Parameter, inspect.Parameter.KEYWORD_ONLY
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters: list[inspect.Parameter]
        if self.variadic:
            parameters = [parameter("data", inspect.Parameter.VAR_POSITIONAL)]
        else:
            parameters = [parameter(n, either, default=None) for n in self.inputs]
        kind = keyword if self.variadic else either
        taken = {p.name for p in parameters} | {"name", "attr", "out"}
        for field in dataclasses.fields(self.op.attrs):
            key = field.metadata.get("name", field.name)
            if key in taken or key == self.op.variadic:
                continue
            parameters.append(parameter(key, kind, default=_default(field), annotation=str(field.type)))
        parameters += [parameter(n, kind, default=None) for n in ("name", "attr", "out")]
        return inspect.Signature(parameters)

    def doc(self) -> str:
        """The operator's documentation, with a line on every input and attribute."""
        doc = inspect.getdoc(self.op.lower) or self.op.doc
        lines = [doc, "", f"MXNet operator: {self.op.name}"]
        if self.variadic:
            lines.append("Inputs: any number of arrays or symbols")
        elif self.inputs:
            lines.append("Inputs: " + ", ".join(self.inputs))
        fields = dataclasses.fields(self.op.attrs)
        if fields:
            lines.append("Attributes:")
            for field in fields:
                default = _default(field)
                said = "required" if default is REQUIRED else f"default {default!r}"
                lines.append(f"    {field.metadata.get('name', field.name)}: {field.type}, {said}")
        return "\n".join(lines)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED


def _all_inputs(op: OpDef) -> tuple[str, ...]:
    """Every input the operator can have. Where they depend on attributes, its lowering's parameters tell them all."""
    if op.variadic is not None:
        return ()
    if not callable(op.inputs):
        return op.inputs
    parameters = list(inspect.signature(op.lower).parameters.values())[2:]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in parameters if p.kind in plain and p.name != "subgraphs")


def place(registered: str) -> tuple[str, str] | None:
    """Namespace and function name of a registered operator name; None for names of symbol files alone."""
    if registered.startswith(_NUMPY):
        return None
    for prefix, namespace in _PREFIXES.items():
        if registered.startswith(prefix) and len(registered) > len(prefix):
            return namespace, registered[len(prefix) :]
    return ("_internal" if registered.startswith("_") else ""), registered


def spell(op: OpDef, name: str, namespace: str = "") -> Spelling:
    """How ``op`` is called as ``name``."""
    attributes = tuple(f.metadata.get("name", f.name) for f in dataclasses.fields(op.attrs))
    return Spelling(op, name, namespace, _all_inputs(op), attributes)


@functools.cache
def names(namespace: str) -> Mapping[str, str]:
    """Function names of a namespace -> registered names."""
    found: dict[str, str] = {}
    for op in registry.all_ops():
        for registered in (op.name, *op.aliases):
            placed = place(registered)
            if placed is not None and placed[0] == namespace:
                found[placed[1]] = registered
    return found


class Namespace:
    """Makes the functions of one namespace when they are first asked for.

    Args:
        module: name of the module they belong to, for messages and ``help``.
        namespace: see ``Spelling``.
        call: makes a function from a spelling (one that computes for ``nd``, one that composes for ``sym``).
    """

    def __init__(self, module: str, namespace: str, call: Callable[[Spelling], Function]) -> None:
        self._module, self._namespace, self._call = module, namespace, call
        self._made: dict[str, Function] = {}

    def get(self, name: str) -> Function:
        """The function of that name.

        Raises:
            AttributeError: there is none; the message names the closest ones.
        """
        if name not in self._made:
            registered = names(self._namespace).get(name)
            if registered is None or name.startswith("__"):
                # Dunder names are asked for by Python itself; looking for close ones would only cost time.
                hint = "" if name.startswith("__") else "; " + nearest(name, names(self._namespace))
                raise AttributeError(f"{self._module} has no function {name!r}{hint}")
            spelling = spell(registry.get(registered), name, self._namespace)
            made = self._call(spelling)
            made.__name__ = made.__qualname__ = name
            made.__module__ = self._module
            made.__doc__ = spelling.doc()
            made.__signature__ = spelling.signature()  # type: ignore[attr-defined]
            self._made[name] = made
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(names(self._namespace)))


#: Attributes once read, by the keyword arguments that gave them.
Parsed = dict[tuple[tuple[str, object], ...], Attrs]


def read_attributes(op: OpDef, cache: Parsed, kwargs: Mapping[str, object]) -> Attrs:
    """The attributes of a call, read once per set of arguments.

    Raises:
        AttributeValueError: an unknown attribute or a bad value; the message names the closest attributes.
    """
    key: tuple[tuple[str, object], ...] | None = tuple(kwargs.items())
    try:
        found = cache.get(key)  # type: ignore[arg-type]
    except TypeError:  # a list among them
        key, found = None, None
    if found is None:
        found = op.parse(kwargs, where=op.name)
        if key is not None and len(cache) < 4096:
            cache[key] = found
    return found
