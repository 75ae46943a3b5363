"""Processes that read what is large, and that can be killed.

What strangers send may take long to read, and no thread can be stopped; or it may fill memory. The
processes also detect languages, for which each loads 90 MB. They start when they are first needed.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from nmt_cli.hardware.memory import resident_bytes
from nmt_cli.launch.python_process import end_with_parent
from nmt_cli.messages import logs
from nmt_cli.serving.requests import REQUEST_ID, RefusedError
from nmt_cli.translating.workers.starter import start_connected

# At a time so many requests are read, and so many of them may have more bytes than LARGE: others
# need not wait for these.
NUM_READERS, NUM_OF_LARGE, LARGE = 3, 2, 1 << 16
MOST_INSIDE = 64  # requests that are read or wait for it; then new ones are refused
# A request is read within this share of the seconds that a request may take, at least the second
# number: the largest document that is allowed takes 5 s on one core.
SHARE_OF_SECONDS, LEAST_SECONDS = 1 / 4, 15.0
IDLE_SECONDS = 60.0  # then a process ends, unless it is the last one
MOST_IDLE_BYTES = 1 << 28  # of memory; a process that keeps more is replaced
PROGRAM = """
from nmt_cli.serving.readers import main
main()
"""

T = TypeVar("T")


class ReadingBugError(Exception):
    """A bug that a process met; the message has its traceback."""


class Readers:
    """Calls functions in other processes, within a time; it runs in one event loop."""

    def __init__(self, known: object, seconds: float) -> None:
        """Each function gets what is ``known``. ``seconds`` a request may take in all."""
        self._known = pickle.dumps(known)
        self._seconds = max(LEAST_SECONDS, seconds)
        self._seconds_of_one = max(LEAST_SECONDS, SHARE_OF_SECONDS * seconds)
        self._idle = list[_Reader]()  # the one that was used last is the last one
        self._started = set[_Reader]()  # all whose end was not waited for
        self._turns, self._turns_of_large = map(asyncio.Semaphore, (NUM_READERS, NUM_OF_LARGE))
        self._tasks = set[asyncio.Task[Any]]()

    @property
    def num_inside(self) -> int:
        """The requests that are being read, or wait for it."""
        return len(self._tasks)

    @property
    def processes(self) -> list[int]:
        """The ids of the processes."""
        return [each.process.pid for each in self._started if each.is_alive]

    def refuse_if_full(self) -> None:
        """Raise RefusedError if many requests wait."""
        if self.num_inside >= MOST_INSIDE:
            message = f"{self.num_inside} large requests are being read already"
            raise RefusedError(503, message, retry_after=1)

    async def __call__(self, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Return what ``function`` returns for what is known and ``arguments``, of ``size`` bytes.

        If the caller is cancelled, ``function`` is not begun, or its result is dropped. Raises what
        ``function`` raises, or RefusedError if it takes too long.
        """
        has_begun = asyncio.Event()
        reading = self._done(pickle.dumps((function, arguments)), size > LARGE, has_begun)
        task = asyncio.create_task(reading)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        try:
            await asyncio.wait({task}, timeout=self._seconds)
            if not task.done():
                message = f"the service did not read it within {self._seconds:g} seconds"
                raise RefusedError(503, message, retry_after=1)
            return task.result()
        finally:
            if not has_begun.is_set():
                task.cancel()

    async def close(self) -> None:
        """Kill the processes, also those that are being started, and wait for their ends."""
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._idle.clear()
        for each in list(self._started):
            await self._end(each)

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may have waited for it

    async def _done(self, call: bytes, is_large: bool, has_begun: asyncio.Event) -> Any:
        async with self._turns_of_large if is_large else nullcontext(), self._turns:
            has_begun.set()
            reader = await self._free_one()
            try:
                answering = asyncio.to_thread(reader.answer, call)
                answer = await asyncio.wait_for(answering, self._seconds_of_one)
            except BaseException as error:
                await self._end(reader)
                raise self._reason(reader, error) from None
            await self._keep(reader)
        is_good, found = answer
        if not is_good:
            raise found
        return found

    async def _free_one(self) -> _Reader:
        while self._idle:
            if (reader := self._idle.pop()).is_alive:
                return reader
            await self._end(reader)
        try:
            reader = _Reader(self._known)
        except OSError as error:
            message = f"no process could be started to read it: {error.strerror}"
            raise RefusedError(503, message, retry_after=1) from None
        self._started = {each for each in self._started if each.is_alive} | {reader}
        return reader

    async def _end(self, reader: _Reader) -> None:
        await asyncio.to_thread(reader.end)
        self._started.discard(reader)

    def _reason(self, reader: _Reader, error: BaseException) -> BaseException:
        """Return why a request was not read, whose process is killed."""
        if isinstance(error, asyncio.TimeoutError):  # another one than TimeoutError in Python 3.10
            logs.warning(
                f"request {REQUEST_ID.get()}: it was not read within {self._seconds_of_one:g} s, "
                f"and process {reader.process.pid}, which read it, is killed."
            )
            message = f"reading it takes more than {self._seconds_of_one:g} seconds; send less"
            return RefusedError(413, message)
        if isinstance(error, EOFError | OSError):
            logs.warning(
                f"request {REQUEST_ID.get()}: process {reader.process.pid}, which read it, has "
                f"died; if the memory is full, lower --max-characters or --max-document-bytes."
            )
            return RefusedError(503, "the process that read it has died", retry_after=1)
        return error

    async def _keep(self, reader: _Reader) -> None:
        """Keep a process for the next request, unless it has too much memory."""
        if resident_bytes(reader.process.pid) > MOST_IDLE_BYTES:
            await self._end(reader)
            return
        self._idle.append(reader)
        loop = asyncio.get_running_loop()
        reader.idle_until = loop.time() + IDLE_SECONDS
        loop.call_at(reader.idle_until, self._end_unused, reader.idle_until)

    def _end_unused(self, now: float) -> None:
        """End the processes that were not used for long, but the last one."""
        for reader in self._idle[:-1]:
            if reader.idle_until <= now:
                self._idle.remove(reader)
                reader.process.kill()


class _Reader:
    """A process that reads, and the connection to it."""

    def __init__(self, known: bytes) -> None:
        """Start the process, which gets what is ``known``. Raises OSError."""
        self.process, self._connection = start_connected(PROGRAM)
        self._unsent = [known]
        self.idle_until = 0.0  # by the clock of the event loop

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def answer(self, call: bytes) -> Any:
        """Wait for the answer to a call. Raises EOFError or OSError if the process dies."""
        for data in (*self._unsent, call):
            self._connection.send_bytes(data)
        self._unsent.clear()
        return self._connection.recv()

    def end(self) -> None:
        """Kill the process, and wait for its end."""
        self.process.kill()
        self.process.wait()


def main() -> None:
    """Answer the service at the other end of the connection that the argument names."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service ends it
    connection = Connection(int(sys.argv[1]))
    with suppress(EOFError, OSError):
        known = connection.recv()
        while True:
            function, arguments = connection.recv()
            connection.send(_answer(function, known, arguments))


def _answer(function: Callable[..., Any], known: Any, arguments: Any) -> tuple[bool, Any]:
    try:
        return True, function(known, *arguments)
    except RefusedError as error:
        return False, error
    except Exception:
        return False, ReadingBugError(f"in a process that reads:\n{traceback.format_exc()}")
