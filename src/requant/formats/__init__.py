"""Bytes to records, arrays and models, and back: symbol JSON, ``.params``, RecordIO, ONNX, packed archives."""
