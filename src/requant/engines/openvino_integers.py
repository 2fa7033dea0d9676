"""Integer operators as what OpenVINO runs with integer kernels, with the same integers as result.

OpenVINO computes ConvInteger and MatMulInteger in float. It has integer kernels for Conv and MatMul between quantizers,
but there it moves scales and biases around as it likes: s a + t b becomes t (s / t a + b), and s (a + b) s a + s b.
Both round otherwise; one number in forty thousand ends one step off, and in a deep network all others follow. Here
every quantizer has the step 1, so that there is nothing to move, and what stays apart is kept apart:

- sums are those of a Conv or MatMul of ``DequantizeLinear(x, 1)`` and ``DequantizeLinear(w, 1)``, with the bias as
  float: whole numbers, exact in float32 below 2^24. A Clip behind the bias keeps it from being multiplied;
- what becomes an integer is rounded by Round, through which no scale is moved, and then quantized with the step 1,
  which changes nothing more;
- a Max with the least of all numbers keeps the scale of each operand of an addition where it is;
- a quotient of few numbers (the scale of a range that a run finds) is corrected to the nearest float32.

Multiplications, additions and rounding are those of the graph, so the results equal those of the integer operators to
the bit.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from requant.passes.rewrite import (
    Array,
    constant,
    forget_names,
    initializer,
    insert_before,
    ints,
    is_default,
    scalar,
    sole_user,
    static_shape,
)
from requant.passes.rewrite import unique as free_name

_BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
_PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
#: Operators that hand on whole numbers as they are.
_MOVING = frozenset({"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Concat", "Relu"})
#: Operators that make no NaN of finite numbers of the size that scaled integers have.
_FINITE = _MOVING | {
    *("Conv", "MatMul", "Mul", "Div", "Add", "Sub", "Max", "Clip", "Round", "AveragePool", "GlobalAveragePool"),
}
#: How far back a chain of such operators is followed.
_DEPTH = 12
#: Quotients that are worth being right: scales of a tensor or of its channels.
_FEW = 4096
_LEAST = float(np.finfo(np.float32).min)


def integer_kernels(model: ir.Model) -> ir.Model:
    """A model that computes the same integers without ConvInteger and MatMulInteger; the given one if it has none."""
    if not any(node.op_type in _PRODUCTS and _plain(node) for node in model.graph):
        return model
    new = model.clone()
    forget_names(new)
    editor = _Editor(new.graph)
    for step in (
        editor.sums,
        editor.number,
        editor.rounded,
        editor.real,
        editor.added,
        editor.scaled,
        editor.divided,
    ):
        for node in list(new.graph):
            if node.graph is new.graph and is_default(node):
                step(node)
    return new


class _Editor:
    """The graph, and what was made in it. Each step looks at one node."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.one = initializer(graph, "unit_step", np.array(1, np.float32))
        self.zeros = {t: initializer(graph, f"unit_zero_{t.name.lower()}", np.zeros((), t.numpy())) for t in _BYTES}
        self.least = initializer(graph, "least_float", np.array(_LEAST, np.float32))
        self.ends = [
            initializer(graph, f"{n}_sum", np.array(v, np.float32))
            for n, v in (("least", -(2.0**31)), ("most", 2.0**31))
        ]
        self.reals: dict[ir.Value, ir.Value] = {}
        self.read: dict[tuple[ir.Value, tuple[int, ...]], ir.Value] = {}

    # -- steps -------------------------------------------------------------------------------------------------------

    def sums(self, node: ir.Node) -> None:
        """An integer product, the constant added to it and the Cast behind it, as a product of real numbers."""
        if node.op_type not in _PRODUCTS or not _plain(node):
            return
        data, weight = node.inputs[:2]
        assert data is not None and weight is not None
        attributes = list(node.attributes.values())
        if node.op_type == "ConvInteger" and _skips(node):
            data = self._positions(node, data)
            attributes = [a for a in attributes if a.name != "strides"]
        taps = initializer(self.graph, f"{weight.name}_taps", _array(weight))
        last, bias = node, None
        user = sole_user(node.outputs[0])
        if user is not None and user.op_type == "Add":
            bias = _bias(user.inputs[1 if user.inputs[0] is node.outputs[0] else 0], node)
            last = user if bias is not None else node
        inputs = [self._real(node, data), self._real(node, taps)]
        x = self._node(last, _PRODUCTS[node.op_type], inputs, "product", node, attributes)
        if bias is not None:
            x = self._biased(last, x, bias, node)
        self._as_float(last.outputs[0], x)
        self._remove(last, node)

    def number(self, node: ir.Node) -> None:
        """A test for NaN of what cannot be NaN goes."""
        test = node.inputs[0].producer() if node.op_type == "Where" and node.inputs[0] is not None else None
        if test is None or test.op_type != "IsNaN" or test.inputs[0] is not node.inputs[2]:
            return
        if node.inputs[2] is not None and _finite(node.inputs[2]):
            node.outputs[0].replace_all_uses_with(node.inputs[2])
            self._remove(node, test)

    def rounded(self, node: ir.Node) -> None:
        """Round → Clip → Cast to 8 bits: Round → QuantizeLinear. So for a Cast of whole numbers of that type."""
        source, dtype = node.inputs[0] if node.inputs else None, node.outputs[0].dtype
        if node.op_type != "Cast" or dtype not in _BYTES or source is None:
            return
        clip = source.producer()
        if clip is None or clip.op_type != "Clip" or clip.inputs[0] is None:
            if _whole(source, dtype):
                self._quantized(node, source)
            return
        limits = np.iinfo(dtype.numpy())
        maker = clip.inputs[0].producer()
        if maker is None or maker.op_type != "Round":
            return
        if (scalar(clip.inputs[1]), scalar(clip.inputs[2])) == (limits.min, limits.max):
            self._quantized(node, clip.inputs[0], clip)

    def real(self, node: ir.Node) -> None:
        """A Cast of 8-bit numbers to float: DequantizeLinear."""
        if node.op_type != "Cast" or node.outputs[0].dtype != ir.DataType.FLOAT or node.inputs[0] is None:
            return
        if node.inputs[0].dtype in _BYTES and constant(node.inputs[0]) is None:
            node.outputs[0].replace_all_uses_with(self._real(node, node.inputs[0]), replace_graph_outputs=True)
            self._remove(node)

    def added(self, node: ir.Node) -> None:
        """An addition of scaled integers: neither scale is moved past it."""
        if node.op_type != "Add" or any(constant(v) is not None or not _finite(v) for v in node.inputs):
            return
        for at in range(len(node.inputs)):
            self._keep(node, at)

    def scaled(self, node: ir.Node) -> None:
        """A scale of signed integers: as a part of their quantizer it would be that of (q + 128) s - 128 s."""
        for at, value in enumerate(node.inputs if node.op_type == "Mul" else ()):
            maker = None if value is None else value.producer()
            source = maker.inputs[0] if maker is not None and maker.op_type == "DequantizeLinear" else None
            if source is not None and source.dtype == ir.DataType.INT8:
                self._keep(node, at)

    def divided(self, node: ir.Node) -> None:
        """A quotient of few numbers: OpenVINO multiplies by the reciprocal, which may end on a neighbour of it.

        What the quotient q is wrong by, e = a - q b, is exact in a fused multiplication and addition; e / b is added.
        """
        shape = static_shape(node.outputs[0])
        if node.op_type != "Div" or constant(node.inputs[1]) is not None or shape is None or np.prod(shape) > _FEW:
            return
        a, b = node.inputs
        assert a is not None and b is not None
        reciprocal = self._node(node, "Reciprocal", [b], "reciprocal", node)
        q = self._node(node, "Mul", [a, reciprocal], "quotient", node)
        negative = self._node(node, "Neg", [q], "negative", node)
        error = self._node(node, "Add", [self._node(node, "Mul", [negative, b], "product", node), a], "error", node)
        more = self._node(node, "Mul", [error, reciprocal], "correction", node)
        right = self._node(node, "Add", [more, q], "corrected", node)
        node.outputs[0].replace_all_uses_with(right, replace_graph_outputs=True)
        self._remove(node)

    # -- parts -------------------------------------------------------------------------------------------------------

    def _node(
        self,
        before: ir.Node,
        kind: str,
        inputs: Iterable[ir.Value],
        what: str,
        of: ir.Node,
        attributes: Iterable[ir.Attr] = (),
        dtype: ir.DataType = ir.DataType.FLOAT,
    ) -> ir.Value:
        """The result of a new node in front of another; it has the shape of what that one makes."""
        like = before.outputs[0]
        out = insert_before(before, kind, inputs, f"{like.name}_{what}", dtype, like.shape, attributes)
        made = out.producer()
        assert made is not None
        if kind in _PRODUCTS.values():
            made.name = of.name
        made.metadata_props.clear()
        made.metadata_props.update(of.metadata_props)
        return out

    def _value(self, like: ir.Value, dtype: ir.DataType, what: str) -> ir.Value:
        name = free_name(self.graph, f"{like.name}_{what}")
        return ir.Value(name=name, shape=like.shape, type=ir.TensorType(dtype))

    def _remove(self, *nodes: ir.Node) -> None:
        """Remove nodes that nothing reads any more, readers first."""
        for node in nodes:
            if node.graph is not None and not any(v.uses() or v.is_graph_output() for v in node.outputs):
                self.graph.remove(node, safe=True)

    def _biased(self, before: ir.Node, product: ir.Value, bias: Array, of: ir.Node) -> ir.Value:
        added = initializer(self.graph, f"{of.name}_bias", bias)
        maker = product.producer()
        if maker is not None and maker.op_type == "Conv":
            maker.resize_inputs(3)
            maker.replace_input_with(2, added)
        else:
            product = self._node(before, "Add", [product, added], "shifted", of)
        return self._node(before, "Clip", [product, *self.ends], "sums", of)

    def _as_float(self, out: ir.Value, real: ir.Value) -> None:
        """Give the readers of int32 numbers the same numbers in float."""
        for use in list(out.uses()):
            if use.node.op_type == "Cast" and use.node.outputs[0].dtype == ir.DataType.FLOAT:
                use.node.outputs[0].replace_all_uses_with(real, replace_graph_outputs=True)
                self._remove(use.node)
        if out.uses() or out.is_graph_output():
            node, to = out.producer(), ir.convenience.convert_attributes({"to": int(ir.DataType.INT32)})
            assert node is not None
            back = self._node(node, "Cast", [real], "integers", node, to, ir.DataType.INT32)
            self._replace(out, back)

    def _replace(self, old: ir.Value, new: ir.Value) -> None:
        """Another value for all readers; an output of the graph keeps its name."""
        name, output = old.name, old.is_graph_output()
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        if output:
            old.name, new.name = new.name, name

    def _quantized(self, node: ir.Node, whole: ir.Value, clip: ir.Node | None = None) -> None:
        """Whole numbers quantized with the step 1 in place of what a node makes."""
        dtype = node.outputs[0].dtype
        assert dtype is not None
        made = self._node(node, "QuantizeLinear", [whole, self.one, self.zeros[dtype]], "bytes", node, dtype=dtype)
        self._replace(node.outputs[0], made)
        self._remove(node, *([clip] if clip is not None else []))

    def _real(self, reader: ir.Node, q: ir.Value) -> ir.Value:
        """8-bit numbers as float, made once, right behind what makes them."""
        if q not in self.reals:
            assert q.dtype is not None
            real = self.reals[q] = self._value(q, ir.DataType.FLOAT, "real")
            inputs = [q, self.one, self.zeros[q.dtype]]
            made = ir.Node("", "DequantizeLinear", inputs, outputs=[real], name=f"{real.name}/DequantizeLinear")
            made.metadata_props.update(reader.metadata_props)
            maker = q.producer()
            if maker is not None:
                self.graph.insert_after(maker, made)
            else:
                self.graph.insert_before(next(iter(self.graph)), made)
        return self.reals[q]

    def _keep(self, node: ir.Node, at: int) -> None:
        """Let no scale be moved through an input of a node."""
        value = node.inputs[at]
        assert value is not None
        kept = self._value(value, ir.DataType.FLOAT, "kept")
        made = ir.Node("", "Max", [value, self.least], outputs=[kept], name=f"{kept.name}/Max")
        made.metadata_props.update(node.metadata_props)
        self.graph.insert_before(node, made)
        node.replace_input_with(at, kept)

    def _positions(self, node: ir.Node, q: ir.Value) -> ir.Value:
        """The positions that a kernel of one position reads. OpenVINO would skip the others before it, in float."""
        strides = tuple(ints(node, "strides") or ())
        key = (q, strides)
        if key not in self.read:
            assert q.dtype is not None
            own = ir.convenience.convert_attributes({"kernel_shape": [1] * len(strides), "strides": list(strides)})
            real = self._real(node, q)
            part = self._node(node, "MaxPool", [real], "read", node, own)
            inputs = [part, self.one, self.zeros[q.dtype]]
            self.read[key] = self._node(node, "QuantizeLinear", inputs, "positions", node, dtype=q.dtype)
            for value in (part, self.read[key]):
                value.shape = None  # that of the data, not of the sums
        return self.read[key]


