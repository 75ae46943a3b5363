"""One toolkit's loop in a process of its own: requests and answers are lines of JSON.

A turn is {"variant": "bf16", "first": 12, "count": 4}: train on batches 12 to 15 and report how
long each step took. The peers' environment needs only what this module and the loop import.
"""

import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch

from tests.benchmarks.cpu_time import cpu_seconds_of_all
from tests.benchmarks.memory_of_a_step import free_memory
from tests.benchmarks.shapes import Setup

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT_BLOCKS = (1 << 30, 1 << 25)  # bytes; older glibc refuses more than the second
SCARCE = 0.25  # share of the machine's memory; memory is scarce if less is free


class Step(NamedTuple):
    """What one step did."""

    target_tokens: int  # real ones
    loss: float  # of a target token; 0 where there is none
    wait_seconds: float = 0.0  # for data
    seconds: float | None = None  # of the part that counts; None if the whole step counts


class Loop(Protocol):
    """The training loop of one toolkit."""

    facts: dict[str, Any]  # worth a line in the report

    def step(self, variant: str, index: int) -> Step:
        """Train on batch ``index``; the device has finished when this returns."""
        ...


def serve(make_loop: Callable[[Setup], Loop]) -> None:
    """Build the loop for the setup of the command line, and answer turns until stdin closes."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a toolkit prints must not mix with the answers
    setup = Setup.from_json(sys.argv[1])
    if setup.memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (setup.memory_limit, setup.memory_limit))
    if setup.is_tuned:
        keep_freed_memory()
        if setup.fp32_products == "onednn":  # nmt_cli/hardware/fp32_products.py says why
            torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]
    torch.set_num_threads(setup.threads)
    at_start = proportional_memory()
    loop = make_loop(setup)
    answers.write(json.dumps({"facts": loop.facts, "memory": peak_memory()}) + "\n")
    for line in sys.stdin:
        turn = json.loads(line)
        indices = range(turn["first"], turn["first"] + turn["count"])
        steps = [_timed(loop, turn["variant"], index) for index in indices]
        grown = proportional_memory() - at_start
        answer = {"steps": steps, "memory": peak_memory(), "memory_after_import": grown}
        answers.write(json.dumps(answer) + "\n")
        _give_memory_back()


def keep_freed_memory() -> None:
    """Do for a peer what ``nmt_cli.hardware.memory.keep_freed_memory`` does for us."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    libc = ctypes.CDLL(None)
    if any(libc.mallopt(M_MMAP_THRESHOLD, size) for size in KEPT_BLOCKS):
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def peak_memory() -> int:
    """Return the most bytes this process had in RAM so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def proportional_memory() -> int:
    """Return the bytes of this process, with its share of what others use too (PSS)."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:  # noqa: PTH123
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024


def _timed(loop: Loop, variant: str, index: int) -> dict[str, Any]:
    before, started = cpu_seconds_of_all(os.getpid()), time.perf_counter()
    step = loop.step(variant, index)
    seconds = time.perf_counter() - started
    cpu_seconds = cpu_seconds_of_all(os.getpid()) - before
    counted = step._replace(seconds=seconds if step.seconds is None else step.seconds)
    return {**counted._asdict(), "cpu_seconds": cpu_seconds}  # of the whole step


def _give_memory_back() -> None:
    """Return freed memory to the kernel if memory is scarce, for the turns of other toolkits.

    Otherwise a toolkit keeps its memory, as in a training of hours: getting it again takes time.
    """
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    is_scarce = free_memory() < SCARCE * total
    if is_scarce and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
