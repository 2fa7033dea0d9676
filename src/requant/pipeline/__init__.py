"""The roads from files to answers: load, compile, run, save; calibrate, quantize, verify.

The only place where the rooms are strung together.
"""

from __future__ import annotations

from requant.pipeline.model import Compiled, Model, load, parameters
from requant.pipeline.quantize import QuantizedModel, quantize

__all__ = ["Compiled", "Model", "QuantizedModel", "load", "parameters", "quantize"]
