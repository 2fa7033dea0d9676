"""What calibration found goes into an int8 symbol: ranges as attributes, parameters as integers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from requant.errors import CalibrationError
from requant.rewrite.graph import Moved, entry_name, kept, outputs_of, rebuilt
from requant.rewrite.merge import number, with_range
from requant.symbol.tree import Entry, Node, Symbol

log = logging.getLogger(__name__)

Array = npt.NDArray[np.generic]
#: Ranges by the name of the float tensor, as the pass lists them.
Ranges = Mapping[str, tuple[float, float]]
_FROM_INPUT = {"_contrib_quantize_v2", "_contrib_quantize_asym", "_contrib_requantize"}


def set_ranges(symbol: Symbol, ranges: Ranges) -> Symbol:
    """The int8 symbol with ``min_calib_range`` and ``max_calib_range`` where a range is known.

    Others are left as they are: they find their ranges while they run.
    """
    log.info("Set calibration result to quantized symbol.")

    def visit(node: Node, moved: Moved) -> list[Entry] | None:
        name = "" if node.op is None else node.op.name
        if name not in _FROM_INPUT and name != "_contrib_quantized_batch_norm":
            return None
        key = entry_name(node.inputs[0] if name in _FROM_INPUT else (node, 0)).removeprefix("quantized_")
        found = ranges.get(key)
        if found is None:
            log.info("Can't find calibration result for %s", node.name)
            return None
        low, high = (_finite(end, key) for end in found)
        log.info("Set calibration result to %s : min=%s max=%s", node.name, number(low), number(high))
        new = kept(node, [moved(e) for e in node.inputs])
        return outputs_of(Node(new.op, new.name, with_range(new, low, high), new.inputs, new.subgraphs))

    return rebuilt(symbol, visit)


def _finite(value: float, where: str) -> float:
    if not np.isfinite(value):
        raise CalibrationError(
            "a range must be finite", where=where, got=value, next="look for NaN or Inf in the calibration data"
        )
    return float(value)


def quantize_weight(value: Array) -> tuple[Array, Array, Array]:
    """A parameter as int8 with one scale: integers, and -R and R of shape (1,), R its largest magnitude.

    127 levels, as MXNet's ``_contrib_quantize`` has. A parameter of zeros gives zeros (MXNet: 127, B14).
    """
    data = np.asarray(value, np.float32)
    reach = np.float32(np.abs(data).max()) if data.size else np.float32(0)
    scale = np.float32(127) / reach if reach > 0 else np.float32(0)
    integers = np.clip(np.rint(data * scale), -128, 127).astype(np.int8)
    return integers, np.array([-reach], np.float32), np.array([reach], np.float32)


def quantize_params(symbol: Symbol, params: Mapping[str, Array], ranges: Ranges) -> dict[str, Array]:
    """The arguments of an int8 symbol, from those of the float network.

    Args:
        symbol: what ``quantize_symbol`` made.
        params: the float network's arguments by name; those that are not used any more are left out.
        ranges: for symbols of MXNet 1.4, whose quantizers read a minimum and a maximum from variables.
    """
    found: dict[str, Array] = {}
    names = set(symbol.list_arguments())
    for name in symbol.list_arguments():
        source = name.removesuffix("_quantize")
        if name != source and source in params:
            values = quantize_weight(params[source])
            found.update({name + end: v for end, v in zip(("", "_min", "_max"), values) if name + end in names})
        elif name in params:
            found[name] = params[name]
        else:
            for end, suffix in enumerate(("_min", "_max")):
                key = name.removesuffix(suffix)
                if name != key and key in ranges:
                    found[name] = np.array([ranges[key][end]], np.float32)
    return found
