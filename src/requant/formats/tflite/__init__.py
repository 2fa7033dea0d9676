"""TFLite files: `read` gives their tensors and operators, `to_onnx` an ONNX graph of the same integers."""

from requant.formats.tflite.convert import to_onnx
from requant.formats.tflite.model import Operator, Tensor, TFLiteModel, read, read_bytes

__all__ = ["Operator", "TFLiteModel", "Tensor", "read", "read_bytes", "to_onnx"]
