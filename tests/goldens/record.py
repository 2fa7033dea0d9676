"""Record golden outputs from MXNet 1.9.1. Run with a Python that has it: ``python record.py [family ...] [--missing]``.

Every case becomes a one-node symbol file, is loaded by MXNet and bound with ``is_train=False``, without the graph
partitioner (``MXNET_SUBGRAPH_BACKEND=NONE``), whose fusions are wrong for some graphs. Cases that need other settings
are recorded in a process of their own. ``--missing`` keeps what is recorded and adds what is new.
"""

import json
import os
import subprocess
import sys

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from case import HERE, cases, families


def run(case):
    """The outputs of one case, computed by MXNet."""
    import mxnet as mx

    nodes = [{"op": "null", "name": "in%d" % i, "inputs": []} for i in range(len(case.inputs))]
    node = {"op": case.op, "name": "op", "inputs": [[i, 0, 0] for i in range(len(nodes))]}
    attrs = {k: str(v) for k, v in case.attrs.items() if v is not None}
    if attrs:
        node["attrs"] = attrs
    graph = {
        "nodes": nodes + [node],
        "arg_nodes": list(range(len(nodes))),
        "heads": [[len(nodes), 0, 0]],
        "attrs": {"mxnet_version": ["int", 10901]},
    }
    one = mx.sym.load_json(json.dumps(graph))
    names = one.get_internals().list_outputs()
    count = len([n for n in names if n.startswith("op_")])
    graph["heads"] = [[len(nodes), i, 0] for i in range(count)]
    sym = mx.sym.load_json(json.dumps(graph))
    arrays = {"in%d" % i: mx.nd.array(a, dtype=a.dtype) for i, a in enumerate(case.arrays())}
    aux = {n: arrays[n] for n in sym.list_auxiliary_states()}
    args = {n: arrays[n] for n in sym.list_arguments()}
    outs = sym.bind(mx.cpu(), args, aux_states=aux, grad_req="null").forward(is_train=False)
    return [o.asnumpy() for o in outs][: case.outputs]


def record(family, missing):
    path = os.path.join(HERE, "data", family + ".npz")
    have = dict(np.load(path)) if missing and os.path.exists(path) else {}
    kept, failed = {}, []
    here = dict(os.environ)
    for case in cases(family):
        old = {k: v for k, v in have.items() if k.split("|")[0] == case.id}
        if old:
            kept.update(old)
            continue
        try:
            if all(here.get(k) == v for k, v in case.env):
                outs = run(case)
            else:
                outs = elsewhere(family, case)
        except Exception as fault:
            failed.append("%s\n    %s" % (case.id, str(fault).strip().split("\n")[0]))
            continue
        kept.update({"%s|%d" % (case.id, i): o for i, o in enumerate(outs)})
    np.savez_compressed(path, **kept)
    print("%s: %d cases, %d recorded" % (family, len(cases(family)), len(set(k.split("|")[0] for k in kept))))
    for text in failed:
        print("  FAILED " + text)
    return not failed


def elsewhere(family, case):
    """Run one case in a process with its own environment."""
    import pickle

    env = dict(os.environ, **dict(case.env))
    out = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "--one", family, case.id],
        env=env,
        stdout=subprocess.PIPE,
        check=True,
    )
    return pickle.loads(out.stdout)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["--one"]:
        import pickle

        found = [c for c in cases(words[1]) if c.id == words[2]]
        sys.stdout.buffer.write(pickle.dumps(run(found[0]), protocol=4))
        sys.exit()
    chosen = [w for w in words if not w.startswith("--")] or families()
    ok = [record(f, "--missing" in words) for f in chosen]
    sys.exit(0 if all(ok) else 1)
