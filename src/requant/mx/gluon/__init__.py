"""``mx.gluon``: blocks of a trained network."""

from __future__ import annotations

from requant.mx.gluon.block import SymbolBlock
from requant.mx.gluon.parameter import Parameter, ParameterDict

__all__ = ["Parameter", "ParameterDict", "SymbolBlock"]
