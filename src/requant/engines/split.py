"""Whether and how a large batch is better run as several small ones, side by side.

A layer of a large batch writes more than the caches hold, and the next layer fetches it from memory again; and the
threads of one run wait for each other after every layer. Small batches on parallel streams, one core each, avoid both.
That is right only where samples do not see each other, which is proved here, operator by operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from requant.engines.tensors import true_inputs
from requant.passes.rewrite import attribute, int_list, ints, is_default
from requant.passes.rewrite import rank as rank_of

# What one stream reads and writes in its largest layer should stay below this. Measured on x86 servers with 1 to 2 MB
# of second-level cache a core: MobileNetV2, EfficientNet-Lite0 and ResNet-50, float and int8, are fastest near it.
NEAR = 6 << 20
# A small batch that moves less than this in all its layers is not worth a hand-over to another thread.
_WORTH = 1 << 20

_ELEMENTWISE = frozenset(
    """
    Abs Add And BitShift Cast CastLike Ceil Celu Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater
    GreaterOrEqual HardSigmoid HardSwish Identity LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod
    Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum
    Swish Tan Tanh ThresholdedRelu Where Xor
    """.split()  # noqa: SIM905
)
_FIRST_INPUT = frozenset(
    """
    AveragePool BatchNormalization Conv ConvTranspose DepthToSpace GlobalAveragePool GlobalLpPool
    GlobalMaxPool GroupNormalization InstanceNormalization LRN LpPool MaxPool SpaceToDepth
    """.split()  # noqa: SIM905
)
_ALONG = {"Softmax": -1, "LogSoftmax": -1, "Hardmax": -1, "ArgMax": 0, "ArgMin": 0, "TopK": -1, "LpNormalization": -1}


def pieces(model: ir.Model, shapes: Mapping[str, tuple[int | None, ...]], cores: int) -> tuple[int, int] | None:
    """How to run this model on a batch of that size: (samples a run, runs side by side), or None: as a whole.

    Args:
        model: its inputs must have a symbolic dimension 0, the batch.
        shapes: the full shapes of the inputs.
        cores: cores that may be used.
    """
    batches = {s[0] for s in shapes.values() if s}
    if len(batches) != 1 or cores < 2:
        return None
    [batch] = batches
    if batch is None or batch < 4 or any(d is None for s in shapes.values() for d in s):  # 2 cores with 2 runs each
        return None
    if any(o.shape is None for n in model.graph for o in n.outputs):  # many files tell the outer shapes alone
        model = model.clone()
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=False)(model)
    if not sample_wise(model):
        return None
    largest, total = _moved(model)
    most = min(max(1, NEAR // max(1, largest)), batch // 4)
    for size in range(most, 0, -1):
        if batch % size:
            continue
        runs = batch // size
        streams = min(cores, runs)
        # Two runs a core, so that one that is disturbed does not hold up everything; and an odd run at the end leaves
        # the other cores idle: only if it is one of many.
        if runs < 2 * streams:
            continue
        if (runs % streams == 0 or runs >= 8 * streams) and cores % streams == 0:
            return (size, streams) if size * total >= _WORTH else None
    return None


def _moved(model: ir.Model) -> tuple[int, int]:
    """Bytes that one sample's largest layer reads and writes, and all layers together. Unknown sizes count as zero."""
    wide = 1 if any(n.op_type == "QuantizeLinear" for n in model.graph) else 4
    largest = total = 0
    for node in model.graph:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            continue
        moved = sum(_size(v) for v in (*node.inputs, *node.outputs) if v is not None and v.const_value is None)
        largest, total = max(largest, moved * wide), total + moved * wide
    return largest, total


def _size(value: ir.Value) -> int:
    """Elements of one sample."""
    if value.shape is None or len(value.shape) == 0 or isinstance(value.shape[0], int):
        return 0
    rest = [d for d in value.shape[1:] if isinstance(d, int)]
    return math.prod(rest) if len(rest) == len(value.shape) - 1 else 0


def sample_wise(model: ir.Model) -> bool:
    """Whether dimension 0 of all inputs and outputs is the batch, and no sample has to do with another.

    True is a proof for the operators that are known here; everything else is False.
    """
    inputs = true_inputs(model)
    names = set()
    for value in inputs:
        if value.shape is None or len(value.shape) == 0 or isinstance(value.shape[0], int):
            return False
        names.add(value.shape[0].value)
        if any(not isinstance(d, int) and d.value in names for d in value.shape[1:]):
            return False
    if len(names) != 1 or None in names:
        return False
    batched = set(inputs)
    for node in model.graph:
        if not any(v in batched for v in node.inputs if v is not None):
            if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
                return False
            continue
        if not is_default(node) or not _keeps_samples(node, batched):
            return False
        batched.update(node.outputs)
    return all(v in batched for v in model.graph.outputs)


