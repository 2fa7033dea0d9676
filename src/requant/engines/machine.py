"""Facts about this machine that decide how fast and how exact INT8 is here. Read from the system, without helpers.

Sources: ``/proc/cpuinfo``, ``/sys`` and cgroups on Linux, ``sysctl`` on macOS, kernel32 and the registry on Windows.
What a system does not tell is None, or stands in ``Machine.unknown``; nothing is guessed.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from requant.engines.base import Availability
from requant.scheme import Scheme

#: Instruction sets that matter to INT8 or to the float precision, by architecture.
SETS: dict[str, tuple[str, ...]] = {
    "x86_64": (
        "avx2",
        "avx512f",
        "avx512_vnni",
        "avx_vnni",
        "avx_vnni_int8",
        "amx_int8",
        "amx_bf16",
        "avx512_bf16",
        "avx512_fp16",
    ),
    "aarch64": ("dotprod", "i8mm", "sve", "bf16"),
}
_LINUX_ARM = {"asimddp": "dotprod"}
_MAC_ARM = {"FEAT_DotProd": "dotprod", "FEAT_I8MM": "i8mm", "FEAT_BF16": "bf16"}
_MAC_X86 = {"AVX2": "avx2", "AVX512F": "avx512f", "AVX512VNNI": "avx512_vnni"}
# Numbers of winnt.h for IsProcessorFeaturePresent
_WINDOWS = {"avx2": 40, "avx512f": 41, "dotprod": 43, "sve": 46, "i8mm": 66}


@dataclasses.dataclass(frozen=True)
class Machine:
    """What ``requant doctor`` shows.

    Args:
        cpu: the CPU's name.
        architecture: ``x86_64``, ``aarch64``, or what the system calls it.
        instruction_sets: those of ``SETS`` that the CPU has and the system lets be used.
        unknown: those of which this system does not tell.
        logical_cores: hardware threads of the machine.
        physical_cores: cores of the machine.
        usable_cores: hardware threads that this process may really use (affinity and container quota).
        quota: CPU time that the container is granted, in cores.
        memory: bytes of the machine.
        usable_memory: bytes that the container is granted.
        engines: whether each engine can be used, and its version.
        int8: a sentence on what limits INT8 here.
    """

    cpu: str
    architecture: str
    instruction_sets: tuple[str, ...]
    unknown: tuple[str, ...]
    logical_cores: int
    physical_cores: int | None
    usable_cores: int
    quota: float | None
    memory: int | None
    usable_memory: int | None
    engines: Mapping[str, Availability]
    int8: str


def facts() -> Machine:
    """Everything about this machine. Imports the engines' libraries to ask them for their versions."""
    from requant import engines

    sets = instruction_sets()
    return Machine(
        cpu=cpu_name(),
        architecture=architecture(),
        instruction_sets=tuple(s for s in SETS.get(architecture(), ()) if s in sets),
        unknown=unknown_sets(),
        logical_cores=os.cpu_count() or 1,
        physical_cores=physical_cores(),
        usable_cores=usable_cores(),
        quota=cpu_quota(),
        memory=memory(),
        usable_memory=usable_memory(),
        engines={name: engines.get(name).available() for name in engines.names()},
        int8=int8_limit(architecture(), sets, unknown_sets()),
    )


def architecture() -> str:
    """``x86_64`` or ``aarch64``, whatever the system calls them, else the system's own word."""
    name = platform.machine().lower()
    return {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}.get(name, name)


def fit(scheme: Scheme) -> Scheme:
    """The scheme on this CPU: x86 without VNNI adds pairs of products in 16 bits, so weights must use 7 bits there."""
    exact = {"amx_int8", "avx512_vnni", "avx_vnni", "avx_vnni_int8"}
    saturates = architecture() == "x86_64" and not exact & (instruction_sets())
    return dataclasses.replace(scheme, reduced=True) if saturates else scheme


def shifts_signed() -> bool:
    """This CPU multiplies unsigned by signed bytes only: signed tensors are shifted by 128 first (VNNI without AMX)."""
    sets = instruction_sets()
    return bool({"avx512_vnni", "avx_vnni"} & sets) and "amx_int8" not in sets


