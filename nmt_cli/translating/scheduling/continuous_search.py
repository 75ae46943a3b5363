"""A search that lines join when they come."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

from nmt_cli.search.engine import SearchEngine
from nmt_cli.search.sentences import Outcome, Sentence
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.outputs.line_job import LineJob, Ticket, TicketedSentence
from nmt_cli.translating.scheduling.background import BackgroundThread
from nmt_cli.translating.scheduling.line_processor import LineProcessor

# Characters of a line that is prepared between two steps, in at most 30 ms: the worst are texts of
# one letter between tags. All others wait for that, so larger lines are prepared beside the steps.
MOST_BETWEEN_STEPS = 1_000
SECONDS_OF_A_WAIT = 0.005  # for background work, while nothing is searched
# If so many lines have sentences that wait for room, or are prepared, no further line is taken.
MOST_DIVIDED_LINES = 32
# When sentences of divided lines fill this share of the room, no further ones of these join: a long
# one takes seconds, and a line that comes meanwhile needs room.
DIVIDED_SHARE = 3 / 4
# The same as a number of sentences, by the device. The time of a step on a CPU grows with the
# sentences inside, so a short line beside 24 is done sooner than beside 128; for each sentence 24
# take 12 to 35 % more time, measured with width 256 on a CPU with AMX.
MOST_DIVIDED = {"cpu": 24, "cuda": 384}

LineKey = TypeVar("LineKey")  # identifies a line


class LineSource(ABC, Generic[LineKey]):
    """Where lines come from, and where their translations go.

    If ``is_text``, nobody waits for a single line: all sentences that are known are searched
    longest first, and the memory of the search is freed when none is left. Otherwise lines take
    turns, so that none waits for a long one, and large lines are prepared and answered in the
    ``background``.
    """

    is_text = False
    background: BackgroundThread | None = None

    @abstractmethod
    def take(self) -> tuple[LineKey, Request] | None:
        """Return the next line; None if there is none now."""

    def is_one_of_many(self, line: LineKey) -> bool:
        """Return whether a line belongs to many that are wanted together.

        Others need not wait for a step of all of these. By default none does.
        """
        del line
        return False

    @abstractmethod
    def take_withdrawn(self, inside: Collection[LineKey]) -> Collection[LineKey]:
        """Return the lines that leave the search without an answer; others are ignored.

        This is called after each step, with the lines ``inside``.
        """

    @abstractmethod
    def answer(self, line: LineKey, answer: Translation | BaseException) -> None:
        """Take the translation of a line, or the bug that it met."""


class ContinuousSearch(Generic[LineKey]):
    """Translates lines in one search, which each joins when it comes (continuous batching).

    Not to be shared between threads.
    """

    def __init__(
        self, processor: LineProcessor, engine: SearchEngine, lines: LineSource[LineKey]
    ) -> None:
        """Translate ``lines`` in ``run``."""
        self._processor, self._engine, self._lines = processor, engine, lines
        self._background = lines.background
        self._other_processor = processor.for_another_thread()  # of the background
        self._inside: dict[LineJob, LineKey] = {}  # lines that were taken, and have no answer yet
        # Of these, lines that are prepared and answered in the background, and those whose
        # sentences have not joined, although they are prepared.
        self._large, self._prepared = set[LineJob](), deque[LineJob]()

    def run(self) -> None:
        """Translate until there is no line to take, and all that were taken are answered.

        An error that ends the search becomes the answer of all lines inside, and is raised.
        """
        try:
            with self._engine.computing(of_single_lines=not self._lines.is_text):
                self._translate()
        except BaseException as error:
            while self._inside:
                _, line = self._inside.popitem()
                with suppress(BaseException):  # ``answer`` may run a caller's code
                    self._lines.answer(line, error)
            raise

    def free_caches(self) -> None:
        """Free the memory that is kept for the next ``run``."""
        self._engine.free_caches()

    def _translate(self) -> None:
        driver, is_text = self._engine.driver, self._lines.is_text
        most_divided = MOST_DIVIDED[self._engine.chosen["device"]]
        self._order = _Order(self._next, driver.most_like, None if is_text else most_divided)

        def watch(inside: Iterable[Ticket]) -> list[Ticket]:
            if self._background is not None:
                self._background.take_done()
            unwanted = self._withdraw()
            self._order.remove(unwanted)
            leaving = [ticket for job in unwanted for ticket, _ in job.ticketed()]
            # After a failure halves are searched, and a line may have been withdrawn while its
            # sentences were in the other half.
            return leaving + [ticket for ticket in inside if ticket[0] not in self._inside]

        while True:
            for ticket, outcome in driver.run(
                self._order.take, watch, is_text=is_text, is_urgent=self._is_urgent
            ):
                self._note(ticket, outcome)
            if self._background is None or not self._background.num_inside:
                return
            self._background.take_done(SECONDS_OF_A_WAIT)
            watch(())

    def _note(self, ticket: Ticket, outcome: Outcome) -> None:
        self._order.leave(ticket)
        job, place = ticket
        if job not in self._inside:  # it was withdrawn while a search failed
            return
        job.outcomes[place] = outcome
        if len(job.outcomes) == len(job.sentences):
            self._conclude(job)

    def _is_urgent(self, ticket: Ticket) -> bool:
        """Return whether a sentence is all that somebody waits for."""
        job, _ = ticket
        is_alone = len(job.sentences) == 1 and not self._lines.is_text
        return is_alone and not self._lines.is_one_of_many(self._inside[job])

    def _withdraw(self) -> set[LineJob]:
        """Remove the lines that are withdrawn now; return them."""
        lines = set(self._lines.take_withdrawn(self._inside.values()))
        jobs = {job for job, line in self._inside.items() if line in lines} if lines else set()
        for job in jobs:
            del self._inside[job]
        self._large -= jobs
        return jobs

    def _next(self) -> list[TicketedSentence]:
        """Return the sentences of the next line; none if there is no line with sentences.

        Of a text they are those of all lines that are known now, longest first.
        """
        while self._prepared:
            if (job := self._prepared.popleft()) in self._inside:
                return job.ticketed()
        is_text = self._lines.is_text
        while lines := list(islice(iter(self._take, None), None if is_text else 1)):
            if sentences := [each for line in lines for each in self._begun(*line)]:
                return self._engine.in_order(sentences) if is_text else sentences
        return []

    def _take(self) -> tuple[LineKey, Request] | None:
        is_full = self._background is not None and self._background.num_inside >= MOST_DIVIDED_LINES
        return None if is_full else self._lines.take()

    def _begun(self, line: LineKey, request: Request) -> list[TicketedSentence]:
        """Return the sentences of a line; answer one that has none."""
        if self._background is not None and (size := request.size) > MOST_BETWEEN_STEPS:
            known = LineJob()  # until it is prepared
            self._inside[known] = line
            work = partial(self._if_wanted, known, partial(self._other_processor.prepare, request))
            self._background.do(size, work, partial(self._take_prepared, known))
            return []
        try:
            job = self._processor.prepare(request)
        except Exception as error:
            self._lines.answer(line, error)
            return []
        self._inside[job] = line
        if not job.sentences:
            self._conclude(job)
        return job.ticketed()

    def _if_wanted(self, job: LineJob, work: Callable[[], Any]) -> Any:
        """Do background work for a line, unless it was withdrawn meanwhile."""
        return work() if job in self._inside else None

    def _take_prepared(self, known: LineJob, found: LineJob | BaseException) -> None:
        """Take a line that was prepared in the background, or the bug that it met."""
        if known not in self._inside:
            return
        line = self._inside.pop(known)
        if isinstance(found, BaseException):
            self._lines.answer(line, found)
            return
        self._inside[found] = line
        self._large.add(found)
        if found.sentences:
            self._prepared.append(found)
        else:
            self._conclude(found)

    def _conclude(self, job: LineJob) -> None:
        """Answer a line whose sentences have outcomes, or search some of them again."""
        if job in self._large:
            assert self._background is not None
            size = sum(len(part.text) for part in job.parts)
            work = partial(self._if_wanted, job, partial(_concluded, self._other_processor, job))
            self._background.do(size, work, partial(self._take_concluded, job))
            return
        try:
            found: Any = _concluded(self._processor, job)
        except Exception as error:
            found = error
        self._take_concluded(job, found)

    def _take_concluded(
        self, job: LineJob, found: list[TicketedSentence] | Translation | BaseException
    ) -> None:
        if job not in self._inside:
            return
        if isinstance(found, list):
            self._order.add(found)
        else:
            self._large.discard(job)
            self._lines.answer(self._inside.pop(job), found)


def _concluded(processor: LineProcessor, job: LineJob) -> list[TicketedSentence] | Translation:
    """Return the translation of a line, or the sentences that are searched again."""
    return processor.without_copies(job) or processor.answer(job)


class _Order:
    """Which sentence joins next: those of new lines and those that wait take turns.

    A line of many sentences does not stop the lines after it: they need not wait until all its
    sentences have joined, and these leave room for others. Of a text, no line joins until all
    sentences have that wait, so none waits for more than those that were known with it.
    """

    def __init__(
        self,
        next_lines: Callable[[], list[TicketedSentence]],
        most_like: Callable[[Sentence], int],
        most_divided: int | None,
    ) -> None:
        """``next_lines`` returns the sentences of new lines; none if there is none now.

        ``most_like`` returns how many sentences as long as one are searched at a time. Of lines of
        several sentences at most ``most_divided`` are; None if the lines are a text.
        """
        self._next_lines, self._most_like = next_lines, most_like
        self._most_divided = most_divided
        # Of each line whose first sentence was taken.
        self._waiting = deque[deque[TicketedSentence]]()
        self._divided = dict[Ticket, int]()  # pieces of sentences that were taken
        self._is_turn_of_new = True

    def take(self) -> TicketedSentence | None:
        """Return the next sentence; None if there is none now."""
        is_new_first = self._is_turn_of_new and self._most_divided is not None
        for is_new in (is_new_first, not is_new_first):
            sentences = self._new() if is_new else self._oldest()
            if sentences:
                self._is_turn_of_new = not is_new
                ticket, sentence = sentences.popleft()
                if sentences or not is_new:
                    self._divided[ticket] = len(sentence.tokens)
                if sentences:
                    self._waiting.append(sentences)
                return ticket, sentence
        return None

    def add(self, sentences: Iterable[TicketedSentence]) -> None:
        """Let sentences wait that were searched before."""
        self._waiting.appendleft(deque(sentences))

    def leave(self, ticket: Ticket) -> None:
        """Know that a sentence has left the search."""
        self._divided.pop(ticket, None)

    def remove(self, unwanted: Collection[LineJob]) -> None:
        """Let the sentences of these lines leave, or wait no longer."""
        if not unwanted:
            return
        for ticket in [each for each in self._divided if each[0] in unwanted]:
            self.leave(ticket)
        if self._most_divided is None:  # those of several lines wait together
            lines = [[e for e in line if e[0][0] not in unwanted] for line in self._waiting]
            self._waiting = deque(deque(line) for line in lines if line)
        else:
            self._waiting = deque(each for each in self._waiting if each[0][0][0] not in unwanted)

    def _new(self) -> deque[TicketedSentence]:
        return deque(self._next_lines() if len(self._waiting) < MOST_DIVIDED_LINES else ())

    def _oldest(self) -> deque[TicketedSentence]:
        most = math.inf  # pieces of a sentence that may overtake those before it
        for number, sentences in enumerate(self._waiting):
            sentence = sentences[0][1]
            if len(sentence.tokens) < most and self._has_room(sentence):
                del self._waiting[number]
                return sentences
            most = min(most, len(sentence.tokens) / 2)
        return deque()

    def _has_room(self, sentence: Sentence) -> bool:
        """Return whether ``sentence`` leaves room for other lines.

        Those of less than half its length are not counted: they will be done much sooner, and so
        may overtake it.
        """
        if self._most_divided is None:
            return True
        shortest = len(sentence.tokens) / 2
        num_divided = sum(num_pieces >= shortest for num_pieces in self._divided.values())
        share = int(DIVIDED_SHARE * self._most_like(sentence))
        return num_divided < max(1, min(share, self._most_divided))
