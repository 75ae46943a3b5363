"""Whether other programs use the cores on which a command is about to compute.

This is measured over a fifth of a second. The load average would mislead: it stays high for minutes
after a program has ended, and it includes this process.
"""

import math
import os
import re
import time
from pathlib import Path
from typing import NamedTuple

from nmt_cli.hardware.cpu import SYSTEM, Cores, cores, read_system_file
from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted

MEASURED_SECONDS = 0.2  # the kernel counts in hundredths of a second
LEAST_BUSY, LEAST_BUSY_SHARE = 0.75, 0.05  # cores, share of all cores; an idle desktop uses less
SPARE = 0.25  # cores that may be missing without a warning
CORE = re.compile(r"^cpu(\d+) (.*)$", re.MULTILINE)
IDLE, WAITING_FOR_DISK, STOLEN = 3, 4, 7  # columns of /proc/stat; those after it repeat others


class CpuTimes(NamedTuple):
    """Seconds of work on the cores that this process may use; only differences have a meaning."""

    at: float
    busy: float  # of all programs of this system, so without what its host took for others
    own: float  # of this process


def cpu_times(system: Path = SYSTEM) -> CpuTimes | None:
    """Return the current times; None if the kernel does not show them."""
    allowed = os.sched_getaffinity(0)
    ticks = [
        sum(columns[:STOLEN]) - columns[IDLE] - columns[WAITING_FOR_DISK]
        for core, line in CORE.findall(read_system_file(system / "proc/stat"))
        if int(core) in allowed and len(columns := list(map(int, line.split()))) > STOLEN
    ]
    if not ticks:
        return None
    return CpuTimes(time.monotonic(), sum(ticks) / os.sysconf("SC_CLK_TCK"), time.process_time())


class LoadMeter:
    """Measures, from its creation on, how many cores other programs use."""

    def __init__(self) -> None:
        self._start = cpu_times()

    def others(self) -> float | None:
        """Return how many cores other programs used since the meter was created; None if unknown.

        Waits until the measurement is MEASURED_SECONDS long.
        """
        if self._start is None:
            return None
        time.sleep(max(0.0, self._start.at + MEASURED_SECONDS - time.monotonic()))
        now = cpu_times()
        if now is None:
            return None
        busy, own = now.busy - self._start.busy, now.own - self._start.own
        return max(0.0, busy - own) / (now.at - self._start.at)


def advice_on_load(
    others: float | None,
    cores: Cores,
    threads: int,
    processes: int = 1,
    option: str = "--devices",
) -> str | None:
    """Return a warning that ``threads`` in each of ``processes`` will be slow, and what helps.

    ``option`` sets the number of processes.
    ``others`` is the number of cores that other programs use. Returns None if enough cores are
    left, or if ``others`` is None because it is unknown.
    """
    wanted = min(math.ceil(cores.usable), threads * processes)
    if others is None or others < max(LEAST_BUSY, LEAST_BUSY_SHARE * cores.allowed):
        return None
    free = min(cores.usable, max(0.0, cores.allowed - others)) + SPARE
    if wanted <= free:
        return None
    fewer, remedy = max(1, int(free) // processes), ""
    if processes > max(1, int(free)):
        remedy = f", or give {option} {max(1, int(free))}"
    elif fewer < threads:
        remedy = f", or give --threads {fewer}"
    return (
        f"other programs keep {min(others, cores.allowed):.1f} of {cores.allowed} cores busy, so "
        f"{counted(wanted, 'thread')} will be slow; end them{remedy}."
    )


def warn_if_busy(
    meter: LoadMeter, threads: int, processes: int = 1, option: str = "--devices"
) -> None:
    """Warn if other programs use the cores that ``threads`` in each of ``processes`` need."""
    advice = advice_on_load(meter.others(), cores(), threads, processes, option)
    if advice is not None:
        logs.warning(advice)
