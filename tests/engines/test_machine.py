"""Facts about machines, read from texts of machines that are not here."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from requant import engines
from requant.engines import machine

X86 = """processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8488C
flags\t\t: fpu sse2 avx2 avx512f avx512_vnni avx_vnni amx_bf16 amx_tile amx_int8 avx512_bf16

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd asimdhp asimddp sve i8mm bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"


def test_facts_of_this_machine() -> None:
    found = machine.facts()
    assert found.cpu and found.architecture and found.int8.endswith(".")
    assert 1 <= found.usable_cores <= found.logical_cores
    assert 1 <= machine.usable_physical_cores() <= found.usable_cores
    assert found.usable_memory <= found.memory
    assert tuple(found.engines) == engines.names()
    assert set(found.instruction_sets) <= set(machine.SETS[found.architecture])
    assert dataclasses.is_dataclass(found)


def test_cpuinfo_of_x86() -> None:
    info = machine.parse_cpuinfo(X86)
    assert info["model name"] == "Intel(R) Xeon(R) Platinum 8488C"
    assert machine.parse_sets(info) >= {"avx2", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16", "avx512_bf16"}


def test_cpuinfo_of_arm() -> None:
    assert machine.parse_sets(machine.parse_cpuinfo(ARM)) >= {"dotprod", "i8mm", "sve", "bf16"}
    assert machine.parse_cpuinfo("") == {} and machine.parse_sets({}) == set()


@pytest.mark.parametrize(
    ("arch", "sets", "says"),
    [
        ("x86_64", {"avx2", "amx_int8", "avx512_vnni"}, "AMX"),
        ("x86_64", {"avx2", "avx_vnni"}, "VNNI: INT8 products add up exactly"),
        ("x86_64", {"avx2", "avx512f"}, "No VNNI: .* can saturate; use a reduced weight range"),
        ("x86_64", set(), "No AVX2"),
        ("aarch64", {"dotprod", "i8mm"}, "I8MM"),
        ("aarch64", {"dotprod"}, "Dot products"),
        ("aarch64", set(), "seldom faster"),
        ("riscv64", set(), "Nothing is known about INT8 on riscv64"),
    ],
)
def test_what_limits_int8(arch: str, sets: set[str], says: str) -> None:
    assert re.search(says, machine.int8_limit(arch, sets))


def test_what_is_not_told_is_not_guessed() -> None:
    assert "does not tell" in machine.int8_limit("x86_64", {"avx2"}, unknown=("avx512_vnni",))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_quota_of_cgroup_2(tmp_path: Path) -> None:
    write(tmp_path / "pod" / "box" / "cpu.max", "max 100000\n")
    write(tmp_path / "pod" / "cpu.max", "150000 100000\n")
    assert machine.cpu_quota(tmp_path, "0::/pod/box\n") == 1.5
    assert machine.cpu_quota(tmp_path, "0::/elsewhere\n") is None


def test_quota_of_cgroup_1(tmp_path: Path) -> None:
    write(tmp_path / "cpu,cpuacct" / "box" / "cpu.cfs_quota_us", "200000\n")
    write(tmp_path / "cpu,cpuacct" / "box" / "cpu.cfs_period_us", "100000\n")
    assert machine.cpu_quota(tmp_path, "4:cpu,cpuacct:/box\n1:memory:/other\n") == 2.0
    write(tmp_path / "cpu,cpuacct" / "box" / "cpu.cfs_quota_us", "-1\n")
    assert machine.cpu_quota(tmp_path, "4:cpu,cpuacct:/box\n") is None


@pytest.mark.parametrize("junk", ["", "max\n", "1 0\n", "a b\n", "-5 100000\n"])
def test_quota_of_junk(tmp_path: Path, junk: str) -> None:
    write(tmp_path / "cpu.max", junk)
    assert machine.cpu_quota(tmp_path, "0::/\n::\nx\n") is None


def test_memory_of_a_container(tmp_path: Path) -> None:
    write(tmp_path / "box" / "memory.max", "1048576\n")
    assert machine.usable_memory(tmp_path, "0::/box\n") == 1048576
    assert machine.usable_memory(tmp_path, "0::/\n") == machine.memory()


def test_a_quota_limits_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: 0.5)
    assert machine.quota_threads() == 1 and machine.usable_cores() == 1
    monkeypatch.setattr(machine, "cpu_quota", lambda: float(os.cpu_count() or 1) + 9)
    assert machine.quota_threads() is None


@pytest.mark.parametrize(
    ("sets", "shifts"),
    [({"avx512_vnni"}, True), ({"avx_vnni"}, True), ({"avx512_vnni", "amx_int8"}, False), ({"avx2"}, False)],
    ids=["vnni of 512 bits", "vnni of 256 bits", "with amx", "without vnni"],
)
def test_which_cpus_shift_signed_tensors(monkeypatch: pytest.MonkeyPatch, sets: set[str], shifts: bool) -> None:
    monkeypatch.setattr(machine, "instruction_sets", lambda: frozenset(sets))
    assert machine.shifts_signed() is shifts