def int8_limit(arch: str, sets: Iterable[str], unknown: Iterable[str] = ()) -> str:
    """What limits INT8 on a CPU with those instruction sets, in a sentence."""
    sets, unknown = frozenset(sets), frozenset(unknown)
    if arch == "x86_64":
        if "amx_int8" in sets:
            return "AMX: INT8 runs on matrix tiles and adds up exactly in int32; the full 8-bit range is safe."
        if sets & {"avx512_vnni", "avx_vnni", "avx_vnni_int8"}:
            return "VNNI: INT8 products add up exactly in int32; the full 8-bit range is safe."
        if "avx512_vnni" in unknown:
            return (
                "This system does not tell whether the CPU has VNNI; without it, use a reduced weight range (7 bits)."
            )
        if sets & {"avx2", "avx512f"}:
            return (
                "No VNNI: pairs of u8 x s8 products are added in int16 and can saturate; "
                "use a reduced weight range (7 bits) and expect less speed from INT8."
            )
        return "No AVX2: the engines have no fast INT8 kernels for this CPU; keep the model in float."
    if arch == "aarch64":
        if "i8mm" in sets:
            return "I8MM: INT8 matrix products add up exactly in int32; the full 8-bit range is safe."
        if "dotprod" in sets:
            return "Dot products: INT8 adds up exactly in int32; the full 8-bit range is safe."
        return "No dot-product instructions: INT8 is exact here, but seldom faster than float."
    return f"Nothing is known about INT8 on {arch}; measure before you rely on it."


def cpu_name() -> str:
    """The CPU's name, as its maker wrote it where the system passes that on."""
    if sys.platform == "darwin":
        found = _sysctl("machdep.cpu.brand_string")
    elif sys.platform == "win32":
        found = _windows_name()
    else:
        info = _cpuinfo()
        found = info.get("model name") or info.get("Hardware") or info.get("cpu model")
        if not found and "CPU part" in info:
            found = f"ARM implementer {info.get('CPU implementer', '?')} part {info['CPU part']}"
    return found or platform.processor() or "unknown"


def instruction_sets() -> frozenset[str]:
    """The instruction sets of ``SETS`` that this CPU is known to have."""
    wanted = SETS.get(architecture(), ())
    if sys.platform == "darwin":
        found = _mac_sets()
    elif sys.platform == "win32":
        found = {s for s, number in _WINDOWS.items() if _windows_feature(number)}
    else:
        found = parse_sets(_cpuinfo())
    return frozenset(found).intersection(wanted)


def unknown_sets() -> tuple[str, ...]:
    """The instruction sets that this system does not tell about."""
    wanted = SETS.get(architecture(), ())
    if sys.platform == "win32":
        return tuple(s for s in wanted if s not in _WINDOWS)
    if sys.platform == "darwin":
        told = {*_MAC_ARM.values(), *_MAC_X86.values()}
        return tuple(s for s in wanted if s not in told)
    return () if _cpuinfo() else tuple(wanted)


def parse_sets(info: Mapping[str, str]) -> set[str]:
    """Instruction sets from the fields of ``/proc/cpuinfo`` (``flags`` on x86, ``Features`` on ARM)."""
    words = f"{info.get('flags', '')} {info.get('Features', '')}".split()
    return {_LINUX_ARM.get(word, word) for word in words}


def parse_cpuinfo(text: str) -> dict[str, str]:
    """The fields of ``/proc/cpuinfo``; of those that every processor repeats, the first."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


@functools.cache
def _cpuinfo() -> dict[str, str]:
    return parse_cpuinfo(_read("/proc/cpuinfo") or "")


def physical_cores() -> int | None:
    """Cores of the machine, not counting hardware threads twice."""
    if sys.platform == "darwin":
        found = _sysctl("hw.physicalcpu")
        return int(found) if found else None
    return len(_cores(range(os.cpu_count() or 1))) or None


def usable_cores() -> int:
    """Hardware threads that this process may really use: its affinity, and its container's quota rounded up."""
    return min(_affinity_count(), quota_threads() or sys.maxsize)


def usable_physical_cores() -> int:
    """As ``usable_cores``, but a core with two hardware threads counts once: a good number of compute threads."""
    if hasattr(os, "sched_getaffinity"):
        count = len(_cores(os.sched_getaffinity(0))) or _affinity_count()
    else:
        count = min(physical_cores() or sys.maxsize, _affinity_count())
    return min(count, quota_threads() or sys.maxsize)


def quota_threads() -> int | None:
    """Threads that a container's CPU quota leaves room for; None if it does not bind."""
    quota = cpu_quota()
    return max(1, math.ceil(quota)) if quota is not None and quota < _affinity_count() else None


