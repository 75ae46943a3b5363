"""The CPU cores that this process may use."""

import os
from pathlib import Path
from typing import NamedTuple

from nmt_cli.hardware.control_groups import cpu_limit
from nmt_cli.hardware.system_files import SYSTEM


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
