"""The processes that translate for the service with one model, and the lines that each has.

Everything here runs in the event loop of the HTTP process, which imports no torch.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple, Protocol

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.serving.worker import Batch, Line, Worker
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.messages import Answer, AttentionOf, Bug, Ready, Refused, SlowLine
from nmt_cli.translating.workers.pool import WorkerStarter, reason_of

MOST_DEATHS = 4  # of workers with the same line, until it fails
MOST_FAILED_STARTS = 3
SECONDS_BETWEEN_LOOKS = 1.0  # at workers, or a tenth of what a request may take if that is less
LEAST_SECONDS = 2.0  # without an answer, until a worker is killed: a step may take as long
SHOWN_REQUESTS = 10  # of a worker that is killed
BUG = "it met a bug in nmt-cli; the log of the server has its traceback"


class Figures(NamedTuple):
    """What the workers of a model have done, and have to do."""

    num_lines: int = 0  # translated
    num_pieces: int = 0  # of the translations
    num_invisible: int = 0  # lines without some characters that nobody sees
    num_deaths: int = 0  # of workers
    num_waiting: int = 0  # lines
    num_inside: int = 0  # lines that workers have
    num_silent: int = 0  # workers that have lines and have not answered for a while
    is_stuck: bool = False  # no worker answers
    busy_seconds: Mapping[int, float] = {}  # by the number of the worker
    processes: Mapping[int, int] = {}


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
    others; a line with which several workers died is translated alone, and fails at last. A worker
    that has lines and answers nothing for as long as a request may take is killed.
    """

    def __init__(self, starter: WorkerStarter, num_workers: int, seconds: float = math.inf) -> None:
        """``seconds`` a request may take."""
        self.workers: list[Worker] = []
        self.chosen: dict[str, str] = {}  # of the workers' translators
        self._starter, self._num_workers = starter, num_workers
        self._seconds = max(seconds, LEAST_SECONDS)
        # The starter waits for the model, and is not to be shared between threads.
        self._thread = ThreadPoolExecutor(1, "starter")
        self._waiting: deque[Batch] = deque()
        self._again: deque[Line] = deque()  # lines of workers that have died
        self._numbers = count(1)  # of lines, which reports of slow lines name
        self._failed_starts = 0
        self._num_lines = self._num_pieces = self._num_invisible = self._num_deaths = 0
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
        self._do(self._watch())
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
            self._num_invisible,
            self._num_deaths,
            self.num_waiting,
            sum(len(worker.lines) for worker in self.workers),
            sum(worker.is_silent for worker in self.workers),
            all(worker.is_starting or worker.is_silent for worker in self.workers),
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

    def _start(self, number: int, dead: Worker | None = None) -> None:
        self._do(self._started(number, dead))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watch(self) -> None:
        """Replace workers that are silent for too long.

        Looks are counted, not seconds: after a pause of this process all workers look silent.
        """
        seconds = min(SECONDS_BETWEEN_LOOKS, self._seconds / 10)
        while True:
            await asyncio.sleep(seconds)
            for worker in list(self.workers):
                worker.look()
                if worker.silent_looks * seconds >= self._seconds:
                    self._kill(worker)

    def _kill(self, worker: Worker) -> None:
        requests = list(dict.fromkeys(line.batch.request_id for line in worker.lines.values()))
        more = ", ..." if len(requests) > SHOWN_REQUESTS else ""
        logs.warning(
            f"worker process {worker.process} has answered nothing for {self._seconds:g} s and is "
            f"killed; it has lines of the requests {', '.join(requests[:SHOWN_REQUESTS])}{more}."
        )
        with suppress(ProcessLookupError):
            os.kill(worker.process, signal.SIGKILL)
        self._replace(worker)
        self._assign()

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
                self._note(worker, number, answer)
        self._note_work(worker)

    def _note(self, worker: Worker, number: int, answer: Answer) -> None:
        if number not in worker.lines:  # it was answered while it was withdrawn
            return
        if isinstance(answer, SlowLine):
            logs.info(f"{worker.lines[number]} {answer.what}")
            return
        line = worker.lines.pop(number)
        if answer is not None:  # None: it is withdrawn
            self._note_answer(line, answer)

    def _note_answer(self, line: Line, answer: Translation | Bug) -> None:
        if isinstance(answer, Bug):
            logs.warning(f"{line} met a bug in a worker process:\n{answer.traceback}")
            answer = Translation(error=BUG)
        self._num_lines += 1
        self._num_pieces += len(answer.tokens)
        self._num_invisible += answer.drops_invisible
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
        wanted = [line for line in lines.values() if not line.batch.done.done()]
        for line in reversed(wanted):
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
                line = Line(batch, batch.num_taken)
                batch.num_taken += 1
                if batch.has_waiting:
                    self._waiting.append(batch)
            worker.give(next(self._numbers), line)
            self._note_work(worker)