def _plain(node: ir.Node) -> bool:
    """An integer product without zero points, whose weight is known."""
    zeros = (constant(v) for v in node.inputs[2:] if v is not None)
    return constant(node.inputs[1]) is not None and all(z is not None and not z.any() for z in zeros)


def _array(value: ir.Value | None) -> Array:
    found = constant(value)
    assert found is not None
    return found


def _skips(node: ir.Node) -> bool:
    """A kernel of one position that skips others."""
    if max(ints(node, "strides") or [1]) == 1 or any(ints(node, "pads") or []):
        return False
    return all(k == 1 for k in _array(node.inputs[1]).shape[2:])


def _bias(value: ir.Value | None, node: ir.Node) -> Array | None:
    """A constant of one number for each output channel, as a vector; None if it is none."""
    added, weight = constant(value), _array(node.inputs[1])
    if added is None:
        return None
    whole = (1, weight.shape[0], *[1] * (weight.ndim - 2)) if node.op_type == "ConvInteger" else (1, weight.shape[1])
    if added.size != max(whole) or added.ndim > len(whole) or added.shape != whole[len(whole) - added.ndim :]:
        return None
    return added.reshape(-1).astype(np.float32)


def _finite(value: ir.Value | None, depth: int = _DEPTH) -> bool:
    """Whether a value is made of integers and finite constants alone."""
    known = constant(value)
    if known is not None:
        return bool(np.isfinite(known).all())
    node = None if value is None else value.producer()
    if node is None or depth == 0:
        return False
    if node.op_type in ("Cast", "DequantizeLinear"):
        source = node.inputs[0]
        return source is not None and source.dtype is not None and source.dtype.is_integer()
    if node.op_type == "Div":
        divisor = constant(node.inputs[1])
        if divisor is None or not divisor.all():
            return False
    return node.op_type in _FINITE and all(_finite(v, depth - 1) for v in node.inputs if v is not None)


def _whole(value: ir.Value | None, dtype: ir.DataType, depth: int = _DEPTH) -> bool:
    """Whether a float value holds whole numbers of an integer type, moved or selected only."""
    node = None if value is None else value.producer()
    if node is None or depth == 0:
        return False
    if node.op_type in ("Cast", "DequantizeLinear"):
        return node.inputs[0] is not None and node.inputs[0].dtype == dtype
    moved = [v for v in node.inputs if v is not None and v.dtype == ir.DataType.FLOAT]
    return node.op_type in _MOVING and bool(moved) and all(_whole(v, dtype, depth - 1) for v in moved)
