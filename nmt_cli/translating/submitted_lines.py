"""A thread that translates the lines which other threads submit."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import count
from weakref import WeakSet

from nmt_cli.messages import logs
from nmt_cli.search.engine import SearchEngine
from nmt_cli.translating.continuous_search import ContinuousSearch
from nmt_cli.translating.line_jobs import LineJobs
from nmt_cli.translating.request import Request, numbered
from nmt_cli.translating.translation import Translation

TOO_LATE = "its timeout passed before its translation began"
IDLE_SECONDS = 5.0  # then the thread ends, so that it does not keep the model in memory for ever


class SubmittedLine:
    """A line, and the future of its translation."""

    def __init__(self, request: Request, deadline: float | None = None) -> None:
        """``deadline`` is a time of the monotonic clock."""
        self.request, self.deadline = request, deadline
        self.future: Future[Translation] = Future()


class Cancellations:
    """Whether lines were cancelled since the last look, so that a step need not look at each line.

    Futures have callbacks for ever, so a callback must not keep a translator in memory.
    """

    are_new = False

    def note(self, future: Future[Translation]) -> None:
        """Take note if ``future`` was cancelled; this runs in the thread that cancels."""
        if future.cancelled():
            self.are_new = True


class Pause:
    """A caller of ``paused``: its turn comes when the lines submitted before it are answered."""

    num_lines_before = 0


class SubmittedLines:
    """Takes lines from any thread, and translates them in a thread of its own.

    The thread starts with the first line. It ends if no line comes for ``IDLE_SECONDS``, and the
    next line starts another one. At the exit of the interpreter it ends after the step that it is
    in: lines in the search get RuntimeError, and those that wait are cancelled.

    Submitted lines and callers of ``paused`` use the model in the order in which they came.
    """

    is_text = False

    def __init__(self, jobs: LineJobs, engine: SearchEngine) -> None:
        self._jobs, self._engine = jobs, engine
        self._cancellations = Cancellations()
        self._has_search_of_parent = False  # in a process that was forked
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[SubmittedLine] = deque()
        self._pauses: deque[Pause] = deque()  # the first uses the model, or will be the next
        self._num_submitted = self._num_taken = 0  # lines
        self._is_translating = False  # the thread
        self._numbers = count(1)
        self._thread: threading.Thread | None = None
        self._is_closed = self._is_stopped = False
        self._left: list[SubmittedLine] = []  # that left the search when it was stopped
        _of_this_process.add(self)

    def forget_parent(self) -> None:
        """Forget what threads of the parent did, in a process that was just forked.

        They do not exist here: one may have held the lock, used the model, or waited for it.
        """
        self._changed = threading.Condition()
        self._waiting.clear()
        self._pauses.clear()
        self._num_taken = self._num_submitted
        self._is_translating, self._thread = False, None
        self._has_search_of_parent = True

    def submit(
        self,
        line: str | Request,
        most_waiting: int | None,
        timeout: float | None,
    ) -> Future[Translation]:
        """Return the future of the translation of ``line``; see ``Translator.submit``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            if self._is_closed:
                raise RuntimeError("a line was submitted to a translator that is closed")
            if most_waiting is not None and len(self._waiting) >= most_waiting:
                raise queue.Full(f"{len(self._waiting):,} lines wait to be translated")
            (request,) = numbered([line], first=next(self._numbers))
            submitted = SubmittedLine(request, deadline)
            submitted.future.add_done_callback(self._cancellations.note)
            if not self._has_thread():
                self._start()
            self._waiting.append(submitted)
            self._num_submitted += 1
            self._changed.notify_all()
        return submitted.future

    def close(self, *, cancel_futures: bool = False) -> None:
        """Take no more lines, and wait until all are answered; does nothing the second time.

        With ``cancel_futures``, lines whose translation has not begun are cancelled.
        """
        with self._changed:
            self._is_closed = True
            thread = self._thread
            cancelled = list(self._waiting) if cancel_futures else []
            self._changed.notify_all()
        for line in cancelled:
            line.future.cancel()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no submitted line use the model in this block.

        Waits until the lines that were submitted before are answered; no other line joins them.
        Raises RuntimeError in a callback of a future, which that thread runs.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "the callback of a submitted line cannot translate lines itself, because it runs "
                "in the thread that translates; it may submit lines"
            )
        pause = Pause()
        try:
            with self._changed:
                pause.num_lines_before = self._num_submitted
                self._pauses.append(pause)
                self._changed.wait_for(lambda: self._next_pause() is pause and self._is_free())
                self._end_search_of_parent()
            yield
        finally:
            with self._changed:
                if pause in self._pauses:  # it may be interrupted before
                    self._pauses.remove(pause)
                self._changed.notify_all()

    def take(self) -> tuple[SubmittedLine, Request] | None:
        """Return the next line that was not cancelled; None if there is none, or a pause is due."""
        late: list[SubmittedLine] = []
        try:
            with self._changed:
                while self._waiting and self._next_pause() is None:
                    line = self._waiting.popleft()
                    self._num_taken += 1
                    if line.future.cancelled():
                        line.future.set_running_or_notify_cancel()
                    elif line.deadline is None or time.monotonic() < line.deadline:
                        return line, line.request
                    else:
                        late.append(line)
            return None
        finally:
            for line in late:  # callbacks of futures run without the lock
                self.answer(line, Translation(error=TOO_LATE))

    def take_withdrawn(self, inside: Collection[SubmittedLine]) -> Collection[SubmittedLine]:
        """Return the lines ``inside`` that were cancelled; all of them at the exit."""
        if self._is_stopped:
            self._left += inside
            return list(inside)
        if not self._cancellations.are_new:
            return ()
        self._cancellations.are_new = False
        cancelled = [line for line in inside if line.future.cancelled()]
        for line in cancelled:
            line.future.set_running_or_notify_cancel()
        return cancelled

    def answer(self, line: SubmittedLine, answer: Translation | BaseException) -> None:
        """Answer a line, unless it was cancelled."""
        if not line.future.set_running_or_notify_cancel():
            return
        if isinstance(answer, BaseException):
            line.future.set_exception(answer)
        else:
            line.future.set_result(answer)

    def report(self, line: SubmittedLine, what: str) -> None:
        """Log that a line takes long."""
        logs.info(f"line {line.request.line:,} {what}")

    def _has_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="nmt-cli service", daemon=True)
        thread.start()
        self._thread = thread
        # A daemon thread that computes while the interpreter is taken down would crash it.
        atexit.register(self._stop)

    def _run(self) -> None:
        search = ContinuousSearch(self._jobs, self._engine, self)
        while self._wait():
            with suppress(BaseException):  # it is the answer of the lines inside
                search.run()
            with self._changed:
                self._is_translating = False
                self._changed.notify_all()
        for line in self._left:
            with suppress(BaseException):  # a callback raised SystemExit or the like
                self.answer(line, RuntimeError("the program ended before the line was translated"))

    def _wait(self) -> bool:
        """Wait until a line may use the model; return False if the thread has to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed, IDLE_SECONDS)
            # Lines that wait for callers of ``paused`` are no reason to end.
            self._changed.wait_for(
                lambda: self._is_stopped or not self._waiting or self._next_pause() is None
            )
            if self._waiting and not self._is_stopped:
                self._end_search_of_parent()
                self._is_translating = True
                return True
            if not self._pauses:  # a caller that uses the model frees them itself
                self._engine.free_caches()
            self._thread = None
            self._changed.notify_all()
            if not self._is_stopped:
                atexit.unregister(self._stop)
            return False

    def _end_search_of_parent(self) -> None:
        if self._has_search_of_parent:
            self._has_search_of_parent = False
            self._engine.forget_search()

    def _next_pause(self) -> Pause | None:
        """Return the pause whose turn is before that of the lines that wait, if there is one."""
        if not self._pauses:
            return None
        is_due = self._num_taken >= self._pauses[0].num_lines_before or not self._has_thread()
        return self._pauses[0] if is_due else None

    def _is_free(self) -> bool:
        return not (self._is_translating and self._has_thread())

    def _stop(self) -> None:
        self._is_stopped = True
        self.close(cancel_futures=True)


_of_this_process = WeakSet[SubmittedLines]()


def _forget_parents() -> None:
    for each in _of_this_process:
        each.forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
