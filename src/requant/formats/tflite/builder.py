"""What TFLite's operators are written into ONNX with: tensors in either order of dimensions, as integers or real.

Channels are last in TFLite and first in ONNX: a tensor of four dimensions is held channels first, and transposed where
the order shows (reshapes, outputs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from requant.errors import FormatError, UnsupportedError
from requant.formats.tflite.model import Operator, Tensor, TFLiteModel
from requant.ops.emit import OPSET, Emit, Value

IR_VERSION = 10
BATCH = "N"

_FIRST, _LAST = (0, 3, 1, 2), (0, 2, 3, 1)
_BITS8 = ("int8", "uint8")
_REAL = ("float32", "float16")


#: What to do with what is not built here.
_ELSEWHERE = "convert the file to ONNX by another tool (tf2onnx takes TFLite), and give that to requant"


class Mixed(Exception):
    """An operator mixes samples, so that the batch cannot be left open."""


Build = Callable[["Builder", Operator], None]
#: By kind, what writes an operator, and which of its inputs it reads.
BUILDERS: dict[str, tuple[Build, tuple[int, ...] | None]] = {}


def builds(*kinds: str, reads: tuple[int, ...] | None = None) -> Callable[[Build], Build]:
    """Register what writes operators of these kinds. ``reads``: numbers of the inputs that it reads; all if None."""

    def register(build: Build) -> Build:
        BUILDERS.update(dict.fromkeys(kinds, (build, reads)))
        return build

    return register


def _zero_point(tensor: Tensor, kind: np.dtype) -> np.ndarray:
    """The zero point of a tensor whose int8 numbers may be kept as uint8, 128 larger, which ONNX Runtime needs."""
    return tensor.zero_point + 128 if tensor.dtype == "int8" and kind == np.uint8 else tensor.zero_point


class Builder:
    """One graph that is being written.

    Attributes:
        g: what writes ONNX nodes.
        batch: dimension 0 is the batch, and stays open.
    """

    def __init__(self, model: TFLiteModel, batch: bool) -> None:
        self.model, self.batch, self.g = model, batch, Emit()
        self._held: dict[tuple[int, bool], Value] = {}  # as the file has it: integers where it is quantized
        self._reals: dict[tuple[int, bool], Value] = {}
        self.makers = {i: op for op in model.operators for i in op.outputs}

    def build(self) -> ir.Model:
        """The whole graph."""
        g, model = self.g, self.model
        inputs = []
        for i in model.inputs:
            tensor = model.tensors[i]
            self.check_type(tensor)
            dims: list[int | str | None] = list(tensor.shape)
            if self.batch:
                dims[0] = BATCH
            inputs.append(g.input(tensor.name or "input", dims, tensor.dtype))
            self.hold(i, inputs[-1], first=False)
        for op in self._needed():
            if op.kind not in BUILDERS:
                raise UnsupportedError(
                    f"requant does not build the TFLite operator {op.kind}",
                    where=f"{model.source}: {model.name(op)!r}",
                    got=", ".join(f"{t.dtype} {t.shape}" for t in map(self.tensor, op.inputs) if t is not None),
                    expected="one of " + ", ".join(sorted(BUILDERS)),
                    next=_ELSEWHERE,
                )
            g.node, g.mx_op = model.name(op), op.kind
            BUILDERS[op.kind][0](self, op)
        g.node = g.mx_op = ""
        outputs = [self._output(i) for i in model.outputs]
        read = g.needed(outputs)
        used = {id(v) for node in read for v in node.inputs if v is not None}
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=read,
            initializers=[v for v in g.initializers.values() if id(v) in used],
            opset_imports={"": OPSET},
            name=model.source.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".tflite") or "model",
        )
        return ir.Model(graph, ir_version=IR_VERSION, producer_name="requant")

    def _needed(self) -> list[Operator]:
        """The operators that the outputs depend on, in the order of the file."""
        wanted, stack, known = set(), list(self.model.outputs), set(self.model.inputs)
        while stack:
            op = self.makers.get(i := stack.pop())
            if op is None or i in known:
                continue
            known.add(i)
            if id(op) not in wanted:
                wanted.add(id(op))
                reads = BUILDERS.get(op.kind, (None, None))[1]
                stack += op.inputs if reads is None else [op.inputs[k] for k in reads if k < len(op.inputs)]
        return [op for op in self.model.operators if id(op) in wanted]

    def _output(self, index: int) -> Value:
        tensor = self.model.tensors[index]
        out = self.g("Identity", self.held(index, first=False))
        out.name = self.g.unique(tensor.name or "output")
        return out

    # -- tensors -----------------------------------------------------------------------------------------------------

    def tensor(self, index: int) -> Tensor | None:
        """The record of a tensor; None for an input that is left out."""
        return None if index < 0 else self.model.tensors[index]

    def given(self, op: Operator, which: int) -> Tensor:
        """The record of an operator's input that must be there."""
        found = self.tensor(op.inputs[which]) if which < len(op.inputs) else None
        if found is None:
            raise FormatError(
                f"operator {op.kind} lacks input {which}", where=f"{self.model.source}: {self.model.name(op)!r}"
            )
        return found

    def constant(self, op: Operator, which: int) -> np.ndarray:
        """An operator's input that must be a constant."""
        tensor = self.given(op, which)
        if tensor.data is None:
            raise self.refuse(op, f"its input {tensor.name!r} is computed, not a constant")
        return tensor.data

    def numbers(self, op: Operator, which: int) -> np.ndarray:
        """An operator's input that must be a constant of integers: axes, pads, an order of dimensions."""
        found = self.constant(op, which)
        if found.dtype.kind not in "iu":
            raise self.refuse(op, f"its input {which} is {found.dtype.name}, not integers")
        return found.astype(np.int64)

    def refuse(self, op: Operator, why: str) -> UnsupportedError:
        """An error to raise: this form of an operator is not built."""
        return UnsupportedError(
            f"this {op.kind} cannot be built: {why}",
            where=f"{self.model.source}: {self.model.name(op)!r}",
            next=_ELSEWHERE,
        )

    def check_type(self, tensor: Tensor) -> None:
        """Raise UnsupportedError for data that no engine here computes with."""
        several = tensor.data is None and tensor.scale.size > 1
        if tensor.dtype in (*_REAL, "int32", "int64") or (tensor.dtype in _BITS8 and not several):
            return
        raise UnsupportedError(
            "activations with one scale a channel are not built" if several else "this data type is not built",
            where=f"{self.model.source}: tensor {tensor.name!r}",
            got=tensor.dtype,
            expected="int8 or uint8 with a scale, or float32",
            next=_ELSEWHERE,
        )

    def hold(self, index: int, value: Value, first: bool) -> None:
        """Keep what a tensor is, integers where it is quantized; ``first``: channels are first."""
        self._held[index, first and len(self.model.tensors[index].shape) == 4] = value

    def held(self, index: int, first: bool) -> Value:
        """A tensor as it is, in one order of dimensions or the other (which differ for four of them)."""
        tensor = self.model.tensors[index]
        first = first and len(tensor.shape) == 4
        if (index, first) not in self._held:
            if (index, not first) in self._held:
                made = self.g.transpose(self._held[index, not first], _FIRST if first else _LAST)
            elif tensor.data is not None:
                self.check_type(tensor)
                data = tensor.data.transpose(_FIRST) if first else tensor.data
                made = self.g.parameter(tensor.name or "constant", np.ascontiguousarray(data))
            else:
                raise FormatError("a tensor is read before it is made", where=f"{self.model.source}: {tensor.name!r}")
            self._held[index, first] = made
        return self._held[index, first]

    def real(self, index: int, first: bool = False) -> Value:
        """The real numbers of a tensor."""
        tensor = self.model.tensors[index]
        first = first and len(tensor.shape) == 4
        if (index, first) not in self._reals:
            value = self.held(index, first)
            if index in self.model.inputs and self.g.dtype(value) == np.int8:
                value = self.g.cast(self.g("Add", self.g.cast(value, np.int32), 128), np.uint8)
            axis = _FIRST.index(tensor.axis) if first and tensor.scale.size > 1 else None
            self._reals[index, first] = (
                self.restored(value, tensor, axis) if tensor.quantized else self._as_float(value)
            )
        return self._reals[index, first]

    def rounded(self, index: int) -> Value:
        """The real numbers of a tensor, channels first, of integers that engines really round to.

        OpenVINO computes convolution, quantizer and sum in one kernel and leaves out the rounding in between. A pooling
        over single positions keeps them apart.
        """
        tensor, maker = self.model.tensors[index], self.makers.get(index)
        if not tensor.quantized or maker is None or maker.kind not in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            return self.real(index, first=True)
        picked = self.g("MaxPool", self.held(index, first=True), kernel_shape=[1, 1])
        return self.restored(picked, tensor)

    def _as_float(self, value: Value) -> Value:
        if self.g.dtype(value).kind != "f":
            raise UnsupportedError(
                "integers without a scale stand for no real numbers",
                where=f"{self.model.source}: tensor {value.name!r}",
                got=self.g.dtype(value).name,
            )
        return self.g.cast(value, np.float32)

    def restored(self, value: Value, tensor: Tensor, axis: int | None = None) -> Value:
        """``scale × (value − zero point)``; ``axis`` counts in the value's own order."""
        several = tensor.scale.size > 1
        where = tensor.axis if axis is None else axis
        scale, zero = self._params(tensor, self.g.dtype(value))
        return self.g("DequantizeLinear", value, scale, zero, axis=where if several else None)

    def _params(self, tensor: Tensor, kind: np.dtype) -> tuple[Value, Value]:
        """Scale and zero point as constants, for integers of one type or the other."""
        scale, zero, whole = tensor.scale.astype(np.float32), _zero_point(tensor, kind), np.iinfo(kind)
        if not whole.min <= int(zero.min()) <= int(zero.max()) <= whole.max:
            raise FormatError("a zero point lies outside its type", where=f"{self.model.source}: {tensor.name!r}")
        if scale.size == 1:
            scale, zero = scale.reshape(()), zero.reshape(())
        return self.g.const(scale), self.g.const(zero.astype(kind))

    def integers(self, x: Value, tensor: Tensor, kind: np.dtype) -> Value:
        """Real numbers as integers of a tensor's scale, in one 8-bit type or the other."""
        return self.g("QuantizeLinear", x, *self._params(tensor, kind))

    def put(self, op: Operator, x: Value, first: bool, activation: str = "") -> None:
        """Real numbers become the operator's output: activation, then integers if the tensor has them."""
        index = op.outputs[0]
        tensor = self.model.tensors[index]
        self.check_type(tensor)
        if len(tensor.shape) != self.g.rank(x):
            raise FormatError(
                f"operator {op.kind} makes another rank than its output has",
                where=f"{self.model.source}: {tensor.name!r}",
                got=self.g.rank(x),
                expected=tensor.shape,
            )
        x = self._activated(op, x, activation, tensor)
        if tensor.quantized and tensor.dtype in _BITS8:
            x = self.integers(x, tensor, np.dtype(tensor.dtype if index in self.model.outputs else np.uint8))
        elif tensor.dtype != "float32":
            raise self.refuse(op, f"its output is {tensor.dtype}, not float32, nor int8 or uint8 with a scale")
        self.hold(index, x, first)

    def _activated(self, op: Operator, x: Value, activation: str, tensor: Tensor) -> Value:
        """The fused activation, except what saturation does anyway."""
        ends = {"": (None, None), "RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}.get(activation)
        if ends is None:
            if activation != "TANH":
                raise self.refuse(op, f"its activation is {activation}")
            return self.g("Tanh", x)
        low, high = ends
        if tensor.quantized:
            whole, scale, zero = np.iinfo(tensor.dtype), float(tensor.scale[0]), int(tensor.zero_point[0])
            low = None if low is not None and round(low / scale) + zero <= whole.min else low
            high = None if high is not None and round(high / scale) + zero >= whole.max else high
        if low == 0.0 and high is None:
            return self.g("Relu", x)
        if low is None and high is None:
            return x
        return self.g("Clip", x, *(None if end is None else np.float32(end) for end in (low, high)))

    def sizes(self, op: Operator, which: int = 0) -> tuple[int, int]:
        """Height and width of an input of four dimensions."""
        shape = self.given(op, which).shape
        if len(shape) != 4:
            raise FormatError(
                f"{op.kind} takes four dimensions", where=f"{self.model.source}: {self.model.name(op)!r}", got=shape
            )
        return shape[1], shape[2]

    def mixes(self) -> None:
        """Say that an operator mixes samples."""
        if self.batch:
            raise Mixed

    def sample_dims(self, shape: Sequence[int]) -> list[int]:
        """A shape of the file with its batch left to be copied, where that is open."""
        if not self.batch:
            return list(shape)
        if not shape or shape[0] != 1:
            raise Mixed
        return [0, *shape[1:]]
