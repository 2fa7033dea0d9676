"""INT8 layers that compute without sums of products: pooling, activation, sum, product, batch normalization."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from requant.attrs import Attrs
from requant.errors import AttributeValueError, DTypeError, UnsupportedError
from requant.ops import ranges
from requant.ops.activation import ActivationAttrs, relu
from requant.ops.elementwise import NoAttrs
from requant.ops.emit import Emit, Value
from requant.ops.normalization import BatchNormAttrs, batch_norm
from requant.ops.pooling import PoolingAttrs, pooling
from requant.ops.quantized_linear import OUTPUTS
from requant.ops.ranges import INT8, INT32_LEVELS, UINT8, Range, Triple
from requant.ops.registry import Shape, find, op
from requant.qmath import SMALLEST_SCALE

_DATA = ("data", "min_data", "max_data")
#: Steps to take off a magnitude so that rounding it truncates what it was; a little below a half, for whole numbers.
_TRUNCATES = 0.4999


@op(
    "_contrib_quantized_pooling",
    "_npx_quantized_pooling",
    inputs=_DATA,
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=ranges.range_rule,
    param_types=ranges.int8_types,
)
def quantized_pooling(g: Emit, a: PoolingAttrs, data: Value, min_data: Value, max_data: Value) -> Triple:
    """Max or average pooling of int8 or uint8 data; the range is kept. Averages are rounded half to even.

    Windows are those of ``Pooling`` in every convention. (MXNet 1.9.1 divides windows that hang over the edge in the
    convention ``full`` by the whole kernel.)
    """
    kind = ranges.expect(g, data, "data", INT8, UINT8)
    if a.pool_type not in ("max", "avg"):
        raise UnsupportedError(
            "a pooling of 8-bit data is max or avg",
            where=g.node,
            got=a.pool_type,
            next="leave this node in float (excluded_sym_names)",
        )
    if ranges.known(g, (min_data, max_data)):
        return ranges.through(g, data, min_data, max_data, lambda x: pooling(g, a, x))
    pooled = pooling(g, a, g.cast(data, np.float32))
    out = g.cast(pooled, kind) if a.pool_type == "max" else ranges.saturated(g, pooled, kind)
    return out, min_data, max_data


@op(
    "_contrib_quantized_act",
    "_npx_quantized_act",
    inputs=_DATA,
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=ranges.range_rule,
    param_types=ranges.int8_types,
)
def quantized_act(g: Emit, a: ActivationAttrs, data: Value, min_data: Value, max_data: Value) -> Triple:
    """ReLU of int8 or uint8 data; type and range are kept. (MXNet 1.9.1 declares uint8 results int8.)"""
    ranges.expect(g, data, "data", INT8, UINT8)
    if a.act_type != "relu":
        raise UnsupportedError(
            "an activation of 8-bit data is relu",
            where=g.node,
            got=a.act_type,
            next="leave this node in float (excluded_sym_names)",
        )
    return ranges.through(g, data, min_data, max_data, lambda x: relu(g, NoAttrs(), x))


@dataclass(frozen=True)
class QuantizedAddAttrs(Attrs):
    min_calib_range: float | None = None
    max_calib_range: float | None = None


_TWO = ("lhs", "rhs", "lhs_min", "lhs_max", "rhs_min", "rhs_max")


def _two_shapes(a: Attrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    known = next((s for n in ("lhs", "rhs", "output") if (s := shapes.get(n)) is not None), None)
    both = {} if known is None else {"lhs": known, "rhs": known}
    return {**both, **ranges.range_shapes(shapes)}


@op(
    "_contrib_quantized_elemwise_add",
    "_npx_quantized_elemwise_add",
    "_contrib_quantized_npi_add",
    "_npx_quantized_npi_add",
    inputs=_TWO,
    outputs=OUTPUTS,
    named_outputs=True,
    param_shapes=_two_shapes,
    param_types=ranges.int8_types,
)
def quantized_elemwise_add(
    g: Emit,
    a: QuantizedAddAttrs,
    lhs: Value,
    rhs: Value,
    lhs_min: Value,
    lhs_max: Value,
    rhs_min: Value,
    rhs_max: Value,
) -> Triple:
    """Sum of two int8 or uint8 tensors of one shape.

    With a calibrated range the result has the inputs' common type (int8 if they differ) and that range. Without, it is
    int32 of the range (-O, O), O the sum of both largest magnitudes. (MXNet 1.9.1 loses the uint8 operand there if
    the types differ.)
    """
    kinds = [ranges.expect(g, x, n, INT8, UINT8) for x, n in ((lhs, "lhs"), (rhs, "rhs"))]
    pairs = [(lhs_min, lhs_max), (rhs_min, rhs_max)]
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    if calib is None:
        return _add_to_int32(g, [lhs, rhs], kinds, pairs)
    kind = kinds[0] if kinds[0] == kinds[1] else INT8
    low, high = ranges.constant_range(g, calib)
    if ranges.known(g, *pairs):
        total = g("Add", *(ranges.real(g, x, *pair) for x, pair in zip((lhs, rhs), pairs)))
        return ranges.integers(g, total, kind, low, high), low, high
    scale = ranges.multiplier(g, kind, low, high)
    terms = []
    for x, pair, own in zip((lhs, rhs), pairs, kinds):
        term = g("Mul", g.cast(x, np.float32), g("Div", scale, ranges.multiplier(g, own, *pair)))
        if own != kind:
            term = g.cast(ranges.saturated(g, term, INT8), np.float32)
        terms.append(term)
    return ranges.saturated(g, g("Add", *terms), kind), low, high


def _add_to_int32(g: Emit, data: list[Value], kinds: list[np.dtype], pairs: list[Range]) -> Triple:
    with g.folding():
        reach = g("Add", *(ranges.largest(g, *pair) for pair in pairs))
        low = g("Neg", reach)
    terms = []
    for x, pair, own in zip(data, pairs, kinds):
        with g.folding():
            part = g("Mul", ranges.largest(g, *pair), INT32_LEVELS)
            levels = g.const(np.float32(127.5 if own == INT8 else 255.5))
            whole = g("Mul", reach, levels)
            ratio = g("Where", g("Equal", whole, 0.0), np.float32(0), g("Div", part, whole))
        terms.append(g("Mul", g.cast(x, np.float32), ratio))
    sums = ranges.saturated32(g, g("Add", *terms))
    if ranges.known(g, *pairs):
        with g.folding():
            unit = g("Div", reach, INT32_LEVELS)
        ranges.set_real(g, sums, g("Add", *(ranges.real(g, x, *pair) for x, pair in zip(data, pairs))), unit)
    return sums, low, reach


@dataclass(frozen=True)
class QuantizedMulAttrs(Attrs):
    min_calib_range: float | None = None
    max_calib_range: float | None = None
    enable_float_output: bool = False


@op(
    "_contrib_quantized_elemwise_mul",
    "_npx_quantized_elemwise_mul",
    inputs=_TWO,
    outputs=lambda a: ("output",) if a.enable_float_output else OUTPUTS,
    named_outputs=True,
    param_shapes=_two_shapes,
    param_types=ranges.int8_types,
)
def quantized_elemwise_mul(
    g: Emit,
    a: QuantizedMulAttrs,
    lhs: Value,
    rhs: Value,
    lhs_min: Value,
    lhs_max: Value,
    rhs_min: Value,
    rhs_max: Value,
) -> Value | Triple:
    """Product of two 8-bit tensors of one shape; MXNet 1.9.1 quantizes operands to uint8 too, but cannot run that.

    As float32 (``enable_float_output``), as int8 of a calibrated range (truncated, and saturated, where MXNet 1.9.1
    wraps around), or as int32 with its range.
    """
    kinds = [ranges.expect(g, x, n, INT8, UINT8) for x, n in ((lhs, "lhs"), (rhs, "rhs"))]
    left, right = (lhs_min, lhs_max), (rhs_min, rhs_max)
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    if ranges.known(g, left, right) and (a.enable_float_output or calib is not None):
        value = g("Mul", ranges.real(g, lhs, *left), ranges.real(g, rhs, *right))
        if calib is None or a.enable_float_output:
            return value
        low, high = ranges.constant_range(g, calib)
        # Half a step towards zero, as a slope so steep that no product lies on it but zero: engines have no fast Sign.
        half = _TRUNCATES * ranges.constant_step(g, INT8, low, high)
        least = math.prod(ranges.constant_step(g, kind, *pair) for kind, pair in zip(kinds, (left, right)))
        slope = min(1.001 * half / max(least, SMALLEST_SCALE), float(np.finfo(np.float32).max))
        value = g("Sub", value, g("Clip", g("Mul", value, np.float32(slope)), -half, half))
        return ranges.integers(g, value, INT8, low, high), low, high
    product = g("Mul", g.cast(lhs, np.int32), g.cast(rhs, np.int32))
    scales = [ranges.multiplier(g, kind, *pair) for kind, pair in zip(kinds, (left, right))]
    if a.enable_float_output:
        ratio = g("Div", g("Div", g.const(np.float32(1)), scales[0]), scales[1])
        return g("Mul", g.cast(product, np.float32), ratio)
    if calib is not None:
        low, high = ranges.constant_range(g, calib)
        ratio = g("Div", g("Div", ranges.multiplier(g, INT8, low, high), scales[0]), scales[1])
        cut = g("Clip", g("Mul", g.cast(product, np.float32), ratio), -128.0, 127.0)
        return g.cast(g.cast(cut, np.int32), np.int8), low, high
    with g.folding():
        unit = g("Mul", *(ranges.step(g, kind, *pair, "R7") for kind, pair in zip(kinds, (left, right))))
        reach = g("Mul", unit, INT32_LEVELS)
        lowest = g("Neg", reach)
    if ranges.known(g, left, right):
        value = g("Mul", ranges.real(g, lhs, *left, "R7"), ranges.real(g, rhs, *right, "R7"))
        ranges.set_real(g, product, value, unit)
    return product, lowest, reach


def _bn_shapes(a: BatchNormAttrs, shapes: Mapping[str, Shape | None]) -> dict[str, Shape]:
    plain = find("BatchNorm")
    assert plain is not None and plain.param_shapes is not None
    return {**plain.param_shapes(a, shapes), **ranges.range_shapes(shapes)}


def _bn_types(a: Attrs, types: Mapping[str, np.dtype | None]) -> dict[str, np.dtype]:
    return {**dict.fromkeys(types, ranges.FLOAT32), "data": INT8}


@op(
    "_contrib_quantized_batch_norm",
    "_npx_quantized_batch_norm",
    inputs=("data", "gamma", "beta", "moving_mean", "moving_var", "min_data", "max_data"),
    outputs=OUTPUTS,
    named_outputs=True,
    aux=("moving_mean", "moving_var"),
    param_shapes=_bn_shapes,
    param_types=_bn_types,
    default_init={"moving_mean": '["zero", {}]', "moving_var": '["one", {}]'},
)
def quantized_batch_norm(
    g: Emit,
    a: BatchNormAttrs,
    data: Value,
    gamma: Value,
    beta: Value,
    moving_mean: Value,
    moving_var: Value,
    min_data: Value,
    max_data: Value,
) -> Triple:
    """Batch normalization of int8 or uint8 data to int8 of the calibrated range, which must be given.

    uint8 data is first brought to int8. ``fix_gamma`` is honoured, as in the float operator. (MXNet 1.9.1 ignores it.)
    """
    kind = ranges.expect(g, data, "data", INT8, UINT8)
    calib = ranges.calibrated(g, a.min_calib_range, a.max_calib_range)
    if calib is None:
        raise AttributeValueError(
            "a quantized batch normalization needs the range of its output",
            where=g.node,
            expected="min_calib_range and max_calib_range",
            next="calibrate the graph",
        )
    if g.dtype(gamma) != np.float32:
        raise DTypeError("gamma, beta and statistics are float32", where=g.node, got=g.dtype(gamma).name)
    low, high = ranges.constant_range(g, calib)
    statistics = (gamma, beta, moving_mean, moving_var)
    if ranges.known(g, (min_data, max_data)):
        plain = BatchNormAttrs(eps=a.eps, fix_gamma=a.fix_gamma, axis=a.axis)
        value = batch_norm(g, plain, ranges.real(g, data, min_data, max_data), *statistics)
        assert isinstance(value, Value)
        return ranges.integers(g, value, INT8, low, high), low, high
    x = g.cast(data, np.float32)
    if kind == UINT8:
        x = g.cast(ranges.saturated(g, g("Mul", x, np.float32(127.5) / np.float32(255.5)), INT8), np.float32)
    rank, axis = g.rank(data), g.axis(data, a.axis)
    with g.folding():
        inverse = g("Div", np.float32(1), g("Sqrt", g("Add", moving_var, a.eps)))
        if not a.fix_gamma:
            inverse = g("Mul", gamma, inverse)
        reach = ranges.largest(g, low, high)
        weight = g("Mul", inverse, g("Div", ranges.largest(g, min_data, max_data), reach))
        shift = g("Sub", beta, g("Mul", moving_mean, inverse))
        shift = g("Mul", shift, g("Div", np.float32(127.5), reach))
        weight, shift = g.per_channel(weight, rank, axis), g.per_channel(shift, rank, axis)
    return ranges.saturated(g, g("Add", g("Mul", x, weight), shift), INT8), low, high


@op(
    "_contrib_quantized_batch_norm_relu",
    inputs=("data", "gamma", "beta", "moving_mean", "moving_var", "min_data", "max_data"),
    outputs=OUTPUTS,
    named_outputs=True,
    aux=("moving_mean", "moving_var"),
    param_shapes=_bn_shapes,
    param_types=_bn_types,
    default_init={"moving_mean": '["zero", {}]', "moving_var": '["one", {}]'},
)
def quantized_batch_norm_relu(
    g: Emit,
    a: BatchNormAttrs,
    data: Value,
    gamma: Value,
    beta: Value,
    moving_mean: Value,
    moving_var: Value,
    min_data: Value,
    max_data: Value,
) -> Triple:
    """Batch normalization of int8 or uint8 data and ReLU (MXNet 2.0), to int8 of the calibrated range."""
    q, low, high = quantized_batch_norm(g, a, data, gamma, beta, moving_mean, moving_var, min_data, max_data)
    if not ranges.known(g, (min_data, max_data)):
        return relu(g, NoAttrs(), q), low, high
    return ranges.integers(g, relu(g, NoAttrs(), ranges.real(g, q, low, high)), INT8, low, high), low, high
