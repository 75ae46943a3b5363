"""The limits of the control groups that this process is in.

Job schedulers and service managers (sbatch --mem, systemd-run -p MemoryMax=8G) put a process into a
group below others, and each level may have limits. Versions 1 and 2 may be mounted side by side.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from nmt_cli.hardware.system_files import SYSTEM, read_system_file


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
