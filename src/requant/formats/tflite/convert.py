"""TFLite → ONNX, the same integers: every quantized tensor keeps its scale and its zero point.

Layers compute between DequantizeLinear and QuantizeLinear, which engines fuse into int8 kernels. TFLite rounds with
integer multipliers and halves away from zero, engines in float and half to even: a result may differ by one step.
"""

from __future__ import annotations

import onnx_ir as ir

import requant.formats.tflite.layers  # noqa: F401 - it registers the operators
from requant.errors import RequantError
from requant.formats.tflite.builder import Builder, Mixed
from requant.formats.tflite.model import TFLiteModel

__all__ = ["to_onnx"]


def to_onnx(model: TFLiteModel) -> ir.Model:
    """The ONNX graph of a TFLite file. Inputs and outputs keep names, order of dimensions and types.

    The batch is left open where no operator mixes samples.

    Raises:
        UnsupportedError: an operator or a data type that is not built; the message names it.
        FormatError: operators and tensors do not fit together.
    """
    alone = all(model.tensors[i].shape[:1] == (1,) and len(model.tensors[i].shape) > 1 for i in model.inputs)
    for batch in [True, False] if alone else [False]:
        try:
            return Builder(model, batch).build()
        except Mixed:
            continue
        except RequantError:
            if not batch:
                raise  # with a fixed batch it says what is wrong
    raise AssertionError("a fixed batch is never mixed")
