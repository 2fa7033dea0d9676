"""How TFLite's operators are written in ONNX, one function for each kind."""

from __future__ import annotations

import math

import numpy as np

from requant.errors import FormatError, counted
from requant.formats.tflite.builder import Builder, builds
from requant.formats.tflite.model import Operator, Tensor
from requant.ops.emit import Value

_DIMS = {0: 0, 1: 2, 2: 3, 3: 1}  # of channels last → of channels first


def _positive(b: Builder, op: Operator, *names: str) -> list[int]:
    values = [op.options[n] for n in names]
    if min(values) < 1:
        raise FormatError(
            f"{op.kind} has sizes below one",
            where=f"{b.model.source}: {b.model.name(op)!r}",
            got=dict(zip(names, values)),
        )
    return values


def _pads(op: Operator, size: tuple[int, int], kernel: list[int], stride: list[int], dilation: list[int]) -> list[int]:
    """ONNX pads (begins, then ends) of TFLite's two ways of padding."""
    if op.options["padding"] == "VALID":
        return [0, 0, 0, 0]
    begins, ends = [], []
    for n, k, s, d in zip(size, kernel, stride, dilation):
        whole = max((math.ceil(n / s) - 1) * s + (k - 1) * d + 1 - n, 0)
        begins.append(whole // 2)
        ends.append(whole - whole // 2)
    return begins + ends


def _data_of_conv(b: Builder, op: Operator) -> tuple[Value, tuple[int, int], list[int]]:
    """The data of a convolution, its height and width, and pads that a PAD before it makes."""
    index = op.inputs[0]
    before = b.makers.get(index)
    if before is not None and before.kind == "PAD" and op.options["padding"] == "VALID":
        pads = b.numbers(before, 1)
        if pads.shape == (4, 2) and not pads[[0, 3]].any() and pads.min() >= 0:
            own = [int(pads[axis, end]) for end in (0, 1) for axis in (1, 2)]
            return b.real(before.inputs[0], first=True), b.sizes(op), own
    return b.real(index, first=True), b.sizes(op), [0, 0, 0, 0]


def _weight(b: Builder, op: Operator, order: tuple[int, ...], channel: int) -> tuple[Value, Tensor]:
    """Real weights in another order of dimensions; ``channel`` is where output channels are in the file's."""
    tensor = b.given(op, 1)
    data = b.constant(op, 1)
    if data.ndim != len(order):
        raise FormatError(f"the weight of a {op.kind}", where=f"{b.model.source}: {tensor.name!r}", got=data.shape)
    if tensor.scale.size > 1 and tensor.axis != channel:
        raise b.refuse(op, f"its weight has scales along axis {tensor.axis}")
    value = b.g.parameter(tensor.name or "weight", np.ascontiguousarray(data.transpose(order)))
    if tensor.quantized:
        return b.restored(value, tensor, axis=order.index(channel)), tensor
    return b.g.cast(value, np.float32), tensor


def _bias(b: Builder, op: Operator, channels: int) -> Value | None:
    """The bias in real numbers: int32 in units of the sums where it is quantized."""
    tensor = b.tensor(op.inputs[2]) if len(op.inputs) > 2 else None
    if tensor is None:
        return None
    data = b.constant(op, 2)
    if data.shape != (channels,):
        raise FormatError("a bias of another size", where=f"{b.model.source}: {tensor.name!r}", got=data.shape)
    value = b.g.parameter(tensor.name or "bias", np.ascontiguousarray(data))
    if not tensor.quantized and data.dtype.kind != "f":
        raise b.refuse(op, f"its bias is {tensor.dtype} without a scale")
    return b.restored(value, tensor) if tensor.quantized else b.g.cast(value, np.float32)


@builds("CONV_2D", "DEPTHWISE_CONV_2D")
def conv(b: Builder, op: Operator) -> None:
    stride, dilation = _positive(b, op, "stride_h", "stride_w"), _positive(b, op, "dilation_h", "dilation_w")
    depthwise = op.kind == "DEPTHWISE_CONV_2D"
    if depthwise:  # (1, height, width, channels × multiplier)
        weight, tensor = _weight(b, op, (3, 0, 1, 2), 3)
    else:  # (outputs, height, width, channels)
        weight, tensor = _weight(b, op, (0, 3, 1, 2), 0)
    x, size, pads = _data_of_conv(b, op)
    channels = b.given(op, 0).shape[3]
    filters, each, *kernel = b.g.static(weight)
    if not each or not channels or channels % each or (depthwise and (each != 1 or filters % channels)):
        raise FormatError(
            f"the weight of a {op.kind} does not fit its data",
            where=f"{b.model.source}: {tensor.name!r}",
            got=tensor.shape,
            expected=counted(channels, "channel"),
        )
    own = _pads(op, size, kernel, stride, dilation)
    y = b.g(
        "Conv",
        x,
        weight,
        _bias(b, op, filters),
        strides=stride,
        dilations=dilation,
        pads=[p + q for p, q in zip(pads, own)],
        group=channels // each,
    )
    b.put(op, y, True, op.options["activation"])


@builds("FULLY_CONNECTED")
def fully_connected(b: Builder, op: Operator) -> None:
    if op.options["weights_format"]:
        raise b.refuse(op, "its weights are shuffled")
    weight, tensor = _weight(b, op, (0, 1), 0)
    units, size = tensor.shape
    shape, keep = b.given(op, 0).shape, op.options["keep_num_dims"]
    if not size or math.prod(shape) % size:
        raise FormatError(
            "the weight of a FULLY_CONNECTED does not fit its data",
            where=f"{b.model.source}: {tensor.name!r}",
            got=tensor.shape,
            expected=f"(units, divisor of {math.prod(shape)})",
        )
    x = b.real(op.inputs[0])
    if len(shape) != 2:
        x = b.g.reshape(x, b.sample_dims([math.prod(shape) // size, size]))
    elif b.batch and shape[0] != 1:
        b.mixes()
    y = b.g("Gemm", x, weight, _bias(b, op, units), transB=1)
    if keep and len(shape) != 2:
        y = b.g.reshape(y, b.sample_dims([*shape[:-1], units]))
    b.put(op, y, False, op.options["activation"])


@builds("AVERAGE_POOL_2D", "MAX_POOL_2D")
def pool(b: Builder, op: Operator) -> None:
    stride, kernel = _positive(b, op, "stride_h", "stride_w"), _positive(b, op, "filter_h", "filter_w")
    size = b.sizes(op)
    x = b.real(op.inputs[0], first=True)
    mean = op.kind == "AVERAGE_POOL_2D"
    if mean and tuple(kernel) == size and op.options["padding"] == "VALID":
        y = b.g("GlobalAveragePool", x)
    else:
        pads = _pads(op, size, kernel, stride, [1, 1])
        y = b.g("AveragePool" if mean else "MaxPool", x, kernel_shape=kernel, strides=stride, pads=pads)
    b.put(op, y, True, op.options["activation"])


@builds("MEAN")
def mean(b: Builder, op: Operator) -> None:
    shape, keep = b.given(op, 0).shape, op.options["keep_dims"]
    axes = _axes(b, op, b.numbers(op, 1), len(shape))
    if 0 in axes:
        b.mixes()
    if len(shape) != 4:
        return b.put(op, b.g.reduce("Mean", b.real(op.inputs[0]), axes, keep), False)
    if axes == [1, 2]:
        y = b.g("GlobalAveragePool", b.real(op.inputs[0], first=True))
        return b.put(op, y if keep else b.g.squeeze(y, [2, 3]), True)
    if keep:
        return b.put(op, b.g.reduce("Mean", b.real(op.inputs[0], first=True), [_DIMS[a] for a in axes], True), True)
    return b.put(op, b.g.reduce("Mean", b.real(op.inputs[0]), axes), False)


def _axes(b: Builder, op: Operator, given: np.ndarray, rank: int) -> list[int]:
    axes = sorted({int(a) % rank if -rank <= int(a) < rank else -1 for a in given.reshape(-1)}) if rank else [-1]
    if not axes or axes[0] < 0:
        raise FormatError(
            f"{op.kind} has axes that its data has not",
            where=f"{b.model.source}: {b.model.name(op)!r}",
            got=given.reshape(-1)[:8].tolist(),
            expected=f"within rank {rank}",
        )
    return axes


@builds("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM")
def arithmetic(b: Builder, op: Operator) -> None:
    rank = len(b.model.tensors[op.outputs[0]].shape)
    first = rank == 4
    sides = []
    for which in (0, 1):
        size = len(b.given(op, which).shape)
        x = b.rounded(op.inputs[which]) if first and size == 4 else b.real(op.inputs[which], first)
        if first and size != 4:  # it counts its dimensions from the last, which is the channel
            if size > 4 or b.given(op, which).data is None:
                raise b.refuse(op, "computed tensors of different ranks")
            x = b.g.transpose(b.g.reshape(x, [1] * (4 - size) + list(b.given(op, which).shape)), (0, 3, 1, 2))
        sides.append(x)
    names = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "Max", "MINIMUM": "Min"}
    b.put(op, b.g(names[op.kind], *sides), first, op.options.get("activation", ""))


@builds("CONCATENATION")
def concatenation(b: Builder, op: Operator) -> None:
    rank = len(b.given(op, 0).shape)
    [axis] = _axes(b, op, np.array([op.options["axis"]]), rank)
    if axis == 0:
        b.mixes()
    first = rank == 4
    parts = [b.real(i, first) for i in op.inputs if b.tensor(i) is not None]
    b.put(op, b.g("Concat", *parts, axis=_DIMS[axis] if first else axis), first, op.options["activation"])


@builds("RELU", "RELU6", "RELU_N1_TO_1", "TANH")
def activation(b: Builder, op: Operator) -> None:
    b.put(op, b.real(op.inputs[0], first=True), True, op.kind)


@builds("LOGISTIC", "HARD_SWISH", "LEAKY_RELU")
def curve(b: Builder, op: Operator) -> None:
    x = b.real(op.inputs[0], first=True)
    if op.kind == "LEAKY_RELU":
        y = b.g("LeakyRelu", x, alpha=float(op.options["alpha"]))
    else:
        y = b.g("Sigmoid" if op.kind == "LOGISTIC" else "HardSwish", x)
    b.put(op, y, True)


@builds("SOFTMAX")
def softmax(b: Builder, op: Operator) -> None:
    x = b.real(op.inputs[0])
    beta = float(op.options["beta"])
    b.put(op, b.g("Softmax", x if beta == 1.0 else b.g("Mul", x, np.float32(beta)), axis=-1), False)


@builds("QUANTIZE", "DEQUANTIZE")
def quantize(b: Builder, op: Operator) -> None:
    b.put(op, b.real(op.inputs[0], first=True), True)


@builds("PAD")
def pad(b: Builder, op: Operator) -> None:
    pads = b.numbers(op, 1)
    rank = len(b.given(op, 0).shape)
    if pads.shape != (rank, 2) or (pads.size and (pads.min() < 0 or pads.max() > 1 << 16)):
        raise FormatError(
            "pads that do not fit the data", where=f"{b.model.source}: {b.model.name(op)!r}", got=pads.shape
        )
    if pads[:1].any():
        b.mixes()
    pads = pads[[0, 3, 1, 2]] if rank == 4 else pads
    b.put(op, b.g("Pad", b.real(op.inputs[0], first=True), pads.T.reshape(-1), np.float32(0)), True)


def _moved(b: Builder, op: Operator, x: Value) -> None:
    """Keep integers that only changed their places, or requantize them if the output has another scale."""
    mine, out = b.given(op, 0), b.model.tensors[op.outputs[0]]
    b.check_type(out)
    same = mine.dtype == out.dtype and np.array_equal(mine.scale, out.scale)
    told = op.outputs[0] in b.model.outputs and b.g.dtype(x) != np.dtype(out.dtype)
    if same and np.array_equal(mine.zero_point, out.zero_point) and not told:
        b.hold(op.outputs[0], x, first=False)
    else:
        b.put(op, b.restored(x, mine) if mine.quantized else x, False)


@builds("RESHAPE", "SQUEEZE", "EXPAND_DIMS", reads=(0,))
def reshape(b: Builder, op: Operator) -> None:
    mine, shape = b.given(op, 0).shape, b.model.tensors[op.outputs[0]].shape
    if math.prod(mine) != math.prod(shape):
        raise FormatError(
            f"{op.kind} changes the number of elements",
            where=f"{b.model.source}: {b.model.name(op)!r}",
            got=shape,
            expected=counted(math.prod(mine), "element"),
        )
    dims = b.sample_dims(shape)
    if b.batch and mine[:1] != (1,):
        b.mixes()
    _moved(b, op, b.g.reshape(b.held(op.inputs[0], first=False), dims))


@builds("TRANSPOSE")
def transpose(b: Builder, op: Operator) -> None:
    order = [int(a) for a in b.numbers(op, 1).reshape(-1)]
    if sorted(order) != list(range(len(b.given(op, 0).shape))):
        raise FormatError("not an order of dimensions", where=f"{b.model.source}: {b.model.name(op)!r}", got=order)
    if order[:1] != [0]:
        b.mixes()
    _moved(b, op, b.g.transpose(b.held(op.inputs[0], first=False), order))
