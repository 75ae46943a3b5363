"""The CPU: its kind, its cores, the limits of control groups, and what other programs use of it."""

import math
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted

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
    flags: frozenset[str]  # ARM calls them features


def read_cpu(cpuinfo: Path = CPUINFO) -> Cpu:
    """Return the CPU that ``cpuinfo`` describes."""
    first_core = read_system_file(cpuinfo).strip().partition("\n\n")[0]
    lines = (line.partition(":") for line in first_core.splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines}
    family = values.get("cpu family", "")
    return Cpu(
        values.get("vendor_id"),
        int(family) if family.isdecimal() else None,
        frozenset(values.get("flags", values.get("Features", "")).split()),
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

    @property
    def worth_a_thread(self) -> int:
        """How many threads or processes can compute at the same time; the last one in part."""
        return max(1, math.ceil(self.usable))


def cores(system: Path = SYSTEM) -> Cores:
    """Return what the process's affinity and control groups allow."""
    return Cores(len(os.sched_getaffinity(0)), cpu_limit(system))


def usable_cores() -> int:
    """Return how many threads or processes may compute at the same time, by default."""
    return cores().worth_a_thread


def threads_of_each(num_workers: int) -> int:
    """Return how many threads each of ``num_workers`` uses when all share these cores equally."""
    return max(1, usable_cores() // num_workers)


THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # a user's choice, as for torch
MOST_THREADS = 4096  # of --threads; each takes some memory
_num_threads: int | None = None  # of this process, and of those that it forks later


def num_threads() -> int:
    """Return how many threads share the large computations of this process.

    By default the number of a variable of the user, at most MOST_THREADS, else that of the usable
    cores.
    """
    global _num_threads
    if _num_threads is None:
        chosen = [os.environ.get(variable, "") for variable in THREAD_VARIABLES]
        numbers = [int(text) for text in chosen if text.isdecimal() and int(text)]
        _num_threads = min(numbers[0], MOST_THREADS) if numbers else usable_cores()
    return _num_threads


def set_num_threads(threads: int | None) -> None:
    """Compute with this many threads in this process, and in torch where it is imported.

    None stands for the default; torch's is lower where it has found fewer cores.
    """
    global _num_threads
    _num_threads = threads
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if threads is None and os.environ.keys().isdisjoint(THREAD_VARIABLES):
        threads = min(usable_cores(), torch.get_num_threads())
    if threads is not None:
        torch.set_num_threads(threads)
    _num_threads = threads or torch.get_num_threads()


def keep_num_threads() -> None:
    """Give torch, which has just been imported, the number that was set before."""
    set_num_threads(_num_threads)


def useful_threads(device: str) -> int:
    """Return how many CPU threads are busy: all on a CPU, one that drives a GPU."""
    return num_threads() if device == "cpu" else 1


# Whether other programs use the cores is measured over a fifth of a second. The load average would
# mislead: it stays high for minutes after a program has ended, and it includes this process.
MEASURED_SECONDS = 0.2  # the kernel counts in hundredths of a second
LEAST_BUSY, LEAST_BUSY_SHARE = 0.75, 0.05  # cores, share of all cores; an idle desktop uses less
SPARE = 0.25  # cores that may be missing without a warning
CORE = re.compile(r"^cpu(\d+) (.*)$", re.MULTILINE)
IDLE, WAITING_FOR_DISK, STOLEN = 3, 4, 7  # columns of /proc/stat; those after it repeat others


class CpuTimes(NamedTuple):
    """Seconds of work on the cores that this process may use; only differences have a meaning."""

    at: float
    busy: float  # of all programs of this system; what its host gave to other systems is left out
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

    def others(self, seconds_of_children: float = 0.0) -> float | None:
        """Return how many cores other programs used since the meter was created; None if unknown.

        ``seconds_of_children`` are those of CPU that processes of this one used since then. Waits
        until the measurement is MEASURED_SECONDS long.
        """
        if self._start is None:
            return None
        time.sleep(max(0.0, self._start.at + MEASURED_SECONDS - time.monotonic()))
        now = cpu_times()
        if now is None:
            return None
        busy, own = now.busy - self._start.busy, now.own - self._start.own + seconds_of_children
        return max(0.0, busy - own) / (now.at - self._start.at)


def advice_on_load(
    others: float | None, cores: Cores, threads: int, processes: int = 1, option: str = "--devices"
) -> str | None:
    """Return a warning that ``threads`` in each of ``processes`` will be slow, and what helps.

    ``others`` is the number of cores that other programs use, None if it is unknown. ``option`` is
    the name of the option for the number of processes. Returns None if enough cores are left, or if
    ``others`` is None.
    """
    wanted = min(math.ceil(cores.usable), threads * processes)
    if others is None or others < max(LEAST_BUSY, LEAST_BUSY_SHARE * cores.allowed):
        return None
    free = min(cores.usable, max(0.0, cores.allowed - others)) + SPARE
    if wanted <= free:
        return None
    fewer, remedy = max(1, int(free) // processes), ""
    if option == "--workers" and processes > 1 and int(free) <= 1:
        # A single worker is a process with all threads, unless --threads says how many.
        remedy = ", or give --workers 1 --threads 1"
    elif processes > max(1, int(free)):
        remedy = f", or give {option} {max(1, int(free))}"
    elif fewer < threads:
        remedy = f", or give --threads {fewer}"
    return (
        f"other programs keep {min(others, cores.allowed):.1f} of {cores.allowed} cores busy, so "
        f"{counted(threads * processes, 'thread')} will be slow; end them{remedy}."
    )


def warn_if_busy(meter: LoadMeter, threads: int, processes: int) -> None:
    """Warn if other programs use the cores that ``threads`` in each of ``processes`` need."""
    advice = advice_on_load(meter.others(), cores(), threads, processes)
    if advice is not None:
        logs.warning(advice)
