"""Record entropy thresholds from MXNet 1.9.1 into entropy_thresholds.json. Needs MXNet (Python 3.8); tests do not.

python tests/quant/record_entropy.py
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"
sys.path.insert(0, str(Path(__file__).parent))

import mxnet as mx
from entropy_cases import cases, checksum


def main() -> None:
    rows = []
    for case in cases():
        counts, edges = case.make()
        threshold, divergence = mx.nd.contrib.calibrate_entropy(
            mx.nd.array(counts), mx.nd.array(edges), num_quantized_bins=case.quantized_bins
        )
        rows.append(
            {
                "name": case.name,
                "checksum": checksum(counts),
                "threshold": float(threshold.asscalar()),
                "divergence": float(divergence.asscalar()),
            }
        )
    text = ",\n  ".join(json.dumps(row) for row in rows)
    path = Path(__file__).with_name("entropy_thresholds.json")
    path.write_text('{"mxnet": "%s", "cases": [\n  %s\n]}\n' % (mx.__version__, text), encoding="utf-8")
    print(f"{len(rows)} thresholds written to {path}")


if __name__ == "__main__":
    main()
