"""The registry: one ``OpDef`` per MXNet operator, made by the ``@op`` decorator above its lowering.

An operator is declared in one place, ``ops/<family>.py``: a frozen attributes dataclass and one function, decorated::

    @op("Activation", inputs=("data",), quant=Quant.SUPPORT)
    def activation(g: Emit, a: ActivationAttrs, data: Value) -> Value: ...

The function receives its inputs by MXNet's input names and returns one value, or a tuple with one value per *visible*
output. Everything else in requant (``nd``, ``sym``, shape inference, conversion, the op table in the docs) reads this.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from requant.attrs import Attrs
from requant.errors import AttributeValueError, UnknownOperatorError, nearest

#: A shape as far as it is known: 0 stands for an unknown dimension, None for an unknown rank (MXNet's convention).
Shape = tuple[int, ...]
#: Input shapes by input name (and the first output's, as ``output``) -> the shapes of inputs that follow from them:
#: mostly those of parameters, but data may follow from a weight as well.
ShapeRule = Callable[[Any, Mapping[str, Shape | None]], Mapping[str, Shape]]
#: Input dtypes by input name -> the dtypes of inputs that are not the first known input's.
TypeRule = Callable[[Any, Mapping[str, "np.dtype | None"]], Mapping[str, np.dtype]]
#: Inputs, outputs or layers that an operator may have.
MOST_ENDS = 1 << 14
Names = tuple[str, ...] | Callable[[Any], tuple[str, ...]]


class Quant(enum.Enum):
    """How an operator takes part in quantization (MXNet's ``FQuantizable``)."""

    NONE = "none"
    SUPPORT = "support"
    MUST = "must"


@dataclass(frozen=True)
class OpDef:
    """All that is known of one operator.

    Attributes:
        name: MXNet's registered name, as it stands in symbol files.
        attrs: the class of its attributes.
        lower: the function that emits ONNX nodes: ``lower(g, attrs, **inputs_by_name)``, or positional if variadic.
        inputs: input names in MXNet's order, or a function of the attributes that gives them.
        outputs: names of visible outputs, or a function of the attributes. ``("output",)`` for most.
        output_suffixes: how list_outputs names them; by default ``output`` or ``output0``, ``output1``, ...
        aux: input names that are auxiliary states (not arguments).
        variadic: name of the attribute that counts the inputs (``num_args``), if the op takes any number of them.
        by_count: names of the inputs by their count, for operators whose attributes do not tell which inputs there are
            (fused operators: the nested graph does). ``inputs`` then is not looked at.
        optional: input names that may be left out when a symbol is composed, without a variable being made for them.
        labels: input names that matter in training alone; they are cut at inference.
        training: what the operator computes matters in training alone: a loss, or the targets of one.
        by_mode: it computes something else in MXNet's training mode, and its lowering looks at ``Emit.training``.
        hidden_outputs: number of outputs that the op has besides the visible ones (BatchNorm: mean and var), or a
            function of the attributes that gives it.
        param_shapes: gives the shapes of parameters from the known input shapes.
        param_types: gives the dtypes of inputs whose dtype is not that of the others.
        default_init: attributes that MXNet puts on the variables it creates (``{"moving_var": '["one", {}]'}``).
        quant, quantized: quantization trait, and the name of the int8 counterpart.
        aliases: other names under which the op is found.
        doc: the first line of its documentation.
    """

    name: str
    attrs: type[Attrs]
    lower: Callable[..., Any]
    inputs: Names = ("data",)
    outputs: Names = ("output",)
    named_outputs: bool = False
    aux: tuple[str, ...] = ()
    variadic: str | None = None
    by_count: Callable[[Any, int | None], tuple[str, ...]] | None = None
    optional: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    training: bool = False
    by_mode: bool = False
    hidden_outputs: int | Callable[[Any], int] = 0
    param_shapes: ShapeRule | None = None
    param_types: TypeRule | None = None
    default_init: Mapping[str, str] = field(default_factory=dict)
    quant: Quant = Quant.NONE
    quantized: str | None = None
    aliases: tuple[str, ...] = ()
    family: str = ""
    doc: str = ""

    def parse(self, raw: Mapping[str, object], where: object | None = None) -> Attrs:
        """Read attributes (strings or Python values). Raises AttributeValueError."""
        attrs = self.attrs.parse(raw, where=where or self.name)
        for key in ("num_args", "num_outputs", "sections", "num_weights", "num_layers"):
            count = getattr(attrs, key, None)
            if isinstance(count, int) and count > MOST_ENDS:
                raise AttributeValueError(
                    f"attribute {key!r} is absurd",
                    where=where or self.name,
                    got=count,
                    expected=f"at most {MOST_ENDS}",
                )
        return attrs

    def input_names(self, attrs: Any, count: int | None = None) -> tuple[str, ...]:
        """Input names for these attributes; for a variadic op ``count`` of them."""
        if self.by_count is not None:
            return self.by_count(attrs, count)
        if self.variadic is not None:
            n = count if count is not None else int(getattr(attrs, self.variadic, 0) or 0)
            if callable(self.inputs):
                return self.inputs(attrs)
            return tuple(f"{self.inputs[0]}{i}" for i in range(n))
        return self.inputs(attrs) if callable(self.inputs) else self.inputs

    def output_names(self, attrs: Any) -> tuple[str, ...]:
        """Names of the visible outputs."""
        return self.outputs(attrs) if callable(self.outputs) else self.outputs

    def count_outputs(self, attrs: Any) -> int:
        """Number of all outputs, hidden ones included."""
        hidden = self.hidden_outputs(attrs) if callable(self.hidden_outputs) else self.hidden_outputs
        return len(self.output_names(attrs)) + hidden

    def list_output_names(self, node: str, attrs: Any) -> tuple[str, ...]:
        """How ``list_outputs`` names them: ``<node>_output``, ``<node>_output0``, or ``<node>_<name>``."""
        names = self.output_names(attrs)
        if self.named_outputs:
            return tuple(f"{node}_{n}" for n in names)
        if len(names) == 1:
            return (f"{node}_output",)
        return tuple(f"{node}_output{i}" for i in range(len(names)))


_OPS: dict[str, OpDef] = {}
_ALIASES: dict[str, str] = {}


def _family(lower: Callable[..., Any]) -> str:
    return lower.__module__.rsplit(".", 1)[-1]


def op(name: str, *aliases: str, attrs: type[Attrs] | None = None, **facts: Any) -> Callable[[Any], Any]:
    """Register an operator: a decorator for its lowering.

    The attributes' class is read from the annotation of the function's second parameter; pass ``attrs`` where one
    function serves several operators.
    """

    def register(lower: Callable[..., Any]) -> Callable[..., Any]:
        cls = attrs
        if cls is None:
            second = list(inspect.signature(lower, eval_str=True).parameters.values())[1]
            cls = second.annotation
        assert isinstance(cls, type) and issubclass(cls, Attrs), f"{name}: no attributes class"
        doc = (inspect.getdoc(lower) or "").split("\n")[0]
        add(OpDef(name, cls, lower, aliases=aliases, family=_family(lower), doc=doc, **facts))
        return lower

    return register


def add(definition: OpDef) -> None:
    """Register a definition. A name may be registered once only: a second time is a mistake in the code."""
    for name in (definition.name, *definition.aliases):
        assert name not in _OPS and name not in _ALIASES, f"operator {name} is registered twice"
    _OPS[definition.name] = definition
    for alias in definition.aliases:
        _ALIASES[alias] = definition.name


def get(name: str, where: object | None = None) -> OpDef:
    """The operator of that name or alias.

    Raises:
        UnknownOperatorError: there is none; the message names the closest ones.
    """
    found = find(name)
    if found is None:
        raise UnknownOperatorError(
            "unknown operator",
            where=where,
            got=name,
            expected="an operator of docs/ops.md",
            next=nearest(name, [*_OPS, *_ALIASES]),
        )
    return found


def find(name: str) -> OpDef | None:
    """The operator of that name or alias, or None."""
    return _OPS.get(_ALIASES.get(name, name))


def all_ops() -> tuple[OpDef, ...]:
    """Every operator, by name."""
    return tuple(_OPS[name] for name in sorted(_OPS))


def known(shapes: Mapping[str, Shape | None], name: str) -> Shape | None:
    """The shape of an input if rank and all dimensions are known, else None. For parameter shape rules."""
    shape = shapes.get(name)
    return shape if shape is not None and all(d > 0 for d in shape) else None


def same_shape(a: Any, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    """The rule of operators whose inputs all have the output's shape."""
    ranks = [s for s in shapes.values() if s is not None]
    if not ranks or any(len(s) != len(ranks[0]) for s in ranks):
        return {}
    joint = tuple(next((d for d in dims if d), 0) for dims in zip(*ranks))
    return {name: joint for name in shapes if name != "output"}


def product(dims: Sequence[int]) -> int:
    """Product of dimensions as a Python int (numpy would wrap around)."""
    out = 1
    for d in dims:
        out *= int(d)
    return out


def as_array(value: object, dtype: object) -> np.ndarray:
    """A numpy array of that dtype."""
    return np.asarray(value, dtype=np.dtype(dtype))  # type: ignore[call-overload]
