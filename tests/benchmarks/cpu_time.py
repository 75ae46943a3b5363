"""The CPU time of processes and of those that they have started; it needs no package."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def with_children(process: int) -> Iterator[int]:
    """Yield a process, its children and theirs; some may have ended since."""
    yield process
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            for child in path.read_text().split():
                yield from with_children(int(child))


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process so far, in user and in system mode."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_seconds_of_all(process: int) -> float:
    """Return the CPU time of all that ``with_children`` yields."""
    return sum(map(cpu_seconds, with_children(process)))