def cpu_quota(root: Path = Path("/sys/fs/cgroup"), member: str | None = None) -> float | None:
    """CPU time that cgroups (version 1 or 2) grant to this process, in cores; None = no limit.

    Args:
        root: where cgroups are mounted.
        member: contents of ``/proc/self/cgroup``; None = read it.
    """
    quotas = []
    for folder in _cgroup_folders(root, member, "cpu"):
        if (words := (_read(folder / "cpu.max") or "").split()) and len(words) == 2:  # version 2
            quota, period = words
        else:
            quota, period = _read(folder / "cpu.cfs_quota_us") or "", _read(folder / "cpu.cfs_period_us") or ""
        if quota.strip().isdigit() and period.strip().isdigit() and int(period) > 0 and int(quota) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory() -> int | None:
    """Bytes of memory of the machine."""
    if sys.platform == "win32":
        return _windows_memory()
    if sys.platform == "darwin":
        found = _sysctl("hw.memsize")
        return int(found) if found else None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def usable_memory(root: Path = Path("/sys/fs/cgroup"), member: str | None = None) -> int | None:
    """Bytes of memory that this process may use: the machine's, or what its container is granted."""
    total = memory()
    limits = [] if total is None else [total]
    for folder in _cgroup_folders(root, member, "memory"):
        for file in ("memory.max", "memory.limit_in_bytes"):
            text = (_read(folder / file) or "").strip()
            if text.isdigit():
                limits.append(int(text))
    return min(limits, default=None)


def free_memory(
    root: Path = Path("/sys/fs/cgroup"), member: str | None = None, meminfo: str | None = None
) -> int | None:
    """Bytes that this process may still take: what the machine has free or can free, swap too, within its container.

    Args:
        root, member: as ``cpu_quota``.
        meminfo: contents of ``/proc/meminfo``; None = read it. Elsewhere than on Linux all memory counts as free.
    """
    text = meminfo if meminfo is not None else _read("/proc/meminfo") or ""
    fields = {key: int(words.split()[0]) << 10 for key, words in parse_cpuinfo(text).items() if words[:1].isdigit()}
    left = [fields["MemAvailable"] + fields.get("SwapFree", 0)] if "MemAvailable" in fields else []
    for folder in _cgroup_folders(root, member, "memory"):
        for granted, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            limit, now = ((_read(folder / file) or "").strip() for file in (granted, used))
            if limit.isdigit() and now.isdigit():
                words = (line.split() for line in (_read(folder / "memory.stat") or "").splitlines())
                stat = {w[0]: int(w[1]) for w in words if len(w) == 2 and w[1].isdigit()}
                # Copies of files are given up when memory is short; version 1 has their sum under another name.
                files = (stat.get(f"{p}active_file", 0) + stat.get(f"{p}inactive_file", 0) for p in ("", "total_"))
                left.append(max(0, int(limit) - int(now) + max(files)))
    return min(left) if left else usable_memory()


def _cgroup_folders(root: Path, member: str | None, controller: str) -> list[Path]:
    """The cgroup of this process and those above it: each of them may limit it."""
    text = member if member is not None else _read("/proc/self/cgroup") or ""
    folders = []
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3 or not (parts[1] == "" or controller in parts[1].split(",")):
            continue
        mounts = [root, root / "unified"] if parts[1] == "" else [root / parts[1], root / controller]
        inner = [p for p in parts[2].split("/") if p and p != ".."]
        for mount in mounts:
            folders += [mount.joinpath(*inner[:depth]) for depth in range(len(inner), -1, -1)]
    return folders


def _affinity_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cores(threads: Iterable[int]) -> set[tuple[str, str]]:
    found = set()
    for number in threads:
        folder = Path(f"/sys/devices/system/cpu/cpu{number}/topology")
        package, core = _read(folder / "physical_package_id"), _read(folder / "core_id")
        if package is not None and core is not None:
            found.add((package, core))
    return found


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _sysctl(key: str) -> str | None:
    try:
        done = subprocess.run(["/usr/sbin/sysctl", "-n", key], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


@functools.cache
def _mac_sets() -> frozenset[str]:
    if architecture() == "aarch64":
        return frozenset(name for key, name in _MAC_ARM.items() if _sysctl(f"hw.optional.arm.{key}") == "1")
    words = re.split(r"\s+", f"{_sysctl('machdep.cpu.leaf7_features')} {_sysctl('machdep.cpu.features')}")
    return frozenset(name for key, name in _MAC_X86.items() if key in words)


def _kernel32() -> Any:
    return getattr(ctypes, "windll").kernel32  # noqa: B009  (absent outside Windows, where type checkers run)


def _windows_feature(number: int) -> bool:
    return bool(_kernel32().IsProcessorFeaturePresent(number))


def _windows_name() -> str | None:
    import importlib

    registry: Any = importlib.import_module("winreg")
    try:
        key = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        with registry.OpenKey(registry.HKEY_LOCAL_MACHINE, key) as opened:
            return str(registry.QueryValueEx(opened, "ProcessorNameString")[0]).strip()
    except OSError:
        return None


def _windows_memory() -> int | None:
    class MemoryStatus(ctypes.Structure):
        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total", ctypes.c_uint64),
            ("rest", ctypes.c_uint64 * 6),
        )

    status = MemoryStatus(length=ctypes.sizeof(MemoryStatus))
    return int(status.total) if _kernel32().GlobalMemoryStatusEx(ctypes.byref(status)) else None
