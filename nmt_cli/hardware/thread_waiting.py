"""How the threads of a command wait for their next work.

torch computes with OpenMP, whose threads spin for a while before they sleep. To wake a thread that
sleeps takes long on a virtual machine, and a thread that spins keeps its core from other programs.
Training S in bf16 with two threads on two virtual cores of an Intel with AMX, target tokens/s:

    spins                       100    1,000    3,000    8,000   20,000   300,000 (the default)
    quiet                     9,430    9,430    9,990   10,920   11,490    11,580
    beside one busy process   6,330    6,300    5,920    5,310    4,270     1,410

So threads spin long while there are cores for them, and sleep at once while other programs need
these cores. OpenMP reads the number of spins once, when torch is imported, but
``undocumented.sleeping_at_once`` changes it at any time.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager

from nmt_cli.hardware.cpu import LoadMeter, advice_on_load, cores
from nmt_cli.hardware.undocumented import gnu_openmp, sleeping_at_once
from nmt_cli.messages import logs

# Each OpenMP library ignores the variables of the others. Those of LLVM and Intel take milliseconds
# and have no number of threads above which they spin less.
LONG_SPINNING = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}
CHOSEN_BY_USERS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
SECONDS_BETWEEN_LOOKS = 1.0  # at the load of the cores
LOOKS_BEFORE_WARNING = 10  # shorter work is done before a user could help
MEASURED_WAITS, GAP_SECONDS = 100, 200e-6  # a thread that may sleep does so within the gap


def spin_long(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set the spins of the OpenMP threads of this process and of its children.

    Changes nothing if the user has chosen how they wait, or if torch is imported already: then it
    is too late, and this process may be a user's own program.
    """
    if "torch" not in sys.modules and not any(name in environment for name in CHOSEN_BY_USERS):
        environment.update(LONG_SPINNING)


def spins_long(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether ``spin_long`` set the spins, here or in a parent process."""
    found = {name: environment[name] for name in CHOSEN_BY_USERS if name in environment}
    return found == LONG_SPINNING


@contextmanager
def following_load(num_threads: int, *, warns: bool = True) -> Iterator[None]:
    """Follow how many cores other programs use while ``num_threads`` compute in this block.

    While they use the cores of these threads, those that wait sleep at once, unless the user has
    chosen how they wait, or with another OpenMP library than GNU's. If that lasts, a warning is
    logged once, or never if not ``warns``.
    """
    has_openmp = "torch" in sys.modules and num_threads > 1
    library = gnu_openmp() if has_openmp and spins_long() else None
    ended = threading.Event()
    follower = threading.Thread(
        target=_follow_load, args=(library, num_threads, ended, warns), name="load", daemon=True
    )
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()


def _follow_load(
    library: ctypes.CDLL | None, num_threads: int, ended: threading.Event, warns: bool
) -> None:
    with ExitStack() as asleep:
        num_crowded, meter = 0, LoadMeter()  # looks in a row
        while not ended.wait(SECONDS_BETWEEN_LOOKS):
            advice = advice_on_load(meter.others(), cores(), num_threads)
            num_crowded = 0 if advice is None else num_crowded + 1
            if num_crowded == 1 and library is not None:
                asleep.enter_context(sleeping_at_once(library))
            elif advice is None:
                asleep.close()
            elif num_crowded == LOOKS_BEFORE_WARNING and warns:
                logs.warning(advice)
                warns = False
            meter = LoadMeter()


def waking_microseconds(library: ctypes.CDLL, work: Callable[[], object]) -> float:
    """Return how much longer ``work``, which all threads share, takes if they slept before it."""
    spinning = _seconds_behind_gaps(work)
    with sleeping_at_once(library):
        return max(0.0, _seconds_behind_gaps(work) - spinning) * 1e6


def _seconds_behind_gaps(work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(MEASURED_WAITS):
        started = time.perf_counter()
        while (now := time.perf_counter()) < started + GAP_SECONDS:
            pass
        work()
        seconds.append(time.perf_counter() - now)
    return sorted(seconds)[len(seconds) // 2]
