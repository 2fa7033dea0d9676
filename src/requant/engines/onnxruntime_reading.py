"""What older releases of ONNX Runtime lack or compute otherwise than ONNX says, and what is done about it.

Python 3.10 gets none newer than 1.23, so these releases stay in use. Works on the ONNX graph, before it is handed over;
releases that do right get it untouched. What each release does was found by running ONNX's own definitions on it.

And where it finds no int8 products, and dequantizes their weights at every run (1.32; MiniLM: 16 in place of 2.4 ms on
one thread): of a product and an addition it makes a Gemm before it looks for them, and their data must be uint8, where
files made for OpenVINO have int8.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from requant import qmath
from requant.engines.signed import is_signed, shift
from requant.passes.rewrite import attribute, constant, initializer, insert_before, ints, is_default, stand_in, unique

Version = tuple[int, int]
_INT8_PRODUCTS: Version = (1, 24)
_PADS_ARE_RIGHT: Version = (1, 25)
_ERF_KEEPS_NAN: Version = (1, 27)
_EVER: Version = (2**31, 1)


class Rule(NamedTuple):
    """How nodes of one operator are put for releases before ``until``."""

    op_type: str
    until: Version
    applies: Callable[[ir.Node], bool]
    rewrite: Callable[[ir.Graph, ir.Node], None]


def conform(model: ir.Model, release: str) -> ir.Model:
    """A model that means the same on this release of ONNX Runtime; the given one if nothing has to change.

    Args:
        model: left as it is.
        release: ``onnxruntime.__version__``.
    """
    rules = {rule.op_type: rule for rule in RULES if _version(release) < rule.until}
    if not any(_concerned(node, rules) for node in _nodes(model)):
        return model
    new = model.clone()
    for node in _nodes(new):
        graph = node.graph
        if _concerned(node, rules) and isinstance(graph, ir.Graph):
            rules[node.op_type].rewrite(graph, node)
    return new


def unwanted(model: ir.Model, release: str) -> list[str]:
    """Optimizations to leave out: those that would undo what ``conform`` did, and that which hides int8 products."""
    found = ["Pad_Fusion"] if _version(release) < _PADS_ARE_RIGHT else []
    if any(n.op_type == "MatMul" and is_default(n) and _is_dequantized(n.inputs[1]) for n in _nodes(model)):
        found.append("MatMulAddFusion")
    return found


def _is_dequantized(value: ir.Value | None) -> bool:
    node = None if value is None else value.producer()
    return node is not None and node.op_type == "DequantizeLinear"


def _version(release: str) -> Version:
    """Major and minor number; a release that does not say them counts as new."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (2**31, 0)


def _nodes(model: ir.Model) -> list[ir.Node]:
    return list(model.graph.all_nodes())


def _concerned(node: ir.Node, rules: dict[str, Rule]) -> bool:
    return is_default(node) and node.op_type in rules and rules[node.op_type].applies(node)


# -- Products of int8: before 1.24 convolutions take uint8 alone, and matrices not int8 with uint8 ---------------------


def _has_int8(node: ir.Node) -> bool:
    return any(value is not None and value.dtype == ir.DataType.INT8 for value in node.inputs[:2])


def _is_int8_with_uint8(node: ir.Node) -> bool:
    return [value and value.dtype for value in node.inputs[:2]] == [ir.DataType.INT8, ir.DataType.UINT8]


def _as_uint8(graph: ir.Graph, node: ir.Node) -> None:
    """Integers and zero points move up by 128 together: their differences, and with them all sums, stay the same."""
    given: list[ir.Value | None] = [*node.inputs, None, None][:4]
    for place in (0, 1):
        value, zero = given[place], given[place + 2]
        if value is None or value.dtype != ir.DataType.INT8:
            continue
        integers, offset = constant(value), constant(zero) if zero is not None else np.zeros((), np.int8)
        given[place + 2] = (
            initializer(graph, f"{value.name}_zero_point", qmath.as_unsigned(offset))
            if offset is not None
            else _raise(graph, node, zero)
        )
        given[place] = (
            initializer(graph, f"{value.name}_uint8", qmath.as_unsigned(integers))
            if integers is not None
            else _raise(graph, node, value)
        )
    node.resize_inputs(4)
    for place, value in enumerate(given):
        node.replace_input_with(place, value)


