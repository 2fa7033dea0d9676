"""requant: run trained MXNet, Gluon and ONNX models today, as INT8, with no MXNet installed."""

from __future__ import annotations

__version__ = "0.1.0"
