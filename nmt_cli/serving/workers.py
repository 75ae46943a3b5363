"""The processes that translate for the service with one model, and the lines that each has.

Everything here runs in the event loop of the HTTP process, which imports no torch.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, Protocol

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.messages import AttentionOf, Bug, Ready, Refused
from nmt_cli.translating.workers.pool import WorkerStarter, reason_of

# Lines that a worker has at one time: as many as its search takes, so that the rest can still be
# given to any worker, and a short request need not wait behind all lines of a long one.
LINES_OF_A_WORKER = {"cpu": 128, "cuda": 512}
# Deaths of workers with the same line until it is translated alone, and until it fails.
DEATHS_UNTIL_ALONE, MOST_DEATHS = 2, 4
MOST_FAILED_STARTS = 3
LENGTH = struct.Struct("!i")  # in front of a message, as multiprocessing.Connection has it
BUG = "it met a bug in nmt-cli; the log of the server has its traceback"


class Batch:
    """The lines of one request, and their translations so far."""

    def __init__(self, requests: Sequence[Request | AttentionOf]) -> None:
        self.requests = requests
        self.translations: list[Translation | None] = [None] * len(requests)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.num_taken = self.num_answered = 0
        if not requests:
            self.done.set_result(None)

    @property
    def has_waiting(self) -> bool:
        """Whether lines of it wait that no worker has had."""
        return self.num_taken < len(self.requests) and not self.done.done()

    def found(self) -> list[Translation]:
        """Return the translation of each line, in order; the batch is done."""
        return [translation for translation in self.translations if translation is not None]

    def answer(self, place: int, translation: Translation) -> None:
        """Note the translation of a line."""
        self.translations[place] = translation
        self.num_answered += 1
        if self.num_answered == len(self.requests) and not self.done.done():
            self.done.set_result(None)


class _Line(NamedTuple):
    """A line of a batch; ``deaths`` counts the workers that died while they had it."""

    batch: Batch
    place: int
    deaths: int = 0

    @property
    def is_alone(self) -> bool:
        return self.deaths >= DEATHS_UNTIL_ALONE


class Figures(NamedTuple):
    """What the workers of a model have done, and have to do."""

    num_lines: int = 0  # translated
    num_pieces: int = 0  # of the translations
    num_deaths: int = 0  # of workers
    num_waiting: int = 0  # lines
    num_inside: int = 0  # lines that workers have
    busy_seconds: Mapping[int, float] = {}  # by the number of the worker
    processes: Mapping[int, int] = {}


class Worker(asyncio.Protocol):
    """A worker process; it is starting until it has sent its first message.

    This is the end of its connection that never blocks; the worker has a ``Connection``.
    """

    def __init__(
        self, number: int, process: int, hear: Callable[[Worker, Sequence[Any] | None], None]
    ) -> None:
        """``hear`` gets the messages that have come, or None when the worker has died."""
        self.number, self.process, self._hear = number, process, hear
        self._transport: asyncio.WriteTransport | None = None
        self._received = bytearray()
        self._outgoing: list[tuple[int, Any]] = []  # sent by ``_send_all``
        self.lines: dict[int, _Line] = {}  # by the numbers under which they were sent
        self.is_starting = True
        self.device = "cpu"
        self.busy_since: float | None = None

    def has_room(self, line: _Line | None) -> bool:
        """Return whether it may get ``line``, or any new line if that is None."""
        if self.is_starting or (len(self.lines) == 1 and next(iter(self.lines.values())).is_alone):
            return False
        if line is not None and line.is_alone:
            return not self.lines
        return len(self.lines) < LINES_OF_A_WORKER[self.device]

    def send(self, number: int, request: Request | AttentionOf | None) -> None:
        """Send a line, or None to withdraw it; nobody gets it if the worker has died.

        What is sent in one turn of the event loop is one message, so that the worker wakes once.
        """
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self._send_all)
        self._outgoing.append((number, request))

    def _send_all(self) -> None:
        assert self._transport is not None
        outgoing, self._outgoing = self._outgoing, []
        if not self._transport.is_closing():
            data = pickle.dumps(outgoing)
            self._transport.write(LENGTH.pack(len(data)) + data)

    def close(self) -> None:
        """Close the connection, so that the worker ends; nothing is heard of it any more."""
        self._hear = lambda _, __: None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what writes."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take messages from what has come so far."""
        self._received += data
        messages, place = [], 0
        while len(self._received) >= place + LENGTH.size:
            begin = place + LENGTH.size
            end = begin + LENGTH.unpack_from(self._received, place)[0]
            if len(self._received) < end:
                break
            messages.append(pickle.loads(memoryview(self._received)[begin:end]))
            place = end
        del self._received[:place]
        if messages:
            self._hear(self, messages)

    def connection_lost(self, _: Exception | None) -> None:
        """Report that the worker has died."""
        self._hear(self, None)