def _keeps_samples(node: ir.Node, batched: set[ir.Value]) -> bool:
    kind = node.op_type
    given = [v for v in node.inputs if v is not None]
    first = node.inputs[0]
    rank = rank_of(first)
    if kind in _ELEMENTWISE:
        return _elementwise(node, batched)
    if kind == "Concat":
        axis = int(attribute(node, "axis", 0))
        return all(v in batched for v in given) and _inner(axis, rank)
    if kind == "MatMul":
        return _matmul(node, batched)
    if kind == "Gather":
        table, at = node.inputs[0], node.inputs[1]
        axis = int(attribute(node, "axis", 0))
        if at in batched:
            return table not in batched and axis == 0
        return _inner(axis, rank)
    if first not in batched or any(v in batched for v in given[1:]):
        return False
    if kind in _FIRST_INPUT:
        # Statistics over the batch, and places counted over the batch.
        return not attribute(node, "training_mode", 0) and len(node.outputs) == 1
    rule = _RULES.get(kind)
    if rule is not None:
        return rule(node, rank)
    if kind in _ALONG:
        return _inner(int(attribute(node, "axis", _ALONG[kind])), rank)
    if kind.startswith("Reduce"):
        return _all_inner(_axes(node), rank)
    return False


def _inner(axis: int, rank: int | None) -> bool:
    """Whether an axis is surely not axis 0."""
    return axis > 0 or (axis < 0 and rank is not None and axis + rank > 0)


def _all_inner(axes: list[int] | None, rank: int | None) -> bool:
    """Whether the axes are known, and surely none is axis 0."""
    return axes is not None and all(_inner(a, rank) for a in axes)


def _axes(node: ir.Node) -> list[int] | None:
    """The axes, as attribute or as input; None if they are not known, or none are named."""
    if "axes" in node.attributes:
        return ints(node, "axes")
    return int_list(node.inputs[1]) if len(node.inputs) > 1 else None


def _elementwise(node: ir.Node, batched: set[ir.Value]) -> bool:
    """Broadcasting lines shapes up at their ends: the batch must stand at the front of the result."""
    ranks = {rank_of(v) for v in node.inputs if v is not None and v in batched}
    if None in ranks or len(ranks) != 1:
        return False
    [rank] = ranks
    assert rank is not None
    for value in node.inputs:
        if value is None or value in batched:
            continue
        other = value.shape
        if other is None or len(other) > rank or (len(other) == rank and other[0] != 1 and rank > 0):
            return False
    return True


def _matmul(node: ir.Node, batched: set[ir.Value]) -> bool:
    left, right = node.inputs[0], node.inputs[1]
    a, b = rank_of(left), rank_of(right)
    if a is None or b is None:
        return False
    if left in batched and right in batched:
        return a == b and a >= 3
    if left in batched:
        if a == 2:
            return b <= 2
        return b <= 2 or (b == a and right is not None and right.shape is not None and right.shape[0] == 1) or b < a
    return b >= 3 and (a <= 2 or a < b)


def _quantize(node: ir.Node, rank: int | None) -> bool:
    scale = node.inputs[1]
    if scale is not None and scale.shape is not None and len(scale.shape) == 0:
        return True
    return int(attribute(node, "block_size", 0)) == 0 and _inner(int(attribute(node, "axis", 1)), rank)


def _gemm(node: ir.Node, rank: int | None) -> bool:
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    shared = bias is None or (bias.shape is not None and (len(bias.shape) < 2 or bias.shape[0] == 1))
    return not attribute(node, "transA", 0) and shared


def _reshape(node: ir.Node, rank: int | None) -> bool:
    target, shape = int_list(node.inputs[1]), node.inputs[0].shape if node.inputs[0] is not None else None
    if not target or shape is None or attribute(node, "allowzero", 0):
        return False
    if target[0] == 0:
        return True  # the batch is copied, so what follows is a sample's own
    inner = [d for d in shape[1:] if isinstance(d, int)]
    if target[0] != -1 or len(inner) != len(shape) - 1 or (len(target) - 1 > len(inner) and 0 in target):
        return False
    sizes = [int(shape[i + 1]) if d == 0 else d for i, d in enumerate(target[1:])]  # type: ignore[arg-type]
    return math.prod(sizes) == math.prod(inner)


def _pad(node: ir.Node, rank: int | None) -> bool:
    pads, axes = int_list(node.inputs[1]), node.inputs[3] if len(node.inputs) > 3 else None
    if axes is not None:
        return _all_inner(int_list(axes), rank)
    return pads is not None and len(pads) >= 2 and pads[0] == 0 and pads[len(pads) // 2] == 0


def _slice(node: ir.Node, rank: int | None) -> bool:
    return len(node.inputs) > 3 and _all_inner(int_list(node.inputs[3]), rank)


def _resize(node: ir.Node, rank: int | None) -> bool:
    if "axes" in node.attributes:
        return _all_inner(ints(node, "axes"), rank)
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    values = None if scales is None or scales.const_value is None else scales.const_value.numpy().reshape(-1)
    return values is not None and len(values) > 0 and float(values[0]) == 1.0


def _unsqueeze(node: ir.Node, rank: int | None) -> bool:
    axes = _axes(node)
    return axes is not None and _all_inner(axes, None if rank is None else rank + len(axes))


def _transpose(node: ir.Node, rank: int | None) -> bool:
    order = ints(node, "perm")
    return order is not None and order[:1] == [0]


_RULES: dict[str, Callable[[ir.Node, int | None], bool]] = {
    "DequantizeLinear": _quantize,
    "Flatten": lambda node, rank: int(attribute(node, "axis", 1)) == 1,
    "Gemm": _gemm,
    "LayerNormalization": lambda node, rank: _inner(int(attribute(node, "axis", -1)), rank),
    "Pad": _pad,
    "QuantizeLinear": _quantize,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "Split": lambda node, rank: _inner(int(attribute(node, "axis", 0)), rank),
    "Squeeze": lambda node, rank: _all_inner(_axes(node), rank),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
