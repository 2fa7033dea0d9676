"""Workers of ``DataLoader``: the same batches in the same order as without, from processes and from threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import requant.mx as mx

pytest.importorskip("PIL", reason="needs Pillow")
sys.path.insert(0, str(Path(__file__).parent))

import picture_cases


def batches(dataset: Any, **kwargs: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(x.asnumpy(), y.asnumpy()) for x, y in mx.gluon.data.DataLoader(dataset, 3, **kwargs)]


@pytest.mark.parametrize(
    "more", [{}, {"thread_pool": True}, {"prefetch": 1}], ids=["processes", "threads", "one ahead"]
)
def test_workers_change_nothing(tmp_path: Path, more: dict[str, Any]) -> None:
    """Records through transforms that run operators, one of them a lambda, which cannot be pickled."""
    picture_cases.prepare(mx, str(tmp_path))
    transforms = mx.gluon.data.vision.transforms
    steps = transforms.Compose([transforms.Resize((20, 16)), transforms.ToTensor(), transforms.Normalize(0.5, 0.25)])
    dataset = mx.gluon.data.vision.ImageRecordDataset(str(tmp_path / "one.rec"))
    dataset = dataset.transform(lambda x, y: (steps(x), y + 1))
    plain = batches(dataset)
    loader = mx.gluon.data.DataLoader(dataset, 3, num_workers=2, **more)
    for _ in range(2):  # a loader may be read again
        found = [(x.asnumpy(), y.asnumpy()) for x, y in loader]
        assert len(found) == len(plain) == 3
        for (a, b), (c, d) in zip(found, plain):
            np.testing.assert_array_equal(a, c)
            np.testing.assert_array_equal(b, d)


def test_a_fault_in_a_worker_is_told() -> None:
    def broken(x: float) -> float:
        raise ValueError(f"sample {x} is broken")

    dataset = mx.gluon.data.SimpleDataset([1.0, 2.0]).transform(broken, lazy=True)
    with pytest.raises(ValueError, match=r"sample 1\.0 is broken"):
        list(mx.gluon.data.DataLoader(dataset, 2, num_workers=1))


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="the system cannot fork")
def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Scripts of MXNet's time start workers at their top level."""
    script = tmp_path / "script.py"
    script.write_text(
        "import requant.mx as mx\n"
        "data = mx.gluon.data.SimpleDataset(list(range(8))).transform(lambda v: v * v)\n"
        "for batch in mx.gluon.data.DataLoader(data, 4, num_workers=2):\n"
        "    print(batch.asnumpy().sum())\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert run.stdout.split() == ["14", "126"], run.stderr
