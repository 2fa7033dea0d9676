"""Where OpenVINO reads an ONNX graph otherwise than ONNX says, and what is done about it.

Works on OpenVINO's own graph, between reading and compiling. The library comes as an argument: ``openvino.py`` alone
imports it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: OpenVINO's own stable TopK compares every element with every one kept; up to this many comparisons that is fastest.
_FEW_COMPARISONS = 16384
#: Pairs of (group, place) up to this number of places fit into int32.
_MOST_PLACES = 46340
#: Up to this many rows are sorted one by one.
_FEW_ROWS = 64


def conform(graph: Any, library: Any) -> None:
    """Make a graph, as OpenVINO has read it, mean what the ONNX graph means.

    Args:
        graph: ``openvino.Model``, changed in place.
        library: the ``openvino`` module.
    """
    for node in graph.get_ops():
        kind = node.get_type_name()
        if kind == "TopK":
            _keep_ties_in_order(node, library.opset11)
        elif kind == "NonMaxSuppression":
            _keep_equal_overlaps(node, library.opset11)


def _keep_equal_overlaps(node: Any, ops: Any) -> None:
    """ONNX suppresses a box whose IoU is greater than the threshold, OpenVINO one whose IoU reaches it."""
    given = node.input_value(3).get_node()
    if given.get_type_name() == "Constant":
        threshold = np.nextafter(given.get_data().astype(np.float32), np.float32(np.inf))
        # Arithmetic may flush subnormal numbers to zero.
        threshold = np.maximum(threshold, np.finfo(np.float32).tiny)
        node.input(3).replace_source_output(ops.constant(threshold).output(0))


def _keep_ties_in_order(node: Any, ops: Any) -> None:
    """ONNX Runtime orders equal elements by index, which OpenVINO can do but its ONNX reader does not ask for."""
    given = node.get_attributes()
    if given.get("stable", True) or not node.output(1).get_target_inputs():
        return
    axis, mode, kind = int(given["axis"]), given["mode"], str(given["index_element_type"])
    x, count = node.input_value(0), node.input_value(1).get_node()
    k = int(count.get_data()) if count.get_type_name() == "Constant" else 0
    if given["sort"] != "value" or not _is_long(x, axis, k):
        stable = ops.topk(x, node.input_value(1), axis, mode, given["sort"], kind, True)
        outputs = stable.outputs()
        stable.set_friendly_name(node.get_friendly_name())
    else:
        outputs = _stable(ops, x, k, axis, mode, kind)
    for old, new in zip(node.outputs(), outputs):
        names = old.get_names()
        old.replace(new)
        new.set_names(names)


def _is_long(x: Any, axis: int, k: int) -> bool:
    """Whether OpenVINO's own stable TopK would take long, and there is another way."""
    shape = x.get_partial_shape()
    if k < 1 or shape[axis].is_dynamic or shape[axis].get_length() * k <= _FEW_COMPARISONS:
        return False
    rows = [d for i, d in enumerate(shape) if i != axis]
    few = all(d.is_static for d in rows) and np.prod([d.get_length() for d in rows]) <= _FEW_ROWS
    return k <= _MOST_PLACES or (few and x.get_element_type().is_real())


def _stable(ops: Any, x: Any, k: int, axis: int, mode: str, kind: str) -> list[Any]:
    """A stable TopK made of faster operators."""
    rank = len(x.get_partial_shape())
    last = [i for i in range(rank) if i != axis] + [axis]
    moved = ops.transpose(x, last).output(0) if axis != rank - 1 else x
    end = rank - 1
    ordered = _without_nan(ops, moved, mode) if x.get_element_type().is_real() else moved
    places = None
    if int(x.get_partial_shape()[axis].get_length()) > k:
        places = _chosen(ops, ordered, k, end, mode)
        ordered = ops.gather_elements(ordered, places, end).output(0)
    order = (_order_of_few if k <= _MOST_PLACES else _order_of_many)(ops, ordered, k, end, mode)
    place = order if places is None else ops.gather_elements(places, order, end).output(0)
    found = [ops.gather_elements(moved, place, end), ops.convert(place, kind)]
    if axis != rank - 1:
        back = [int(i) for i in np.argsort(last)]
        found = [ops.transpose(f, back) for f in found]
    return [f.output(0) for f in found]


