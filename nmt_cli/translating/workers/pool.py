"""Several processes that translate one stream of lines, in order and in bounded memory.

A task is a window of lines, so that the translations are those of one process with the
same windows, to the last bit; or a part of one, if workers share a window. A worker that dies is
replaced, and its task is given to another one. A task with which two workers died is halved; if it
is a single line, that line fails.

If the number of workers is left to the pool, one worker gets all threads as long as few lines wait,
as in a service or with a short text. While a long window waits for each process, they share the
text with one thread each, which is faster: threads wait for each other at each step.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Protocol

from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError, UserError
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.workers.messages import Bug, Done, Ready, Refused

WINDOWS_FOR_EACH_WORKER = 2  # one that it translates, and one that waits
MOST_DEATHS = 2  # of workers with the same task, until it is halved
# Finding one line among 4,096 takes 15 deaths in a row.
MOST_DEATHS_IN_A_ROW = 50
MOST_FAILED_STARTS = 3
LEAST_SHARED_LINES = 512  # of a window: a smaller one does not keep a process busy for long


class WorkerStarter(Protocol):
    """What starts worker processes."""

    def start(self, number: int) -> tuple[Connection, int]:
        """Start worker ``number``; return the connection to it and its process."""
        ...

    def status_of(self, process: int) -> int | None:
        """Return the exit status of a worker that has ended; None if it is unknown."""
        ...

    def close(self) -> None:
        """Kill all workers."""
        ...


class WorkerBugError(Exception):
    """A bug in a worker; the message is its traceback."""


class _Task(NamedTuple):
    """Lines for a worker: those from ``first`` on of window number ``window``."""

    window: int
    first: int
    lines: Sequence[str | Request]
    deaths: int = 0

    def divided(self, number: int) -> list[_Task]:
        """Return ``number`` parts, at most one for each line."""
        bounds = [len(self.lines) * n // number for n in range(number + 1)]
        return [
            self._replace(first=self.first + begin, lines=self.lines[begin:end])
            for begin, end in pairwise(bounds)
        ]


class _Worker:
    """A worker process; it is starting as long as it has sent no message."""

    has_all_threads = False  # for its task

    def __init__(self, number: int, connection: Connection, process: int) -> None:
        self.number, self.connection, self.process = number, connection, process
        self.task: _Task | None = None
        self.is_starting = True


class WorkerPool:
    """Workers, from ``open`` to ``close``; not to be shared between threads."""

    def __init__(
        self,
        starter: WorkerStarter,
        num_workers: int,
        *,
        all_threads: int | None = None,
        when_shared: Callable[[], object] = lambda: None,
        divides: bool = False,
    ) -> None:
        """Use ``num_workers``, or at most so many if ``all_threads`` are the threads of one alone.

        ``when_shared`` is called when lines are shared for the first time. With ``divides``,
        workers share a window if no other waits for them.
        """
        self.chosen: dict[str, str] = {}  # of the workers' translators
        self._starter = starter
        self._tasks: deque[_Task] = deque()  # that wait for a worker, first lines first
        self._outcomes: dict[int, dict[int, list[Translation] | Bug]] = {}  # by window and line
        self._missing: dict[int, int] = {}  # lines without outcome, by window
        self._next = 0  # the window whose translations are yielded next
        self._deaths_in_a_row = self._failed_starts = 0
        self._workers: list[_Worker] = []
        self._num_workers, self._all_threads = num_workers, all_threads
        self._when_shared, self._divides = when_shared, divides

    def open(self) -> None:
        """Start the workers that are needed at once, and wait for the first one.

        Raises UserError if they cannot load the model.
        """
        self._hire(self._num_workers if self._all_threads is None else 1)
        while not self.chosen:
            self._hear(wait([self._workers[0].connection]))

    def close(self) -> None:
        """Kill the workers."""
        for worker in self._workers:
            worker.connection.close()
        self._starter.close()

    def translate_windows(
        self, windows: Iterator[Sequence[str | Request]]
    ) -> Iterator[list[Translation]]:
        """Yield the translations of each window, in order.

        ``windows`` is read in a thread of its own; its error is raised after the windows before.
        Raises LinesFailedError for a bug, as ``Translator.translate_window`` does, and UserError if
        workers die again and again.
        """
        num_ahead = WINDOWS_FOR_EACH_WORKER * self._num_workers
        if self._all_threads is not None:
            num_ahead = 1 + self._num_workers  # as few as show whether sharing pays
        reader = _WindowReader(windows, num_ahead)
        try:
            while True:
                for lines in reader.take():
                    self._add(lines)
                while self._missing.get(self._next) == 0:
                    yield self._finished()
                    reader.allow_one_more()
                if reader.has_ended and not self._missing:
                    break
                self._assign()
                self._hear(wait([reader.signal, *(w.connection for w in self._workers)]))
        finally:
            reader.stop()
        if reader.error is not None:
            raise reader.error

    def _add(self, lines: Sequence[str | Request]) -> None:
        number = self._next + len(self._missing)
        self._missing[number], self._outcomes[number] = len(lines), {}
        self._tasks.append(_Task(number, 0, lines))

    def _assign(self) -> None:
        if self._all_threads is None:
            self._give_to_all(None)
            return
        busy = [worker for worker in self._workers if worker.task is not None]
        if any(worker.has_all_threads for worker in busy):
            return  # it uses all cores
        if busy or self._is_long():
            if len(self._workers) < self._num_workers:
                self._when_shared()
                self._hire(self._num_workers)
            self._give_to_all(1)
        elif self._tasks and not self._workers[0].is_starting:
            self._give(self._workers[0], self._all_threads)
            self._workers[0].has_all_threads = True

    def _is_long(self) -> bool:
        """Return whether enough lines wait to keep all workers busy."""
        windows = sum(len(task.lines) >= LEAST_SHARED_LINES for task in self._tasks)
        return windows >= self._num_workers

    def _give_to_all(self, threads: int | None) -> None:
        missing = sum(worker.task is None for worker in self._workers) - len(self._tasks)
        if self._divides and self._tasks and missing > 0:
            last = self._tasks.pop()
            self._tasks += last.divided(max(1, min(1 + missing, len(last.lines))))
        for worker in self._workers:
            if self._tasks and worker.task is None and not worker.is_starting:
                self._give(worker, threads)

    def _give(self, worker: _Worker, threads: int | None) -> None:
        worker.task = self._tasks.popleft()
        worker.has_all_threads = False
        with suppress(OSError):  # it has died, which is heard next
            worker.connection.send((worker.task.lines, threads))

    def _hear(self, ready: Sequence[Any]) -> None:
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(worker)
                continue
            self._failed_starts = 0
            worker.is_starting = False
            if isinstance(message, Refused):
                error = UserError(message.message)
                error.exit_status = message.exit_status
                raise error
            if isinstance(message, Ready):
                self.chosen = message.chosen
                continue
            assert worker.task is not None
            task, worker.task = worker.task, None
            self._deaths_in_a_row = 0
            outcome = message.translations if isinstance(message, Done) else message
            self._settle(task, outcome)

    def _settle(self, task: _Task, outcome: list[Translation] | Bug) -> None:
        self._outcomes[task.window][task.first] = outcome
        self._missing[task.window] -= len(task.lines)

    def _finished(self) -> list[Translation]:
        """Return the translations of the next window. Raises LinesFailedError for a bug."""
        number = self._next
        self._next += 1
        del self._missing[number]
        finished: list[Translation] = []
        for first, outcome in sorted(self._outcomes.pop(number).items()):
            if isinstance(outcome, Bug):
                raise LinesFailedError(
                    first + outcome.first, first + outcome.last, [*finished, *outcome.finished]
                ) from WorkerBugError(f"in a worker process:\n{outcome.traceback}")
            finished += outcome
        return finished

    def _hire(self, num_workers: int) -> None:
        """Start workers until there are ``num_workers``."""
        self._workers += map(self._hired, range(len(self._workers), num_workers))

    def _hired(self, number: int) -> _Worker:
        return _Worker(number, *self._starter.start(number))

    def _replace(self, dead: _Worker) -> None:
        """Start a worker in place of a dead one, and let another one have its task."""
        dead.connection.close()
        reason = reason_of(self._starter.status_of(dead.process))
        self._deaths_in_a_row += 1
        self._failed_starts += dead.is_starting
        if self._failed_starts >= MOST_FAILED_STARTS:
            raise UserError(f"worker processes end before they can begin ({reason}).")
        if self._deaths_in_a_row > MOST_DEATHS_IN_A_ROW:
            raise UserError(
                f"{self._deaths_in_a_row} worker processes in a row have died ({reason}); if the "
                "memory is full, give fewer --workers or a lower --max-tokens-per-device."
            )
        if dead.task is not None:
            logs.warning(f"a worker process has died ({reason}); its lines are translated again.")
            self._give_back(dead.task._replace(deaths=dead.task.deaths + 1), reason)
        self._workers[dead.number] = self._hired(dead.number)

    def _give_back(self, task: _Task, reason: str) -> None:
        if task.deaths < MOST_DEATHS:
            self._tasks.appendleft(task)
        elif len(task.lines) == 1:
            error = f"the worker processes that translated it have died ({reason})"
            self._settle(task, [Translation(error=error)])
        else:
            halves = task._replace(deaths=MOST_DEATHS - 1).divided(2)  # one more is enough
            self._tasks.extendleft(reversed(halves))


class _WindowReader:
    """A thread that reads windows ahead of the caller, but never more than allowed.

    ``signal`` is a descriptor that can be read when there is something to take.
    """

    def __init__(self, windows: Iterator[Sequence[str | Request]], num_allowed: int) -> None:
        self.error: BaseException | None = None
        self.has_ended = False  # all windows were taken
        self._windows = windows
        self._allowed = threading.Semaphore(num_allowed)
        self._read: deque[Sequence[str | Request] | None] = deque()  # None at the end
        self.signal, self._signalling = os.pipe()
        self._stopped = False
        # A daemon thread does not keep the process alive while it waits for input.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> Iterator[Sequence[str | Request]]:
        """Yield what was read since the last call, without waiting."""
        while self._read:
            os.read(self.signal, 1)
            window = self._read.popleft()
            if window is None:
                self.has_ended = True
            else:
                yield window

    def allow_one_more(self) -> None:
        """Let one more window be read."""
        self._allowed.release()

    def stop(self) -> None:
        """Read no more."""
        self._stopped = True
        self._allowed.release()
        if self.has_ended:
            os.close(self.signal)
            os.close(self._signalling)

    def _run(self) -> None:
        try:
            while self._allowed.acquire() and not self._stopped:
                window = next(self._windows, None)
                self._put(window)
                if window is None:
                    return
        except BaseException as error:
            self.error = error
            self._put(None)

    def _put(self, window: Sequence[str | Request] | None) -> None:
        self._read.append(window)
        os.write(self._signalling, b"x")


def reason_of(status: int | None) -> str:
    """Return why a process has ended, from its exit status; None if that is unknown."""
    if status is None:
        return "status unknown"
    if status >= 0:
        return f"status {status}"
    with suppress(ValueError):  # a real-time signal has no name
        return f"signal {signal.Signals(-status).name}"
    return f"signal {-status}"
