"""The CPU: its kind, its cores, the limits of control groups, and the threads of this process."""

import math
import os
import sys
from collections.abc import Iterator, MutableMapping
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


def threads_of_each(num_workers: int, cores_together: int | None = None) -> int:
    """Return how many threads each of ``num_workers`` uses when all share these cores equally.

    ``cores_together`` is how many all of them may use, if that is known: a worker that is bound to
    some of these must not share those.
    """
    usable = usable_cores()
    return max(1, min(usable, (cores_together or usable) // num_workers))


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
        _num_threads = threads_of_variables() or usable_cores()
    return _num_threads


def threads_of_variables() -> int | None:
    """Return how many threads a variable asks for, at most MOST_THREADS; None if none does."""
    chosen = [os.environ.get(variable, "") for variable in THREAD_VARIABLES]
    numbers = [int(text) for text in chosen if text.isdecimal() and int(text)]
    return min(numbers[0], MOST_THREADS) if numbers else None


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


# How often a thread of GNU's OpenMP, with which torch computes, looks for its next work before it
# sleeps. To wake it takes long on a virtual machine; while it spins, other programs lack its core.
# Training S in bf16 with two threads on two virtual cores of an Intel with AMX, target tokens/s:
#     spins                       100    1,000    3,000    8,000   20,000   300,000 (the default)
#     quiet                     9,430    9,430    9,990   10,920   11,490    11,580
#     beside one busy process   6,330    6,300    5,920    5,310    4,270     1,410
SPINS = {"GOMP_SPINCOUNT": "8000"}
CHOSEN_BY_USERS = ("OMP_WAIT_POLICY", *SPINS)


def limit_spinning(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let threads of torch that wait for work sleep after SPINS, also those of child processes.

    Changes nothing if the user has chosen how they wait, or if torch is imported already: it has
    read the variable.
    """
    if "torch" not in sys.modules and environment.keys().isdisjoint(CHOSEN_BY_USERS):
        environment.update(SPINS)
