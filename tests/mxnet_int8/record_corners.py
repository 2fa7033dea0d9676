"""Record what MXNet 1.9.1's passes make of the graphs in ``corners.py``, with its own Python.

For each case: calibration points in order, the int8 symbol, and the symbol with ranges after the second fusion.
"""

import json
import lzma
import os
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import corners
import mxnet as mx
from mxnet.contrib.quantization import _calibrate_quantized_sym, _quantize_symbol
from record_symbols import compact


def main():
    found = {}
    for name, (make, options) in corners.CASES.items():
        with mx.name.NameManager():
            symbol = make(mx)
        if options["fuse"]:
            symbol = symbol.get_backend_symbol("MKLDNN_QUANTIZE")
        fed = ("data", "data2")
        made, points = _quantize_symbol(
            symbol,
            mx.cpu(),
            excluded_symbols=options["names"],
            excluded_operators=options["ops"],
            offline_params=[n for n in symbol.list_arguments() if n not in fed],
            quantized_dtype=options["dtype"],
            quantize_mode=options["mode"],
            quantize_granularity=options["granularity"],
        )
        int8 = compact(made.tojson())  # before calibration, which writes into this very symbol
        final = _calibrate_quantized_sym(made, corners.ranges(points))
        if options["fuse"]:
            final = final.get_backend_symbol("MKLDNN_QUANTIZE")
        found[name] = {"points": points, "int8": int8, "final": compact(final.tojson())}
    text = json.dumps(found, separators=(",", ":"), sort_keys=True)
    with open(os.path.join(HERE, "data", "corners.json.xz"), "wb") as file:
        file.write(lzma.compress(text.encode(), preset=9))
    print("%d cases" % len(found))


if __name__ == "__main__":
    main()
