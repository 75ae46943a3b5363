"""How the threads of a command wait for their next work.

torch computes with OpenMP, whose threads spin while they wait, for milliseconds by default. That is
fast on a quiet machine. But a spinning thread keeps its core from the program that it waits for,
so two threads beside one busy process are several times slower. OpenMP reads its settings from the
environment once, when torch is imported.
"""

import os
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path

from nmt_cli.hardware.cpu import Cpu, read_cpu
from nmt_cli.hardware.system_files import read_system_file

# How often GNU's library looks for work before its threads sleep, by vendor and family of the CPU.
# 1,000 cost nothing on Zen 5 and keep half of training's speed beside a busy process. On Zen 4,
# where waking a thread takes longer, they cost 4 to 12 % of it; 6,000 cost 3 to 5 % and keep 41 to
# 50 %.
SPINS = {("AuthenticAMD", 25): 6000}
SPINS_ELSEWHERE = 1000
# The libraries of LLVM and Intel, with which some builds of torch come, take only milliseconds.
BLOCK_MILLISECONDS = 1
CHOSEN_BY_USERS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")
# Not the copies of other packages, whose names have a hash: libgomp-6a29c32d.so.1.0.0.
OPENMP_LIBRARY = re.compile(r"/lib(gomp|iomp5|omp)\.so")


def brief_spinning(cpu: Cpu) -> dict[str, str]:
    """Return the variables for ``cpu``; each OpenMP library ignores those of the others."""
    spins = SPINS_ELSEWHERE
    if cpu.vendor is not None and cpu.family is not None:
        spins = SPINS.get((cpu.vendor, cpu.family), SPINS_ELSEWHERE)
    return {"GOMP_SPINCOUNT": str(spins), "KMP_BLOCKTIME": str(BLOCK_MILLISECONDS)}


def spin_briefly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let the OpenMP threads of this process and its children sleep soon after they begin to wait.

    Changes nothing if the user has chosen how they wait. Nor if torch is imported already: then it
    is too late, and this process may be a user's own program.
    """
    if "torch" in sys.modules or any(name in environment for name in CHOSEN_BY_USERS):
        return
    environment.update(brief_spinning(read_cpu()))


def openmp_libraries(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """Return the OpenMP libraries that this process has loaded: libgomp, libiomp5, libomp.

    If one of the last two is loaded beside libgomp, it was preloaded, and torch uses it.
    """
    return sorted({f"lib{name}" for name in OPENMP_LIBRARY.findall(read_system_file(maps))})
