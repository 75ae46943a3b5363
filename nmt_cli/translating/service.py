"""A thread that translates the lines which other threads submit, and reports of slow lines."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import count
from typing import Protocol

from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.messages.figures import counted
from nmt_cli.search.sentences import Outcome, Sentence
from nmt_cli.translating.line_jobs import LineJob, LineJobs, Ticket
from nmt_cli.translating.request import Request, numbered
from nmt_cli.translating.translation import Translation

TOO_LATE = "its timeout passed before its translation began"
FIRST_REPORT_SECONDS, SECONDS_BETWEEN_LOOKS = 10.0, 0.5  # of slow lines
IDLE_SECONDS = 5.0  # then the thread ends, so that it does not keep the model in memory for ever


class SentenceDriver(Protocol):
    """Searches sentences; ``search.driver.Driver`` documents it."""

    def run(  # noqa: D102
        self,
        take: Callable[[], tuple[Ticket, Sentence] | None],
        watch: Callable[[Iterable[Ticket]], Iterable[Ticket] | None],
    ) -> Iterator[tuple[Ticket, Outcome]]: ...
    def run_window(  # noqa: D102
        self,
        sentences: Iterable[tuple[Ticket, Sentence]],
        watch: Callable[[Iterable[Ticket]], Iterable[Ticket] | None],
    ) -> Iterator[tuple[Ticket, Outcome]]: ...


class Engine(Protocol):
    """What a translator needs of what searches: ``SearchEngine`` has it."""

    @property
    def driver(self) -> SentenceDriver:
        """What is used within ``computing``."""
        ...

    @property
    def chosen(self) -> Mapping[str, str]:
        """What options became, for a record of how a text was translated."""
        ...

    def computing(self, *, of_submitted_lines: bool = False) -> AbstractContextManager[None]:
        """Return the context in which sentences are searched."""
        ...

    def free_caches(self) -> None:
        """Free the memory that searches of submitted lines keep for the next ones."""
        ...


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


class Service:
    """Takes lines from any thread, and translates them in a thread of its own.

    The thread starts with the first line. It ends if no line comes for ``IDLE_SECONDS``, and the
    next line starts another one. At the exit of the interpreter it ends after the step that it is
    in; lines that have no answer then get none.

    Submitted lines and callers of ``paused`` use the model in the order in which they came.
    """

    def __init__(self, jobs: LineJobs, engine: Engine) -> None:
        self._jobs, self._engine = jobs, engine
        self._unanswered: dict[LineJob, SubmittedLine] = {}  # lines in the search; the thread's own
        self._cancellations = Cancellations()
        self._changed = threading.Condition()  # guards what follows
        self._waiting: deque[SubmittedLine] = deque()
        self._pauses: deque[Pause] = deque()  # the first uses the model, or will be the next
        self._num_submitted = self._num_taken = 0  # lines
        self._is_translating = False  # the thread
        self._numbers = count(1)
        self._thread: threading.Thread | None = None
        self._is_closed = self._is_stopped = False

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
        Raises RuntimeError in a callback of a future, which the thread of the service runs.
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
            yield
        finally:
            with self._changed:
                if pause in self._pauses:  # it may be interrupted before
                    self._pauses.remove(pause)
                self._changed.notify_all()

    def _has_thread(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        # After a fork the thread is dead, the lines that wait are those of the parent, and caches
        # may be half changed.
        if self._thread is not None:
            self._engine.free_caches()
        self._waiting.clear()
        self._unanswered.clear()
        self._num_taken = self._num_submitted
        self._is_translating = False
        thread = threading.Thread(target=self._run, name="nmt-cli service", daemon=True)
        thread.start()
        self._thread = thread
        # A daemon thread that computes while the interpreter is taken down would crash it.
        atexit.register(self._stop)

    def _run(self) -> None:
        while self._wait():
            try:
                with self._engine.computing(of_submitted_lines=True):
                    self._translate()
            except BaseException as error:
                self._fail(error)
            finally:
                with self._changed:
                    self._is_translating = False
                    self._changed.notify_all()
        self._fail(RuntimeError("the program ended before the line was translated"))

    def _translate(self) -> None:
        """Translate until no line is left or a pause is due, or until stopped."""
        waiting = deque[tuple[Ticket, Sentence]]()  # the sentences of the newest line
        slow_lines = SlowLines()

        def take() -> tuple[Ticket, Sentence] | None:
            while not waiting and (line := self._take()) is not None:
                waiting.extend(self._begun(line))
            return waiting.popleft() if waiting else None

        def watch(inside: Iterable[Ticket]) -> list[Ticket]:
            slow_lines.look(inside)
            unwanted = [ticket for job in self._unwanted() for ticket, _ in job.entries()]
            if unwanted and waiting:
                kept = [entry for entry in waiting if entry[0] not in unwanted]
                waiting.clear()
                waiting.extend(kept)
            return unwanted

        for (job, place), outcome in self._engine.driver.run(take, watch):
            if job not in self._unanswered:  # it was cancelled while a search failed
                continue
            job.outcomes[place] = outcome
            if job.is_done:
                if again := self._jobs.again(job):
                    waiting.extendleft(reversed(again))
                else:
                    self._answer(job)

    def _unwanted(self) -> list[LineJob]:
        """Return the lines that nobody waits for and that are in the search: each once, or all."""
        if self._is_stopped:
            return list(self._unanswered)
        if not self._cancellations.are_new:
            return []
        self._cancellations.are_new = False
        jobs = [job for job, line in self._unanswered.items() if line.future.cancelled()]
        for job in jobs:
            self._unanswered.pop(job).future.set_running_or_notify_cancel()
        return jobs

    def _begun(self, line: SubmittedLine) -> list[tuple[Ticket, Sentence]]:
        """Return the sentences of ``line``; answer it if it has none."""
        try:
            (job,) = self._jobs.prepare([line.request])
        except Exception as error:
            _settle(line.future, _bug_of(error))
            return []
        self._unanswered[job] = line
        if not job.sentences:
            self._answer(job)
        return job.entries()

    def _answer(self, job: LineJob) -> None:
        future = self._unanswered.pop(job).future
        try:
            (translation,) = self._jobs.answers([job])
        except LinesFailedError as error:
            _settle(future, _bug_of(error))
        else:
            _settle(future, translation)

    def _fail(self, error: BaseException) -> None:
        """Answer all lines that were taken, and have no answer, with ``error``."""
        while self._unanswered:
            _, line = self._unanswered.popitem()
            with suppress(BaseException):  # a callback raised SystemExit or the like
                _settle(line.future, error)

    def _wait(self) -> bool:
        """Wait until a line may use the model; return False if the thread has to end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed, IDLE_SECONDS)
            # Lines that wait for callers of ``paused`` are no reason to end.
            self._changed.wait_for(
                lambda: self._is_stopped or not self._waiting or self._next_pause() is None
            )
            if self._waiting and not self._is_stopped:
                self._is_translating = True
                return True
            if not self._pauses:  # a caller that uses the model frees them itself
                self._engine.free_caches()
            self._thread = None
            self._changed.notify_all()
            if not self._is_stopped:
                atexit.unregister(self._stop)
            return False

    def _take(self) -> SubmittedLine | None:
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
                        return line
                    else:
                        late.append(line)
            return None
        finally:
            for line in late:  # callbacks of futures run without the lock
                _settle(line.future, Translation(error=TOO_LATE))

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


