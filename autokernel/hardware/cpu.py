"""What Linux tells about the CPU: model, usable cores, usable memory, last-level cache.

Cores and memory are those that this process may use: affinity and control-group limits count, so
that a container with two cores is a machine with two cores.  Every path can be replaced in a test.

Units: bytes.
"""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path

__all__ = ["last_level_cache_bytes", "memory_bytes", "model_name", "usable_cores"]

_CGROUP = Path("/sys/fs/cgroup")
_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")


def model_name(cpuinfo: Path = _CPUINFO) -> str:
    """The model as the kernel names it; on Arm, where it names none, implementer and part."""
    fields: dict[str, str] = {}
    for line in _read(cpuinfo).splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    if fields.get("model name"):
        return fields["model name"]
    if "CPU implementer" in fields:
        return f"Arm CPU (implementer {fields['CPU implementer']}, part {fields.get('CPU part', 'unknown')})"
    return platform.processor() or platform.machine() or "CPU"


def usable_cores(cgroup: Path = _CGROUP) -> int:
    """How many cores this process may keep busy: affinity, and the control group's quota rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(cgroup / "cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        cores = min(cores, max(1, math.ceil(int(quota) / int(period))))
    return cores


def memory_bytes(cgroup: Path = _CGROUP) -> int:
    """Main memory, or the control group's limit if it is smaller."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0
    limit = _read(cgroup / "memory.max").strip()
    return min(total, int(limit)) if limit.isdigit() else total


def last_level_cache_bytes(cpus: Path = _CPUS) -> int:
    """The last-level cache in reach of the cores that this process may use, or 0 if unknown.

    Caches that several cores share count once; a CPU with two such caches has the sum of both.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    caches: dict[tuple[int, str], int] = {}
    for core in allowed:
        for index in (cpus / f"cpu{core}" / "cache").glob("index*"):
            level, size = _read(index / "level").strip(), _kib(_read(index / "size").strip())
            if level.isdigit() and size:
                caches[int(level), _read(index / "shared_cpu_list").strip() or f"cpu{core}"] = size
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)


def _kib(text: str) -> int:
    """The bytes of ``266240K`` or ``32M``, or 0."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return int(text[:-1]) * units[text[-1]] if text[:-1].isdigit() and text[-1] in units else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
