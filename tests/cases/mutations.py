"""Model files with faults, made from a seed: what a broken disk, a wrong editor or an attacker leaves of a model."""

from __future__ import annotations

import copy
import json
import random
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from requant.formats.params import params_bytes
from requant.ops import registry

HERE = Path(__file__).parent
DIGITS = HERE.parent / "digits"
Graph = dict[str, Any]
Params = dict[str, np.ndarray]

#: Values that attributes get: every kind of number and tuple at its edges, and text that is none.
VALUES = [
    *("", " ", "None", "True", "False", "-1", "0", "1", "2", "3", "7", "-7", "16", "1000", "65536", "99999999"),
    *("2147483647", "2147483648", "-2147483649", "1000000000000", "9223372036854775807", "9223372036854775808"),
    *("1e18", "1e-30", "1e400", "nan", "inf", "-inf", "0.5", "-0.0", "2.5", "1L", "0x10", "१", "9" * 400),
    *("()", "(0,)", "(1,)", "(-1,)", "(2,)", "(0, 0)", "(1, 1)", "(2, 2)", "(-1, -1)", "(3, 1)", "(0, -1)", "(-2,)"),
    *("(-3, 0)", "(-4, 2, -1)", "(1, 1, 1)", "(1, 2, 3, 4)", "(0, 0, 0, 0, 1, 1, 1, 1)", "(1000000, 1000000)"),
    *("(None, 1)", "(None,)", "(2147483648,)", "(9223372036854775807, 2)", "[3]", "[1, 2", "((1,), 2)", "(1.5, 2)"),
    *("(" + "1, " * 40 + ")", "valid", "full", "same", "max", "avg", "sum", "lp", "relu", "NCHW", "NHWC", "float32"),
    *("float16", "float64", "int8", "int32", "uint8", "int64", "bool", "bfloat16", "csr", "x" * 2000, "\u0000", "日本"),
    *("__import__('os').system('true')", "{}", '["zero", {}]', "cpu(0)", "null", "instance", "edge", "lstm", "gru"),
]
INTS = ["-1", "0", "1", "2", "3", "4", "5", "7", "-2", "-7", "16", "100", "1000", "65536", "99999999", "2147483647"]
INTS += ["2147483648", "-2147483649", "1000000000000", "9223372036854775807", "9223372036854775808", "None"]
FLOATS = ["-1", "0", "1", "0.5", "-0.5", "2", "1e-30", "1e18", "1e38", "1e300", "nan", "inf", "-inf", "3", "100"]
JUNK = [
    None,
    True,
    -1,
    0,
    1,
    2.5,
    10**30,
    "",
    "x",
    [],
    [0],
    [[0, 0]],
    [[0, 0, 0]],
    {},
    {"a": 1},
    [[99, 0, 0]],
    "9" * 300,
]


def digits() -> tuple[Graph, Params]:
    """The project's own network."""
    from requant.formats.params import read_params

    params = read_params(DIGITS / "digits-0000.params", copy=True)
    assert isinstance(params, dict)
    graph: Graph = json.loads((DIGITS / "digits-symbol.json").read_text())
    return graph, {n: p for n, p in params.items() if isinstance(p, np.ndarray)}


def of_case(case: Any) -> tuple[Graph, Params, dict[str, np.ndarray]]:
    """A graph of one operator, from a recorded case: parameters are stored, the first input is fed."""
    arrays = case.arrays()
    nodes: list[dict[str, Any]] = [{"op": "null", "name": f"in{i}", "inputs": []} for i in range(len(arrays))]
    attrs = {k: str(v) for k, v in case.attrs.items()}
    ids = [[i, 0, 0] for i in range(len(arrays))]
    nodes.append({"op": case.op, "name": "node", "attrs": attrs, "inputs": ids})
    nodes.append({"op": "_copy", "name": "end", "inputs": [[len(arrays), 0, 0]]})
    graph = {
        "nodes": nodes,
        "arg_nodes": list(range(len(arrays))),
        "heads": [[len(nodes) - 1, 0, 0]],
        "attrs": {"mxnet_version": ["int", 10901]},
    }
    return graph, {f"arg:in{i}": a for i, a in enumerate(arrays) if i}, {f"in{i}": a for i, a in enumerate(arrays[:1])}


def _operators(graph: Graph) -> list[dict[str, Any]]:
    return [n for n in graph["nodes"] if isinstance(n, dict) and n.get("op") != "null"]


