"""What does not fit into memory is refused with both figures, before anything is allocated."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from requant import engines
from requant.engines import machine, memory
from requant.engines.base import EngineOptions
from requant.errors import InputError

MEMINFO = "MemTotal: 16000000 kB\nMemFree:    100000 kB\nMemAvailable:   8000000 kB\nSwapFree:  1000000 kB\n"
GIB = 2**30


def widened(inner: bool, size: str = "H, W") -> ir.Model:
    """Pooling of 48 channels that are made inside; the file tells the sizes inside or not."""
    told = f"<float[N, 48, {size}] a, float[N, 48, {size}] b>" if inner else ""
    nodes = f"""
        a = Concat<axis = 1>({", ".join(["x"] * 16)})
        b = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a)
        y = GlobalAveragePool(b)
    """
    text = f"net (float[N, 3, {size}] x) => (float[N, 48, 1, 1] y) {told} {{ {nodes} }}"
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}'))


def test_free_memory_is_what_the_machine_or_the_container_has_left(tmp_path: Path) -> None:
    assert machine.free_memory(tmp_path, "0::/", MEMINFO) == 9000000 << 10
    for name, text in (
        ("memory.max", "3000000000"),
        ("memory.current", "1000000000"),
        ("memory.stat", "anon 5\ninactive_file 250\nactive_file 50\n"),
    ):
        (tmp_path / name).write_text(text)
    assert machine.free_memory(tmp_path, "0::/", MEMINFO) == 2000000300
    (tmp_path / "memory.max").write_text("max")
    assert machine.free_memory(tmp_path, "0::/", MEMINFO) == 9000000 << 10


def test_free_memory_in_groups_of_version_1(tmp_path: Path) -> None:
    group = tmp_path / "memory" / "box"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("2000000000\n")
    (group / "memory.usage_in_bytes").write_text("2500000000\n")
    (group / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 700000000\ntotal_active_file 1\n")
    assert machine.free_memory(tmp_path, "4:memory:/box", MEMINFO) == 200000001


def test_free_memory_of_this_machine() -> None:
    free, usable = machine.free_memory(), machine.usable_memory()
    assert free is not None and usable is not None and free > 0


def test_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 4 * GIB)
    memory.check_arrays({"data": ((1024, 1024, 1024), 4)}, "net")
    with pytest.raises(InputError) as fault:
        memory.check_arrays({"data": ((1025, 1024, 1024), 4), "more": ((2,), 8)}, "net")
    assert all(w in str(fault.value) for w in ("net", "data (1025, 1024, 1024): 4.0 GiB", "at most 4.0 GiB", "next:"))
    with pytest.raises(InputError):
        memory.check_arrays({"data": ((1024, 1024, 1024), 2)}, "net", copies=3)


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_a_network_that_fits_no_memory_is_refused_before_it_is_compiled(
    engine: str, inner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: GIB)
    # pooling reads and writes 48 x 2048 x 2048 floats
    with pytest.raises(InputError) as fault:
        engines.get(engine).load(widened(inner), EngineOptions(), {"x": (1, 3, 2048, 2048)})
    assert re.search(r"x \(1, 3, 2048, 2048\): 48\.0 MiB; node 'b' \(MaxPool\): 1\.5 GiB", str(fault.value))
    assert "at most 1.0 GiB" in str(fault.value)


@pytest.mark.parametrize("engine", ["openvino", "onnxruntime"])
def test_what_fits_runs(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 2 * GIB)
    engines.get(engine).load(widened(False), EngineOptions(), {"x": (1, 3, 2048, 2048)}).close()


def test_a_batch_that_is_cut_needs_room_for_its_parts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: GIB)
    monkeypatch.setattr(machine, "usable_physical_cores", lambda: 2)
    model, shapes = widened(True, "64, 64"), {"x": (1024, 3, 64, 64)}
    with engines.get("openvino").load(model, EngineOptions(), shapes):
        pass
    with pytest.raises(InputError):
        engines.get("openvino").load(model, EngineOptions(split=False), shapes)


def test_bytes_in_words() -> None:
    assert [memory.in_words(n) for n in (512, 2**20, 1.5 * GIB, 3 * 2**50)] == [
        "0.5 KiB",
        "1.0 MiB",
        "1.5 GiB",
        "3,072.0 TiB",
    ]
