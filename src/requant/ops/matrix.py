"""Matrix products: dot, batch_dot, linalg_gemm and its kin, NumPy's matmul, dot, einsum and tensordot, triangles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from requant.attrs import Attrs, Ints
from requant.errors import AttributeValueError, ShapeError
from requant.ops import elementwise as ew
from requant.ops.elementwise import NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.registry import op, product


@dataclass(frozen=True)
class DotAttrs(Attrs):
    transpose_a: bool = False
    transpose_b: bool = False
    forward_stype: Literal["default", "row_sparse", "csr"] | None = None


def _sizes(g: Emit, x: Value, axes: range) -> list[int | Value]:
    """Sizes along ``axes``: numbers where known."""
    dims = g.dims(x)
    return [g.size_of(x, [i]) if (d := dims[i]) is None else d for i in axes]


def _matmul(g: Emit, a: Value, b: Value) -> Value:
    """MatMul. Vectors are made matrices first: ONNX Runtime merges a transposition before MatMul wrongly with them."""
    left, right = g.rank(a) == 1, g.rank(b) == 1
    if left and right:
        return g("MatMul", a, b)
    a, b = g.unsqueeze(a, [0] if left else []), g.unsqueeze(b, [1] if right else [])
    return g.squeeze(g("MatMul", a, b), [-2] if left else [-1] if right else [])


def _contract(g: Emit, a: Value, b: Value) -> Value:
    """The product over a's last axis and b's first: shape a[:-1] + b[1:]."""
    if g.rank(b) <= 2:
        return _matmul(g, a, b)
    shape = [*_sizes(g, a, range(g.rank(a) - 1)), *_sizes(g, b, range(1, g.rank(b)))]
    inner = g.dims(b)[0]
    flat = g.reshape(b, [0 if inner is None else inner, -1])
    return g.reshape(_matmul(g, a, flat), shape)


@op("dot", "_sparse_dot", inputs=("lhs", "rhs"))
def dot(g: Emit, a: DotAttrs, lhs: Value, rhs: Value) -> Value:
    """The product over the last axis of lhs and the first of rhs; any ranks. Two vectors give shape (1,).

    ``transpose_a`` takes the first axis of lhs instead, ``transpose_b`` the last of rhs.
    """
    ew.same_dtype(g, lhs, rhs)
    left, right = g.rank(lhs), g.rank(rhs)
    if not left or not right:
        raise ShapeError("dot needs tensors of rank 1 at least", where=g.node or None, got=f"ranks {left} and {right}")
    if a.transpose_a:
        lhs = g.transpose(lhs, [*range(1, left), 0])
    if a.transpose_b:
        rhs = g.transpose(rhs, [right - 1, *range(right - 1)])
    out = _contract(g, lhs, rhs)
    return g.reshape(out, [1]) if left == right == 1 else out


def _swapped(g: Emit, x: Value, swap: bool) -> Value:
    """``x`` with its last two axes exchanged if ``swap``."""
    rank = g.rank(x)
    return g.transpose(x, [*range(rank - 2), rank - 1, rank - 2]) if swap else x


def _need_matrices(g: Emit, *values: Value) -> None:
    for x in values:
        if g.rank(x) < 2:
            raise ShapeError(
                f"{g.mx_op or 'this operator'} needs matrices", where=g.node or None, got=f"rank {g.rank(x)}"
            )


@op("batch_dot", "_npx_batch_dot", "_npi_batch_dot", inputs=("lhs", "rhs"))
def batch_dot(g: Emit, a: DotAttrs, lhs: Value, rhs: Value) -> Value:
    """Matrix products over the last two axes; the axes before them are a batch, equal on both sides."""
    ew.same_dtype(g, lhs, rhs)
    _need_matrices(g, lhs, rhs)
    return g("MatMul", _swapped(g, lhs, a.transpose_a), _swapped(g, rhs, a.transpose_b))


# -- linalg ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gemm2Attrs(Attrs):
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    axis: int = -2


@dataclass(frozen=True)
class GemmAttrs(Attrs):
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    axis: int = -2


def _times(g: Emit, x: Value, factor: float) -> Value:
    return x if factor == 1.0 else g("Mul", x, factor)


def _rows_last_but_one(g: Emit, x: Value, axis: int) -> Value:
    """``x`` with the axis that counts the rows moved next to the last."""
    rank = g.rank(x)
    perm = [i for i in range(rank) if i != g.axis(x, axis)]
    perm.insert(rank - 2, g.axis(x, axis))
    return g.transpose(x, perm)


def _rows_back(g: Emit, x: Value, axis: int) -> Value:
    rank = g.rank(x)
    perm = [i for i in range(rank) if i != rank - 2]
    perm.insert(g.axis(x, axis), rank - 2)
    return g.transpose(x, perm)


@op("_linalg_gemm2", "linalg_gemm2", inputs=("A", "B"))
def linalg_gemm2(g: Emit, a: Gemm2Attrs, A: Value, B: Value) -> Value:
    """alpha · op(A) · op(B). ``axis`` counts the rows, the last axis the columns, the others are a batch."""
    ew.same_dtype(g, A, B)
    _need_matrices(g, A, B)
    left, right = _rows_last_but_one(g, A, a.axis), _rows_last_but_one(g, B, a.axis)
    out = g("MatMul", _swapped(g, left, a.transpose_a), _swapped(g, right, a.transpose_b))
    return _rows_back(g, _times(g, out, a.alpha), a.axis)


@op("_linalg_gemm", "linalg_gemm", inputs=("A", "B", "C"))
def linalg_gemm(g: Emit, a: GemmAttrs, A: Value, B: Value, C: Value) -> Value:
    """alpha · op(A) · op(B) + beta · C. ``axis`` counts the rows, the last axis the columns, the others are a batch."""
    ew.same_dtype(g, A, B)
    ew.same_dtype(g, A, C)
    _need_matrices(g, A, B, C)
    if g.rank(A) == 2:
        return g("Gemm", A, B, C, alpha=a.alpha, beta=a.beta, transA=int(a.transpose_a), transB=int(a.transpose_b))
    product_ = linalg_gemm2(g, Gemm2Attrs(a.transpose_a, a.transpose_b, a.alpha, a.axis), A, B)
    return g("Add", product_, _times(g, C, a.beta))


@dataclass(frozen=True)
class SyrkAttrs(Attrs):
    transpose: bool = False
    alpha: float = 1.0


@op("_linalg_syrk", "linalg_syrk", inputs=("A",))
def linalg_syrk(g: Emit, a: SyrkAttrs, A: Value) -> Value:
    """alpha · A · Aᵀ, or alpha · Aᵀ · A if ``transpose``, over the last two axes."""
    _need_matrices(g, A)
    out = g("MatMul", _swapped(g, A, a.transpose), _swapped(g, A, not a.transpose))
    return _times(g, out, a.alpha)


@dataclass(frozen=True)
class TrmmAttrs(Attrs):
    transpose: bool = False
    rightside: bool = False
    lower: bool = True
    alpha: float = 1.0


@op("_linalg_trmm", "linalg_trmm", inputs=("A", "B"))
def linalg_trmm(g: Emit, a: TrmmAttrs, A: Value, B: Value) -> Value:
    """alpha · op(T) · B, or alpha · B · op(T) if ``rightside``, where T is the lower or upper triangle of A."""
    ew.same_dtype(g, A, B)
    _need_matrices(g, A, B)
    triangle = _swapped(g, g("Trilu", A, upper=int(not a.lower)), a.transpose)
    return _times(g, g("MatMul", B, triangle) if a.rightside else g("MatMul", triangle, B), a.alpha)


# -- NumPy's manner ----------------------------------------------------------------------------------------------


@op("_npi_matmul", inputs=("a", "b"), outputs=("out",), named_outputs=True)
def matmul(g: Emit, attrs: NoAttrs, a: Value, b: Value) -> Value:
    """NumPy's matmul: matrices over the last two axes, the others broadcast; vectors are taken as row and column."""
    ew.same_dtype(g, a, b)
    return _matmul(g, a, b)


