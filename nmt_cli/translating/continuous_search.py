"""A search that lines join when they come, and reports of slow lines."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Generic, Protocol, TypeVar

from nmt_cli.messages import logs
from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.messages.figures import counted
from nmt_cli.search.sentences import Outcome, Sentence
from nmt_cli.translating.line_jobs import Entry, LineJob, LineJobs, Ticket
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation

FIRST_REPORT_SECONDS, SECONDS_BETWEEN_LOOKS = 10.0, 0.5  # of slow lines

# If so many lines have sentences that wait for room, no further line is taken.
MOST_DIVIDED_LINES = 32
# When sentences of divided lines fill this share of the room, no further ones of these join: a long
# one takes seconds, and a line that comes meanwhile needs room.
DIVIDED_SHARE = 3 / 4

Key = TypeVar("Key")  # identifies a line


class SentenceDriver(Protocol):
    """Searches sentences; ``search.driver.Driver`` documents it."""

    def run(  # noqa: D102
        self,
        take: Callable[[], Entry | None],
        watch: Callable[[Iterable[Ticket]], Iterable[Ticket] | None],
    ) -> Iterator[tuple[Ticket, Outcome]]: ...

    def most_like(self, item: Sentence) -> int: ...  # noqa: D102


class Engine(Protocol):
    """What searches, such as ``SearchEngine``."""

    @property
    def driver(self) -> SentenceDriver:
        """What is used within ``computing``."""
        ...

    def computing(self, *, of_single_lines: bool = False) -> AbstractContextManager[None]:
        """Return the context in which sentences are searched."""
        ...

    def free_caches(self) -> None:
        """Free the memory that searches of single lines keep for the next ones."""
        ...


class LineSource(Protocol[Key]):
    """Where lines come from, and where their translations go."""

    def take(self) -> tuple[Key, Request] | None:
        """Return the next line; None if there is none now."""
        ...

    def take_withdrawn(self, inside: Collection[Key]) -> Collection[Key]:
        """Return the lines that leave the search without an answer; others are ignored.

        This is called after each step, with the lines ``inside``.
        """
        ...

    def answer(self, line: Key, answer: Translation | BaseException) -> None:
        """Take the translation of a line, or the bug that it met."""
        ...

    def report(self, line: Key, what: str) -> None:
        """Log that a line takes long: its name, and ``what``."""
        ...


class ContinuousSearch(Generic[Key]):
    """Translates lines in one search, which each joins when it comes (continuous batching).

    Not to be shared between threads.
    """

    def __init__(self, jobs: LineJobs, engine: Engine, lines: LineSource[Key]) -> None:
        """Translate ``lines`` in ``run``."""
        self._jobs, self._engine, self._lines = jobs, engine, lines
        self._inside: dict[LineJob, Key] = {}  # lines that were taken, and have no answer yet

    def run(self) -> None:
        """Translate until there is no line to take, and all that were taken are answered.

        An error that ends the search becomes the answer of all lines inside.
        """
        try:
            with self._engine.computing(of_single_lines=True):
                self._translate()
        except BaseException as error:
            while self._inside:
                _, line = self._inside.popitem()
                with suppress(BaseException):  # ``answer`` may run a caller's code
                    self._lines.answer(line, error)

    def free_caches(self) -> None:
        """Free the memory that is kept for the next ``run``."""
        self._engine.free_caches()

    def _translate(self) -> None:
        driver, slow_lines = self._engine.driver, SlowLines(report=self._report)
        turns = _Turns(self._next_line, driver.most_like)

        def watch(inside: Iterable[Ticket]) -> list[Ticket]:
            tickets = list(inside)
            slow_lines.look(tickets)
            unwanted = [ticket for job in self._withdraw() for ticket, _ in job.entries()]
            if unwanted:
                turns.remove(unwanted)
            # After a failure halves are searched, and a line may have been withdrawn while its
            # sentences were in the other half.
            return unwanted + [ticket for ticket in tickets if ticket[0] not in self._inside]

        for ticket, outcome in driver.run(turns.take, watch):
            turns.leave(ticket)
            job, place = ticket
            if job not in self._inside:  # it was withdrawn while a search failed
                continue
            job.outcomes[place] = outcome
            if job.is_done:
                if again := self._jobs.again(job):
                    turns.add(again)
                else:
                    self._answer(job)

    def _report(self, job: LineJob, what: str) -> None:
        if job in self._inside:
            self._lines.report(self._inside[job], what)

    def _withdraw(self) -> list[LineJob]:
        """Remove the lines that are withdrawn now; return them."""
        lines = self._lines.take_withdrawn(self._inside.values())
        if not lines:
            return []
        jobs = [job for job, line in self._inside.items() if line in lines]
        for job in jobs:
            del self._inside[job]
        return jobs

    def _next_line(self) -> list[Entry]:
        """Return the sentences of the next line that has some; none if there is no such line."""
        while (taken := self._lines.take()) is not None:
            if entries := self._begun(*taken):
                return entries
        return []

    def _begun(self, line: Key, request: Request) -> list[Entry]:
        """Return the sentences of ``line``; answer it if it has none."""
        try:
            (job,) = self._jobs.prepare([request])
        except Exception as error:
            self._lines.answer(line, _bug_of(error))
            return []
        self._inside[job] = line
        if not job.sentences:
            self._answer(job)
        return job.entries()

    def _answer(self, job: LineJob) -> None:
        line = self._inside.pop(job)
        try:
            (translation,) = self._jobs.answers([job])
        except LinesFailedError as error:
            self._lines.answer(line, _bug_of(error))
        else:
            self._lines.answer(line, translation)


class _Turns:
    """Which sentence joins next: those of new lines and those that wait take turns.

    A line of many sentences does not stop the lines after it: they need not wait until all its
    sentences have joined, and these leave room for others.
    """

    def __init__(
        self, next_line: Callable[[], list[Entry]], most_like: Callable[[Sentence], int]
    ) -> None:
        """``next_line`` returns the sentences of a new line; none if there is none now.

        ``most_like`` returns how many sentences as long as one are searched at a time.
        """
        self._next_line, self._most_like = next_line, most_like
        self._waiting = deque[deque[Entry]]()  # of each line whose first sentence was taken
        self._divided = dict[Ticket, int]()  # pieces of sentences that were taken
        self._is_turn_of_new = True

    def take(self) -> Entry | None:
        """Return the next sentence; None if there is none now."""
        for is_new in (self._is_turn_of_new, not self._is_turn_of_new):
            entries = self._new() if is_new else self._oldest()
            if entries:
                self._is_turn_of_new = not is_new
                ticket, sentence = entries.popleft()
                if entries or not is_new:
                    self._divided[ticket] = len(sentence.tokens)
                if entries:
                    self._waiting.append(entries)
                return ticket, sentence
        return None

    def add(self, entries: Iterable[Entry]) -> None:
        """Let sentences of a line wait that were searched before."""
        self._waiting.appendleft(deque(entries))

    def leave(self, ticket: Ticket) -> None:
        """Know that a sentence has left the search."""
        self._divided.pop(ticket, None)

    def remove(self, unwanted: Collection[Ticket]) -> None:
        """Let sentences with these tickets leave, or wait no longer."""
        for ticket in unwanted:
            self.leave(ticket)
        lines = [[entry for entry in line if entry[0] not in unwanted] for line in self._waiting]
        self._waiting = deque(deque(line) for line in lines if line)

    def _new(self) -> deque[Entry]:
        return deque(self._next_line() if len(self._waiting) < MOST_DIVIDED_LINES else ())

    def _oldest(self) -> deque[Entry]:
        most = math.inf  # pieces of a sentence that may overtake those before it
        for number, entries in enumerate(self._waiting):
            sentence = entries[0][1]
            if len(sentence.tokens) < most and self._has_room(sentence):
                del self._waiting[number]
                return entries
            most = min(most, len(sentence.tokens) / 2)
        return deque()

    def _has_room(self, sentence: Sentence) -> bool:
        """Return whether ``sentence`` leaves room for other lines.

        Those of less than half its length are not counted: they will be done much sooner, and so
        may overtake it.
        """
        shortest = len(sentence.tokens) / 2
        num_divided = sum(num_pieces >= shortest for num_pieces in self._divided.values())
        return num_divided < max(1, int(DIVIDED_SHARE * self._most_like(sentence)))


def _bug_of(error: Exception) -> BaseException:
    """Return what a LinesFailedError was raised from; any other error itself."""
    return (isinstance(error, LinesFailedError) and error.__cause__) or error


class SlowLines:
    """Reports a line when nothing but its sentences was searched for 10 s, 20 s, 40 s ...

    One object is for the lines that are translated together.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        report: Callable[[LineJob, str], None] | None = None,
    ) -> None:
        """``report`` gets the line, and what is said of it; by default it is logged."""
        self._clock, self._report = clock, report or _log
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
            seconds = now - self._since
            self._report(job, f"{_described(job)} takes long, {seconds:.0f} s by itself so far.")


def _log(job: LineJob, what: str) -> None:
    logs.info(f"line {job.wanted.line:,} {what}")


def _described(job: LineJob) -> str:
    sentences = {tuple(each.tokens) for each in job.sentences}  # not each sample
    pieces = counted(sum(map(len, sentences)), "piece")
    parts = f" in {len(sentences):,} parts" if len(sentences) > 1 else ""
    return f"with {pieces}{parts}"
