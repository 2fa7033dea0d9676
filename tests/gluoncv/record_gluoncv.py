"""Record what MXNet 1.9.1 and GluonCV 0.10.5.post0 compute for every network of the list, on seeded weights.

Run with the Python that has both: ``python record_gluoncv.py [name ...]``; without names, all that are not recorded.
Writes ``data/digests.npz`` and ``data/networks.json``.
"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
JSON = os.path.join(HERE, "data", "networks.json")
NPZ = os.path.join(HERE, "data", "digests.npz")
#: How many elements of an output are kept; all of it where it has no more.
KEPT = 256
BOXES = 4096


def digest(array, keep):
    import numpy as np

    x = np.asarray(array).reshape(-1)
    if x.size > keep:
        x = x[np.linspace(0, x.size - 1, keep).astype(np.int64)]
    return x.astype(np.float32)


def box_rows(outputs):
    """Detections as rows: class, score, box, and samples of a mask if there is one; the highest scores alone, where
    there are too many. None where these are no detections."""
    import numpy as np

    if len(outputs) < 3 or outputs[2].size != 4 * outputs[0].size:
        return None
    count = outputs[0].size
    columns = [np.asarray(o).reshape(count, -1) for o in outputs]
    columns[3:] = [c[:, np.linspace(0, c.shape[1] - 1, 8).astype(np.int64)] for c in columns[3:]]
    rows = np.concatenate(columns, axis=1).astype(np.float32)
    return rows[np.argsort(-rows[:, 1], kind="stable")[: BOXES // 4]]


def record(name):
    import gluoncv_networks
    import mxnet as mx
    import numpy as np
    from gluoncv.model_zoo import get_model

    fault = None
    for shapes in gluoncv_networks.shapes(name):
        try:
            with mx.name.NameManager():
                net = gluoncv_networks.build(name, get_model)
        except Exception as error:
            return {"error": "%s: %s" % (type(error).__name__, str(error).split("\n")[0][:200])}, {}
        try:
            data = [mx.nd.array(x) for x in gluoncv_networks.inputs(name, shapes)]
            net.initialize(mx.init.Zero(), force_reinit=True)
            for o in gluoncv_networks.flat(net(*data)):
                o.asnumpy()
            params = net.collect_params()
            short = gluoncv_networks.short_names(net, params.keys())
            for n, p in params.items():
                if p.shape is not None and all(d > 0 for d in p.shape) and not isinstance(p, mx.gluon.Constant):
                    p.set_data(mx.nd.array(gluoncv_networks.value(name, short[n], p.shape, p.dtype), dtype=p.dtype))
            outs = [o.asnumpy() for o in gluoncv_networks.flat(net(*data))]
        except Exception as error:
            fault = "%s: %s" % (type(error).__name__, str(error).strip().split("\n")[-1][:200])
            continue
        facts = {
            "input": shapes,
            "outputs": [list(o.shape) for o in outs],
            "scale": [float(np.abs(o).max()) if o.size else 0.0 for o in outs],
            "params": [[short[n], list(p.shape or ())] for n, p in params.items()],
        }
        import hashlib

        if "_gn" in name:  # MXNet refuses to hybridize what stands in GluonCV's GroupNorm
            net.hybridize()
            try:
                net(*data)[0].asnumpy()
            except Exception as error:
                facts["hybrid"] = "%s: %s" % (type(error).__name__, str(error).strip().split("\n")[-1][:200])
        facts["params"] = [len(facts["params"]), hashlib.sha256(json.dumps(facts["params"]).encode()).hexdigest()[:16]]
        rows = box_rows(outs) if gluoncv_networks.is_detector(name) else None
        if rows is not None:
            return facts, {"%s|rows" % name: rows}
        return facts, {"%s|%d" % (name, i): digest(o, KEPT) for i, o in enumerate(outs)}
    return {"error": fault}, {}


def store(name, facts, arrays):
    import fcntl

    import numpy as np

    with open(NPZ + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.load(open(JSON)) if os.path.exists(JSON) else {}
        kept = dict(np.load(NPZ)) if os.path.exists(NPZ) else {}
        kept = {k: v for k, v in kept.items() if k.rsplit("|", 1)[0] != name}
        kept.update(arrays)
        known[name] = facts
        np.savez_compressed(NPZ[:-4] + ".new.npz", **kept)
        os.replace(NPZ[:-4] + ".new.npz", NPZ)
        with open(JSON + ".new", "w") as file:
            file.write("{\n" + ",\n".join('"%s": %s' % (n, json.dumps(known[n])) for n in sorted(known)) + "\n}\n")
        os.replace(JSON + ".new", JSON)


def main(words):
    import gluoncv_networks

    if words:
        for name in words:
            facts, arrays = record(name)
            store(name, facts, arrays)
            print(name, facts, flush=True)
        return
    from gluoncv.model_zoo import get_model_list

    known = json.load(open(JSON)) if os.path.exists(JSON) else {}
    names = [n for n in get_model_list() if n not in known and not n.endswith("int8")]  # see tests/int8_graphs
    volumes = [n for n in names if gluoncv_networks.is_volume(n)]
    flat = [n for n in names if n not in volumes]
    # Convolutions of three dimensions fail in MXNet's default build, so these run without oneDNN.
    for group, more in ((flat, {}), (volumes, {"MXNET_MKLDNN_ENABLED": "0"})):
        for i in range(0, len(group), 8):
            env = dict(os.environ, MXNET_SUBGRAPH_BACKEND="NONE", **more)
            subprocess.call([sys.executable, os.path.abspath(__file__), *group[i : i + 8]], env=env)


if __name__ == "__main__":
    main(sys.argv[1:])
