"""Record what MXNet 1.9.1 gives for ``picture_cases``: ``python record_pictures.py`` writes ``data/pictures.npz``.

What fails there is listed with its error in ``data/failures.json``.
"""

import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import mxnet as mx
import numpy as np
import picture_cases


def main():
    kept, failures = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        picture_cases.prepare(mx, folder)
        for name, case in picture_cases.CASES.items():
            try:
                found = case(mx, folder)
            except Exception as fault:
                failures[name] = "%s: %s" % (type(fault).__name__, str(fault).strip().split("\n")[-1][:200])
                print(name, failures[name])
                continue
            for key, value in found.items():
                kept["%s|%s" % (name, key)] = value
    np.savez_compressed(os.path.join(HERE, "data", "pictures.npz"), **kept)
    with open(os.path.join(HERE, "data", "failures.json"), "w") as file:
        json.dump(failures, file, indent=1, sort_keys=True)
        file.write("\n")
    print(len(kept), "arrays", sum(v.nbytes for v in kept.values()), "bytes")


if __name__ == "__main__":
    main()