def _order_of_few(ops: Any, x: Any, k: int, end: int, mode: str) -> Any:
    """Indices (int32) that order all k elements of each row: equal ones are put in order by their pairs (group, place).

    TopK that is not stable puts equal elements side by side, which makes the groups.
    """
    best = ops.topk(x, np.int32(k), end, mode, "value", "i32", False)
    value, place = best.output(0), best.output(1)
    if k == 1:
        return place
    ends = np.array([end], np.int32)
    before = ops.slice(value, *(np.array([n], np.int32) for n in (0, k - 1, 1)), ends)
    after = ops.slice(value, *(np.array([n], np.int32) for n in (1, k, 1)), ends)
    new_group = ops.convert(ops.not_equal(before, after), "i32")
    group = ops.pad(ops.cumsum(new_group, np.int32(end)), *_in_front(end), "constant", np.int32(0))
    start = ops.multiply(group, np.int32(k))
    pairs = ops.topk(ops.add(start, place), np.int32(k), end, "min", "value", "i32", False).output(0)
    return ops.subtract(pairs, start).output(0)  # groups come in order as they were; division is not exact here


def _order_of_many(ops: Any, x: Any, k: int, end: int, mode: str) -> Any:
    """As ``_order_of_few``, for more elements than make pairs in int32: NonMaxSuppression sorts them.

    Each element is the score of the only box of a class of its own, so that none is suppressed. Boxes of all classes
    come ordered by score and then by class.
    """
    shape = [int(d.get_length()) for d in x.get_partial_shape()]
    rows = int(np.prod(shape[:-1]))
    limit = np.finfo(np.float32)
    score = ops.convert(x, "f32")
    score = ops.clamp(score if mode == "max" else ops.negative(score), float(limit.min), float(limit.max))
    box, one = np.array([[[0, 0, 1, 1]]], np.float32), np.array([1], np.int32)
    parts = ops.split(ops.reshape(score, np.array([rows, k, 1], np.int32), False), np.int32(0), rows)
    orders = []
    for part in parts.outputs():
        found = ops.non_max_suppression(
            ops.constant(box),
            part,
            ops.constant(np.int64(1)),
            ops.constant(np.float32(1)),
            ops.constant(np.float32(-np.inf)),
            ops.constant(np.float32(0)),
            "corner",
            True,
            "i32",
        )
        element = ops.gather(found.output(0), one, np.int32(1))
        orders.append(ops.reshape(element, np.array([1, k], np.int32), False))
    joined = ops.concat(orders, 0)
    return ops.reshape(joined, np.array(shape, np.int32), False).output(0)


def _in_front(end: int) -> tuple[Any, Any]:
    """Pads that put one element in front of the last axis."""
    return np.array([0] * end + [1], np.int32), np.zeros(end + 1, np.int32)


def _without_nan(ops: Any, x: Any, mode: str) -> Any:
    """NaN as the worst of values, so that comparisons always find as many elements as are asked for."""
    worst = ops.constant(np.float32(-np.inf if mode == "max" else np.inf))
    return ops.select(ops.equal(x, x), x, ops.convert_like(worst, x)).output(0)


def _chosen(ops: Any, x: Any, k: int, end: int, mode: str) -> Any:
    """Indices (int32) of the k best along the last axis, the first ones of those that equal the k-th.

    Equal elements come in order of their indices.
    """
    best = ops.topk(x, np.int32(k), end, mode, "value", "i32", False).output(0)
    one, axis = np.array([1], np.int32), np.array([end], np.int32)
    worst = ops.slice(best, np.array([k - 1], np.int32), np.array([k], np.int32), one, axis)
    better = ops.greater(x, worst) if mode == "max" else ops.less(x, worst)
    equal = ops.equal(x, worst)
    if all(d.is_static and d.get_length() == 1 for d in list(x.get_partial_shape())[:-1]):
        parts = [ops.gather(ops.non_zero(flags, "i32"), np.int32(end), np.int32(0)) for flags in (better, equal)]
        none, first = np.array([0], np.int32), np.array([k], np.int32)
        index = ops.slice(ops.concat(parts, 0), none, first, one, none)
    else:
        wanted = ops.subtract(np.int32(k), ops.reduce_sum(ops.convert(better, "i32"), axis, True))
        among_first = ops.less_equal(ops.cumsum(ops.convert(equal, "i32"), np.int32(end)), wanted)
        found = ops.non_zero(ops.logical_or(better, ops.logical_and(equal, among_first)), "i32")
        index = ops.gather(found, np.int32(end), np.int32(0))
    return ops.reshape(index, ops.shape_of(best, "i32"), False)
