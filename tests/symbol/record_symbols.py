"""Record what MXNet 1.9.1 says of the symbols of ``symbols.py``. Run with a Python that has it."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import mxnet
from symbols import ALL, facts


def main():
    recorded = {}
    for case in ALL:
        try:
            recorded[case.name] = facts(mxnet, case)
        except Exception as fault:
            print("%s: %s" % (case.name, str(fault).strip().split("\n")[-1]))
    with open(os.path.join(HERE, "data", "symbols.json"), "w") as file:
        json.dump(recorded, file, indent=1, sort_keys=True)
        file.write("\n")
    print("%d of %d recorded" % (len(recorded), len(ALL)))


if __name__ == "__main__":
    main()
