"""Turns lines into sentences of the search, and what was found for these into translations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.lines import is_blank, why_not_unicode
from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.search.sampling import gathered
from nmt_cli.search.sentences import (
    Cause,
    Failure,
    Outcome,
    Sentence,
    naming_lines,
    own_failure,
)
from nmt_cli.translating.answers import Answers
from nmt_cli.translating.encoded_texts import encode_each
from nmt_cli.translating.over_long import Part, parts_within
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.wanted_output import NO_PLACE, NOTHING_FOUND, Wanted, WantedOutputs

TooLong = Literal["split", "truncate", "error"]


@dataclass(eq=False)
class Job:
    """A line prepared for the search, or why it cannot be translated; and what was found so far."""

    wanted: Wanted
    error: str | None = None
    parts: Sequence[Part] = ()
    truncated: bool = False
    words: Sequence[str] = ()  # the leaves of the tree, if the model parses
    sentences: Sequence[Sentence] = ()
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by the place of the sentence

    @property
    def is_done(self) -> bool:
        """Whether all its sentences have an outcome."""
        return len(self.outcomes) == len(self.sentences)

    def entries(self) -> list[tuple[Ticket, Sentence]]:
        """Return its sentences as the driver of the search takes them."""
        return [((self, place), sentence) for place, sentence in enumerate(self.sentences)]


Ticket = tuple[Job, int]  # a line, and which of its sentences


def longest_first(jobs: Iterable[Job]) -> list[tuple[Ticket, Sentence]]:
    """Return the sentences of ``jobs``, the longest one first."""
    entries = [entry for job in jobs for entry in job.entries()]
    entries.sort(key=lambda entry: len(entry[1].tokens), reverse=True)
    return entries


class LineJobs:
    """Prepares lines for the search, and answers them. Not to be shared between threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        outputs: WantedOutputs,
        answers: Answers,
        *,
        longest: int,
        too_long: TooLong,
        words_of: Callable[[str], list[str]] | None,
    ) -> None:
        """Lines of more than ``longest`` pieces are ``too_long``.

        ``words_of`` cuts a line into the words of its tree; None if the model does not parse.
        """
        self._tokenizer, self._outputs, self._answers = tokenizer, outputs, answers
        self._longest, self._too_long, self._words_of = longest, too_long, words_of

    def prepare(self, requests: Sequence[Request]) -> list[Job]:
        """Return a job for each line. Raises LinesFailedError for a bug."""
        jobs = [Job(self._outputs.wanted(request)) for request in requests]
        texts: dict[int, str] = {}
        for number, (job, request) in enumerate(zip(jobs, requests, strict=True)):
            job.error = why_not_unicode(request.text) or job.wanted.error
            if job.error is None and not is_blank(request.text):
                texts[number] = request.text
        if self._words_of is not None:
            for number, text in texts.items():
                jobs[number].words = self._words_of(text)
            texts = {number: " ".join(jobs[number].words) for number in texts if jobs[number].words}
        with naming_lines(list(texts).__getitem__):
            encoded = encode_each(self._tokenizer, list(texts.values()))
        for (number, text), tokens in zip(texts.items(), encoded, strict=True):
            job = jobs[number]
            if isinstance(tokens, Failure):
                job.error = tokens.reason
                continue
            try:
                self._complete(job, text, tokens)
            except Exception as error:
                job.error = _own_failure_of(number, error).reason
        return jobs

    def answers(self, jobs: Sequence[Job]) -> list[Translation]:
        """Return the translation of each line. Raises LinesFailedError for a bug."""
        translations: list[Translation] = []
        for number, job in enumerate(jobs):
            try:
                translations.append(self.answer(job))
            except Exception as error:
                translations.append(Translation(error=_own_failure_of(number, error).reason))
        return translations

    def answer(self, job: Job) -> Translation:
        """Return the translation of a line whose sentences have outcomes; raises a bug."""
        outcomes: Sequence[Outcome] = [job.outcomes[place] for place in range(len(job.sentences))]
        if len(outcomes) > len(job.parts):
            outcomes = gathered(outcomes, job.wanted.n_best)
        found = [outcome for outcome in outcomes if not isinstance(outcome, Failure)]
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                if outcome.bug is not None:
                    raise outcome.bug
                return Translation(error=self._reason(outcome, job.wanted))
        if not found:
            return Translation(error=job.error)
        alpha = job.wanted.length_penalty
        return self._answers.joined(
            job.parts, job.words, found, truncated=job.truncated, alpha=alpha
        )

    def _reason(self, failure: Failure, wanted: Wanted) -> str:
        """Return why a line has no translation; rules may be why no output is possible."""
        if failure.cause is Cause.IMPOSSIBLE and self._outputs.have_rules_for(wanted):
            return NOTHING_FOUND
        return failure.reason

    def _complete(self, job: Job, text: str, tokens: Sequence[int]) -> None:
        """Give ``job`` its parts and its sentences, or the reason why it has none."""
        num_pieces, longest = len(tokens), self._longest
        if num_pieces <= longest:
            is_nothing = not tokens and self._words_of is None  # a parse needs no pieces
            job.parts = [] if is_nothing else [Part(tokens, "", text)]
        elif self._too_long == "error":
            job.error = (
                f"it has {num_pieces:,} pieces, the model takes {longest:,}; "
                "--too-long split translates it in parts"
            )
        elif self._too_long == "truncate":
            job.parts, job.truncated = [Part(tokens[:longest], "", text)], True
        else:
            job.parts = parts_within(text, tokens, longest, self._tokenizer.encode)
        if len(job.parts) > 1 and job.wanted.required:
            job.parts, job.error = [], NO_PLACE
        words = job.words if len(job.parts) == 1 and not job.truncated else ()
        pieces = [part.tokens for part in job.parts]
        job.sentences = self._outputs.sentences(pieces, words, job.wanted)


def _own_failure_of(number: int, error: Exception) -> Failure:
    """Return why line ``number`` could not be translated. Raises LinesFailedError for a bug."""
    own = own_failure(error)
    if own is None:
        raise LinesFailedError(number, number) from error
    return own
