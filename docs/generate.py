"""Write the documents that are made from the code: ``python docs/generate.py``. Tests check that they are current."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from pathlib import Path

from requant.ops import registry

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "goldens"))


def golden_counts() -> Counter[str]:
    """How many recorded cases each operator has."""
    from case import cases, families

    return Counter(registry.get(case.op).name for family in families() for case in cases(family))


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
        "`ops/<family>.py`, and is checked against MXNet 1.9.1 on ONNX Runtime and on OpenVINO.",
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
