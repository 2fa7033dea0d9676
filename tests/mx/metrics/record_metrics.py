"""Record what MXNet 1.9.1 gives for ``metric_cases``: ``python record_metrics.py`` writes ``data/metrics.json``."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import metric_cases
import mxnet as mx

if __name__ == "__main__":
    with open(os.path.join(HERE, "data", "metrics.json"), "w") as file:
        lines = ["%s: %s" % (json.dumps(n), json.dumps(v)) for n, v in metric_cases.run(mx).items()]
        file.write("{\n" + ",\n".join(lines) + "\n}\n")
