"""Small TFLite files, written byte by byte, and what their networks compute, in float64."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

#: Of a table: field number → (struct format, number), bytes or text, (format, numbers), a table, or tables.
Fields = Mapping[int, Any]

TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "string": 5, "int16": 7, "int8": 9, "int4": 17}
#: Operators: number, and the fields of their options.
KINDS: dict[str, tuple[int, dict[str, tuple[int, str]]]] = {
    "ADD": (0, {"activation": (0, "b")}),
    "AVERAGE_POOL_2D": (
        1,
        {
            "padding": (0, "b"),
            "stride_w": (1, "i"),
            "stride_h": (2, "i"),
            "filter_w": (3, "i"),
            "filter_h": (4, "i"),
            "activation": (5, "b"),
        },
    ),
    "CONCATENATION": (2, {"axis": (0, "i"), "activation": (1, "b")}),
    "CONV_2D": (
        3,
        {
            "padding": (0, "b"),
            "stride_w": (1, "i"),
            "stride_h": (2, "i"),
            "activation": (3, "b"),
            "dilation_w": (4, "i"),
            "dilation_h": (5, "i"),
        },
    ),
    "DEPTHWISE_CONV_2D": (
        4,
        {
            "padding": (0, "b"),
            "stride_w": (1, "i"),
            "stride_h": (2, "i"),
            "multiplier": (3, "i"),
            "activation": (4, "b"),
            "dilation_w": (5, "i"),
            "dilation_h": (6, "i"),
        },
    ),
    "DEQUANTIZE": (6, {}),
    "FULLY_CONNECTED": (9, {"activation": (0, "b"), "keep_num_dims": (2, "?")}),
    "LOGISTIC": (14, {}),
    "LSTM": (16, {}),
    "MUL": (18, {"activation": (0, "b")}),
    "RELU": (19, {}),
    "RELU6": (21, {}),
    "RESHAPE": (22, {}),
    "SOFTMAX": (25, {"beta": (0, "f")}),
    "TANH": (28, {}),
    "CUSTOM": (32, {}),
    "PAD": (34, {}),
    "TRANSPOSE": (39, {}),
    "MEAN": (40, {"keep_dims": (0, "?")}),
    "SUB": (41, {"activation": (0, "b")}),
    "LEAKY_RELU": (98, {"alpha": (0, "f")}),
    "QUANTIZE": (114, {}),
    "HARD_SWISH": (117, {}),
}
KINDS["MAX_POOL_2D"] = (17, KINDS["AVERAGE_POOL_2D"][1])
ACTIVATIONS = {"": 0, "RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3, "TANH": 4}
PADDINGS = {"SAME": 0, "VALID": 1}


class Bytes:
    """A FlatBuffer, written from the front: each object before those that it points to."""

    def __init__(self, root: Fields, identifier: bytes = b"TFL3") -> None:
        self.out = bytearray(8)
        self.out[4:8] = identifier
        struct.pack_into("<I", self.out, 0, self.table(root))

    def _align(self) -> None:
        self.out += bytes(-len(self.out) % 8)

    def table(self, fields: Fields) -> int:
        """Write a table of these fields. Returns its place."""
        self._align()
        slots, order = max(fields, default=-1) + 1, sorted(fields)
        entries = [8 + 8 * order.index(i) if i in fields else 0 for i in range(slots)]
        table = len(self.out)
        self.out += struct.pack(f"<{2 + slots}H", 4 + 2 * slots, 8 + 8 * len(fields), *entries)
        self._align()
        at = len(self.out)
        self.out += struct.pack("<i", at - table) + bytes(4 + 8 * len(fields))
        for i, number in enumerate(order):
            place, value = at + 8 + 8 * i, fields[number]
            if isinstance(value, tuple) and isinstance(value[1], (int, float)):
                struct.pack_into("<" + value[0], self.out, place, value[1])
            else:
                target = self._object(value)
                struct.pack_into("<I", self.out, place, target - place)
        return at

    def _object(self, value: Any) -> int:
        if isinstance(value, Mapping):
            return self.table(value)
        if isinstance(value, str):
            return self._vector(len(value.encode()), value.encode() + b"\0")
        if isinstance(value, bytes):
            return self._vector(len(value), value)
        if isinstance(value, tuple):
            return self._vector(len(value[1]), struct.pack(f"<{len(value[1])}{value[0]}", *value[1]))
        at = self._vector(len(value), bytes(4 * len(value)))
        for i, one in enumerate(value):
            place = at + 4 + 4 * i
            struct.pack_into("<I", self.out, place, self.table(one) - place)
        return at

    def _vector(self, count: int, content: bytes) -> int:
        self._align()
        self.out += bytes(4)  # so that what follows the count is aligned
        self.out += struct.pack("<I", count) + content
        return len(self.out) - len(content) - 4


@dataclass
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    data: np.ndarray | None
    scale: np.ndarray
    zero: np.ndarray
    axis: int

    def real(self, q: np.ndarray) -> np.ndarray:
        """What integers stand for."""
        if not self.scale.size:
            return q.astype(np.float64)
        shape = [1] * q.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        return (q.astype(np.float64) - self.zero.reshape(shape)) * self.scale.astype(np.float64).reshape(shape)

    def stored(self, real: np.ndarray) -> np.ndarray:
        """Real numbers as the tensor holds them; halves away from zero, as TFLite rounds."""
        if not self.scale.size:
            return real.astype(self.dtype)
        y = real / float(self.scale[0])
        q = np.sign(y) * np.floor(np.abs(y) + 0.5) + self.zero[0]
        whole = np.iinfo(self.dtype)
        return np.clip(q, whole.min, whole.max).astype(self.dtype)


@dataclass
class File:
    """A network that is being described."""

    tensors: list[Tensor] = field(default_factory=list)
    operators: list[tuple[str, list[int], list[int], dict[str, Any]]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "int8",
        data: np.ndarray | None = None,
        scale: Sequence[float] | np.ndarray = (),
        zero: Sequence[int] = (),
        axis: int = 0,
    ) -> int:
        """Add a tensor; ``data`` makes it a constant."""
        scales = np.asarray(scale, np.float32)
        zeros = np.asarray(zero if len(zero) else np.zeros(len(scales)), np.int64)
        self.tensors.append(Tensor(name, tuple(shape), dtype, data, scales, zeros, axis))
        return len(self.tensors) - 1

    def op(self, kind: str, inputs: Sequence[int], output: int, **options: Any) -> int:
        """Add an operator with one output, which is returned."""
        self.operators.append((kind, list(inputs), [output], options))
        return output

    def bytes(self) -> bytes:
        """The file."""
        kinds = list(dict.fromkeys(kind for kind, *_ in self.operators))
        buffers: list[Fields] = [{}]
        tensors: list[Fields] = []
        for t in self.tensors:
            which = 0
            if t.data is not None:
                which = len(buffers)
                buffers.append({0: np.ascontiguousarray(t.data).tobytes()})
            fields: dict[int, Any] = {0: ("i", list(t.shape)), 1: ("B", TYPES[t.dtype]), 2: ("I", which), 3: t.name}
            if t.scale.size:
                fields[4] = {2: ("f", t.scale.tolist()), 3: ("q", t.zero.tolist()), 6: ("i", t.axis)}
            tensors.append(fields)
        operators = []
        for kind, inputs, outputs, options in self.operators:
            words = {"activation": ACTIVATIONS, "padding": PADDINGS}
            own = {
                KINDS[kind][1][n][0]: (KINDS[kind][1][n][1], words[n][v] if n in words else v)
                for n, v in options.items()
            }
            operators.append({0: ("I", kinds.index(kind)), 1: ("i", inputs), 2: ("i", outputs), 4: own})
        graph = {0: tensors, 1: ("i", self.inputs), 2: ("i", self.outputs), 3: operators, 4: "main"}
        codes = [{0: ("b", KINDS[k][0]), 1: "Mine", 3: ("i", KINDS[k][0])} for k in kinds]
        return bytes(Bytes({0: ("I", 3), 1: codes, 2: [graph], 3: "test", 4: buffers}).out)

    def run(self, *inputs: np.ndarray) -> list[np.ndarray]:
        """What the network computes: layers on real numbers, each result rounded as its tensor holds it."""
        held: dict[int, np.ndarray] = dict(zip(self.inputs, inputs))
        for kind, sources, (out,), options in self.operators:
            reals = []
            for i in sources:
                data = held.get(i, self.tensors[i].data)
                assert data is not None
                reals.append(self.tensors[i].real(data))
            y = LAYERS[kind](reals, options, self.tensors[out])
            low, high = {"RELU": (0, np.inf), "RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1)}.get(
                options.get("activation", ""), (-np.inf, np.inf)
            )
            held[out] = self.tensors[out].stored(np.clip(y, low, high))
        return [held[i] for i in self.outputs]


def windows(x: np.ndarray, kernel: tuple[int, int], o: Mapping[str, Any], fill: float) -> np.ndarray:
    """Windows of (N, H, W, C): (N, rows, columns, kh, kw, C)."""
    stride, dilate = (o["stride_h"], o["stride_w"]), (o.get("dilation_h", 1), o.get("dilation_w", 1))
    wide = [d * (k - 1) + 1 for d, k in zip(dilate, kernel)]
    pads = [(0, 0)]
    for n, s, w in zip(x.shape[1:3], stride, wide):
        whole = max((math.ceil(n / s) - 1) * s + w - n, 0) if o["padding"] == "SAME" else 0
        pads.append((whole // 2, whole - whole // 2))
    x = np.pad(x, [*pads, (0, 0)], constant_values=fill)
    rows, columns = ((n - w) // s + 1 for n, w, s in zip(x.shape[1:3], wide, stride))
    found = np.empty((x.shape[0], rows, columns, *kernel, x.shape[3]))
    for i, j in np.ndindex(rows, columns):
        top, left = i * stride[0], j * stride[1]
        found[:, i, j] = x[:, top : top + wide[0] : dilate[0], left : left + wide[1] : dilate[1]]
    return found


def _conv(xs: list[np.ndarray], o: Mapping[str, Any], out: Tensor) -> np.ndarray:
    parts = windows(xs[0], xs[1].shape[1:3], o, 0.0)
    return np.einsum("nrchwi,ohwi->nrco", parts, xs[1]) + (xs[2] if len(xs) > 2 else 0)


def _depthwise(xs: list[np.ndarray], o: Mapping[str, Any], out: Tensor) -> np.ndarray:
    parts = windows(xs[0], xs[1].shape[1:3], o, 0.0)
    parts = np.repeat(parts, xs[1].shape[3] // parts.shape[-1], axis=-1)
    return np.einsum("nrchwi,hwi->nrci", parts, xs[1][0]) + (xs[2] if len(xs) > 2 else 0)


def _pool(xs: list[np.ndarray], o: Mapping[str, Any], out: Tensor, mean: bool) -> np.ndarray:
    parts = windows(xs[0], (o["filter_h"], o["filter_w"]), o, np.nan)
    return np.nanmean(parts, axis=(3, 4)) if mean else np.nanmax(parts, axis=(3, 4))


def _softmax(x: np.ndarray, beta: float) -> np.ndarray:
    e = np.exp(beta * (x - x.max(-1, keepdims=True)))
    return e / e.sum(-1, keepdims=True)


def _dense(xs: list[np.ndarray], o: Mapping[str, Any], out: Tensor) -> np.ndarray:
    flat = xs[0].reshape(-1, xs[1].shape[1]) @ xs[1].T + (xs[2] if len(xs) > 2 else 0)
    return flat.reshape(*xs[0].shape[:-1], -1) if o.get("keep_num_dims") else flat


LAYERS: dict[str, Any] = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "AVERAGE_POOL_2D": lambda xs, o, t: _pool(xs, o, t, True),
    "MAX_POOL_2D": lambda xs, o, t: _pool(xs, o, t, False),
    "FULLY_CONNECTED": _dense,
    "ADD": lambda xs, o, t: xs[0] + xs[1],
    "SUB": lambda xs, o, t: xs[0] - xs[1],
    "MUL": lambda xs, o, t: xs[0] * xs[1],
    "CONCATENATION": lambda xs, o, t: np.concatenate(xs, o["axis"]),
    "SOFTMAX": lambda xs, o, t: _softmax(xs[0], o["beta"]),
    "RESHAPE": lambda xs, o, t: xs[0].reshape(-1, *t.shape[1:]),
    "MEAN": lambda xs, o, t: xs[0].mean(tuple(xs[1].astype(int)), keepdims=o.get("keep_dims", False)),
    "PAD": lambda xs, o, t: np.pad(xs[0], xs[1].astype(int)),
    "TRANSPOSE": lambda xs, o, t: xs[0].transpose(xs[1].astype(int)),
    "LOGISTIC": lambda xs, o, t: 1 / (1 + np.exp(-xs[0])),
    "TANH": lambda xs, o, t: np.tanh(xs[0]),
    "RELU": lambda xs, o, t: np.maximum(xs[0], 0),
    "RELU6": lambda xs, o, t: np.clip(xs[0], 0, 6),
    "LEAKY_RELU": lambda xs, o, t: np.where(xs[0] < 0, o["alpha"] * xs[0], xs[0]),
    "HARD_SWISH": lambda xs, o, t: xs[0] * np.clip(xs[0] + 3, 0, 6) / 6,
    "QUANTIZE": lambda xs, o, t: xs[0],
    "DEQUANTIZE": lambda xs, o, t: xs[0],
}


def small(dtype: str = "int8", batch: int = 1) -> File:
    """A residual network with zero points of all kinds: conv, depthwise, sum, pools, concat, fc, softmax."""
    f, random = File(), np.random.RandomState(7)
    low = -128 if dtype == "int8" else 0

    def act(name: str, shape: Sequence[int], scale: float, zero: int) -> int:
        if dtype == "float32":
            return f.tensor(name, shape, dtype)
        return f.tensor(name, shape, dtype, scale=[scale], zero=[zero if dtype == "int8" else zero + 128])

    def constants(
        name: str, shape: Sequence[int], into: int, axis: int, size: float, channels: int = 0
    ) -> tuple[int, int]:
        w = random.randn(*shape) * size
        b = random.randn(shape[axis]) * 0.3
        if dtype == "float32":
            return (
                f.tensor(f"{name}_w", shape, dtype, w.astype(np.float32)),
                f.tensor(f"{name}_b", [shape[axis]], dtype, b.astype(np.float32)),
            )
        over = tuple(i for i in range(len(shape)) if i != axis) if channels else None
        step = np.atleast_1d(np.abs(w).max(axis=over) / 127).astype(np.float32)
        spread = step.reshape([-1 if i == axis else 1 for i in range(len(shape))]) if channels else step[0]
        units = f.tensors[into].scale[0] * step
        return (
            f.tensor(f"{name}_w", shape, "int8", np.rint(w / spread).astype(np.int8), step, axis=axis),
            f.tensor(f"{name}_b", [shape[axis]], "int32", np.rint(b / units).astype(np.int32), units),
        )

    x = act("image", [batch, 9, 8, 3], 0.02, -5)
    f.inputs = [x]
    same, valid = {"padding": "SAME", "stride_h": 1, "stride_w": 1}, {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    a = act("first", [batch, 5, 4, 8], 0.02, low)
    a = f.op(
        "CONV_2D",
        [x, *constants("conv0", [8, 3, 3, 3], x, 0, 0.3, 1)],
        a,
        padding="SAME",
        stride_h=2,
        stride_w=2,
        activation="RELU6",
    )
    b = f.op(
        "DEPTHWISE_CONV_2D",
        [a, *constants("depth", [1, 3, 3, 8], a, 3, 0.4, 1)],
        act("depthwise", [batch, 5, 4, 8], 0.05, 9),
        **same,
        multiplier=1,
    )
    c = f.op(
        "CONV_2D", [b, *constants("conv1", [8, 3, 3, 8], b, 0, 0.2)], act("third", [batch, 5, 4, 8], 0.04, -20), **same
    )
    d = f.op("ADD", [a, c], act("sum", [batch, 5, 4, 8], 0.05, -100), activation="RELU")
    # 3 × 3 numbers: their mean is never a tie, which TFLite and engines would round differently.
    e = f.op("MAX_POOL_2D", [d], act("pooled", [batch, 3, 3, 8], 0.05, -100), **valid, filter_h=3, filter_w=2)
    g = f.op("AVERAGE_POOL_2D", [e], act("means", [batch, 1, 1, 8], 0.05, -100), **valid, filter_h=3, filter_w=3)
    h = f.op("CONCATENATION", [g, g], act("twice", [batch, 1, 1, 16], 0.05, -100), axis=3)
    i = f.op("RESHAPE", [h], act("flat", [batch, 16], 0.05, -100))
    j = f.op("FULLY_CONNECTED", [i, *constants("fc", [5, 16], i, 0, 0.5)], act("logits", [batch, 5], 0.06, 11))
    f.outputs = [f.op("SOFTMAX", [j], act("scores", [batch, 5], 1 / 256, low), beta=1.0)]
    return f
