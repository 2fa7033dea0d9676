"""Record what MXNet 1.9.1's quantization API returns for the networks of ``int8_networks.py``, with its own Python.

For each network, both APIs, both modes, three calibrations and three dtypes: the int8 symbol and the names of its
parameters. Fused symbols too. ``MXNET_SUBGRAPH_BACKEND=NONE``, or MXNet would calibrate another graph than the one
that it was given (docs/differences.md, B21).
"""

import itertools
import json
import lzma
import os
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import int8_networks as networks
import mxnet as mx
import numpy as np
from mxnet.contrib import quantization

APIS = {"quantize_model": quantization.quantize_model, "quantize_model_mkldnn": quantization.quantize_model_mkldnn}
MODES, CALIBRATIONS, DTYPES = ("full", "smart"), ("none", "naive", "entropy"), ("int8", "uint8", "auto")


THRESHOLDS = {}
_calibrate_entropy = mx.nd.contrib.calibrate_entropy


def calibrate_entropy(hist, hist_edges, num_quantized_bins=255):
    """MXNet's search, run once for each histogram."""
    key = (hist.asnumpy().tobytes(), hist_edges.asnumpy().tobytes(), num_quantized_bins)
    if key not in THRESHOLDS:
        found = _calibrate_entropy(hist=hist, hist_edges=hist_edges, num_quantized_bins=num_quantized_bins)
        THRESHOLDS[key] = [x.asnumpy() for x in found]
    return [mx.nd.array(x) for x in THRESHOLDS[key]]


def compact(text):
    """A symbol as nested lists, which compress well: nodes and heads."""
    return _graph(json.loads(text))


def _graph(graph):
    nodes = [
        [
            n["op"],
            n["name"],
            n.get("attrs", {}),
            [e[:2] for e in n["inputs"]],
            [_graph(s) for s in n.get("subgraphs", [])],
        ]
        for n in graph["nodes"]
    ]
    return [nodes, [h[:2] for h in graph["heads"]]]


def iterator(name):
    label = np.zeros(networks.SHAPE[0] * networks.BATCHES, np.float32) if name == "chain" else None
    return mx.io.NDArrayIter(networks.data(name), label, batch_size=networks.SHAPE[0])


def main(wanted):
    mx.nd.contrib.calibrate_entropy = calibrate_entropy
    for name in wanted or networks.NETWORKS:
        THRESHOLDS.clear()
        with mx.name.NameManager():
            symbol = networks.NETWORKS[name](mx)
        args, aux = networks.values(symbol, name)
        args = {k: mx.nd.array(v) for k, v in args.items()}
        aux = {k: mx.nd.array(v) for k, v in aux.items()}
        found = {"float": compact(symbol.tojson())}
        for backend in ("MKLDNN", "MKLDNN_QUANTIZE"):
            found[backend] = compact(symbol.get_backend_symbol(backend).tojson())
        for api, mode, calibration, dtype in itertools.product(APIS, MODES, CALIBRATIONS, DTYPES):
            key = "/".join((api, mode, calibration, dtype))
            try:
                made, qargs, qaux = APIS[api](
                    symbol,
                    args,
                    aux,
                    data_names=networks.inputs(name),
                    label_names=("softmax_label",) if name == "chain" else None,
                    ctx=mx.cpu(),
                    calib_mode=calibration,
                    calib_data=None if calibration == "none" else iterator(name),
                    quantized_dtype=dtype,
                    quantize_mode=mode,
                )
            except Exception as fault:
                found[key] = {"error": str(fault).strip().split("\n")[0]}
                print(name, key, found[key])
                continue
            sums = {
                k: [float(np.abs(v.asnumpy().astype(np.float64)).sum()), str(v.dtype.__name__)]
                for k, v in qargs.items()
            }
            found[key] = {"symbol": compact(made.tojson()), "args": sums, "aux": sorted(qaux)}
        text = json.dumps(found, separators=(",", ":"), sort_keys=True)
        path = os.path.join(HERE, "data", name + ".json.xz")
        with open(path, "wb") as file:
            file.write(lzma.compress(text.encode(), preset=9))
        print(name, len(text), os.path.getsize(path), flush=True)


if __name__ == "__main__":
    os.makedirs(os.path.join(HERE, "data"), exist_ok=True)
    main(sys.argv[1:])
