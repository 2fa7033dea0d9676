"""Damaged models, made from seeds: only typed errors come up, no crash, no hang, no memory without bounds.

Each batch of seeds runs in a process of its own, so that a crash is a failed test and not the end of all tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def faults(first: int, last: int, mode: str, timeout: int) -> list[str]:
    """What went wrong with these seeds: faults that the process reports, and its own end."""
    words = [sys.executable, str(HERE / "fuzz.py"), str(first), str(last), mode]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=environment)
    lines = done.stdout.splitlines()
    found = [line for line in lines if line.startswith("fault")]
    if not lines or lines[-1] != "done":
        found.append(f"the process ended with {done.returncode} {lines[-1] if lines else ''}\n{done.stderr[-2000:]}")
    return found


@pytest.mark.parametrize(("mode", "count"), [("lower", 150), ("onnxruntime", 40), ("openvino", 25), ("cli", 8)])
def test_some(mode: str, count: int) -> None:
    assert faults(0, count, mode, 500) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "first", "count"),
    [
        *(("lower", 10_000 + 500 * i, 500) for i in range(8)),
        *(("onnxruntime", 20_000 + 250 * i, 250) for i in range(8)),
        *(("openvino", 30_000 + 150 * i, 150) for i in range(8)),
        *(("cli", 40_000 + 60 * i, 60) for i in range(4)),
    ],
)
def test_many(mode: str, first: int, count: int) -> None:
    assert faults(first, first + count, mode, 3600) == []
