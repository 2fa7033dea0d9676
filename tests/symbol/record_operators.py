"""Record the input and output names of every operator that has golden cases, with a Python that has MXNet 1.9.1.

Each operator is applied to no inputs at all, under the name ``op``, so that MXNet makes a variable for each and tells
its name. Of the attribute sets in the golden cases, those are kept that give a new answer.
"""

import ctypes
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "goldens"))

import mxnet as mx
from case import cases, families
from mxnet.base import _LIB, SymbolHandle, c_array, c_str, c_str_array, check_call


def apply(op, attrs, count):
    """The operator applied to ``count`` variables, or to none."""
    kind, made = ctypes.c_void_p(), SymbolHandle()
    check_call(_LIB.NNGetOpHandle(c_str(op), ctypes.byref(kind)))
    check_call(
        _LIB.MXSymbolCreateAtomicSymbol(
            kind,
            ctypes.c_uint(len(attrs)),
            c_str_array(list(attrs)),
            c_str_array(list(attrs.values())),
            ctypes.byref(made),
        )
    )
    symbol = mx.sym.Symbol(made)
    inputs = [mx.sym.var("in%d" % i) for i in range(count)]
    handles = c_array(SymbolHandle, [i.handle for i in inputs])
    check_call(_LIB.MXSymbolCompose(symbol.handle, c_str("op"), ctypes.c_uint(count), None, handles))
    return symbol


def counts_inputs(op):
    """Whether the operator takes any number of inputs, which one of its attributes counts."""
    kind = ctypes.c_void_p()
    check_call(_LIB.NNGetOpHandle(c_str(op), ctypes.byref(kind)))
    texts = [ctypes.c_char_p() for _ in range(4)]
    lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    name, doc, key, kind_of_result = [ctypes.byref(t) for t in texts]
    given = [ctypes.byref(x) for x in lists]
    check_call(
        _LIB.MXSymbolGetAtomicSymbolInfo(kind, name, doc, ctypes.byref(ctypes.c_uint()), *given, key, kind_of_result)
    )
    return bool(texts[2].value)


def facts(op, attrs, count):
    symbol = apply(op, attrs, count)
    rows = json.loads(symbol.tojson())["node_row_ptr"]
    return {
        "arguments": symbol.list_arguments(),
        "auxiliary": symbol.list_auxiliary_states(),
        "outputs": symbol.list_outputs(),
        "all outputs": rows[-1] - rows[-2],
    }


def main():
    recorded = {}
    for family in families():
        for case in cases(family):
            attrs = {k: str(v) for k, v in sorted(case.attrs.items()) if v is not None}
            count = len(case.inputs) if counts_inputs(case.op) else 0
            try:
                found = facts(case.op, attrs, count)
            except Exception as fault:
                print("%s: %s" % (case.id, str(fault).strip().split("\n")[-1]))
                continue
            entries = recorded.setdefault(case.op, [])
            if all(found != e["found"] for e in entries):
                entries.append({"attrs": attrs, "inputs": count, "found": found})
    with open(os.path.join(HERE, "data", "operators.json"), "w") as file:
        json.dump(recorded, file, indent=0, sort_keys=True)
        file.write("\n")
    print("%d operators, %d attribute sets" % (len(recorded), sum(len(e) for e in recorded.values())))


if __name__ == "__main__":
    main()
