"""What an engine runs fast as INT8. An engine declares a `Scheme`; the planner and ``apply`` follow it.

The same quantizers in another form or place change speed by a factor of two on one machine, and which form is right
depends on the engine. A scheme therefore says where Quantize/Dequantize pairs must stand, not how to make them:

- **compute** operators multiply and accumulate integers: they decide whether a model gets faster.
- **support** operators have integer kernels, or fuse into a neighbour that has one, when their inputs are quantized.
- **through** operators move or select values and never make new ones: what goes in as int8 comes out as the same int8,
  so input and output share one scale.
- **fused** operators are element-wise, and an engine computes them inside the kernel that made their input; a quantizer
  between the two would break that.

Operator names are ONNX's, of the default domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Integer form of a tensor that has negative values: ``int8`` with zero point 0, an unsigned or signed byte with a zero
#: point that moves the integers over the range, or (``lopsided``) an unsigned byte with a zero point where that makes
#: the steps finer by `LOPSIDED`, else int8.
Signed = Literal["int8", "int8_asymmetric", "uint8_asymmetric", "lopsided"]
#: Width of a range beside twice its largest magnitude, below which it counts as lopsided: a gain of 0.9 decibel.
LOPSIDED = 0.9
#: Which inputs of a residual addition get a quantizer.
AddInputs = Literal["both", "one", "none"]

COMPUTE = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
THROUGH = frozenset(
    {
        "MaxPool", "GlobalMaxPool", "ReduceMax", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice",
        "Split", "Gather", "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Identity",
    }
)  # fmt: skip
POOLING = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})
ACTIVATIONS = frozenset(
    {
        "Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Softplus",
        "Gelu", "Mish", "Swish",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Scheme:
    """The INT8 forms that an engine runs fast.

    Attributes:
        name: what it is called in plans and messages.
        compute, support, through, fused: ONNX operator types, see the module's docstring.
        unsigned: tensors without negative values become uint8 with zero point 0 (one bit more than int8).
        signed: form of tensors with negative values.
        per_channel: compute operators that take one weight scale an output channel; the others take one a tensor.
        quantized_outputs: operators that run as integers only if their output is quantized too.
        add_inputs: which inputs of a residual addition are quantized; ``one`` leaves the branch that a convolution
            has just computed in its accumulators.
        int32_bias: a bias is stored as int32 with the accumulator's scale; else it stays float.
        absorbs: a quantizer with zero point 0 may stand for the Relu or Clip in front of it, which then goes.
        reduced: weights use 7 of 8 bits, because the CPU adds pairs of products in 16 bits that saturate
            (x86 without VNNI).
        shifted: operators whose output, where it has negative values, is unsigned with a zero point.
        sums_unrounded: a residual addition happens in the accumulators of the convolution that makes its first addend
            (of those that are made by convolutions), whose quantizer rounds nothing.
        float_stem: share of all multiplications up to which the convolution that reads an image stays float, in mode
            ``best``: what costs no time that shows, and takes away the largest single error.
    """

    name: str
    compute: frozenset[str] = COMPUTE
    support: frozenset[str] = frozenset({"Add", "Concat"}) | POOLING
    through: frozenset[str] = THROUGH
    fused: frozenset[str] = ACTIVATIONS
    unsigned: bool = True
    signed: Signed = "int8"
    per_channel: frozenset[str] = COMPUTE
    quantized_outputs: frozenset[str] = frozenset()
    add_inputs: AddInputs = "both"
    int32_bias: bool = True
    absorbs: bool = True
    reduced: bool = False
    shifted: frozenset[str] = frozenset()
    sums_unrounded: bool = False
    float_stem: float = 0.0

    def symmetric(self, low: float, high: float) -> bool:
        """Whether a tensor of this range is stored with zero point 0."""
        if self.unsigned and low >= 0:
            return True
        if self.signed == "lopsided":
            return max(high, 0.0) - low >= LOPSIDED * 2 * max(-low, high)
        return self.signed == "int8"


#: OpenVINO's CPU plugin: everything fuses into the convolution when both branches of an addition are quantized. Zero
#: points cost it next to nothing. Where the CPU multiplies unsigned by signed bytes (VNNI without AMX) it shifts signed
#: tensors by 128 by itself, and loses that shift behind a concatenation: wrong by half of the values' size (seen with
#: 2026.4). With a zero point in the file there is nothing to shift.
OPENVINO = Scheme("openvino", signed="lopsided", shifted=frozenset({"Concat"}), sums_unrounded=True, float_stem=0.0125)
#: ONNX Runtime's CPU provider: a node runs as integers only between Dequantize and Quantize, outputs included.
ONNXRUNTIME = Scheme(
    "onnxruntime",
    signed="uint8_asymmetric",
    quantized_outputs=frozenset({"Conv", "ConvTranspose", "Add", "Concat"}) | POOLING,
)
#: TensorRT: symmetric int8 alone, float biases, additions fused into the convolution of their unquantized branch.
TENSORRT = Scheme(
    "tensorrt",
    unsigned=False,
    add_inputs="one",
    int32_bias=False,
    absorbs=False,
)
