"""Load int8 files of ``write_cifar_int8.py`` in MXNet 1.9.1 and score them. Runs with the Python that has MXNet.

Twice: through ``SymbolBlock`` (as Gluon scripts do) and bound with ``simple_bind`` (as Module scripts do).
"""

import json
import os
import sys

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SHARED = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(HERE))), "shared")
MEAN, STD = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2023, 0.1994, 0.2010])
BATCH = 200


def main(folder):
    with open(os.path.join(folder, "scores.json")) as file:
        ours = json.load(file)
    stored = np.load(os.path.join(SHARED, "data", "images", "cifar10_test.npz"))
    x = np.ascontiguousarray(((stored["x"] / 255.0 - MEAN) / STD).astype(np.float32).transpose(0, 3, 1, 2))
    y = stored["y"]
    for name, own in ours.items():
        path = os.path.join(folder, name)
        block = mx.gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params")
        right = 0
        for i in range(0, len(x), BATCH):
            right += int((block(mx.nd.array(x[i : i + BATCH])).asnumpy().argmax(1) == y[i : i + BATCH]).sum())
        symbol, args, aux = mx.model.load_checkpoint(path, 0)
        executor = symbol.simple_bind(mx.cpu(), data=(BATCH, 3, 32, 32), grad_req="null")
        executor.copy_params_from(args, aux)
        first = executor.forward(data=mx.nd.array(x[:BATCH]))[0].asnumpy()
        same = np.array_equal(first, block(mx.nd.array(x[:BATCH])).asnumpy())
        theirs = 100.0 * right / len(x)
        print(
            "%s: MXNet %.2f %%, requant %.2f %%, difference %+.2f; simple_bind %s"
            % (name, theirs, own, theirs - own, "equal" if same else "DIFFERS"),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1])
