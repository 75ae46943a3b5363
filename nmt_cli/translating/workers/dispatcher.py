"""The processes that translate with one model, and the lines that each has.

Everything here runs in an event loop of the command, which imports no torch.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import time
from collections import defaultdict, deque
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.workers.messages import Answer, Ready
from nmt_cli.translating.workers.starter import Starter
from nmt_cli.translating.workers.worker_process import Batch, BatchLine, WorkerProcess

MOST_FAILED_STARTS = 3
# In a text: finding one line among 192 takes 8 deaths in a row, and it dies 3 times.
MOST_DEATHS_IN_A_ROW = 50
SECONDS_BETWEEN_LOOKS = 1.0  # at workers, or a tenth of what a request may take if that is less
LEAST_SECONDS = 2.0  # without an answer, until a worker is killed: a step may take as long
DEATHS_OF_A_SUSPECT = 2  # of workers with the same line
SHOWN_BATCHES = 10  # of a worker that is killed


class WorkerFigures(NamedTuple):
    """What the workers of a model have done, and have to do."""

    # How many there are.
    lines: int = 0  # translated
    pieces: int = 0  # of the translations
    lines_with_invisible: int = 0  # without some characters that nobody sees
    lines_of_unseen: int = 0  # with a sentence that was copied: no letter of it was known
    worker_deaths: int = 0
    waiting_lines: int = 0
    worker_lines: int = 0  # that workers have
    silent_workers: int = 0  # that have lines and have not answered for a while
    is_stuck: bool = False  # no worker answers
    busy_seconds: Mapping[int, float] = {}  # by the number of the worker
    processes: Mapping[int, int] = {}


class Dispatcher:
    """Gives lines to the workers of one model, from ``opened`` to ``close``.

    Lines of several batches take turns, unless these are parts of a text. A worker that dies is
    replaced, and its lines are given to others; those with which two workers have died are
    ``Suspects``. A worker that has lines and answers nothing for as long as a request may take is
    killed.
    """

    def __init__(
        self,
        starter: Starter,
        num_workers: int,
        *,
        seconds: float = math.inf,
        is_text: bool = False,
    ) -> None:
        """``seconds`` a request may take.

        If batches are parts of a text (``is_text``), they are translated in the order in which they
        were submitted, and it breaks when many workers have died with no answer between.
        """
        self.workers: list[WorkerProcess] = []
        self.chosen: dict[str, str] = {}  # of the workers' translators
        self._starter, self._num_workers, self._is_text = starter, num_workers, is_text
        self._seconds = max(seconds, LEAST_SECONDS)
        # The starter waits for the model, and is not to be shared between threads.
        self._thread = ThreadPoolExecutor(1, "starter")
        self._waiting: deque[Batch] = deque()  # those with lines that no worker has
        self._suspects = Suspects(has_other_workers=num_workers > 1)
        self._numbers = count(1)  # of lines
        self._failed_starts = self._deaths_in_a_row = 0
        self._counts = defaultdict[str, Any](int)  # of figures
        self._busy_seconds = dict.fromkeys(range(num_workers), 0.0)
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = loop.create_future()
        self.broken: asyncio.Future[None] = loop.create_future()  # has the error if no more start
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def num_waiting(self) -> int:
        """The lines that no worker has."""
        return sum(batch.num_waiting for batch in self._waiting)

    async def opened(self) -> None:
        """Start the workers, and wait for the first one. Raises its error."""
        for number in range(self._num_workers):
            self._do(self._started(number))
        self._do(self._watch())
        await self._ready

    def figures(self) -> WorkerFigures:
        """Return what was done, and what is to be done."""
        now, busy = time.monotonic(), dict(self._busy_seconds)
        for worker in self.workers:
            if worker.busy_since is not None:
                busy[worker.number] += now - worker.busy_since
        return WorkerFigures(
            waiting_lines=self.num_waiting,
            worker_lines=sum(len(worker.lines) for worker in self.workers),
            silent_workers=sum(worker.is_silent for worker in self.workers),
            is_stuck=all(worker.is_starting or worker.is_silent for worker in self.workers),
            busy_seconds=busy,
            processes={worker.number: worker.process for worker in self.workers},
            **self._counts,
        )

    def close(self) -> None:
        """Kill the workers."""
        for worker in list(self.workers):
            self._leave(worker)
        for task in self._tasks:
            task.cancel()
        self._starter.close()
        self._thread.shutdown(wait=False)

    def submit(self, batch: Batch) -> None:
        """Let lines join the searches; ``done`` of the batch is set when all are answered."""
        if batch.num_waiting:
            self._waiting.append(batch)
            self._assign()

    def withdraw(self, batch: Batch) -> None:
        """Translate no more of the batch."""
        batch.done.cancel()
        with suppress(ValueError):
            self._waiting.remove(batch)
        for worker in self.workers:
            for number in [n for n, line in worker.lines.items() if line.batch is batch]:
                worker.send(number, None)

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

    def _kill(self, worker: WorkerProcess) -> None:
        names = list(dict.fromkeys(line.batch.name for line in worker.lines.values()))
        more = ", ..." if len(names) > SHOWN_BATCHES else ""
        logs.warning(
            f"worker process {worker.process} has answered nothing for {self._seconds:g} s and is "
            f"killed; it has lines of {', '.join(names[:SHOWN_BATCHES])}{more}."
        )
        with suppress(ProcessLookupError):
            os.kill(worker.process, signal.SIGKILL)
        self._replace(worker)
        self._assign()

    async def _started(self, number: int) -> None:
        """Start a worker."""
        loop = asyncio.get_running_loop()
        try:
            start = self._starter.start
            connection, process = await loop.run_in_executor(self._thread, start, number)
        except UserError as error:
            self._fail(error)
            return
        with connection:
            end = socket.socket(fileno=os.dup(connection.fileno()))
        worker = WorkerProcess(number, process, self._hear, self._is_text)
        self.workers.append(worker)
        await loop.create_unix_connection(lambda: worker, sock=end)

    async def _replaced(self, dead: WorkerProcess, lines: Sequence[BatchLine]) -> None:
        """Start a worker in place of a dead one, whose ``lines`` are given to others."""
        loop = asyncio.get_running_loop()
        status = await loop.run_in_executor(self._thread, self._starter.status_of, dead.process)
        reason = reason_of(status)
        if self._failed_starts >= MOST_FAILED_STARTS:
            self._fail(UserError(f"worker processes end before they can begin ({reason})."))
            return
        if self._is_text and self._deaths_in_a_row > MOST_DEATHS_IN_A_ROW:
            what = f"{self._deaths_in_a_row} worker processes in a row have died ({reason})"
            advice = "give fewer --workers or a lower --max-tokens-per-device"
            self._fail(UserError(f"{what}; if the memory is full, {advice}."))
            return
        logs.warning(f"a worker process has died ({reason}); its lines are translated again.")
        error = f"the worker processes that translated it have died ({reason})"
        unsuspected, guilty = self._suspects.left_by(dead, lines)
        for line in guilty:
            line.batch.answer(line.place, Translation(error=error))
        for line in unsuspected:
            line.batch.put_back(line)
            if line.batch not in self._waiting:
                self._waiting.appendleft(line.batch)
        self._assign()
        await self._started(dead.number)

    def _fail(self, error: UserError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
        elif not (self._ready.cancelled() or self._ready.exception() or self.broken.done()):
            self.broken.set_exception(error)

    def _hear(self, worker: WorkerProcess, messages: Sequence[Any] | None) -> None:
        if messages is None:
            self._replace(worker)
        else:
            for message in messages:
                self._take(worker, message)
        self._assign()

    def _take(self, worker: WorkerProcess, message: Any) -> None:
        if isinstance(message, UserError):
            self._leave(worker)  # another one would refuse too
            self._fail(message)
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

    def _note(self, worker: WorkerProcess, number: int, answer: Answer) -> None:
        if number not in worker.lines:  # it was answered while it was withdrawn
            return
        line, self._deaths_in_a_row = worker.lines.pop(number), 0
        if answer is None:  # it is withdrawn
            return
        self._counts["lines"] += 1
        if isinstance(answer, Translation):
            self._counts["pieces"] += len(answer.tokens)
            self._counts["lines_with_invisible"] += answer.drops_invisible
            self._counts["lines_of_unseen"] += answer.copies_unseen
        line.batch.answer(line.place, answer)

    def _note_work(self, worker: WorkerProcess) -> None:
        """Note when a worker begins to have lines, and when it has none any more."""
        if worker.lines and worker.busy_since is None:
            worker.busy_since = time.monotonic()
        elif not worker.lines and worker.busy_since is not None:
            self._busy_seconds[worker.number] += time.monotonic() - worker.busy_since
            worker.busy_since = None

    def _replace(self, dead: WorkerProcess) -> None:
        self._leave(dead)
        lines, dead.lines = dead.lines, {}
        self._note_work(dead)
        self._counts["worker_deaths"] += 1
        self._deaths_in_a_row += 1
        self._failed_starts += dead.is_starting
        self._do(self._replaced(dead, [line for line in lines.values() if line.is_wanted]))

    def _leave(self, worker: WorkerProcess) -> None:
        worker.close()
        self.workers.remove(worker)

    def _assign(self) -> None:
        """Give lines to workers, each to the one that has the fewest, as long as one has room."""
        for line in self._suspects.next_test(self.workers, others_wait=bool(self._waiting)):
            self._give(next(w for w in self.workers if w.has_suspects), line)
        allowed = [each for each in self.workers if each.is_free and self._suspects.allows(each)]
        num_without_room = 0  # batches in a row
        while num_without_room < len(self._waiting):
            allowed = [worker for worker in allowed if not worker.is_full]
            if not allowed:
                break
            batch = self._waiting.popleft()
            free = [worker for worker in allowed if worker.has_room(batch)]
            if free and batch.num_waiting:
                self._give(min(free, key=lambda each: len(each.lines)), batch.take())
            num_without_room = 0 if free else num_without_room + 1
            if batch.num_waiting and self._is_text:
                self._waiting.appendleft(batch)
            elif batch.num_waiting:
                self._waiting.append(batch)
        self._suspects.end_turn(self.workers)

    def _give(self, worker: WorkerProcess, line: BatchLine) -> None:
        worker.give(next(self._numbers), line)
        self._note_work(worker)


class Suspects:
    """Lines with which workers have died, in groups that one worker tests one after another.

    The worker has no other lines meanwhile, and the other workers go on with these. If there is no
    other worker, other lines have their turn after each test. A group with which the worker dies is
    halved; a line that is alone then is guilty.
    """

    def __init__(self, *, has_other_workers: bool) -> None:
        self.tester: int | None = None  # the number of the worker, while there are groups
        self._groups: deque[list[BatchLine]] = deque()
        self._has_other_workers = has_other_workers
        self._is_turn_of_others = False

    def left_by(
        self, dead: WorkerProcess, lines: Sequence[BatchLine]
    ) -> tuple[list[BatchLine], list[BatchLine]]:
        """Take what is to be tested of the lines of a worker that has died.

        Return those to be given to any worker, and those with which workers die when they are
        alone.
        """
        lines = [line._replace(deaths=line.deaths + 1) for line in lines]
        self._is_turn_of_others = dead.has_suspects and not self._has_other_workers
        if dead.has_suspects and len(lines) == 1:
            return [], lines
        suspects = [line for line in lines if line.deaths >= DEATHS_OF_A_SUSPECT]
        half = (len(suspects) + 1) // 2
        self._groups.extendleft(part for part in (suspects[half:], suspects[:half]) if part)
        if suspects and self.tester is None:
            self.tester = dead.number  # its successor has no lines yet
        return [line for line in lines if line.deaths < DEATHS_OF_A_SUSPECT], []

    def allows(self, worker: WorkerProcess) -> bool:
        """Return whether ``worker`` may get lines that are no suspects."""
        is_tester = worker.number == self.tester
        return not worker.has_suspects and (self._is_turn_of_others or not is_tester)

    def end_turn(self, workers: Sequence[WorkerProcess]) -> None:
        """Let the tester get no further lines if it got some when it was their turn."""
        if any(each.number == self.tester and each.lines for each in workers):
            self._is_turn_of_others = False

    def next_test(
        self, workers: Sequence[WorkerProcess], *, others_wait: bool
    ) -> Sequence[BatchLine]:
        """Return the lines that the tester of ``workers`` gets now, if it can begin a test."""
        wanted = ([line for line in group if line.is_wanted] for group in self._groups)
        self._groups = deque(group for group in wanted if group)
        worker = next((each for each in workers if each.number == self.tester), None)
        if worker is not None and worker.has_suspects and not worker.lines:
            worker.has_suspects, self._is_turn_of_others = False, not self._has_other_workers
        if not self._groups:
            self.tester = self.tester if worker is not None and worker.has_suspects else None
            return []
        if self._is_turn_of_others and others_wait:
            return []
        if worker is None or not worker.is_free or worker.lines:
            return []
        worker.has_suspects, self._is_turn_of_others = True, False
        return self._groups.popleft()


def reason_of(status: int | None) -> str:
    """Return why a process has ended, from its exit status; None if that is unknown."""
    if status is None:
        return "status unknown"
    if status >= 0:
        return f"status {status}"
    with suppress(ValueError):  # a real-time signal has no name
        return f"signal {signal.Signals(-status).name}"
    return f"signal {-status}"
