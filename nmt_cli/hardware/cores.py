"""The CPU cores that this process may use."""

import os
from pathlib import Path
from typing import NamedTuple

from nmt_cli.hardware.system_files import SYSTEM, read_system_file


class Cores(NamedTuple):
    """How many cores this process may use."""

    allowed: int
    quota: float | None = None  # CPU seconds a second, where a control group limits them

    @property
    def usable(self) -> float:
        """The CPU seconds a second that this process gets on a quiet machine."""
        return min(self.allowed, self.quota or self.allowed)


def cores(system: Path = SYSTEM) -> Cores:
    """Return what the process's affinity and control group allow."""
    return Cores(len(os.sched_getaffinity(0)), _quota(system))


def threads_of_each(num_workers: int) -> int:
    """Return how many threads each of ``num_workers`` uses when all share these cores equally."""
    return max(1, cores().allowed // num_workers)


def _quota(system: Path) -> float | None:
    """Return the CPU seconds a second that the control group allows; None without a limit."""
    groups = system / "sys/fs/cgroup"
    words = read_system_file(groups / "cpu.max").split() or [
        *read_system_file(groups / "cpu/cpu.cfs_quota_us").split(),
        *read_system_file(groups / "cpu/cpu.cfs_period_us").split(),
    ]
    if len(words) != 2 or not all(word.isdecimal() for word in words):  # "max", or -1
        return None
    return round(int(words[0]) / int(words[1]), 2)