class Translating(Protocol):
    """What translates the lines of requests with one model; ``ModelWorkers`` does."""

    @property
    def num_waiting(self) -> int:
        """The lines that no worker has had yet."""
        ...

    def submit(self, requests: Sequence[Request | AttentionOf]) -> Batch:
        """Let lines join the search; ``done`` of the batch is set when all are translated."""
        ...

    def withdraw(self, batch: Batch) -> None:
        """Translate no more of the batch."""
        ...

    def figures(self) -> Figures:
        """Return what was done, and what is to be done."""
        ...


class ModelWorkers:
    """The workers of one model, from ``open`` to ``close``.

    Lines of several batches take turns. A worker that dies is replaced, and its lines are given to
    others; a line with which several workers died is translated alone, and fails at last.
    """

    def __init__(self, starter: WorkerStarter, num_workers: int) -> None:
        self.workers: list[Worker] = []
        self.chosen: dict[str, str] = {}  # of the workers' translators
        self._starter, self._num_workers = starter, num_workers
        # The starter waits for the model, and is not to be shared between threads.
        self._thread = ThreadPoolExecutor(1, "starter")
        self._waiting: deque[Batch] = deque()
        self._again: deque[_Line] = deque()  # lines of workers that have died
        self._numbers = count(1)  # of lines, which reports of slow lines name
        self._failed_starts = 0
        self._num_lines = self._num_pieces = self._num_deaths = 0
        self._busy_seconds = dict.fromkeys(range(num_workers), 0.0)
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self.broken: asyncio.Future[None] = loop.create_future()  # has the error if no more start
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_waiting(self) -> int:
        """The lines that no worker has had yet."""
        return sum(len(batch.requests) - batch.num_taken for batch in self._waiting)

    def opened(self) -> asyncio.Future[None]:
        """Start the workers; the future is done when the first one is ready, or has its error."""
        for number in range(self._num_workers):
            self._start(number)
        return self._ready

    def figures(self) -> Figures:
        """Return what was done, and what is to be done."""
        now, busy = time.monotonic(), dict(self._busy_seconds)
        for worker in self.workers:
            if worker.busy_since is not None:
                busy[worker.number] += now - worker.busy_since
        return Figures(
            self._num_lines,
            self._num_pieces,
            self._num_deaths,
            self.num_waiting,
            sum(len(worker.lines) for worker in self.workers),
            busy,
            {worker.number: worker.process for worker in self.workers},
        )

    def close(self) -> None:
        """Kill the workers."""
        for worker in list(self.workers):
            self._leave(worker)
        for task in self._tasks:
            task.cancel()
        self._starter.close()
        self._thread.shutdown(wait=False)

    def submit(self, requests: Sequence[Request | AttentionOf]) -> Batch:
        """Let lines join the search; ``done`` of the batch is set when all are translated."""
        batch = Batch(requests)
        if batch.has_waiting:
            self._waiting.append(batch)
            self._assign()
        return batch

    def withdraw(self, batch: Batch) -> None:
        """Translate no more of the batch."""
        batch.done.cancel()
        with suppress(ValueError):
            self._waiting.remove(batch)
        self._again = deque(line for line in self._again if line.batch is not batch)
        for worker in self.workers:
            for number in [n for n, line in worker.lines.items() if line.batch is batch]:
                worker.send(number, None)
                del worker.lines[number]
            self._note_work(worker)
        self._assign()

    def _start(self, number: int, dead: Worker | None = None) -> None:
        task = asyncio.get_running_loop().create_task(self._started(number, dead))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _started(self, number: int, dead: Worker | None) -> None:
        """Start a worker, if need be in place of a dead one."""
        loop, starter = asyncio.get_running_loop(), self._starter
        if dead is not None:
            status = await loop.run_in_executor(self._thread, starter.status_of, dead.process)
            what = f"a worker process has died ({reason_of(status)})"
            logs.warning(f"{what}; its lines are translated again.")
        try:
            connection, process = await loop.run_in_executor(self._thread, starter.start, number)
        except UserError as error:
            self._fail(error)
            return
        with connection:
            end = socket.socket(fileno=os.dup(connection.fileno()))
        worker = Worker(number, process, self._hear)
        self.workers.append(worker)
        await loop.create_unix_connection(lambda: worker, sock=end)

    def _fail(self, error: UserError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
        elif not (self._ready.cancelled() or self._ready.exception() or self.broken.done()):
            self.broken.set_exception(error)

    def _hear(self, worker: Worker, messages: Sequence[Any] | None) -> None:
        if messages is None:
            self._replace(worker)
        else:
            for message in messages:
                self._take(worker, message)
        self._assign()

    def _take(self, worker: Worker, message: Any) -> None:
        if isinstance(message, Refused):
            self._leave(worker)  # another one would refuse too
            self._fail(UserError(message.message))
        elif isinstance(message, Ready):
            worker.is_starting, self._failed_starts = False, 0
            self.chosen = message.chosen
            worker.device = message.chosen.get("device", "cpu")
            if not self._ready.done():
                self._ready.set_result(None)
        else:
            for number, answer in message:
                line = worker.lines.pop(number, None)  # None: it was withdrawn
                if line is not None:
                    self._note_answer(line, answer)
        self._note_work(worker)

    def _note_answer(self, line: _Line, answer: Translation | Bug) -> None:
        if isinstance(answer, Bug):
            logs.warning(f"a line met a bug in a worker process:\n{answer.traceback}")
            answer = Translation(error=BUG)
        self._num_lines += 1
        self._num_pieces += len(answer.tokens)
        line.batch.answer(line.place, answer)

    def _note_work(self, worker: Worker) -> None:
        """Note when a worker begins to have lines, and when it has none any more."""
        if worker.lines and worker.busy_since is None:
            worker.busy_since = time.monotonic()
        elif not worker.lines and worker.busy_since is not None:
            self._busy_seconds[worker.number] += time.monotonic() - worker.busy_since
            worker.busy_since = None

    def _replace(self, dead: Worker) -> None:
        self._leave(dead)
        lines, dead.lines = dead.lines, {}
        self._note_work(dead)
        self._num_deaths += 1
        self._failed_starts += dead.is_starting
        if self._failed_starts >= MOST_FAILED_STARTS:
            self._fail(UserError("worker processes end before they can begin."))
            return
        for line in reversed(lines.values()):
            if line.deaths + 1 >= MOST_DEATHS:
                error = "the worker processes that translated it have died"
                line.batch.answer(line.place, Translation(error=error))
            else:
                self._again.appendleft(line._replace(deaths=line.deaths + 1))
        self._start(dead.number, dead)

    def _leave(self, worker: Worker) -> None:
        worker.close()
        self.workers.remove(worker)

    def _assign(self) -> None:
        """Give lines to workers, each to the one that has the fewest, as long as one has room."""
        while self._again or self._waiting:
            line = self._again[0] if self._again else None
            free = [worker for worker in self.workers if worker.has_room(line)]
            if not free:
                return
            worker = min(free, key=lambda each: len(each.lines))
            if line is not None:
                self._again.popleft()
            else:
                batch = self._waiting.popleft()
                line = _Line(batch, batch.num_taken)
                batch.num_taken += 1
                if batch.has_waiting:
                    self._waiting.append(batch)
            number = next(self._numbers)
            worker.lines[number] = line
            worker.send(number, line.batch.requests[line.place])
            self._note_work(worker)
