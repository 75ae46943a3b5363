"""Peak memory of one step of a large micro-batch, as large as fits the machine."""

import gc
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.benchmarks.processes import Worker, WorkerError

PROBE_TOKENS = 4_096
SHARE_OF_FREE_MEMORY = 0.9
NEXT_TRY = 0.92  # times the size that did not fit
MAX_TRIES = 6

# (tokens, bytes of data that may be allocated) -> a worker whose batches have so many tokens
OpenSized = Callable[[int, int], Worker]


class Peak(NamedTuple):
    """Most bytes in RAM after one step on a batch of so many target tokens."""

    tokens: int
    memory: int


def largest_step(open_sized: OpenSized, precision: str, tokens: int) -> dict[str, Any]:
    """Return the peaks of a small step and of the largest that runs, at most ``tokens``.

    Memory grows almost linearly with tokens, so the first size to try is where the line through
    two small steps reaches the free memory. The process limits its own memory: too large a step
    fails in it, and the kernel kills no process.
    """
    limit = int(free_memory() * SHARE_OF_FREE_MEMORY)
    try:
        small, middle = (
            _peak(open_sized, precision, size, limit) for size in (PROBE_TOKENS // 2, PROBE_TOKENS)
        )
    except WorkerError as error:
        return {"failure": str(error)}
    size, reason = min(tokens, int(tokens_at(limit, small, middle))), ""
    for _ in range(MAX_TRIES):
        try:
            large = _peak(open_sized, precision, size, limit)
        except WorkerError as error:
            size, reason = int(size * NEXT_TRY), str(error)
        else:
            return {"small": middle._asdict(), "large": large._asdict()}
    return {"failure": reason}


def tokens_at(memory: int, small: Peak, large: Peak) -> float:
    """Return for how many tokens ``memory`` lasts, on the line through two peaks."""
    slope = (large.memory - small.memory) / (large.tokens - small.tokens)
    return large.tokens + (memory - large.memory) / slope


def memory_at(tokens: int, small: Peak, large: Peak) -> float:
    """Return the memory of so many tokens, on the line through two peaks."""
    slope = (large.memory - small.memory) / (large.tokens - small.tokens)
    return large.memory + (tokens - large.tokens) * slope


def free_memory() -> int:
    """Return the bytes that new processes could use without swapping."""
    gc.collect()
    with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo does not show how much memory is free")


def _peak(open_sized: OpenSized, precision: str, tokens: int, limit: int) -> Peak:
    with open_sized(tokens, limit) as worker:
        answer = worker.turn(precision, 0, 1)
    return Peak(answer["steps"][0]["target_tokens"], answer["memory"])
