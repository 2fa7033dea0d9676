"""``Emit``: what a lowering writes ONNX with.

``g("Conv", x, w, b, strides=[1, 1])`` appends a node and returns its output value, with shape and dtype inferred at
once by ONNX's own inference, so that the next line of the lowering can ask ``g.dims(y)``. Numbers and arrays among the
inputs become initializers: a bare Python number takes the dtype of the first tensor input.

Dimensions may be symbolic (the batch). A lowering that needs a number where only a symbol is known calls ``g.static``
or ``g.dim``, which raise ``NeedsShape``; the caller then lowers again with all dimensions given.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import shape_inference

from requant.errors import DTypeError, RequantError, ShapeError
from requant.ops.folding import ON_CONSTANTS

Value = ir.Value
#: The ONNX operator set that lowerings are written for.
OPSET = 20
#: Elements of one tensor, less one: what MXNet's arrays can hold.
LARGEST = 1 << 31
#: Numbers that one constant made by a lowering may have.
MOST_MADE = 1 << 24
#: Initializers up to this many elements are shown to shape inference (shapes, axes, pads).
_SMALL = 256

_OPSET_IMPORTS = [onnx.helper.make_opsetid("", OPSET)]


def _attribute(name: str, value: object) -> ir.Attr:
    """An ONNX attribute by the Python type of its value."""
    if isinstance(value, str):
        return ir.AttrString(name, value)
    if isinstance(value, (bool, int, np.integer)):
        return ir.AttrInt64(name, int(value))
    if isinstance(value, (float, np.floating)):
        return ir.AttrFloat32(name, float(value))
    if isinstance(value, np.ndarray):
        return ir.AttrTensor(name, ir.Tensor(value))
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], str):
            return ir.AttrStrings(name, list(value))
        if any(isinstance(v, float) for v in value):
            return ir.AttrFloat32s(name, [float(v) for v in value])
        return ir.AttrInt64s(name, [int(v) for v in value])
    if isinstance(value, ir.Graph):
        return ir.AttrGraph(name, value)
    raise TypeError(f"attribute {name}: no ONNX type for {type(value).__name__}")


#: Operators whose output is like their (first) input, and those that broadcast: no need to ask ONNX for shapes.
_ALIKE = frozenset({"Abs", "Neg", "Sqrt", "Reciprocal", "Sign", "Floor", "Round", "Relu", "Clip", "Identity"})
#: Operators that ONNX before 1.18 defines by others, without a shape of their own; and one of the same shape.
_SHAPED_LIKE = {"GreaterOrEqual": "Greater", "LessOrEqual": "Less"}
_BROADCAST = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min"})


class NeedsShape(RequantError):
    """A lowering needs a dimension that is only known symbolically. Caught by whoever asked for the lowering."""


class Emit:
    """Appends ONNX nodes to a graph, with names and shapes kept true as it goes.

    Args:
        node: name of the MXNet node that is being lowered; becomes ``metadata_props["mx.node"]``.
        exact: quantized operators compute MXNet's integers bit for bit (calls on arrays). Otherwise they become what
            engines run as int8 kernels, and an integer may differ by one step where a rounding is a tie.
        training: operators that are marked ``by_mode`` compute what MXNet computes in training mode.

    Attributes:
        reals: float values of the real numbers that integers stand for: by integers and scale (the bytes of its array,
            empty for an int32 accumulator).
    """

    def __init__(self, node: str = "", *, exact: bool = False, training: bool = False) -> None:
        self.nodes: list[ir.Node] = []
        self.initializers: dict[str, Value] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Value] = {}
        self._taken: set[str] = set()
        self.node = node
        self.mx_op = ""
        self.exact = exact
        self.training = training
        self.reals: dict[tuple[Value, bytes], Value] = {}
        self._folding = False

    # -- names ---------------------------------------------------------------------------------------------------

    def unique(self, wanted: str) -> str:
        """``wanted``, or ``wanted_1`` and so on if it is taken."""
        name, k = wanted, 0
        while name in self._taken:
            k += 1
            name = f"{wanted}_{k}"
        self._taken.add(name)
        return name

    # -- values --------------------------------------------------------------------------------------------------

    def input(self, name: str, dims: Sequence[int | str | None], dtype: object) -> Value:
        """A graph input (or parameter) of that shape; a string is a symbolic dimension."""
        return ir.Value(
            name=self.unique(name),
            shape=ir.Shape(list(dims)),
            type=ir.TensorType(ir.DataType.from_numpy(np.dtype(dtype))),  # type: ignore[call-overload]
        )

    def const(self, value: object, like: Value | object | None = None, name: str | None = None) -> Value:
        """A constant. ``like`` gives the dtype: a value, a dtype or None (as numpy has it; Python ints are int64)."""
        if isinstance(like, ir.Value):
            array = np.asarray(value, dtype=self.dtype(like))
        elif like is not None:
            array = np.asarray(value, dtype=np.dtype(like))  # type: ignore[call-overload]
        else:
            array = np.asarray(value)
            if array.size == 0 and not isinstance(value, np.ndarray):
                array = array.astype(np.int64)
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (str(array.dtype), array.shape, array.tobytes()) if array.size <= _SMALL else None
        if key is not None and key in self._constants:
            return self._constants[key]
        out = self.parameter(name or (f"{self.node}/const" if self.node else "const"), array)
        if key is not None:
            self._constants[key] = out
        return out

    def parameter(self, name: str, array: np.ndarray) -> Value:
        """An initializer of that name, holding ``array``."""
        name = self.unique(name)
        tensor = ir.Tensor(array, name=name)
        out = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.initializers[name] = out
        return out

    def __call__(self, op_type: str, *inputs: Any, **attributes: Any) -> Value:
        """Append a node with one output."""
        return self.multi(op_type, 1, *inputs, **attributes)[0]

    def multi(self, op_type: str, n_outputs: int, *inputs: Any, **attributes: Any) -> tuple[Value, ...]:
        """Append a node with several outputs. None among the inputs is a left-out optional input."""
        like = next((x for x in inputs if isinstance(x, ir.Value)), None)
        values = [self._as_value(x, like) for x in inputs]
        while values and values[-1] is None:
            values.pop()
        if self._folding and all(v is None or v.const_value is not None for v in values):
            return (self._fold(op_type, values, attributes),)
        for value in values:
            if value is None or value.const_value is None or self.initializers.get(value.name or "") is value:
                continue
            value.name = self.unique(value.name or "const")
            self.initializers[value.name] = value
        base = f"{self.node}/{op_type}" if self.node else op_type
        name = self.unique(base)
        outs = [ir.Value(name=name if n_outputs == 1 else f"{name}:{i}") for i in range(n_outputs)]
        attrs = [_attribute(k, v) for k, v in attributes.items() if v is not None]
        node = ir.Node("", op_type, values, attributes=attrs, outputs=outs, name=name)
        if self.node:
            node.metadata_props["mx.node"] = self.node
        if self.mx_op:
            node.metadata_props["mx.op"] = self.mx_op
        self._infer(node)
        self.nodes.append(node)
        return tuple(outs)

    def in_float32(self, op_type: str, *inputs: Any, **attributes: Any) -> Value:
        """A node of a kind that engines have in float32 and float16 alone: other dtypes are cast around it.

        Numbers among the inputs become float32 too; integer tensors (shapes, lengths) are left as they are.
        """
        like = next(x for x in inputs if isinstance(x, ir.Value))
        dtype = self.dtype(like)
        if dtype in (np.float32, np.float16):
            return self(op_type, *inputs, **attributes)
        cast = [self.cast(x, np.float32) if isinstance(x, ir.Value) and self.dtype(x) == dtype else x for x in inputs]
        return self.cast(self(op_type, *cast, **attributes), dtype)

    @contextlib.contextmanager
    def folding(self) -> Iterator[None]:
        """Within: what depends on constants alone is computed at once.

        For arithmetic on parameters and ranges, which are constants in a graph and inputs in a call on arrays.
        """
        before, self._folding = self._folding, True
        try:
            yield
        finally:
            self._folding = before

    def _fold(self, op_type: str, values: Sequence[Value | None], attributes: dict[str, Any]) -> Value:
        """The constant that a node on constants computes; it joins the graph when a node reads it."""
        arrays = [v.const_value.numpy() for v in values if v is not None and v.const_value is not None]
        with np.errstate(all="ignore"):
            array = np.asarray(ON_CONSTANTS[op_type](*arrays, **attributes))
        tensor = ir.Tensor(np.ascontiguousarray(array).reshape(array.shape))
        return ir.Value(
            name=f"{self.node}/{op_type}" if self.node else op_type,
            shape=ir.Shape(tensor.shape),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )

    def _as_value(self, x: object, like: Value | None) -> Value | None:
        if x is None or isinstance(x, ir.Value):
            return x
        if isinstance(x, (bool, int, float)) and like is not None:
            return self.const(x, like)
        return self.const(x)

    def needed(self, outputs: Iterable[Value]) -> list[ir.Node]:
        """The nodes that ``outputs`` depend on, in order; the others are cut off from what they read.

        Quantized operators offer both integers and the real numbers they stand for; mostly one of them is read.
        """
        wanted = set(outputs)
        kept: list[ir.Node] = []
        for node in reversed(self.nodes):
            if any(out in wanted for out in node.outputs):
                wanted.update(v for v in node.inputs if v is not None)
                kept.append(node)
            else:
                for i in range(len(node.inputs)):
                    node.replace_input_with(i, None)
        self.nodes = kept[::-1]
        return self.nodes

    def _infer_quickly(self, node: ir.Node) -> bool:
        """Shape and dtype of the output of plain element-wise arithmetic; False if it is not that."""
        first = node.inputs[0] if node.inputs else None
        if first is None or first.shape is None or first.dtype is None:
            return False
        shape: ir.Shape = first.shape
        if node.op_type in _BROADCAST:
            shapes = []
            for v in node.inputs:
                if v is None or v.dtype != first.dtype or v.shape is None or not v.shape.is_static():
                    return False
                shapes.append(v.shape.numpy())
            try:
                shape = ir.Shape(np.broadcast_shapes(*shapes))
            except ValueError:
                return False  # ONNX says what is wrong
        elif node.op_type not in _ALIKE:
            return False
        node.outputs[0].type, node.outputs[0].shape = ir.TensorType(first.dtype), ir.Shape(shape)
        return True

    def _infer(self, node: ir.Node) -> None:
        if self._infer_quickly(node):
            return
        schema = onnx.defs.get_schema(_SHAPED_LIKE.get(node.op_type, node.op_type), OPSET, node.domain)
        types: dict[str, onnx.TypeProto] = {}
        data: dict[str, onnx.TensorProto] = {}
        for value in node.inputs:
            if value is None or value.name is None or value.type is None:
                continue
            proto = onnx.TypeProto()
            ir.serde.serialize_type_into(proto, value.type)
            if value.shape is not None:
                ir.serde.serialize_shape_into(proto, value.shape)
            types[value.name] = proto
            tensor = value.const_value
            if tensor is not None and tensor.size <= _SMALL:
                data[value.name] = onnx.numpy_helper.from_array(np.ascontiguousarray(tensor.numpy()), value.name)
        try:
            found = shape_inference.infer_node_outputs(
                schema, ir.serde.serialize_node(node), types, data, opset_imports=_OPSET_IMPORTS, ir_version=10
            )
        except Exception as fault:
            shown = ", ".join(f"{v.name}: {v.dtype} {v.shape}" if v is not None else "-" for v in node.inputs)
            raise ShapeError(
                f"the inputs of {self.mx_op or node.op_type} do not fit together",
                where=self.node or None,
                got=shown,
                expected=str(fault).strip().split("\n")[0],
            ) from fault
        for out in node.outputs:
            proto_found = found.get(out.name or "")
            if proto_found is None:
                continue
            out.type = ir.serde.deserialize_type_proto_for_type(proto_found)
            out.shape = ir.serde.deserialize_type_proto_for_shape(proto_found)
            self._check_size(out)

    def _check_size(self, value: Value) -> None:
        """Raise ShapeError for a tensor larger than MXNet could hold: attributes of a file are not to be trusted."""
        dims = [d for d in value.shape or () if isinstance(d, int)]
        if math.prod(dims) >= LARGEST:
            raise ShapeError(
                "the result would be too large",
                where=self.node or None,
                got=f"shape {value.shape}",
                expected=f"less than {LARGEST} elements",
            )

    def count(self, number: int, what: str, limit: int = MOST_MADE) -> int:
        """``number``, if so many numbers may be made while lowering.

        Raises:
            ShapeError: it is negative, or absurdly large.
        """
        if not 0 <= number <= limit:
            raise ShapeError(f"{what} is absurd", where=self.node or None, got=number, expected=f"0 to {limit}")
        return number

    # -- facts ---------------------------------------------------------------------------------------------------

    def dtype(self, x: Value) -> np.dtype:
        """The numpy dtype of a value."""
        if x.dtype is None:
            raise DTypeError("the data type is not known here", where=self.node, got=x.name)
        return np.dtype(x.dtype.numpy())

    def rank(self, x: Value) -> int:
        """Number of dimensions. Raises NeedsShape if not even that is known."""
        if x.shape is None:
            raise NeedsShape("the rank is not known here", where=self.node, got=x.name)
        return len(x.shape)

    def dims(self, x: Value) -> tuple[int | None, ...]:
        """The dimensions, None where symbolic."""
        self.rank(x)
        assert x.shape is not None
        return tuple(d if isinstance(d, int) else None for d in x.shape)

    def dim(self, x: Value, axis: int) -> int:
        """One dimension as a number; NeedsShape if it is symbolic."""
        d = self.dims(x)[axis]
        if d is None:
            raise NeedsShape(f"dimension {axis} is needed as a number", where=self.node, got=x.name)
        return d

    def static(self, x: Value) -> tuple[int, ...]:
        """All dimensions as numbers; NeedsShape if one is symbolic."""
        return tuple(self.dim(x, i) for i in range(self.rank(x)))

    def axis(self, x: Value, axis: int) -> int:
        """``axis`` counted from the front. Raises ShapeError if it is out of range."""
        rank = self.rank(x)
        if not -rank <= axis < rank:
            raise ShapeError("axis out of range", where=self.node, got=axis, expected=f"-{rank} <= axis < {rank}")
        return axis % rank

    def value_of(self, x: Value) -> np.ndarray | None:
        """The array behind a constant or parameter, or None."""
        return None if x.const_value is None else x.const_value.numpy()

    def set_shape(self, x: Value, dims: Iterable[int | str | ir.SymbolicDim | None]) -> Value:
        """State what inference could not find out: the shape of ``x``. A no-op where it is known already."""
        dims = list(dims)
        if x.shape is None or len(x.shape) != len(dims):
            x.shape = ir.Shape(dims)
        else:
            x.shape = ir.Shape([d if isinstance(d, int) else w for d, w in zip(x.shape, dims)])
        return x

    # -- phrases used by many lowerings ----------------------------------------------------------------------------

    def size_of(self, x: Value, axes: Sequence[int] | None = None) -> Value:
        """The sizes along ``axes`` (all, if None) as a 1-D int64 value: a constant where they are known."""
        dims = self.dims(x)
        wanted = [dims[a] for a in (range(len(dims)) if axes is None else axes)]
        if all(d is not None for d in wanted):
            return self.const(np.array(wanted, np.int64))
        shape = self("Shape", x)
        if axes is None:
            return shape
        return self("Gather", shape, np.array([a % len(dims) for a in axes], np.int64), axis=0)

    def concat_sizes(self, parts: Sequence[int | Value]) -> Value:
        """A 1-D int64 value from numbers and 1-D int64 values."""
        if all(isinstance(p, (int, np.integer)) for p in parts):
            return self.const(np.array(parts, np.int64))
        values = [self.const(np.array([p], np.int64)) if not isinstance(p, ir.Value) else p for p in parts]
        return values[0] if len(values) == 1 else self("Concat", *values, axis=0)

    def reshape(self, x: Value, dims: Sequence[int | Value]) -> Value:
        """Reshape; -1 infers, 0 copies, a 1-D int64 value gives computed sizes."""
        return self("Reshape", x, self.concat_sizes(dims))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Transpose; nothing is emitted for the identity permutation."""
        return x if list(perm) == list(range(len(perm))) else self("Transpose", x, perm=list(perm))

    def cast(self, x: Value, dtype: object) -> Value:
        """Cast; nothing is emitted where the dtype is right already."""
        target = np.dtype(dtype)  # type: ignore[call-overload]
        return x if self.dtype(x) == target else self("Cast", x, to=int(ir.DataType.from_numpy(target)))

    def slice(
        self,
        x: Value,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> Value:
        """Slice along ``axes`` (ONNX rules: negative counts from the end, large numbers mean the end)."""
        as_ints = [np.array(v, np.int64) for v in (starts, ends, axes)]
        return self("Slice", x, *as_ints, None if steps is None else np.array(steps, np.int64))

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Insert dimensions of size 1."""
        return self("Unsqueeze", x, np.array(axes, np.int64)) if axes else x

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Drop dimensions of size 1."""
        return self("Squeeze", x, np.array(axes, np.int64)) if axes else x

    def reduce(self, kind: str, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
        """``reduce("Sum", x, [1])`` and so on; no axes means all of them."""
        args = (np.array(axes, np.int64),) if axes else ()
        return self(f"Reduce{kind}", x, *args, keepdims=int(keepdims))

    def per_channel(self, v: Value, rank: int, axis: int = 1) -> Value:
        """A vector (C,) reshaped so that it broadcasts along ``axis`` of a tensor of that rank."""
        shape = [1] * rank
        shape[axis] = -1
        return self("Reshape", v, np.array(shape, np.int64))