@op("_np_dot", "_npi_dot", inputs=("a", "b"))
def numpy_dot(g: Emit, attrs: NoAttrs, a: Value, b: Value) -> Value:
    """NumPy's dot: over a's last axis and b's last but one (its only one, of a vector); a scalar multiplies."""
    ew.same_dtype(g, a, b)
    rank = g.rank(b)
    if g.rank(a) == 0 or rank == 0:
        return g("Mul", a, b)
    return _contract(g, a, b if rank <= 2 else g.transpose(b, [rank - 2, *range(rank - 2), rank - 1]))


@dataclass(frozen=True)
class EinsumAttrs(Attrs):
    num_args: int
    subscripts: str = ""
    optimize: int = 0


@op("_npi_einsum", inputs=("data",), variadic="num_args")
def einsum(g: Emit, a: EinsumAttrs, *data: Value) -> Value:
    """Einstein's summation, as NumPy writes it: ``"ij,jk->ik"``."""
    return g("Einsum", *data, equation=a.subscripts.replace(" ", ""))


@dataclass(frozen=True)
class TensordotAttrs(Attrs):
    a_axes_summed: Ints
    b_axes_summed: Ints


def _tensordot(g: Emit, a: Value, b: Value, left: list[int], right: list[int]) -> Value:
    """The product over pairs of axes; what is left of a, then of b."""
    if len(left) != len(right):
        raise AttributeValueError(
            "both tensors must be summed over equally many axes", where=g.node or None, got=f"{left} and {right}"
        )
    keep_a = [i for i in range(g.rank(a)) if i not in left]
    keep_b = [i for i in range(g.rank(b)) if i not in right]
    moved_a, moved_b = g.transpose(a, [*keep_a, *left]), g.transpose(b, [*right, *keep_b])
    shape = [*_sizes(g, moved_a, range(len(keep_a))), *_sizes(g, moved_b, range(len(right), g.rank(b)))]
    summed = [g.dim(b, i) for i in right]
    inner = product(summed)
    flat = g("MatMul", g.reshape(moved_a, [-1, inner]), g.reshape(moved_b, [inner, -1]))
    return g.reshape(flat, shape)


