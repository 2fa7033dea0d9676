"""``mx.gluon.rnn``: recurrent cells and layers."""

from __future__ import annotations

from requant.mx.gluon.rnn.cell import GRUCell, HybridRecurrentCell, LSTMCell, RecurrentCell, RNNCell
from requant.mx.gluon.rnn.combined import (
    BidirectionalCell,
    DropoutCell,
    HybridSequentialRNNCell,
    ModifierCell,
    ResidualCell,
    SequentialRNNCell,
    ZoneoutCell,
)
from requant.mx.gluon.rnn.layer import GRU, LSTM, RNN

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "BidirectionalCell",
    "DropoutCell",
    "GRUCell",
    "HybridRecurrentCell",
    "HybridSequentialRNNCell",
    "LSTMCell",
    "ModifierCell",
    "RNNCell",
    "RecurrentCell",
    "ResidualCell",
    "SequentialRNNCell",
    "ZoneoutCell",
]
