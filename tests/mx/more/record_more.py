"""Record what MXNet 1.9.1 gives for ``more_cases``: ``python record_more.py`` writes ``data/more.npz``."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import more_cases
import mxnet as mx
import numpy as np

if __name__ == "__main__":
    kept = {f"{name}|{key}": value for name, case in more_cases.CASES.items() for key, value in case(mx).items()}
    np.savez_compressed(os.path.join(HERE, "data", "more.npz"), **kept)
    print(len(kept), "arrays")
