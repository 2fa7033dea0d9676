"""Record what MXNet 1.9.1 gives for the programs of ``gluon_cases.py``, with the Python that has it."""

import json
import os

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import gluon_cases
import mxnet as mx
import numpy as np

if __name__ == "__main__":
    data = os.path.join(gluon_cases.HERE, "data")
    found, names = gluon_cases.layers(mx)
    arrays = {"layers|" + n: o.asnumpy() for n, o in found.items()}
    arrays.update({"cells|" + n: o.asnumpy() for n, o in gluon_cases.cells(mx).items()})
    arrays.update({"losses|" + n: o.asnumpy() for n, o in gluon_cases.losses(mx).items()})
    np.savez_compressed(os.path.join(data, "outputs.npz"), **arrays)
    with open(os.path.join(data, "names.json"), "w") as file:
        json.dump(
            {"layers": names, "vision": {n: gluon_cases.vision(mx, n) for n in gluon_cases.VISION}}, file, indent=1
        )
