"""Record what MXNet 1.9.1 answers to the cases of ``spelling.py``, and how its operators are called.

Run with a Python that has MXNet: ``python record.py``.
"""

import ctypes
import json
import os
import sys
import warnings

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import mxnet as mx
import spelling
from mxnet.base import _LIB, check_call, mx_uint, py_str


def answers():
    """{group: {case: answer}}"""
    return {g: {line: spelling.answer(mx, line) for line in spelling.cases(g)} for g in spelling.GROUPS}


def calls():
    """{registered name or alias: [canonical name, [input names], variadic or None, [attribute names]]}"""
    count, names = ctypes.c_uint(), ctypes.POINTER(ctypes.c_char_p)()
    check_call(_LIB.MXListAllOpNames(ctypes.byref(count), ctypes.byref(names)))
    found = {}
    listed = [py_str(names[i]) for i in range(count.value)]  # the next call of MXNet overwrites them
    for name in listed:
        if name.startswith(("_backward", "_np", "_npi", "_npx")):
            continue
        handle = ctypes.c_void_p()
        check_call(_LIB.NNGetOpHandle(name.encode(), ctypes.byref(handle)))
        real, desc, variadic, kind = (ctypes.c_char_p() for _ in range(4))
        n = mx_uint()
        args, types, docs = (ctypes.POINTER(ctypes.c_char_p)() for _ in range(3))
        check_call(
            _LIB.MXSymbolGetAtomicSymbolInfo(
                handle,
                ctypes.byref(real),
                ctypes.byref(desc),
                ctypes.byref(n),
                ctypes.byref(args),
                ctypes.byref(types),
                ctypes.byref(docs),
                ctypes.byref(variadic),
                ctypes.byref(kind),
            )
        )
        inputs, attributes = [], []
        for k in range(n.value):
            is_input = py_str(types[k]).startswith(("NDArray", "Symbol"))
            (inputs if is_input else attributes).append(py_str(args[k]))
        found[name] = [py_str(real.value), inputs, py_str(variadic.value) or None, attributes]
    return found


def write(name, value):
    with open(os.path.join(HERE, "data", name), "w") as file:
        json.dump(value, file, indent=0, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    write("answers.json", answers())
    write("calls.json", calls())
