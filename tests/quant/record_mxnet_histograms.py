"""Record MXNet 1.9.1's growing histograms into mxnet_histograms.json. Needs MXNet (Python 3.8); tests do not.

python tests/quant/record_mxnet_histograms.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE"

import numpy as np
from mxnet.contrib import quantization as mxq

#: Per case: seed, sign ("relu" or "signed"), and the scale of each batch.
CASES = [
    (0, "signed", [1.0]),
    (1, "signed", [1.0, 0.5, 0.9]),
    (2, "signed", [1.0, 1.3, 2.0, 0.1]),
    (3, "relu", [1.0, 4.0, 1.0]),
    (4, "relu", [0.4, 1.0]),
    (5, "signed", [3.0, 3.0, 3.0, 3.3]),
]


def batches(seed, sign, scales):
    r = np.random.RandomState(seed)
    for scale in scales:
        x = (r.randn(3000) * scale).astype(np.float32)
        yield np.maximum(x, 0) if sign == "relu" else x


def main() -> None:
    rows = []
    for seed, sign, scales in CASES:
        state = None
        for x in batches(seed, sign, scales):
            low, high = np.min(x), np.max(x)
            th = max(abs(low), abs(high))
            if state is None:
                hist, edges = np.histogram(x, bins=8001, range=(-th, th))
                state = (hist, edges, low, high, th)
            else:
                state = mxq.combine_histogram(state, x, low, high, th)
        thresholds = {
            dtype: float(mxq._get_optimal_threshold(state, dtype)[2][0]) for dtype in ("auto", "int8", "uint8")
        }
        rows.append(
            {
                "case": [seed, sign, scales],
                "bins": len(state[0]),
                "threshold": float(state[4]),
                "occupied": np.flatnonzero(state[0]).tolist()[::50],
                "thresholds": thresholds,
            }
        )
    text = ",\n  ".join(json.dumps(row) for row in rows)
    Path(__file__).with_name("mxnet_histograms.json").write_text(f"[\n  {text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
