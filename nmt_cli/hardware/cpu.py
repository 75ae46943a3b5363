"""The CPU that this program runs on: its kind, its cores, and the limits of control groups."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

SYSTEM = Path("/")  # the root; tests give a folder with other files


def read_system_file(path: Path) -> str:
    """Return the text of the file; empty if this kernel does not have it."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


CPUINFO = SYSTEM / "proc/cpuinfo"


class Cpu(NamedTuple):
    """What /proc/cpuinfo shows of the first core; other architectures than x86 show no vendor."""

    vendor: str | None
    family: int | None
    flags: frozenset[str]


def read_cpu(cpuinfo: Path = CPUINFO) -> Cpu:
    """Return the CPU that ``cpuinfo`` describes."""
    first_core = read_system_file(cpuinfo).strip().partition("\n\n")[0]
    lines = (line.partition(":") for line in first_core.splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines}
    family = values.get("cpu family", "")
    return Cpu(
        values.get("vendor_id"),
        int(family) if family.isdecimal() else None,
        frozenset(values.get("flags", "").split()),
    )


def memory_limit(system: Path = SYSTEM) -> int | None:
    """Return the smallest limit of memory in bytes; None without one."""
    limits = [
        int(text)
        for folder in _groups("memory", system)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := read_system_file(folder / name).strip()).isdecimal()  # not "max"
    ]
    return min(limits, default=None)


def cpu_limit(system: Path = SYSTEM) -> float | None:
    """Return the smallest limit of CPU seconds a second; None without one."""
    quotas = []
    for folder in _groups("cpu", system):
        words = read_system_file(folder / "cpu.max").split() or [
            *read_system_file(folder / "cpu.cfs_quota_us").split(),
            *read_system_file(folder / "cpu.cfs_period_us").split(),
        ]
        if len(words) == 2 and all(word.isdecimal() for word in words):  # not "max", nor -1
            quotas.append(round(int(words[0]) / int(words[1]), 2))
    return min(quotas, default=None)


def _groups(controller: str, system: Path) -> Iterator[Path]:
    """Yield the folders of the groups, each before those around it.

    In a container, the paths may be those of the host; then only the mounted root is there.
    """
    mounts = system / "sys/fs/cgroup"
    for line in read_system_file(system / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inner = PurePosixPath(path.lstrip("/"))
        if controllers in ("", controller) or controller in controllers.split(","):
            roots = [mounts / controllers, mounts / controller, mounts / "unified"]
            yield from (root / level for root in roots for level in (inner, *inner.parents))
    yield from (mounts, mounts / controller, mounts / "unified")


class Cores(NamedTuple):
    """How many cores this process may use."""

    allowed: int
    quota: float | None = None  # CPU seconds a second, where control groups limit them

    @property
    def usable(self) -> float:
        """The CPU seconds a second that this process gets on a quiet machine."""
        return min(self.allowed, self.quota or self.allowed)


def cores(system: Path = SYSTEM) -> Cores:
    """Return what the process's affinity and control groups allow."""
    return Cores(len(os.sched_getaffinity(0)), cpu_limit(system))


def threads_of_each(num_workers: int) -> int:
    """Return how many threads each of ``num_workers`` uses when all share these cores equally."""
    return max(1, cores().allowed // num_workers)