def _settle(future: Future[Translation], answer: Translation | BaseException) -> None:
    """Answer a line, unless it was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _bug_of(error: Exception) -> BaseException:
    """Return what a LinesFailedError was raised from; any other error itself."""
    return (isinstance(error, LinesFailedError) and error.__cause__) or error


class SlowLines:
    """Reports a line when nothing but its sentences was searched for 10 s, 20 s, 40 s ...

    One object is for the lines that are translated together.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._job: LineJob | None = None
        self._since = self._next_look = clock()
        self._next_report = FIRST_REPORT_SECONDS

    def look(self, inside: Iterable[Ticket]) -> None:
        """Report a line if it is due; call it after each step with what is in the search."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + SECONDS_BETWEEN_LOOKS
        jobs = {job for job, _ in inside}
        job = jobs.pop() if len(jobs) == 1 else None
        if job is None or job is not self._job:
            self._job, self._since, self._next_report = job, now, FIRST_REPORT_SECONDS
        elif now - self._since >= self._next_report:
            self._next_report *= 2
            logs.info(f"{_described(job)} takes long, {now - self._since:.0f} s by itself so far.")


def _described(job: LineJob) -> str:
    sentences = {tuple(each.tokens) for each in job.sentences}  # not each sample
    pieces = counted(sum(map(len, sentences)), "piece")
    parts = f" in {len(sentences):,} parts" if len(sentences) > 1 else ""
    return f"line {job.wanted.line:,} with {pieces}{parts}"
