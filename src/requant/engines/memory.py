"""Whether inputs and a run on them fit into memory, asked before anything is allocated.

A system that runs out of memory ends the process without a word; this says both figures instead. What is counted is
what must exist at one time at least, so nothing is refused that could run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir
from onnx_ir.passes import common

from requant.engines.machine import free_memory
from requant.engines.tensors import Shape, TensorSpec
from requant.errors import InputError

#: Bytes that are there anyway: what takes less is not compared with anything.
_SMALL = 256 << 20
#: Bytes of inputs from which the sizes inside are inferred where the file does not tell them.
_LOOK_INSIDE = 1 << 20
#: Operators whose output an engine may never write out as a whole.
_VIRTUAL = frozenset({"Expand", "ConstantOfShape", "Shape", "Constant", "QuantizeLinear", "DequantizeLinear"})
#: Operators that can neither write over what they read nor be fused with what made it.
_APART = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool", "AveragePool"})
_NEXT = "make the batch or the size smaller (--batch, --shape, --size)"


def check_arrays(sizes: Mapping[str, tuple[Sequence[int], int]], where: object, copies: int = 1) -> None:
    """Refuse arrays that do not fit into memory together.

    Args:
        sizes: shape and bytes an element, by name.
        where: what they are for.
        copies: how many there are of each.
    Raises:
        InputError: they do not; the message has their bytes and those that are free.
    """
    needed = copies * sum(math.prod(shape) * size for shape, size in sizes.values())
    if needed > _SMALL and (free := free_memory()) is not None and needed > free:
        got = ", ".join(f"{n} {tuple(s)}: {in_words(copies * math.prod(s) * size)}" for n, (s, size) in sizes.items())
        raise InputError("the inputs do not fit into memory", where=where, got=got, expected=_free(free), next=_NEXT)


def check_run(
    model: ir.Model, inputs: Iterable[TensorSpec], where: object, *, precision: str = "f32", share: float = 1.0
) -> None:
    """Refuse a graph of which a node alone does not fit into memory, beside the inputs that are there.

    Args:
        model: the graph.
        inputs: its inputs as they will be fed; what follows from sizes that are still open is not counted.
        where: engine and graph.
        precision: arithmetic of the float layers.
        share: how much of the batch is inside the graph at a time.
    Raises:
        InputError: it does not; the message has its bytes and those that are free.
    """
    inputs = [s for s in inputs if s.shape is not None and all(isinstance(d, int) for d in s.shape)]
    fed = sum(math.prod(_numbers(s.shape)) * s.dtype.itemsize for s in inputs)
    node, inside = _largest(model, inputs, precision, fed >= _LOOK_INSIDE)
    inside = int(inside * share)
    if inside > _SMALL and (free := free_memory()) is not None and inside > free:
        given = ", ".join(f"{s.name} {s.shape}" for s in inputs)
        raise InputError(
            "a run on inputs of this size does not fit into memory",
            where=where,
            got=f"{given}: {in_words(fed)}; node {node}: {in_words(inside)}",
            expected=_free(free),
            next=_NEXT,
        )


def in_words(count: float) -> str:
    """Bytes in words, such as ``1.5 GiB``."""
    unit = next((u for u in ("KiB", "MiB", "GiB", "TiB") if (count := count / 1024) < 1024), "TiB")
    return f"{count:,.1f} {unit}"


def _free(free: int) -> str:
    return f"at most {in_words(free)}, which is free here"


def _largest(model: ir.Model, inputs: Sequence[TensorSpec], precision: str, infer: bool) -> tuple[str, int]:
    """The node with the largest tensors that must exist while it runs, and their bytes, as far as sizes are known."""
    sizes = _sizes(model, inputs)
    if infer and any(_fixed(v.shape, sizes) is None for n in model.graph for v in n.outputs):
        sizes, model = {}, _inferred(model, inputs)
    wide = 1 if any(n.op_type == "QuantizeLinear" for n in model.graph) else 4 if precision == "f32" else 2
    fed = set(model.graph.inputs)

    def size(value: ir.Value | None) -> int:
        if value is None or value in fed or value.const_value is not None:  # what is fed is counted once
            return 0
        made = value.producer()
        shape = None if made is None or made.op_type in _VIRTUAL else _fixed(value.shape, sizes)
        return 0 if shape is None else math.prod(shape) * min(wide, _width(value))

    found = ("", 0)
    for node in model.graph:
        count = sum(map(size, node.outputs)) + (sum(map(size, node.inputs)) if node.op_type in _APART else 0)
        if count > found[1]:
            found = f"{(node.name or node.outputs[0].name)!r} ({node.op_type})", count
    return found


def _sizes(model: ir.Model, inputs: Iterable[TensorSpec]) -> dict[str, int]:
    """Sizes of the graph's named dimensions, as the inputs give them."""
    given = {s.name: _numbers(s.shape) for s in inputs}
    found: dict[str, int] = {}
    for value in model.graph.inputs:
        for have, size in zip(value.shape or (), given.get(str(value.name), ())):
            if not isinstance(have, int) and have.value is not None:
                found[have.value] = size
    return found


def _inferred(model: ir.Model, inputs: Iterable[TensorSpec]) -> ir.Model:
    """A copy with the inputs' sizes fixed, and the sizes inside as far as they follow."""
    model = model.clone()
    given = {s.name: s.shape for s in inputs}
    for value in model.graph.inputs:
        if (shape := given.get(str(value.name))) is not None:
            value.shape = ir.Shape(shape)
    outputs = set(model.graph.outputs)
    for node in model.graph:  # sizes of the open batch would stand in the way
        for value in node.outputs:
            if value not in outputs:
                value.shape = None
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    return model


def _fixed(shape: ir.Shape | None, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape in numbers, or None if one is not known."""
    if shape is None:
        return None
    found = [d if isinstance(d, int) else sizes.get(d.value or "") for d in shape]
    return None if None in found else tuple(d for d in found if d is not None)


def _numbers(shape: Shape | None) -> tuple[int, ...]:
    return tuple(d for d in shape or () if isinstance(d, int))


def _width(value: ir.Value) -> int:
    """Bytes an element."""
    return 4 if value.dtype is None else max(1, value.dtype.bitwidth // 8)
