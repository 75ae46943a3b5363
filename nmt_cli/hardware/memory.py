"""Memory: how much is allowed, errors of a full one, and the settings of the allocator."""

import ctypes
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nmt_cli.hardware.cpu import memory_limit
from nmt_cli.messages.errors import means_full_memory

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT_BLOCKS = (1 << 30, 1 << 25)  # bytes; older glibc refuses more than the second
# Of torch; the second is its older name.
GPU_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


class FullMemoryError(RuntimeError):
    """The memory of this process was full; with ``on_all_ranks``, every rank raises it too."""

    def __init__(self, *, on_all_ranks: bool = False) -> None:
        super().__init__("out of memory")
        self.on_all_ranks = on_all_ranks


@contextmanager
def noticing_full_memory() -> Iterator[None]:
    """Raise FullMemoryError where this block finds no memory left; other errors pass."""
    try:
        yield
    except FullMemoryError:
        raise
    except (MemoryError, RuntimeError) as error:  # RuntimeError: of a library, or of torch
        if means_full_memory(error):
            raise FullMemoryError from error
        raise


def keep_freed_memory() -> None:
    """Make the allocators keep large blocks, in huge pages, instead of returning them.

    Each micro-batch, or step of a search, asks for the same blocks again. To get them from the
    kernel each time, page by page, costs up to 15 % of a step on a CPU. Call this before the first
    tensor is made, and before a GPU is chosen; it does nothing if the C library is not glibc.
    """
    # torch reads the first at its first allocation on a CPU, the other when it initializes CUDA,
    # which ``torch.cuda.set_device`` does.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    if os.environ.keys().isdisjoint(GPU_ALLOCATOR_VARIABLES):
        # Segments that grow leave fewer gaps: every micro-batch has other sizes.
        os.environ[GPU_ALLOCATOR_VARIABLES[0]] = "expandable_segments:True"
    try:
        libc = ctypes.CDLL(None)
        # M_TRIM_THRESHOLD alone does harm: it stops glibc from raising M_MMAP_THRESHOLD.
        if any(libc.mallopt(M_MMAP_THRESHOLD, size) for size in KEPT_BLOCKS):
            libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
    except (OSError, AttributeError):
        return


def return_freed_memory() -> None:
    """Return whole pages of freed blocks to the kernel; does nothing if the C library is not glibc.

    glibc itself returns only what is behind all blocks in use.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_bytes(process: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGESIZE")


def rounded_up(number: int, num_steps: int) -> int:
    """Return ``number`` rounded up to one of ``num_steps`` equal steps between powers of two.

    Sizes of tensors that are rounded up recur, so that the memory of one can be used again.
    """
    step = max(1, (1 << number.bit_length()) // (2 * num_steps))
    return -(-number // step) * step


def largest_that_runs(max_tokens: int, least: int, attempt: Callable[[int], None]) -> int:
    """Return ``max_tokens``, halved until ``attempt`` no longer runs out of memory.

    Returns 0 where not even ``least`` tokens, those of the longest sentence, run.
    """
    max_tokens = max(max_tokens, least)
    while True:
        with suppress(FullMemoryError), noticing_full_memory():
            attempt(max_tokens)
            return max_tokens
        _free_gpu_memory()  # after the block, in which the exception held the memory
        if max_tokens == least:
            return 0
        max_tokens = max(least, max_tokens // 2)


def give_up_memory_of(error: BaseException) -> None:
    """Free the tensors in the frames of ``error`` and its causes: mostly activations."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    _free_gpu_memory()


def _free_gpu_memory() -> None:
    """Give back what torch keeps of a GPU's memory, if it is imported and uses one."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.cuda.empty_cache()


def allowed_memory() -> int:
    """Return the bytes this process may use: RAM, or what its control groups allow."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit()
    return memory if limit is None else min(memory, limit)
