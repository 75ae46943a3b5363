"""Plans that share memory. Their locks are those of open files, so one process can have several."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.node_memory import NAME, NodeMemory

LENGTHS = np.random.default_rng(1).integers(2, 30, 3_000).astype(np.uint16)
AHEAD = 4  # batches; more than ranks are apart


def new_plan(memory=None):
    plan = BatchPlan(LENGTHS, LENGTHS, 400, seed=1)
    if memory is not None:
        plan.plan_in(memory)
    return plan


def new_memories(number):
    """Return as many memories, as if each were in another process; all share one board."""
    memories = [NodeMemory() for _ in range(number)]
    for memory in memories:
        memory.join(memories[0].offer())
    return memories


@pytest.fixture
def planned(monkeypatch):
    """Return a list that receives each epoch that is planned, and what was in memory then."""
    found: list[tuple[int, int]] = []
    plan_epoch = BatchPlan._plan_epoch

    def noted(plan, number, *new_order):
        found.append((number, num_epochs_in_memory() - 1))  # its own, which is still empty
        return plan_epoch(plan, number, *new_order)

    monkeypatch.setattr(BatchPlan, "_plan_epoch", noted)
    return found


def num_epochs_in_memory():
    """Return how many epochs this process maps or holds open."""
    maps = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    inodes = {int(m[4]) for m in maps if len(m) > 5 and m[5].startswith(f"/memfd:{NAME} ")}
    for path in list(Path("/proc/self/fd").iterdir()):
        if os.path.lexists(path) and str(path.readlink()).startswith(f"/memfd:{NAME} "):
            inodes.add(path.stat().st_ino)
    return len(inodes)


def test_each_epoch_is_planned_once_and_its_memory_is_free_before_the_next(planned):
    alone = new_plan()
    end = alone.batches_of(2).stop
    expected = [alone.batch(index).tolist() for index in range(end)]
    planned.clear()
    first, *others = (new_plan(memory) for memory in new_memories(3))
    for index in range(end):
        assert first.batch(index).tolist() == expected[index]
        if index >= AHEAD:
            for plan in others:
                assert plan.batch(index - AHEAD).tolist() == expected[index - AHEAD]
    assert planned == [(0, 0), (1, 0), (2, 0)]
    assert num_epochs_in_memory() == 0  # these were the last batches of an epoch


def test_an_epoch_read_ahead_in_one_stage_is_not_taken_for_that_of_the_next():
    halves = [(1_500, 1.0), (1_500, 1.0)], [(1_500, 0.0), (1_500, 1.0)]

    def read(memory, *, begins):
        plan = BatchPlan(LENGTHS, LENGTHS, 400, 1, halves[0])
        if memory is not None:
            plan.plan_in(memory)
        first = new_plan().batches_of(0).stop
        if begins:
            plan.begin_stage(1, halves[1], 1, first)
        else:
            plan.begin_at(1, first)
        return [plan.batch(index).tolist() for index in range(first, first + 3)]

    expected = [read(None, begins=begins) for begins in (False, True)]
    assert expected[0] != expected[1]
    ahead, begun = new_memories(2)
    assert read(ahead, begins=False) == expected[0]
    assert read(begun, begins=True) == expected[1]
    assert read(ahead, begins=False) == expected[0]


def test_a_rank_waits_for_the_one_that_plans(monkeypatch):
    memories, has_begun = new_memories(2), threading.Event()
    plan_epoch, numbers = BatchPlan._plan_epoch, []

    def slow(plan, number, *new_order):
        numbers.append(number)
        has_begun.set()
        while len(numbers) == 1 and not is_waiting_for_a_lock():
            time.sleep(0.001)
        return plan_epoch(plan, number, *new_order)

    monkeypatch.setattr(BatchPlan, "_plan_epoch", slow)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(new_plan(memories[0]).batch, 5)
        assert has_begun.wait(60)
        second = pool.submit(new_plan(memories[1]).batch, 5)
        assert first.result().tolist() == second.result().tolist()
    assert numbers == [0]


def is_waiting_for_a_lock():
    """Return whether a thread of this process waits for the lock of a file."""
    locks = map(str.split, Path("/proc/locks").read_text().splitlines())
    return any(lock[1:3] == ["->", "FLOCK"] and lock[5] == str(os.getpid()) for lock in locks)


@contextmanager
def other_process(memory, work):
    """Do ``work(memory, report)`` in a process that shares ``memory``, up to ``report()``."""
    (reader, writer), offer = os.pipe(), memory.offer()
    child = os.fork()
    if child == 0:

        def report():
            os.write(writer, b"r")
            signal.pause()

        try:
            theirs = NodeMemory()
            theirs.join(offer)
            work(theirs, report)
        finally:
            os._exit(1)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as stream:
            assert stream.read(1) == b"r"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def plan_an_epoch(memory, report):
    new_plan(memory).batch(3)
    report()


def begin_to_plan(memory, report):
    memory.epoch(0, lambda new_order: report())


def test_the_epoch_of_another_process_is_mapped(planned):
    expected, memory = new_plan().batch(3).tolist(), NodeMemory()
    planned.clear()
    with other_process(memory, plan_an_epoch):
        plan = new_plan(memory)
        assert plan.batch(3).tolist() == expected
    assert plan.batch(3).tolist() == expected  # though that process has ended
    assert planned == []


@pytest.mark.parametrize("work", [begin_to_plan, plan_an_epoch])
def test_after_a_rank_was_killed_another_one_plans(work, planned):
    expected, memory = new_plan().batch(3).tolist(), NodeMemory()
    planned.clear()
    with other_process(memory, work):
        pass
    assert new_plan(memory).batch(3).tolist() == expected
    assert planned == [(0, 0)]
