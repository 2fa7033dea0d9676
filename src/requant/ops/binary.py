"""Element-wise operators of two or more tensors: of equal shapes, broadcast, and in NumPy's manner (``_npi_``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from requant.attrs import Attrs
from requant.errors import ShapeError
from requant.ops import elementwise as ew
from requant.ops.elementwise import BOOL, Kernel, NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import Quant, Shape, op

PAIR = ("lhs", "rhs")


def paired_shapes(a: Any, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    """The shape rule of operators whose inputs have equal shapes.

    A dimension of 1 may stand for a batch that was left open (a recurrent state made by ``_zeros`` with shape (0, n)):
    it says nothing about the same dimension of another input whose rank is known.
    """
    given = [s for s in shapes.values() if s is not None]
    if not given or any(len(s) != len(given[0]) for s in given):
        return {}
    joint = tuple(max(dims) for dims in zip(*given))
    found: dict[str, Shape] = {}
    for name, shape in shapes.items():
        if name == "output":
            continue
        if shape is None:
            found[name] = joint
        else:
            found[name] = tuple(own or (d if d > 1 else 0) for own, d in zip(shape, joint))
    return found


def _check_equal(g: Emit, values: list[Value]) -> None:
    """Raises ShapeError where shapes differ; a dimension of 1 may be an open batch and passes."""
    first = g.dims(values[0])
    for other in values[1:]:
        dims = g.dims(other)
        apart = [1 for x, y in zip(first, dims) if x is not None and y is not None and x != y and 1 not in (x, y)]
        if len(dims) != len(first) or apart:
            raise ShapeError(
                f"the inputs of {g.mx_op or 'this operator'} must have equal shapes",
                where=g.node or None,
                got=f"{values[0].shape} and {other.shape}",
                next="use a broadcast_ operator where shapes differ",
            )


def _equal_shapes(name: str, *aliases: str, kernel: Kernel, **facts: Any) -> None:
    def lower(g: Emit, a: NoAttrs, lhs: Value, rhs: Value) -> Value:
        ew.same_dtype(g, lhs, rhs)
        _check_equal(g, [lhs, rhs])
        return ew.compute(g, kernel, lhs, rhs)

    lower.__doc__ = f"{_say(kernel)}, of equal shapes; the result has the inputs' dtype."
    op(name, *aliases, inputs=PAIR, param_shapes=paired_shapes, **facts)(lower)


def _broadcast(name: str, *aliases: str, kernel: Kernel) -> None:
    def lower(g: Emit, a: NoAttrs, lhs: Value, rhs: Value) -> Value:
        ew.same_dtype(g, lhs, rhs)
        return ew.compute(g, kernel, lhs, rhs)

    lower.__doc__ = f"{_say(kernel)}, broadcast; the result has the inputs' dtype."
    op(name, *aliases, inputs=PAIR)(lower)


def _numpy(name: str, *aliases: str, kernel: Kernel, logical: bool = False, inputs: tuple[str, str] = PAIR) -> None:
    def lower(g: Emit, a: NoAttrs, **operands: Value) -> Value:
        left, right = operands.values()
        dtype = ew.promote(g.dtype(left), g.dtype(right))
        if kernel is ew.divide and not ew.is_float(dtype):
            dtype = ew.FLOAT32
        return ew.compute(g, kernel, g.cast(left, dtype), g.cast(right, dtype), BOOL if logical else None)

    lower.__doc__ = f"{_say(kernel)}, broadcast, in NumPy's manner: {'bool' if logical else 'dtypes promote'}."
    op(name, *aliases, inputs=inputs)(lower)


def _say(kernel: Kernel) -> str:
    return (kernel.__doc__ or "").split("\n")[0].rstrip(".")


_equal_shapes(
    "elemwise_add",
    "_plus",
    "_Plus",
    "_add",
    "_sparse_elemwise_add",
    kernel=ew.add,
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_elemwise_add",
)
_equal_shapes("elemwise_sub", "_minus", "_Minus", "_sub", "_sparse_elemwise_sub", kernel=ew.subtract)
_equal_shapes(
    "elemwise_mul",
    "_mul",
    "_Mul",
    "_sparse_elemwise_mul",
    kernel=ew.multiply,
    quant=Quant.SUPPORT,
    quantized="_contrib_quantized_elemwise_mul",
)
_equal_shapes("elemwise_div", "_div", "_Div", "_sparse_elemwise_div", kernel=ew.divide)
_equal_shapes("_scatter_elemwise_div", kernel=ew.divide)
_equal_shapes("_grad_add", kernel=ew.add)
_equal_shapes("_mod", "_Mod", kernel=ew.modulo)
_equal_shapes("_power", "_Power", kernel=ew.power)
_equal_shapes("_maximum", "_Maximum", kernel=ew.maximum)
_equal_shapes("_minimum", "_Minimum", kernel=ew.minimum)
_equal_shapes("_hypot", "_Hypot", kernel=ew.hypot)
_equal_shapes("_equal", "_Equal", kernel=ew.equal)
_equal_shapes("_not_equal", "_Not_Equal", kernel=ew.not_equal)
_equal_shapes("_greater", "_Greater", kernel=ew.greater)
_equal_shapes("_greater_equal", "_Greater_Equal", kernel=ew.greater_equal)
_equal_shapes("_lesser", "_Lesser", kernel=ew.lesser)
_equal_shapes("_lesser_equal", "_Lesser_Equal", kernel=ew.lesser_equal)
_equal_shapes("_logical_and", "_Logical_And", kernel=ew.logical_and)
_equal_shapes("_logical_or", "_Logical_Or", kernel=ew.logical_or)
_equal_shapes("_logical_xor", "_Logical_Xor", kernel=ew.logical_xor)

_broadcast("broadcast_add", "broadcast_plus", "_sparse_broadcast_add", "_sparse_broadcast_plus", kernel=ew.add)
_broadcast("broadcast_sub", "broadcast_minus", "_sparse_broadcast_sub", "_sparse_broadcast_minus", kernel=ew.subtract)
_broadcast("broadcast_mul", "_sparse_broadcast_mul", kernel=ew.multiply)
_broadcast("broadcast_div", "_sparse_broadcast_div", kernel=ew.divide)
_broadcast("broadcast_mod", kernel=ew.modulo)
_broadcast("broadcast_power", kernel=ew.power)
_broadcast("broadcast_maximum", kernel=ew.maximum)
_broadcast("broadcast_minimum", kernel=ew.minimum)
_broadcast("broadcast_hypot", kernel=ew.hypot)
_broadcast("broadcast_equal", kernel=ew.equal)
_broadcast("broadcast_not_equal", kernel=ew.not_equal)
_broadcast("broadcast_greater", kernel=ew.greater)
_broadcast("broadcast_greater_equal", kernel=ew.greater_equal)
_broadcast("broadcast_lesser", kernel=ew.lesser)
_broadcast("broadcast_lesser_equal", kernel=ew.lesser_equal)
_broadcast("broadcast_logical_and", kernel=ew.logical_and)
_broadcast("broadcast_logical_or", kernel=ew.logical_or)
_broadcast("broadcast_logical_xor", kernel=ew.logical_xor)

_numpy("_npi_add", kernel=ew.add)
_numpy("_npi_subtract", kernel=ew.subtract)
_numpy("_npi_multiply", kernel=ew.multiply)
_numpy("_npi_true_divide", kernel=ew.divide)
_numpy("_npi_mod", kernel=ew.modulo)
_numpy("_npi_power", kernel=ew.power)
_numpy("_npi_maximum", "_npi_fmax", kernel=ew.maximum)
_numpy("_npi_minimum", "_npi_fmin", kernel=ew.minimum)
_numpy("_npi_hypot", kernel=ew.hypot, inputs=("x1", "x2"))
_numpy("_npi_arctan2", kernel=ew.arctan2, inputs=("x1", "x2"))
_numpy("_npi_copysign", kernel=ew.copysign)
_numpy("_npi_ldexp", kernel=ew.ldexp)
_numpy("_npi_bitwise_and", kernel=ew.bitwise_and)
_numpy("_npi_bitwise_or", kernel=ew.bitwise_or)
_numpy("_npi_bitwise_xor", kernel=ew.bitwise_xor)
_numpy("_npi_equal", kernel=ew.equal, logical=True)
_numpy("_npi_not_equal", kernel=ew.not_equal, logical=True)
_numpy("_npi_greater", kernel=ew.greater, logical=True)
_numpy("_npi_greater_equal", kernel=ew.greater_equal, logical=True)
_numpy("_npi_less", kernel=ew.lesser, logical=True)
_numpy("_npi_less_equal", kernel=ew.lesser_equal, logical=True)
_numpy("_npi_logical_and", kernel=ew.logical_and, logical=True)
_numpy("_npi_logical_or", kernel=ew.logical_or, logical=True)
_numpy("_npi_logical_xor", kernel=ew.logical_xor, logical=True)


@dataclass(frozen=True)
class AddNAttrs(Attrs):
    num_args: int


@op("add_n", "ElementWiseSum", "_sparse_add_n", "_sparse_ElementWiseSum", inputs=("args",), variadic="num_args")
def add_n(g: Emit, a: AddNAttrs, *args: Value) -> Value:
    """The sum of any number of tensors of equal shape and dtype."""
    if not args:
        raise ShapeError("add_n needs at least one input", where=g.node or None)
    _check_equal(g, list(args))
    total = args[0]
    for other in args[1:]:
        ew.same_dtype(g, total, other)
        total = ew.compute(g, ew.add, total, other)
    return total if len(args) > 1 else g("Identity", total)