def _raise(graph: ir.Graph, node: ir.Node, value: ir.Value | None) -> ir.Value:
    """A computed int8 tensor as uint8, through float32, which holds all of both exactly."""
    assert value is not None
    one = initializer(graph, "one_step", np.ones((), np.float32))
    zero = initializer(graph, "middle_of_uint8", np.full((), 128, np.uint8))
    real = insert_before(node, "DequantizeLinear", [value, one], f"{value.name}_real", ir.DataType.FLOAT, value.shape)
    name = f"{value.name}_uint8"
    return insert_before(node, "QuantizeLinear", [real, one, zero], name, ir.DataType.UINT8, value.shape)


# -- Products of a quantized tensor and a quantized weight: integer kernels are found for uint8 data alone -------------


def _signed_data(node: ir.Node) -> ir.Value | None:
    """The int8 tensor that a product with a stored weight reads, if it can be put as uint8."""
    data, weight = (None if value is None else value.producer() for value in node.inputs[:2])
    if data is None or weight is None or {data.op_type, weight.op_type} != {"DequantizeLinear"}:
        return None
    stored = data.inputs[0]
    computed = stored is not None and stored.producer() is not None
    return stored if computed and constant(weight.inputs[0]) is not None and is_signed(stored) else None


def _unsigned_data(graph: ir.Graph, node: ir.Node) -> None:
    value = _signed_data(node)
    assert value is not None
    shift(graph, value)


# -- AveragePool that counts its padding: before 1.25 the divisor is wrong where paddings differ -----------------------


def _counts_padding(node: ir.Node) -> bool:
    # With ceil_mode the last window may reach over the padding too, where nothing is counted: another matter.
    pads = ints(node, "pads") or []
    plain = not attribute(node, "ceil_mode", 0) and attribute(node, "auto_pad", "NOTSET") == "NOTSET"
    return plain and bool(attribute(node, "count_include_pad", 0)) and len(set(pads)) > 1


def _pad_before(graph: ir.Graph, node: ir.Node) -> None:
    """Zeros are put around the data by a node of their own, and count like all the rest."""
    data, pads = node.inputs[0], ints(node, "pads") or []
    assert data is not None
    half = len(pads) // 2
    around = initializer(graph, f"{data.name}_pads", np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64))
    padded = insert_before(node, "Pad", [data, around], f"{data.name}_padded", data.dtype, None)
    node.replace_input_with(0, padded)
    del node.attributes["pads"]


# -- Erf of NaN: 1 before 1.27 -----------------------------------------------------------------------------------------


def _keep_nan(graph: ir.Graph, node: ir.Node) -> None:
    """NaN stays NaN."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    unknown = ir.Node("", "IsNaN", [x], name=f"{y.name}/IsNaN")
    unknown.outputs[0].name = unique(graph, f"{y.name}_unknown")
    chosen = ir.Node("", "Where", [unknown.outputs[0], x, y], name=f"{y.name}/Where")
    stand_in(graph, y, [unknown, chosen], f"{y.name}_of_numbers")


RULES = (
    Rule("ConvInteger", _INT8_PRODUCTS, _has_int8, _as_uint8),
    Rule("MatMulInteger", _INT8_PRODUCTS, _is_int8_with_uint8, _as_uint8),
    Rule("MatMul", _EVER, lambda node: _signed_data(node) is not None, _unsigned_data),
    Rule("AveragePool", _PADS_ARE_RIGHT, _counts_padding, _pad_before),
    Rule("Erf", _ERF_KEEPS_NAN, lambda node: True, _keep_nan),
)
