import ctypes
import os
from types import SimpleNamespace

import pytest
import torch

from nmt_cli.hardware import memory
from nmt_cli.hardware.memory import largest_that_runs


@pytest.mark.parametrize(("limit", "expected"), [(None, None), (1 << 60, None), (123_456, 123_456)])
def test_a_control_group_lowers_the_limit(monkeypatch, limit, expected):
    unlimited = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(memory, "memory_limit", lambda: limit)
    assert memory.allowed_memory() == (expected or unlimited)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (1 << 40, [(memory.M_MMAP_THRESHOLD, 1 << 30), (memory.M_TRIM_THRESHOLD, (1 << 31) - 1)]),
        (1 << 25, [(memory.M_MMAP_THRESHOLD, 1 << 25), (memory.M_TRIM_THRESHOLD, (1 << 31) - 1)]),
        (0, []),
    ],
)
def test_an_older_allocator_is_asked_for_less(monkeypatch, limit, expected):
    accepted: list[tuple[int, int]] = []

    def mallopt(option, value):
        if option == memory.M_MMAP_THRESHOLD and value > limit:
            return 0
        accepted.append((option, value))
        return 1

    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "0")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    memory.keep_freed_memory()
    assert accepted == expected


def fitting(limit, tried):
    """An attempt that runs out of memory beyond ``limit`` tokens, and lists what was tried."""

    def attempt(max_tokens):
        tried.append(max_tokens)
        if max_tokens > limit:
            raise torch.OutOfMemoryError("no")

    return attempt


def test_a_probe_halves_until_it_fits():
    tried: list[int] = []
    assert largest_that_runs(5_000, 10, fitting(1_000, tried)) == 625
    assert tried == [5_000, 2_500, 1_250, 625]


def test_a_probe_ends_at_the_longest_sentence():
    tried: list[int] = []
    assert largest_that_runs(5_000, 800, fitting(900, tried)) == 800
    assert tried == [5_000, 2_500, 1_250, 800]
    assert largest_that_runs(100, 800, fitting(900, [])) == 800


def test_a_probe_that_never_fits_returns_zero():
    assert largest_that_runs(8, 3, fitting(0, [])) == 0


@pytest.mark.parametrize("chosen", [None, "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_segments_of_a_gpu_grow_unless_the_user_chose_otherwise(monkeypatch, chosen):
    for name in memory.GPU_ALLOCATOR_VARIABLES:
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    if chosen is not None:
        monkeypatch.setenv(chosen, "max_split_size_mb:64")
    memory.keep_freed_memory()
    found = {name: os.environ.get(name) for name in memory.GPU_ALLOCATOR_VARIABLES}
    expected = dict[str, str | None].fromkeys(found)
    expected[chosen or "PYTORCH_ALLOC_CONF"] = (
        "max_split_size_mb:64" if chosen else "expandable_segments:True"
    )
    assert found == expected
