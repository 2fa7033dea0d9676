"""Record what MXNet 1.9.1 computes for the 22 INT8 graphs: ``python record_int8_graphs.py [name ...]`` with its Python.

Kept in ``data/outputs.npz``: a sample of every output, and of every int8 tensor that a ``_contrib_dequantize`` reads.
``--full FOLDER`` writes the whole arrays there, for ``table.py``.
"""

import os
import sys
import time

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
os.environ["MXNET_ENGINE_TYPE"] = "NaiveEngine"  # one thread: its processor time is what is measured
os.environ["OMP_NUM_THREADS"] = "1"

import mxnet as mx
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import graphs


def heads(sym):
    """The outputs, and the int8 tensors that are dequantized, under their names."""
    inner = sym.get_internals()
    outputs = set(inner.list_outputs())
    found = list(sym.list_outputs())
    for name in inner.list_outputs():
        if name.endswith("_dequantize_output"):
            source = inner[name].get_children()[0].list_outputs()[0]
            if source in outputs and source not in found:
                found.append(source)
    return found, mx.sym.Group([inner[n] for n in found])


def record(name):
    sym = mx.sym.load_json(graphs.text(name).decode())
    names, group = heads(sym)
    shape = graphs.shape(name)
    args, _, aux = group.infer_shape(data=shape)
    listed = list(zip(group.list_arguments(), args)) + list(zip(group.list_auxiliary_states(), aux))
    params = graphs.parameters(name, {n: s for n, s in listed if n != "data"})
    arrays = {n: mx.nd.array(a) for n, a in params.items()}
    arrays["data"] = mx.nd.array(graphs.image(name))
    bound = group.bind(
        mx.cpu(),
        {n: arrays[n] for n in group.list_arguments()},
        aux_states={n: arrays[n] for n in group.list_auxiliary_states()},
        grad_req="null",
    )
    outs = [o.asnumpy() for o in bound.forward(is_train=False)]
    own = sym.bind(
        mx.cpu(),
        {n: arrays[n] for n in sym.list_arguments()},
        aux_states={n: arrays[n] for n in sym.list_auxiliary_states()},
        grad_req="null",
    )
    spent = []
    for _ in range(6):
        start = time.process_time()
        for o in own.forward(is_train=False):
            o.wait_to_read()
        spent.append(time.process_time() - start)
    return dict(zip(names, outs)), min(spent)


if __name__ == "__main__":
    words = sys.argv[1:]
    folder = None
    if "--full" in words:
        at = words.index("--full")
        folder = words[at + 1]
        del words[at : at + 2]
    path = os.path.join(graphs.DATA, "outputs.npz")
    for name in words or graphs.names():
        outs, spent = record(name)
        kept = dict(np.load(path)) if os.path.exists(path) else {}
        kept.update({"%s|%s" % (name, k): graphs.sample(v) for k, v in outs.items()})
        np.savez_compressed(path, **kept)
        if folder:
            np.savez(os.path.join(folder, name + ".npz"), milliseconds=1000 * spent, **outs)
        print("%s: %d arrays, %.1f ms" % (name, len(outs), 1000 * spent))
        sys.stdout.flush()
