"""Reshape and its kin: MXNet's special codes, read off sizes that may be symbolic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops.emit import Emit, NeedsShape, Value
from requant.ops.registry import op
from requant.ops.sizes import Size, reshape_to, sizes, total


@dataclass(frozen=True)
class ReshapeAttrs(Attrs):
    shape: Ints = ()
    reverse: bool = False
    target_shape: Ints = ()
    keep_highest: bool = False


@dataclass(frozen=True)
class _Codes:
    """What the special numbers of a shape mean; None where a dialect has no such code."""

    infer: int
    copy: int | None
    rest: int | None
    merge: int | None
    split: int | None
    skip: int | None = None


_CLASSIC = _Codes(infer=-1, copy=0, rest=-2, merge=-3, split=-4)
_NUMPY_X = _Codes(infer=-1, copy=-2, rest=-4, merge=-5, split=-6, skip=-3)
_NUMPY = _Codes(infer=-1, copy=None, rest=None, merge=None, split=None)


class _Walk:
    """Reads a shape with codes against the sizes of the data, from left to right."""

    def __init__(self, codes: _Codes, wanted: Sequence[int], have: Sequence[Size], where: str) -> None:
        self.codes, self.wanted, self.have, self.where = codes, list(wanted), list(have), where
        self.at = 0
        self.out: list[Size | None] = []

    def fault(self, what: str) -> ShapeError:
        return ShapeError(
            what,
            where=self.where,
            got=f"shape={tuple(self.wanted)}",
            expected=f"codes that fit the data's shape ({', '.join(str(s.label or '?') for s in self.have)})",
        )

    def take(self) -> Size:
        """The next dimension of the data."""
        if self.at >= len(self.have):
            raise self.fault("the shape refers to a dimension that the data does not have")
        self.at += 1
        return self.have[self.at - 1]

    def run(self) -> list[Size]:
        codes, k = self.codes, 0
        while k < len(self.wanted):
            code = self.wanted[k]
            k += 1
            if code == codes.infer:
                if None in self.out:
                    raise self.fault("only one dimension can be inferred")
                self.out.append(None)
                self.at += 1
            elif code == codes.copy:
                self.out.append(self.take())
            elif code == codes.rest:
                self.out.extend(self.have[self.at :])
                self.at = max(self.at, len(self.have))
            elif code == codes.merge:
                self.out.append(self.take() * self.take())
            elif code == codes.split:
                self.split(self.wanted[k : k + 2])
                k += 2
            elif code == codes.skip:
                skipped = self.take()
                if skipped.powers:
                    raise NeedsShape("whether a dimension is 1 is needed", where=self.where, got=skipped.label)
                if skipped != Size():
                    raise self.fault("a dimension to be skipped is not 1")
            elif code < 0:
                raise self.fault(f"{code} is not a code of this operator")
            else:
                self.out.append(Size.number_of(code))
                self.at += 1
        rest = total(self.have) / self.filled() if None in self.out else Size()
        return [rest if s is None else s for s in self.out]

    def filled(self) -> Size:
        known = total(s for s in self.out if s is not None)
        if known.factor == 0:
            raise self.fault("a dimension cannot be inferred beside one of size 0")
        return known

    def split(self, parts: Sequence[int]) -> None:
        if len(parts) != 2 or not all(p > 0 or p == -1 for p in parts) or list(parts) == [-1, -1]:
            raise self.fault("a split needs two sizes, of which one may be -1")
        whole = self.take()
        sizes_ = [None if p == -1 else Size.number_of(p) for p in parts]
        first, second = sizes_
        pair = [first or whole / (second or Size()), second or whole / (first or Size())]
        ratio = total(pair) / whole if whole.factor else Size()
        if any(not s.powers and s.number is None for s in pair) or (not ratio.powers and ratio.factor != 1):
            raise self.fault("a split does not divide its dimension")
        self.out.extend(pair)


def _resolve(codes: _Codes, wanted: Sequence[int], have: Sequence[Size], reverse: bool, where: str) -> list[Size]:
    """The sizes that a shape with codes stands for. ``reverse`` reads both from right to left."""
    if not reverse:
        return _Walk(codes, wanted, have, where).run()
    return _Walk(codes, list(wanted)[::-1], list(have)[::-1], where).run()[::-1]


def _legacy(a: ReshapeAttrs, have: Sequence[Size], where: str) -> list[Size]:
    """``target_shape`` of old files: one 0 is inferred; ``keep_highest`` copies the first dimension."""
    wanted = list(a.target_shape)
    if not wanted:
        raise AttributeValueError("a reshape needs a shape", where=where, expected="attribute 'shape'")
    out: list[Size | None] = [Size.number_of(n) if n else None for n in wanted]
    if a.keep_highest:
        out[0] = have[0]
    if out.count(None) > 1:
        raise AttributeValueError("target_shape may have one 0", where=where, got=a.target_shape)
    rest = total(have) / total(s for s in out if s is not None)
    return [rest if s is None else s for s in out]


@op("Reshape", "reshape")
def reshape(g: Emit, a: ReshapeAttrs, data: Value) -> Value:
    """Reshape. Codes: 0 copies a dimension, -1 infers one, -2 copies the rest, -3 merges two, -4 splits one.

    ``reverse`` matches the codes from the right. ``target_shape`` and ``keep_highest`` are the spelling of old files.
    """
    have = sizes(g, data)
    if a.shape:
        return reshape_to(g, data, _resolve(_CLASSIC, a.shape, have, a.reverse, g.node))
    return reshape_to(g, data, _legacy(a, have, g.node))


@dataclass(frozen=True)
class NumpyReshapeAttrs(Attrs):
    newshape: Ints
    reverse: bool = False
    order: str = "C"


def _numpy_reshape(codes: _Codes) -> Callable[[Emit, NumpyReshapeAttrs, Value], Value]:
    def lower(g: Emit, attrs: NumpyReshapeAttrs, a: Value) -> Value:
        if attrs.order != "C":
            raise AttributeValueError("only row-major order is known", where=g.node, got=attrs.order, expected="'C'")
        return reshape_to(g, a, _resolve(codes, attrs.newshape, sizes(g, a), attrs.reverse, g.node))

    return lower


@op("_npx_reshape", "_npi_reshape", inputs=("a",))
def npx_reshape(g: Emit, attrs: NumpyReshapeAttrs, a: Value) -> Value:
    """Reshape. Codes: -1 infers, -2 copies a dimension, -3 drops a 1, -4 copies the rest, -5 merges, -6 splits."""
    return _numpy_reshape(_NUMPY_X)(g, attrs, a)


@op("_np_reshape", inputs=("a",))
def np_reshape(g: Emit, attrs: NumpyReshapeAttrs, a: Value) -> Value:
    """Reshape as numpy has it: -1 infers a dimension."""
    return _numpy_reshape(_NUMPY)(g, attrs, a)


@dataclass(frozen=True)
class ReshapeLikeAttrs(Attrs):
    lhs_begin: int | None = None
    lhs_end: int | None = None
    rhs_begin: int | None = None
    rhs_end: int | None = None


def _range(begin: int | None, end: int | None, rank: int, what: str, where: str) -> tuple[int, int]:
    first = 0 if begin is None else begin + rank * (begin < 0)
    last = rank if end is None else end + rank * (end < 0)
    if not 0 <= first <= last <= rank:
        raise ShapeError(f"{what} is out of range", where=where, got=f"{begin}:{end}", expected=f"within 0:{rank}")
    return first, last


@op("reshape_like", "_npx_reshape_like", inputs=("lhs", "rhs"))
def reshape_like(g: Emit, a: ReshapeLikeAttrs, lhs: Value, rhs: Value) -> Value:
    """lhs with its dimensions ``lhs_begin:lhs_end`` replaced by the dimensions ``rhs_begin:rhs_end`` of rhs."""
    have, like = sizes(g, lhs), sizes(g, rhs)
    first, last = _range(a.lhs_begin, a.lhs_end, len(have), "lhs_begin:lhs_end", g.node)
    start, stop = _range(a.rhs_begin, a.rhs_end, len(like), "rhs_begin:rhs_end", g.node)
    return reshape_to(g, lhs, [*have[:first], *like[start:stop], *have[last:]], (rhs,))
