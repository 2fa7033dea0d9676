"""Measures of what quantization costs."""

from __future__ import annotations

import numpy as np

from requant.errors import QuantizationError
from requant.qmath.affine import Array


def sqnr(reference: Array, quantized: Array) -> float:
    """Signal to quantization noise ratio in decibels: ``10 log10(Σ ref² / Σ (ref − quantized)²)``, summed in float64.

    Returns:
        inf if the arrays are equal (or empty); -inf if only the reference is all zero; nan if there is NaN in either.

    Raises:
        QuantizationError: the shapes differ.
    """
    if np.shape(reference) != np.shape(quantized):
        raise QuantizationError(
            "arrays to compare differ in shape", got=np.shape(quantized), expected=np.shape(reference)
        )
    a = np.asarray(reference, np.float64).ravel()
    noise = a - np.asarray(quantized, np.float64).ravel()
    signal_power, noise_power = float(a @ a), float(noise @ noise)
    if noise_power == 0.0:
        return float("inf")
    if signal_power == 0.0:
        return float("-inf")
    return float(10.0 * np.log10(signal_power / noise_power))
