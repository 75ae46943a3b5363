"""A thread that translates the lines which other threads submit."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import NamedTuple
from weakref import WeakSet

from nmt_cli.search.engine import SearchEngine
from nmt_cli.translating.interface.request import Request, numbered
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.scheduling.background import BackgroundThread
from nmt_cli.translating.scheduling.continuous_search import ContinuousSearch, LineSource
from nmt_cli.translating.scheduling.line_processor import LineProcessor

TOO_LATE = "its timeout passed before its translation began"
IDLE_SECONDS = 5.0  # then the thread ends, so that it does not keep the model in memory for ever

Answer = Future[Translation]


class _Line(NamedTuple):
    """A line that waits for room in the search."""

    answer: Answer
    request: Request
    deadline: float | None  # a time of the monotonic clock


class SubmittedLines(LineSource[Answer]):
    """Takes lines from any thread, and translates them in a thread of its own.

    The thread starts with the first line. It ends if no line comes for ``IDLE_SECONDS``, and the
    next line starts another one. At the exit of the interpreter all lines are cancelled, and it
    ends after the step that it is in.

    Submitted lines and callers of ``paused`` use the model in the order in which they came.
    """

    def __init__(self, processor: LineProcessor, engine: SearchEngine) -> None:
        self._processor, self._engine = processor, engine
        self._cancelled = deque[Answer]()  # since the last step
        self._numbers = count(1)
        self._is_stopped = self._is_closed = False
        self.forget_parent()
        _of_this_process.add(self)

    def forget_parent(self) -> None:
        """Forget what threads of the parent did, in a process that was just forked.

        They do not exist here: one may have held the lock, used the model, or waited for it.
        """
        self._changed = threading.Condition()  # guards what follows
        # Lines, and an object for each caller of ``paused``, in the order in which they came. The
        # object of the caller that uses the model is the first.
        self._waiting = deque[_Line | object]()
        self._is_translating = False  # the thread
        self.background = BackgroundThread()
        self._thread: threading.Thread | None = None

    def submit(
        self, line: str | Request, most_waiting: int | None, timeout: float | None
    ) -> Answer:
        """Return the future of the translation of ``line``; see ``Translator.submit``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            if self._is_closed:
                raise RuntimeError("a line was submitted to a translator that is closed")
            num_waiting = 0 if most_waiting is None else len(self._lines())
            if most_waiting is not None and num_waiting >= most_waiting:
                raise queue.Full(f"{num_waiting:,} lines wait to be translated")
            (request,) = numbered([line], first=next(self._numbers))
            if self._thread is None or not self._thread.is_alive():
                self._start()
            answer = Answer()
            # A future keeps its callbacks for ever, so this one must not hold the translator.
            answer.add_done_callback(partial(_note_if_cancelled, self._cancelled))
            self._waiting.append(_Line(answer, request, deadline))
            self._changed.notify_all()
        return answer

    def close(self, *, cancel_futures: bool = False) -> None:
        """Take no more lines, and wait until all are answered; does nothing the second time.

        With ``cancel_futures``, lines whose translation has not begun are cancelled.
        """
        with self._changed:
            self._is_closed = True
            thread, cancelled = self._thread, self._lines() if cancel_futures else []
            if cancel_futures:
                self._waiting = deque(e for e in self._waiting if not isinstance(e, _Line))
            self._changed.notify_all()
        for line in cancelled:
            line.answer.cancel()
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
        turn = object()
        try:
            with self._changed:
                self._waiting.append(turn)
                self._changed.wait_for(
                    lambda: self._waiting[0] is turn and not self._is_translating
                )
            yield
        finally:
            with self._changed:
                with suppress(ValueError):  # it was interrupted before, or forked
                    self._waiting.remove(turn)
                self._changed.notify_all()

    def take(self) -> tuple[Answer, Request] | None:
        """Return the next line that was not cancelled; None if there is none, or at a pause."""
        while True:
            with self._changed:
                line = self._waiting[0] if self._waiting else None
                if not isinstance(line, _Line):
                    return None
                self._waiting.popleft()
            if line.deadline is not None and time.monotonic() >= line.deadline:
                self.answer(line.answer, Translation(error=TOO_LATE))
            elif not line.answer.cancelled():
                return line.answer, line.request

    def take_withdrawn(self, inside: Collection[Answer]) -> Collection[Answer]:
        """Return the lines that were cancelled; all of them at the exit."""
        if self._is_stopped:
            for answer in inside:
                answer.cancel()
        return [self._cancelled.popleft() for _ in range(len(self._cancelled))]

    def answer(self, line: Answer, answer: Translation | BaseException) -> None:
        """Answer a line, unless it was cancelled."""
        with suppress(InvalidStateError):
            if isinstance(answer, BaseException):
                line.set_exception(answer)
            else:
                line.set_result(answer)

    def _lines(self) -> list[_Line]:
        return [each for each in self._waiting if isinstance(each, _Line)]

    @property
    def _has_line(self) -> bool:
        return any(isinstance(each, _Line) for each in self._waiting)  # one of the first

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="nmt-cli service", daemon=True)
        self._thread.start()
        # A daemon thread that computes while the interpreter is taken down would crash it.
        atexit.register(self._stop)

    def _run(self) -> None:
        search = ContinuousSearch(self._processor, self._engine, self)
        while self._wait():
            with suppress(BaseException):  # it is the answer of the lines inside
                search.run()
            with self._changed:
                self._is_translating = False
                self._changed.notify_all()

    def _wait(self) -> bool:
        """Wait until a line may use the model; return False if the thread has to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_line or self._is_closed, IDLE_SECONDS)
            # Lines that wait for callers of ``paused`` are no reason to end.
            self._changed.wait_for(
                lambda: not self._has_line or isinstance(self._waiting[0], _Line)
            )
            if self._has_line:
                self._is_translating = True
                return True
            if not self._waiting:  # a caller that uses the model frees them itself
                self._engine.free_caches()
            self._thread = None
            self._changed.notify_all()
            if not self._is_stopped:
                atexit.unregister(self._stop)
            return False

    def _stop(self) -> None:
        self._is_stopped = True
        self.close(cancel_futures=True)


def _note_if_cancelled(cancelled: deque[Answer], future: Answer) -> None:
    if future.cancelled():
        future.set_running_or_notify_cancel()  # wakes those that wait for several futures
        cancelled.append(future)


_of_this_process = WeakSet[SubmittedLines]()


def _forget_parents() -> None:
    for each in _of_this_process:
        each.forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
