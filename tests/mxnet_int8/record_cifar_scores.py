"""Load int8 files of ``write_cifar_int8.py`` in MXNet 1.9.1, score them and keep what it found.

``python record_cifar_scores.py FOLDER`` with the Python that has MXNet. The files run through ``SymbolBlock`` (as
Gluon scripts do), and one batch bound with ``simple_bind`` (as Module scripts do), which must be equal.
data/cifar-scores.json keeps the scores, ours too, and data/cifar-classes.npz the class that MXNet found in each of the
10,000 images.
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


def found(path, x):
    """The classes, and whether both ways to run the files give the same numbers."""
    block = mx.gluon.SymbolBlock.imports(path + "-symbol.json", ["data"], path + "-0000.params")
    classes = [block(mx.nd.array(x[i : i + BATCH])).asnumpy().argmax(1) for i in range(0, len(x), BATCH)]
    symbol, args, aux = mx.model.load_checkpoint(path, 0)
    executor = symbol.simple_bind(mx.cpu(), data=(BATCH, *x.shape[1:]), grad_req="null")
    executor.copy_params_from(args, aux)
    first = executor.forward(data=mx.nd.array(x[:BATCH]))[0].asnumpy()
    return np.concatenate(classes), np.array_equal(first, block(mx.nd.array(x[:BATCH])).asnumpy())


def main(folder):
    with open(os.path.join(folder, "scores.json")) as file:
        scores = json.load(file)
    stored = np.load(os.path.join(SHARED, "data", "images", "cifar10_test.npz"))
    x = np.ascontiguousarray(((stored["x"] / 255.0 - MEAN) / STD).astype(np.float32).transpose(0, 3, 1, 2))
    kept = {}
    for name in scores:
        classes, same = found(os.path.join(folder, name), x)
        assert same, name + ": simple_bind differs from SymbolBlock"
        kept[name] = classes.astype(np.uint8)
        scores[name]["mxnet"] = round(100.0 * float((classes == stored["y"]).mean()), 2)
        ours = np.load(os.path.join(folder, name + "-classes.npz"))
        scores[name]["as_mxnet"] = {k: round(100.0 * float((ours[k] == classes).mean()), 2) for k in ours.files}
        print(name, scores[name], flush=True)
    np.savez_compressed(os.path.join(HERE, "data", "cifar-classes.npz"), **kept)
    with open(os.path.join(HERE, "data", "cifar-scores.json"), "w") as file:
        json.dump(scores, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
