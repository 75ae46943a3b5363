"""Translates lines that come one by one, in one search that all of them share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress

from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.search.isolation import NO_MEMORY, Cause, Outcome, outcome_of, own_failure
from nmt_cli.search.open_search import OpenSearch
from nmt_cli.search.search import Sentence
from nmt_cli.translating.attention_to_source import AttentionToSource
from nmt_cli.translating.line_jobs import Job, LineJobs
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation


class SubmittedLine:
    """A line, the future of its translation, and what was found for it so far."""

    def __init__(self, request: Request, deadline: float | None = None) -> None:
        """``deadline`` is a time of the monotonic clock."""
        self.request, self.deadline = request, deadline
        self.future: Future[Translation] = Future()
        self.job = Job()
        self.sentences: list[Sentence] = []
        self.outcomes: dict[int, Outcome] = {}  # by the place of the sentence


Place = tuple[SubmittedLine, int]  # a line, and which of its sentences


class LineEngine:
    """Translates lines until none is left. Not to be shared between threads.

    If the search fails, the lines in it are translated once more, by ``translate_together``, which
    finds those that fail by themselves. Only these get an error.
    """

    def __init__(
        self,
        jobs: LineJobs,
        search: OpenSearch[Place],
        attention: AttentionToSource | None,
        translate_together: Callable[[Sequence[Request]], list[Translation]],
        computing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """``translate_together`` raises LinesFailedError for a bug.

        ``computing`` returns the context in which the model computes.
        """
        self._jobs, self._search, self._attention = jobs, search, attention
        self._translate_together, self._computing = translate_together, computing
        self._waiting: deque[Place] = deque()  # the sentences of the newest line
        self._unanswered: list[SubmittedLine] = []

    def run(self, take: Callable[[], SubmittedLine | None], is_stopped: Callable[[], bool]) -> None:
        """Translate until ``take`` returns no line and all lines are answered, or until stopped.

        A line is taken when all sentences of the line before are in the search.
        """
        with self._computing():
            while not is_stopped():
                self._fill(take)
                if not self._search.num_sentences:
                    break
                self._step()

    def fail(self, error: BaseException) -> None:
        """Answer all lines that were taken, and have no answer, with ``error``."""
        self._empty_the_search()
        while self._unanswered:
            future = self._future_of(self._unanswered[0])
            with suppress(BaseException):  # a callback raised SystemExit or the like
                future.set_exception(error)

    def _empty_the_search(self) -> None:
        self._search.clear()
        self._waiting.clear()

    def _future_of(self, line: SubmittedLine) -> Future[Translation]:
        """Return the future of ``line``, which is answered now."""
        self._unanswered.remove(line)
        return line.future

    def _fill(self, take: Callable[[], SubmittedLine | None]) -> None:
        """Offer sentences to the search until it has no room or no line is left."""
        while True:
            while self._waiting:
                line, place = self._waiting[0]
                if not self._search.offer((line, place), line.sentences[place]):
                    return
                self._waiting.popleft()
            newcomer = take()
            if newcomer is None:
                return
            self._begin(newcomer)

    def _begin(self, line: SubmittedLine) -> None:
        try:
            (line.job,) = self._jobs.prepare([line.request])
            line.sentences = self._jobs.sentences(line.job)
        except Exception as error:
            line.future.set_exception(_bug_of(error))
            return
        self._unanswered.append(line)
        self._waiting.extend((line, place) for place in range(len(line.sentences)))
        if not line.sentences:
            self._answer(line)

    def _step(self) -> None:
        was_shared = self._search.num_sentences > 1  # those that are done leave the search
        try:
            done = self._search.step()
            founds = [each.found for each in done]
            if self._attention is not None:
                sentences = [each.sentence for each in done]
                founds = self._attention.with_attention(founds, sentences)
        except Exception as error:
            # Only this flag is kept: the error's traceback would hold the tensors of the step in
            # memory.
            own = own_failure(error)
            is_full = own is not None and own.cause is Cause.NO_MEMORY
        else:
            for each, found in zip(done, founds, strict=True):
                line, place = each.ticket
                line.outcomes[place] = outcome_of(found)
                if len(line.outcomes) == len(line.sentences):
                    self._answer(line)
            return
        self._search_again(memory_was_full=is_full, was_shared=was_shared)

    def _answer(self, line: SubmittedLine) -> None:
        try:
            outcomes = [line.outcomes[place] for place in range(len(line.sentences))]
            translation = self._jobs.answer(line.job, outcomes)
        except Exception as error:
            own = own_failure(error)
            if own is None:
                self._future_of(line).set_exception(error)
                return
            translation = Translation(error=own.reason)
        self._future_of(line).set_result(translation)

    def _search_again(self, *, memory_was_full: bool, was_shared: bool) -> None:
        """Answer the lines of a search that failed; ``was_shared`` by several sentences."""
        by_length = self._search.by_length
        before = by_length.max_tokens
        self._empty_the_search()
        translations = self._answer_apart(list(self._unanswered))
        all_fit = all(translation.error != NO_MEMORY.reason for translation in translations)
        if memory_was_full and was_shared and all_fit:
            by_length.lower_to(before // 2)

    def _answer_apart(self, lines: list[SubmittedLine]) -> list[Translation]:
        """Answer ``lines``, those with a bug by an exception; return the other translations."""
        translations: list[Translation] = []
        groups = [lines]
        while groups:
            group = groups.pop()
            try:
                found = self._translate_together([line.request for line in group])
            except LinesFailedError as error:
                if len(group) == 1:
                    self._future_of(group[0]).set_exception(_bug_of(error))
                    continue
                suspects = range(error.first, error.last + 1)
                groups += [[group[number]] for number in suspects]
                if others := [line for n, line in enumerate(group) if n not in suspects]:
                    groups.append(others)
            except Exception as error:  # such as one that ends the use of the device
                for line in group:
                    self._future_of(line).set_exception(error)
            else:
                for line, translation in zip(group, found, strict=True):
                    self._future_of(line).set_result(translation)
                translations += found
        return translations


def _bug_of(error: Exception) -> BaseException:
    """Return what a LinesFailedError was raised from; any other error itself."""
    return (isinstance(error, LinesFailedError) and error.__cause__) or error
