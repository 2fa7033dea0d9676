"""Special functions: erf and its inverse, the gamma function and its logarithm."""

from __future__ import annotations

import math

import numpy as np

from requant.ops.emit import Emit, Value
from requant.ops.unary import unary

#: Lanczos' approximation of the gamma function for g = 5, with six terms (Lanczos 1964; the coefficients are those
#: that Press et al. give in Numerical Recipes): relative error below 2e-10 for positive arguments.
_LANCZOS_G = 5.0
_LANCZOS = (
    76.18009172947146,
    -86.50532032941677,
    24.01409824083091,
    -1.231739572450155,
    0.1208650973866179e-2,
    -0.5395239384953e-5,
)
_LANCZOS_FIRST = 1.000000000190015

#: Γ of anything larger does not fit float32.
_GAMMA_OVERFLOWS = 36.0

#: Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011), single precision: polynomials in w - 2.5
#: (centre) and √w - 3 (tails), where w = -log(1 - x²).
_ERFINV_CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_ERFINV_TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)


@unary("erf", "_npx_erf", "_npi_erf", double=False)
def erf(g: Emit, x: Value) -> Value:
    """The error function."""
    return g("Erf", x)


def _polynomial(g: Emit, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Horner's rule, highest power first."""
    out = g.const(coefficients[0], x)
    for c in coefficients[1:]:
        out = g("Add", g("Mul", out, x), c)
    return out


@unary("erfinv", "_npx_erfinv", "_npi_erfinv", half=False, double=False)
def erfinv(g: Emit, x: Value) -> Value:
    """The inverse of erf on (-1, 1): ±∞ at ±1, NaN beyond. Relative error about 4e-7."""
    one = g.const(1, x)
    w = g("Neg", g("Log", g("Mul", g("Sub", one, x), g("Add", x, one))))
    centre = _polynomial(g, g("Sub", w, 2.5), _ERFINV_CENTRE)
    tail = _polynomial(g, g("Sub", g("Sqrt", w), 3.0), _ERFINV_TAIL)
    out = g("Mul", g("Where", g("Less", w, 5.0), centre, tail), x)
    return g("Where", g("Equal", g("Abs", x), one), g("Mul", x, np.inf), out)


def _lanczos(g: Emit, z: Value) -> tuple[Value, Value]:
    """For Γ(z) = √(2π) · series · t^(z - 0.5) · e^(-t) with z >= 0.5: the series and t = z + 4.5."""
    series = g.const(_LANCZOS_FIRST, z)
    for i, c in enumerate(_LANCZOS):
        series = g("Add", series, g("Div", g.const(c, z), g("Add", z, float(i))))
    return series, g("Add", z, _LANCZOS_G - 0.5)


def _reflected(g: Emit, x: Value) -> tuple[Value, Value, Value, Value]:
    """Whether x < 0.5, the argument z >= 0.5 to compute with (1 - x there), floor(x), and sin(π · fraction of x)."""
    below = g("Less", x, 0.5)
    z = g("Where", below, g("Sub", g.const(1, x), x), x)
    low = g("Floor", x)
    return below, z, low, g("Sin", g("Mul", g("Sub", x, low), math.pi))


@unary("gamma", "_npx_gamma", "_sparse_gamma", half=False, double=False)
def gamma(g: Emit, x: Value) -> Value:
    """The gamma function; NaN at negative integers.

    Lanczos' approximation, and below 0.5 the reflection Γ(x) = π / (sin(πx) · Γ(1 - x)).
    """
    below, z, low, sine = _reflected(g, x)
    series, t = _lanczos(g, z)
    # The power is split in two factors: t^(z - 0.5) overflows long before Γ does.
    root = g("Pow", t, g("Mul", g("Sub", z, 0.5), 0.5))
    value = g("Mul", g("Mul", g("Mul", root, g("Exp", g("Neg", t))), root), g("Mul", series, math.sqrt(2 * math.pi)))
    odd = g("Sub", low, g("Mul", g("Floor", g("Mul", low, 0.5)), 2.0))
    turn = g("Sub", g.const(1, x), g("Add", odd, odd))
    mirrored = g("Mul", turn, g("Div", g.const(math.pi, x), g("Mul", sine, value)))
    out = g("Where", below, mirrored, value)
    pole = g("And", g("Equal", x, low), g("Less", x, g.const(0, x)))
    out = g("Where", pole, g.const(np.nan, x), out)
    return g("Where", g("Greater", x, _GAMMA_OVERFLOWS), g.const(np.inf, x), out)


@unary("gammaln", "_npx_gammaln", "_sparse_gammaln", half=False, double=False)
def gammaln(g: Emit, x: Value) -> Value:
    """log|Γ(x)|; ∞ at 0 and negative integers."""
    below, z, _, sine = _reflected(g, x)
    series, t = _lanczos(g, z)
    scaled = g("Log", g("Mul", series, math.sqrt(2 * math.pi)))
    value = g("Add", g("Sub", g("Mul", g("Sub", z, 0.5), g("Log", t)), t), scaled)
    return g("Where", below, g("Sub", g("Sub", g.const(math.log(math.pi), x), g("Log", sine)), value), value)
