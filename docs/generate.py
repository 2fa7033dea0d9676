"""Write the documents that are made from the code: ``python docs/generate.py``. Tests check that they are current."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from requant.formats import symbol_file
from requant.ops import registry

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "goldens"))


def golden_counts() -> Counter[str]:
    """How many recorded cases each operator has."""
    from case import cases, families

    counts = Counter(registry.get(case.op).name for family in families() for case in cases(family))
    with np.load(ROOT / "tests" / "fused" / "data" / "fused.npz") as file:  # nodes of recorded int8 networks
        for key in file.files:
            if key.endswith("|symbol"):
                nodes = symbol_file.loads(file[key].tobytes(), key).nodes
                counts.update(n.op.name for n in nodes if n.op is not None and n.op.name.startswith("_sg_"))
    return counts


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def ops_page() -> str:
    """docs/ops.md: every operator of the registry, by family."""
    counts = golden_counts()
    ops = registry.all_ops()
    lines = [
        "# Operators",
        "",
        f"{len(ops)} operators, {sum(counts.values())} recorded cases. Each lowers to ONNX in one place,",
        "`ops/<family>.py`, and is checked against MXNet 1.9.1 on ONNX Runtime and on OpenVINO. Quantized operators",
        "with 0 cases are wrong in MXNet 1.9.1 or not in it: `tests/ops/test_quantized*.py` checks what is intended.",
        "This page is generated from the registry.",
    ]
    for family in sorted({o.family for o in ops}):
        lines += [
            "",
            f"## {family}",
            "",
            "| operator | other names | attributes | cases | what |",
            "|---|---|---|---|---|",
        ]
        for o in (o for o in ops if o.family == family):
            aliases = ", ".join(f"`{a}`" for a in o.aliases)
            fields = ", ".join(f"`{f.metadata.get('name', f.name)}`" for f in dataclasses.fields(o.attrs))
            lines.append(f"| `{o.name}` | {_cell(aliases)} | {_cell(fields)} | {counts[o.name]} | {_cell(o.doc)} |")
    return "\n".join(lines) + "\n"


PAGES = {ROOT / "docs" / "ops.md": ops_page}

if __name__ == "__main__":
    for path, make in PAGES.items():
        path.write_text(make())
        print("wrote", path.relative_to(ROOT))
