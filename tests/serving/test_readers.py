"""Processes that read requests: each can be killed, and what one reads holds back nobody else."""

import asyncio
import os
import pickle
import signal
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nmt_cli.serving import readers as module
from nmt_cli.serving.readers import LARGE, Readers, ReadingBugError
from nmt_cli.serving.requests import RefusedError

PROCESS = "__import__('os').getpid()"
ENDLESS = "[0 for _ in iter(int, 1)]"
ENDLESS_IN_C = "__import__('re').match('(a|a)*$', 'a' * 64 + 'b')"


@asynccontextmanager
async def reading():
    """Readers that know how to evaluate what is sent to them."""
    readers = Readers("eval(code)", 60.0)
    try:
        yield readers
    finally:
        processes = readers.processes
        await readers.close()
        assert not any(Path(f"/proc/{process}").exists() for process in processes)


async def found(readers, code, size=1):
    return await readers(size, eval, {"code": code})


async def refusal(readers, code):
    with pytest.raises(RefusedError) as refused:
        await found(readers, code)
    return refused.value.status, refused.value.message


def test_what_is_read_comes_from_one_process_that_starts_when_it_is_needed():
    async def read():
        async with reading() as readers:
            assert readers.processes == []
            process = await found(readers, PROCESS)
            assert readers.processes == [process] != [os.getpid()]
            assert len(await found(readers, "b'a' * 20_000_000")) == 20_000_000
            with pytest.raises(ReadingBugError, match="ZeroDivisionError: division by zero"):
                await found(readers, "1 / 0")
            os.kill(process, signal.SIGKILL)
            while readers.processes:
                await asyncio.sleep(0.01)
            assert await found(readers, PROCESS) != process

    asyncio.run(read())


@pytest.mark.parametrize("code", [ENDLESS, ENDLESS_IN_C])
def test_what_takes_too_long_to_read_is_refused_and_its_process_is_replaced(monkeypatch, code):
    async def read():
        async with reading() as readers:
            first = await found(readers, PROCESS)
            monkeypatch.setattr(readers, "_seconds_of_one", 0.2)
            status = await refusal(readers, code)
            assert status == (413, "reading it takes more than 0.2 seconds; send less")
            monkeypatch.undo()
            assert not Path(f"/proc/{first}").exists()
            assert readers.processes == []
            if code == ENDLESS:
                assert await found(readers, PROCESS) != first

    asyncio.run(read())


def test_a_process_that_dies_while_it_reads_is_the_reason():
    async def read():
        async with reading() as readers:
            status = await refusal(readers, f"__import__('os').kill({PROCESS}, 9)")
            assert status == (503, "the process that read it has died")
            assert readers.processes == []

    asyncio.run(read())


def test_small_requests_do_not_wait_for_large_ones():
    async def read():
        async with reading() as readers:
            endless = [asyncio.ensure_future(found(readers, ENDLESS, LARGE + 1)) for _ in range(3)]
            assert await found(readers, "1 + 1") == 2
            assert len(readers.processes) == module.NUM_READERS
            assert (readers.num_inside, [each.done() for each in endless]) == (3, [False] * 3)
            for each in endless:  # the third was not begun
                each.cancel()
            await asyncio.wait(endless)
            assert readers.num_inside == 2

    asyncio.run(read())


def test_a_process_that_is_not_needed_ends(monkeypatch):
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.1)

    async def read():
        async with reading() as readers:
            slow = f"__import__('time').sleep(0.5) or {PROCESS}"
            two = await asyncio.gather(found(readers, slow), found(readers, slow))
            deadline = time.monotonic() + 30
            while len(readers.processes) > 1:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert await found(readers, PROCESS) in two
            monkeypatch.setattr(module, "MOST_IDLE_BYTES", 1)
            assert await found(readers, PROCESS) in two
            assert readers.processes == []

    asyncio.run(read())


@pytest.mark.parametrize("seconds", [0.0, 0.002, 0.01, 0.05, 0.3])
def test_processes_that_are_being_started_end_with_the_service(seconds):
    async def read():
        async with reading() as readers:
            slow = asyncio.ensure_future(found(readers, ENDLESS))
            await asyncio.sleep(seconds)
        assert readers.processes == []
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        commands = [Path(f"/proc/{child}/cmdline").read_bytes() for child in children]
        assert not any(b"serving.readers" in each for each in commands)
        with pytest.raises(asyncio.CancelledError):
            await slow

    asyncio.run(read())


def test_a_refusal_is_the_same_in_another_process():
    refused = RefusedError(503, "it is full", retry_after=7)
    found = pickle.loads(pickle.dumps(refused))
    assert (found.status, found.message) == (503, "it is full")
    assert found.headers == {"Retry-After": "7"}