def _attribute(rng: random.Random, graph: Graph, params: Params) -> None:
    """One attribute of one operator: another value, gone, or one more."""
    node = rng.choice(_operators(graph))
    attrs = node.setdefault("attrs", {})
    op = registry.find(node["op"])
    names = [*attrs] if op is None else [f.metadata.get("name", f.name) for f in _fields(op)]
    if not names:
        return
    name = rng.choice(names)
    if rng.random() < 0.1:
        attrs.pop(name, None)
    elif op is None or rng.random() < 0.2:
        attrs[name] = rng.choice(VALUES)
    else:
        kind = next(k for n, k in _kinds(op) if n == name)
        attrs[name] = _value(rng, kind)


def _kinds(op: registry.OpDef) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(op.attrs)
    return [(f.metadata.get("name", f.name), hints[f.name]) for f in _fields(op)]


def _value(rng: random.Random, kind: Any) -> str:
    """A value that can be read as that type, and mostly makes no sense."""
    args = [a for a in typing.get_args(kind) if a is not type(None) and a is not Ellipsis]
    if typing.get_origin(kind) is tuple:
        if rng.random() < 0.3:
            return "(" + ", ".join([_value(rng, args[0])] * rng.choice([1, 2, 2, 3, 4, 8])) + ")"
        return "(" + ", ".join(_value(rng, args[0]) for _ in range(rng.choice([0, 1, 2, 2, 3, 4, 5, 8, 33]))) + ",)"
    if typing.get_origin(kind) is typing.Literal:
        return str(rng.choice(args))
    if args:
        return _value(rng, args[0])
    if kind is bool:
        return rng.choice(["True", "False"])
    return rng.choice(INTS[:12] if kind is int and rng.random() < 0.6 else {int: INTS, float: FLOATS}.get(kind, VALUES))


def _fields(op: registry.OpDef) -> tuple[Any, ...]:
    import dataclasses

    return dataclasses.fields(op.attrs)


def _operator(rng: random.Random, graph: Graph, params: Params) -> None:
    node = rng.choice(_operators(graph))
    node["op"] = rng.choice([o.name for o in registry.all_ops()])
    if rng.random() < 0.7:
        node.pop("attrs", None)


def _inputs(rng: random.Random, graph: Graph, params: Params) -> None:
    node = rng.choice(_operators(graph))
    inputs = node["inputs"]
    what = rng.randrange(5)
    other = [rng.randrange(len(graph["nodes"])), rng.choice([0, 0, 0, 1, 2, 9]), 0]
    if what == 0 and inputs:
        inputs.pop(rng.randrange(len(inputs)))
    elif what == 1:
        inputs.append(other)
    elif what == 2 and inputs:
        inputs.append(copy.deepcopy(rng.choice(inputs)))
    elif what == 3:
        rng.shuffle(inputs)
    elif inputs:
        inputs[rng.randrange(len(inputs))] = other


def _heads(rng: random.Random, graph: Graph, params: Params) -> None:
    count = len(graph["nodes"])
    graph["heads"] = [[rng.randrange(count), rng.choice([0, 0, 0, 1]), 0] for _ in range(rng.randrange(1, 4))]


def _names(rng: random.Random, graph: Graph, params: Params) -> None:
    nodes = graph["nodes"]
    rng.choice(nodes)["name"] = rng.choice(
        [rng.choice(nodes)["name"], "", "a b=c", "é\n", "x" * 3000, "N", "in0", "end"]
    )


def _declared(rng: random.Random, graph: Graph, params: Params) -> None:
    variables = [n for n in graph["nodes"] if n.get("op") == "null"]
    if variables:
        key = rng.choice(["__shape__", "__dtype__", "__storage_type__", "__init__", "shape", "lr_mult"])
        rng.choice(variables).setdefault("attrs", {})[key] = rng.choice(VALUES)


def _version(rng: random.Random, graph: Graph, params: Params) -> None:
    if rng.random() < 0.3:
        graph.pop("attrs", None)
    else:
        graph["attrs"] = {"mxnet_version": ["int", rng.choice([0, 700, 800, 904, 905, 10000, 20000, -5, 2**31 - 1])]}


