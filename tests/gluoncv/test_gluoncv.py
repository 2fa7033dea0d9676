"""GluonCV's model zoo, its package unmodified, on requant: outputs within 1e-4 of MXNet 1.9.1.

Needs ``gluoncv==0.10.5.post0`` beside requant; skips without it. The quick test runs a dozen networks, the slow one
all.
``python test_gluoncv.py`` runs those that have no result yet and writes ``docs/gluoncv.md``.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import sys
import warnings
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import requant.mx as mx

HERE = Path(__file__).parent
STORE = HERE / "data" / "results.json"
sys.path.insert(0, str(HERE))

import gluoncv_compare  # noqa: E402

QUICK = [
    "resnet18_v1",
    "resnet18_v2",
    "mobilenetv3_small",
    "squeezenet1.1",
    "se_resnet18_v1",
    "cifar_resnet20_v1",
    "shufflenet_v1",
    "hrnet_w18_small_v1_c",
    "yolo3_mobilenet0.25_voc",
    "simple_pose_resnet18_v1b",
    "center_net_resnet18_v1b_voc",
    "monodepth2_resnet18_kitti_mono_640x192",
    "mobilenet1.0_int8",
]
RECORDED = [n for n, facts in gluoncv_compare.FACTS.items() if "error" not in facts]

#: This folder has the same name: without the package, Python takes it for one (without an origin).
_SPEC = importlib.util.find_spec("gluoncv")
needs_gluoncv = pytest.mark.skipif(_SPEC is None or _SPEC.origin is None, reason="gluoncv is not installed")


@pytest.fixture(autouse=True)
def alias():  # type: ignore[no-untyped-def]
    mx.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GluonCV's own, of its age
        yield


@needs_gluoncv
@pytest.mark.parametrize("name", [n for n in QUICK if n in RECORDED or n in gluoncv_compare.INT8])
def test_network(name: str) -> None:
    assert gluoncv_compare.run(name).status == "same"


@needs_gluoncv
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted([*RECORDED, *gluoncv_compare.INT8]))
def test_every_network(name: str) -> None:
    found = gluoncv_compare.run(name)
    assert found.status == "same", found


HEAD = """# GluonCV on requant

`pip install requant gluoncv==0.10.5.post0`, and one line before the imports brings the model zoo back, its package
unmodified:

```python
import requant.mx

requant.mx.install()  # from here on, `import mxnet` means requant

from gluoncv.model_zoo import get_model
```

Or run a script as it is: `requant exec script.py`. Where GluonCV uses names that numpy dropped in 1.24 (`np.float` in
the anchors of R-CNN, `np.int` in HRNet), `install` gives numpy those names back in this process, and says so in the
log; on Python 3.12 and newer it also provides `distutils.version`. No file is changed.

Each network is built by GluonCV's own `get_model`, given seeded parameters, and run operator by operator (eager) and
compiled (hybridized). The table says how far the outputs are from MXNet 1.9.1, relative to their largest magnitude;
detections are compared as sets. *same* is within 1e-4. *built* are networks that MXNet itself does not run, for the
reason noted: they are built here, and there is nothing to compare. Networks on single frames (`resnet50_v1b_ucf101`)
cannot be made without a download (GluonCV loads their base whatever it is asked for, or MXNet refuses to set the device
of a base without values): on both sides, their base is given first values instead. INT8 names are built by
`get_model`, too, with parameters that are seeded and fitted to their ranges, and compared with what their graphs give
without Gluon; how far MXNet's own kernels are off is told in the note, and why in
[differences.md](differences.md). This file is written by `tests/gluoncv/test_gluoncv.py`.

What the Gluon way costs (`benchmarks/gluon_overhead.py`, idle machine; the least of several, the two by turns): from
its files to the first result, ResNet-50 takes 1.06 times the native load as a block and 1.05 times as a SymbolBlock
(0.47, 0.46 and 0.44 s), MobileNetV2 1.09 and 1.21 times; a hybridized call takes 1.016, 0.996 and 1.002 times a call of
the session (ResNet-50, MobileNetV2, SqueezeNet).

`box_nms` of 20,000 boxes takes 8 to 18 ms where MXNet takes 380 to 1050 (`benchmarks/nms.py`: boxes around objects or
anywhere, 1 to 80 classes; equal rows).

"""


def write_document(path: Path, names: list[str], results: dict[str, gluoncv_compare.Result]) -> None:
    """The table of all networks; those that were not run yet say so."""
    rows = [results.get(n, gluoncv_compare.Result(n, "not run")) for n in names]
    counts = Counter(r.status for r in rows).most_common()
    lines = [HEAD + f"{len(rows)} networks: " + ", ".join(f"{count} {status}" for status, count in counts) + ".", ""]
    lines += ["| network | result | eager | hybridized | note |", "|---|---|---|---|---|"]
    for r in rows:
        eager, hybrid = (f"{r.worst[m]:.0e}" if m in r.worst else "" for m in ("eager", "hybrid"))
        note = r.note.replace("|", "/")[:160]
        lines.append(f"| {r.name} | {r.status} | {eager} | {hybrid} | {note} |")
    path.write_text("\n".join(lines) + "\n")


def kept_results() -> dict[str, Any]:
    """What came of networks that were run before."""
    return json.loads(STORE.read_text()) if STORE.exists() else {}


def keep(result: gluoncv_compare.Result) -> None:
    """Add a result to those that are kept; several processes may do so."""
    with open(STORE.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = {**kept_results(), result.name: asdict(result)}
        lines = [f'"{n}": {json.dumps(known[n])}' for n in sorted(known)]
        STORE.with_suffix(".new").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        STORE.with_suffix(".new").replace(STORE)


def main(words: list[str]) -> None:
    """Run these networks, or all that have no result, keep what came of them, and write the document."""
    mx.install()
    warnings.simplefilter("ignore")
    from gluoncv.model_zoo import get_model_list

    listed = list(get_model_list())
    for name in words or [n for n in listed if n not in kept_results()]:
        result = gluoncv_compare.run(name)
        print(result, flush=True)
        keep(result)
    results = {n: gluoncv_compare.Result(**r) for n, r in kept_results().items()}
    write_document(HERE.parents[1] / "docs" / "gluoncv.md", listed, results)


if __name__ == "__main__":
    main(sys.argv[1:])
