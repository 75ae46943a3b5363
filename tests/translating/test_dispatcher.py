"""Which lines the workers of a service get, and what becomes of those of a worker that dies.

The tests are the workers: they have the other ends of the connections.
"""

import asyncio
from multiprocessing import Pipe
from typing import Any

import pytest

from nmt_cli.messages import logs
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.workers.dispatcher import Dispatcher
from nmt_cli.translating.workers.messages import OneOfMany, Ready
from nmt_cli.translating.workers.starter import Starter
from nmt_cli.translating.workers.worker_process import LINES_OF_A_SERVICE, Batch

SECONDS = 60  # a test that needs them has failed
MOST = LINES_OF_A_SERVICE["cpu"]


class Ends(Starter):
    """In place of the process that starts workers: keeps the other ends of their connections."""

    def __init__(self) -> None:
        self.of_workers: dict[int, Any] = {}  # the newest of each number
        self.num_started = 0

    def start(self, number):
        ours, theirs = Pipe()
        theirs.send(Ready({"device": "cpu"}))
        self.of_workers[number] = theirs
        self.num_started += 1
        return ours, 1_000_000 + self.num_started

    def status_of(self, process):
        return 9

    def close(self):
        pass


class Workers:
    """A dispatcher whose workers are the test."""

    def __init__(self, num_workers):
        self.ends = Ends()
        self.dispatcher = Dispatcher(self.ends, num_workers)
        self.num_workers = num_workers
        self.has: dict[int, dict[int, str]] = {}  # the texts that each worker has, by number
        self.of_many = set[str]()  # those that came as lines of a large batch

    async def all_started(self):
        def is_ready():
            free = [each for each in self.dispatcher.workers if each.is_free]
            return len(free) == self.num_workers

        await self.until(is_ready)

    async def until(self, condition):
        """Wait until a condition holds; receive what is sent to the workers meanwhile."""
        deadline = asyncio.get_running_loop().time() + SECONDS
        while not condition():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0)
            self.receive()

    def receive(self):
        for number, end in list(self.ends.of_workers.items()):
            has = self.has.setdefault(number, {})
            while not end.closed and end.poll():
                for line, item in end.recv():
                    if isinstance(item, OneOfMany):
                        self.of_many.add(item.line.text)
                        has[line] = item.line.text
                    elif item is not None:
                        has[line] = item.text

    def answer(self, number, lines=None):
        """Let a worker answer some of its lines, or all."""
        has = self.has[number]
        lines = list(has) if lines is None else lines
        self.ends.of_workers[number].send([(line, Translation(has.pop(line))) for line in lines])

    async def die(self, number):
        """Let a worker die; wait until it is replaced."""
        self.has[number] = {}
        num_started = self.ends.num_started
        self.ends.of_workers[number].close()
        await self.until(lambda: self.ends.num_started > num_started)
        await self.all_started()

    def submit(self, texts, name="request 1"):
        batch = Batch([Request(text) for text in texts], name)
        self.dispatcher.submit(batch)
        return batch

    def texts(self, number):
        return list(self.has.get(number, {}).values())


def run(test, num_workers):
    async def running():
        workers = Workers(num_workers)
        try:
            await workers.dispatcher.opened()
            await workers.all_started()
            await test(workers)
        finally:
            workers.dispatcher.close()

    asyncio.run(asyncio.wait_for(running(), SECONDS))


@pytest.fixture(autouse=True)
def warnings(monkeypatch):
    found = list[str]()
    monkeypatch.setattr(logs, "warning", found.append)
    return found


def test_a_long_request_leaves_room_for_a_short_one_that_comes_later():
    async def test(workers):
        long = workers.submit([f"long {number}" for number in range(600)])
        await workers.until(lambda: len(workers.texts(0)) == len(workers.texts(1)) == 24)
        assert MOST.of_a_batch == 24
        short = workers.submit(["short"], "request 2")
        await workers.until(lambda: "short" in workers.texts(0) + workers.texts(1))
        number = 0 if "short" in workers.texts(0) else 1
        workers.answer(number)
        await workers.until(short.done.done)
        await workers.until(lambda: len(workers.texts(number)) == 24)  # further long ones
        while not long.done.done():
            workers.answer(0)
            workers.answer(1)
            await workers.until(lambda: long.done.done() or all(map(workers.texts, (0, 1))))
        assert [each.text for each in long.answers] == [f"long {number}" for number in range(600)]
        assert workers.of_many == {each.text for each in long.answers}

    run(test, 2)


def test_the_longest_lines_of_a_request_go_first():
    async def test(workers):
        workers.submit(["a", "ccc", "bb", "dddd"])
        await workers.until(lambda: len(workers.texts(0)) == 4)
        assert workers.texts(0) == ["dddd", "ccc", "bb", "a"]

    run(test, 1)


def test_lines_with_which_two_workers_have_died_are_halved_while_another_worker_goes_on():
    sizes = list[int]()

    async def test(workers):
        batch = workers.submit([f"line {number}" for number in range(16)])
        await workers.until(lambda: len(workers.texts(0)) == len(workers.texts(1)) == 8)
        workers.answer(1)
        await workers.die(0)
        await workers.until(lambda: len(workers.texts(1)) == 8)
        guilty = workers.texts(1)[-1]
        await workers.die(1)
        while not batch.done.done():
            await workers.until(lambda: workers.texts(1))
            sizes.append(len(workers.texts(1)))
            short = workers.submit(["short"], "request 2")
            await workers.until(lambda: workers.texts(0) == ["short"])
            workers.answer(0)
            await workers.until(short.done.done)
            if guilty in workers.texts(1):
                await workers.die(1)
            else:
                workers.answer(1)
        of_guilty = [each.error for each in batch.answers if each.error is not None]
        assert of_guilty == ["the worker processes that translated it have died (status 9)"]

    run(test, 2)
    assert sizes == [4, 4, 2, 2, 1, 1]


async def suspected(workers):
    """Return a batch of 8 lines with which the only worker has died twice."""
    batch = workers.submit([f"line {number}" for number in range(8)])
    for _ in range(2):
        await workers.until(lambda: len(workers.texts(0)) == 8)
        await workers.die(0)
    return batch


def test_other_lines_have_their_turn_between_the_tests_of_the_only_worker():
    async def test(workers):
        batch = await suspected(workers)
        short = workers.submit(["short"], "request 2")
        await workers.until(lambda: len(workers.texts(0)) == 4)  # the first half
        workers.answer(0)
        await workers.until(lambda: workers.texts(0) == ["short"])
        workers.answer(0)
        await workers.until(short.done.done)
        await workers.until(lambda: len(workers.texts(0)) == 4)
        workers.answer(0)
        await workers.until(batch.done.done)
        await workers.until(lambda: not workers.dispatcher._suspects.tester)
        assert [each.error for each in batch.answers] == [None] * 8

    run(test, 1)


def test_suspects_whose_request_is_withdrawn_are_not_tested():
    async def test(workers):
        batch = await suspected(workers)
        await workers.until(lambda: len(workers.texts(0)) == 4)
        workers.dispatcher.withdraw(batch)
        workers.answer(0)
        other = workers.submit(["other"], "request 2")
        await workers.until(lambda: workers.texts(0) == ["other"])
        workers.answer(0)
        await workers.until(other.done.done)

    run(test, 1)
