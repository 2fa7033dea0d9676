"""Load the int8 files of the digits network in MXNet 1.9.1, with its own Python, and record what it computes.

The files were written by ``requant.quantize(requant.load("tests/digits/digits"), calibration).save("digits-int8")``.
"""

import os

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PREFIX = os.path.join(HERE, "data", "digits-int8")


def main():
    stored = np.load(os.path.join(os.path.dirname(HERE), "digits", "digits.npz"))
    x = stored["x"].astype(np.float32) / 16
    inputs = ["data", "softmax_label"]  # Gluon wants the label of a loss head, though it changes nothing
    block = mx.gluon.SymbolBlock.imports(PREFIX + "-symbol.json", inputs, PREFIX + "-0000.params")
    out = block(mx.nd.array(x), mx.nd.zeros((len(x),))).asnumpy()
    np.savez_compressed(PREFIX + "-outputs.npz", outputs=out)
    print("%.2f %% right in MXNet %s" % (100.0 * (out.argmax(1) == stored["y"]).mean(), mx.__version__))


if __name__ == "__main__":
    main()