def _junk(rng: random.Random, graph: Graph, params: Params) -> None:
    """Something of another type, anywhere in the tree."""
    at: Any = graph
    for _ in range(rng.randrange(1, 5)):
        keys = list(at) if isinstance(at, dict) else list(range(len(at))) if isinstance(at, list) else []
        if not keys:
            return
        key = rng.choice(keys)
        if rng.random() < 0.3 or not isinstance(at[key], (dict, list)):
            at[key] = copy.deepcopy(rng.choice(JUNK))
            return
        at = at[key]


def _param(rng: random.Random, graph: Graph, params: Params) -> None:
    if not params:
        return
    name = rng.choice(list(params))
    array = params[name]
    what = rng.randrange(9)
    if what == 0:
        del params[name]
    elif what == 1:
        params[name] = array.reshape(-1)
    elif what == 2:
        params[name] = array[..., None]
    elif what == 3:
        params[name] = array[:0] if array.ndim else array
    elif what == 4:
        params[name] = np.full_like(array, np.nan if array.dtype.kind == "f" else 1)
    elif what == 5:
        params[name] = array.astype(rng.choice(["float16", "float64", "int8", "int32", "uint8", "int64", "bool"]))
    elif what == 6:
        params[name] = array.T
    elif what == 7:
        params[rng.choice(["arg:", "aux:", "", "0.", "arg:arg:"]) + name.split(":")[-1] + rng.choice(["", "x"])] = (
            params.pop(name)
        )
    else:
        params[name] = np.concatenate([array, array]) if array.ndim else array


MUTATIONS: list[tuple[int, Callable[[random.Random, Graph, Params], None]]] = [
    (8, _attribute),
    (2, _operator),
    (4, _inputs),
    (1, _heads),
    (1, _names),
    (1, _declared),
    (1, _version),
    (2, _junk),
    (3, _param),
]


def _mutate(rng: random.Random, graph: Graph, params: Params, count: int) -> str:
    kinds = [f for weight, f in MUTATIONS for _ in range(weight)]
    done = []
    for _ in range(count):
        kind = rng.choice(kinds)
        try:
            kind(rng, graph, params)
        except (TypeError, KeyError, IndexError, AttributeError, ValueError):
            continue  # the graph is so broken already that this fault finds no place
        done.append(kind.__name__)
    return ", ".join(done)


def _damage(rng: random.Random, raw: bytes) -> bytes:
    """Bytes that are other, missing, or too many."""
    what = rng.randrange(4)
    at = rng.randrange(len(raw)) if rng.random() < 0.5 else min(len(raw) - 1, rng.randrange(200))
    if what == 0:
        return raw[:at]
    if what == 1:
        return raw[:at] + bytes(rng.randrange(256) for _ in range(rng.randrange(1, 9))) + raw[at + 4 :]
    if what == 2:
        return raw[:at] + raw[at + rng.randrange(1, 16) :]
    return raw[:at] + rng.choice([b"\xff" * 8, b"\0" * 8, raw[at : at + 64]]) + raw[at:]


def dump(graph: Graph) -> bytes:
    """The text of a graph; numbers that JSON lacks are written as Python does."""
    return json.dumps(graph, ensure_ascii=False).encode("utf-8", "surrogatepass")


def write(seed: int, folder: Path, cases: list[Any] | None = None) -> tuple[str, dict[str, np.ndarray]]:
    """Write ``net-symbol.json`` and ``net-0000.params`` with faults of that seed: (what was done, arrays to feed).

    Args:
        cases: recorded cases to start from; without them, or one time in six, the digits network.
    """
    rng = random.Random(seed)
    if cases and rng.random() < 0.84:
        case = rng.choice(cases)
        graph, params, feeds = of_case(case)
        origin = case.id
    else:
        graph, params = digits()
        feeds = {"data": np.random.default_rng(seed).random((2, 1, 8, 8), np.float32)}
        origin = "digits"
    said = _mutate(rng, graph, params, rng.choice([1, 1, 1, 2, 2, 3, 6]))
    symbol = dump(graph)
    raw = params_bytes(params, version=3)
    if rng.random() < 0.05:
        symbol, said = _damage(rng, symbol), said + ", symbol bytes"
    if rng.random() < 0.07:
        raw, said = _damage(rng, raw), said + ", params bytes"
    (folder / "net-symbol.json").write_bytes(symbol)
    (folder / "net-0000.params").write_bytes(raw)
    return f"seed {seed}: {origin}: {said}", feeds