@op("_npi_tensordot", inputs=("a", "b"))
def tensordot(g: Emit, attrs: TensordotAttrs, a: Value, b: Value) -> Value:
    """The product over the given axes of both tensors."""
    ew.same_dtype(g, a, b)
    left = [g.axis(a, i) for i in attrs.a_axes_summed]
    return _tensordot(g, a, b, left, [g.axis(b, i) for i in attrs.b_axes_summed])


@dataclass(frozen=True)
class TensordotIntAttrs(Attrs):
    axes: int


@op("_npi_tensordot_int_axes", inputs=("a", "b"))
def tensordot_int_axes(g: Emit, attrs: TensordotIntAttrs, a: Value, b: Value) -> Value:
    """The product over the last ``axes`` axes of a and the first ones of b."""
    ew.same_dtype(g, a, b)
    n, rank = attrs.axes, g.rank(a)
    if not 0 <= n <= min(rank, g.rank(b)):
        raise AttributeValueError("axes out of range", where=g.node or None, got=n)
    return _tensordot(g, a, b, list(range(rank - n, rank)), list(range(n)))


@dataclass(frozen=True)
class TriangleAttrs(Attrs):
    k: int = 0


def _square(g: Emit, data: Value) -> Value:
    if g.rank(data) != 1:
        return data
    n: int | Value = g.size_of(data) if (d := g.dims(data)[0]) is None else d
    return g("Expand", data, g.concat_sizes([n, n]))


@op("_npi_tril")
def tril(g: Emit, a: TriangleAttrs, data: Value) -> Value:
    """What stands on and below the k-th diagonal of the last two axes; 0 above. A vector is every row of a square."""
    return g("Trilu", _square(g, data), g.const(a.k), upper=0)


@op("_npi_triu")
def triu(g: Emit, a: TriangleAttrs, data: Value) -> Value:
    """What stands on and above the k-th diagonal of the last two axes; 0 below. A vector is every row of a square."""
    return g("Trilu", _square(g, data), g.const(a.k), upper=1)
