"""Sizes of dimensions as monomials, so that merging and splitting symbolic dimensions stays exact.

A dimension is a number or a symbol such as ``N``. What reshaping makes of them are products and quotients: ``8*N``,
``N/2``, ``N*H``. A ``Size`` keeps them so that ``(8*N)/8`` is ``N`` again and ``(N*3*4)/N`` is the number 12, and only
sizes that stay unknown are computed in the graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from requant.errors import ShapeError
from requant.ops.emit import Emit, NeedsShape, Value

_TERM = re.compile(r"([*/]?)([^*/]+)")


@dataclass(frozen=True)
class Size:
    """``factor`` times symbols to integer powers. Symbols that start with ``?`` are dimensions without a name."""

    factor: Fraction = Fraction(1)
    powers: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def number_of(n: int) -> Size:
        """A plain number."""
        return Size(Fraction(n))

    @staticmethod
    def named(label: str) -> Size:
        """The size that a dimension's name stands for: ``N``, or a product such as ``8*N``."""
        out = Size()
        for sign, term in _TERM.findall(label):
            part = Size(Fraction(int(term))) if term.isdigit() and int(term) else Size(powers=((term, 1),))
            out = out / part if sign == "/" else out * part
        return out

    def __mul__(self, other: Size) -> Size:
        return self._joined(other, 1)

    def __truediv__(self, other: Size) -> Size:
        return self._joined(other, -1)

    def _joined(self, other: Size, sign: int) -> Size:
        powers = dict(self.powers)
        for name, power in other.powers:
            powers[name] = powers.get(name, 0) + sign * power
        factor = self.factor * other.factor if sign > 0 else self.factor / other.factor
        return Size(factor, tuple(sorted((n, p) for n, p in powers.items() if p)))

    @property
    def number(self) -> int | None:
        """The size as an int, or None if it is not known to be one."""
        return int(self.factor) if not self.powers and self.factor.denominator == 1 else None

    @property
    def label(self) -> int | str | None:
        """What stands in a shape: a number, a name, or None where a dimension without a name is involved."""
        if not self.powers:
            return self.number
        if any(n.startswith("?") for n, _ in self.powers):
            return None
        over = [str(self.factor.numerator)] if self.factor.numerator != 1 else []
        under = [str(self.factor.denominator)] if self.factor.denominator != 1 else []
        for name, power in self.powers:
            (over if power > 0 else under).extend([name] * abs(power))
        return "*".join(over or ["1"]) + "".join(f"/{u}" for u in under)


def sizes(g: Emit, x: Value) -> list[Size]:
    """The size of every dimension of ``x``."""
    g.rank(x)
    assert x.shape is not None
    out = []
    for axis, d in enumerate(x.shape):
        if isinstance(d, int):
            out.append(Size.number_of(d))
        else:
            out.append(Size.named(d.value) if d.value is not None else Size(powers=((f"?{x.name}.{axis}", 1),)))
    return out


def total(parts: Iterable[Size]) -> Size:
    """The product of sizes."""
    out = Size()
    for part in parts:
        out = out * part
    return out


def size_value(g: Emit, size: Size, sources: Sequence[Value]) -> Value:
    """A size as a 1-D int64 value of one element, computed in the graph from the shapes of ``sources``.

    Raises:
        NeedsShape: the dimensions of the sources do not determine it.
    """
    if size.number is not None:
        return g.const(np.array([size.number], np.int64))
    known = [(source, axis, own) for source in sources for axis, own in enumerate(sizes(g, source)) if own.powers]
    for source, axis, own in known:
        ratio = size / own
        if not ratio.powers:
            return _scaled(g, g.size_of(source, [axis]), ratio.factor)
    over: list[Value] = []
    under: list[Value] = []
    factor = size.factor
    for name, power in size.powers:
        found = next((k for k in known if k[2].powers == ((name, 1),)), None)
        if found is None:
            raise NeedsShape(f"the size {size.label} is needed as a number", where=g.node)
        source, axis, own = found
        (over if power > 0 else under).extend([g.size_of(source, [axis])] * abs(power))
        factor = factor / own.factor**power
    out = _product(g, over)
    if out is None:
        raise NeedsShape(f"the size {size.label} is needed as a number", where=g.node)
    if factor.numerator != 1:
        out = g("Mul", out, factor.numerator)
    divisor = _product(g, under)
    if factor.denominator != 1:
        divisor = g.const(np.array([factor.denominator])) if divisor is None else g("Mul", divisor, factor.denominator)
    return out if divisor is None else g("Div", out, divisor)


def _scaled(g: Emit, value: Value, factor: Fraction) -> Value:
    if factor.numerator != 1:
        value = g("Mul", value, factor.numerator)
    return g("Div", value, factor.denominator) if factor.denominator != 1 else value


def _product(g: Emit, parts: Sequence[Value]) -> Value | None:
    out: Value | None = None
    for part in parts:
        out = part if out is None else g("Mul", out, part)
    return out


def shape_value(g: Emit, target: Sequence[Size], sources: Sequence[Value]) -> Value:
    """A whole shape as a 1-D int64 value: a constant where all sizes are numbers."""
    return g.concat_sizes([s.number if s.number is not None else size_value(g, s, sources) for s in target])


def labelled(g: Emit, x: Value, target: Sequence[Size]) -> Value:
    """State the shape of ``x`` as far as its sizes have numbers or names."""
    return g.set_shape(x, [s.label for s in target])


def reshape_to(g: Emit, x: Value, target: Sequence[Size], sources: Sequence[Value] = ()) -> Value:
    """Reshape to sizes. Copied dimensions are written as 0, one unknown as -1, and only the rest is computed.

    Args:
        target: one size per dimension of the result.
        sources: further values whose dimensions occur in ``target``.
    Raises:
        ShapeError: both shapes are known and hold different numbers of elements.
    """
    own = sizes(g, x)
    if own == list(target):
        return x
    check_same_count(g, own, target)
    dims: list[int | Value] = []
    inferred = False
    for i, size in enumerate(target):
        if size.number is not None:
            dims.append(size.number)
        elif i < len(own) and size == own[i]:
            dims.append(0)
        elif not inferred:
            inferred = True
            dims.append(-1)
        else:
            dims.append(size_value(g, size, [x, *sources]))
    return labelled(g, g.reshape(x, dims), target)


def check_same_count(g: Emit, have: Sequence[Size], want: Sequence[Size]) -> None:
    """Refuse to reshape where the number of elements is known to change."""
    if total(have).factor == 0:
        return
    ratio = total(want) / total(have)
    impossible = any(not s.powers and s.number is None for s in want)
    if impossible or (not ratio.powers and ratio.factor != 1):
        raise ShapeError(
            "the new shape holds another number of elements",
            where=g.node,
            got=f"({', '.join(_say(s) for s in have)}) to ({', '.join(_say(s) for s in want)})",
        )


def _say(size: Size) -> str:
    return str(size.factor) if not size.powers else str(size.label or "?")


def expand_to(g: Emit, x: Value, target: Sequence[Size], sources: Sequence[Value]) -> Value:
    """Broadcast to sizes (of the same rank as ``x``); nothing is emitted where that is its shape already."""
    if sizes(g, x) == list(target):
        return x
    return labelled(g, g("Expand", x, shape_value(g, target, sources)), target)
