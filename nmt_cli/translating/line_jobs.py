"""Turns lines into sentences of the search, and what was found for these into translations."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.lines import is_blank, why_not_unicode
from nmt_cli.search.beams import Hypothesis
from nmt_cli.search.isolation import Cause, Failure, Outcome, naming_lines, own_failure_of
from nmt_cli.search.sampling import Sampling, gathered
from nmt_cli.search.search import Sentence
from nmt_cli.translating.answers import Answers
from nmt_cli.translating.encoded_texts import encode_each
from nmt_cli.translating.over_long import Part, parts_within
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation
from nmt_cli.translating.wanted_output import NO_PLACE, NOTHING_FOUND, Wanted, WantedOutputs

TooLong = Literal["split", "truncate", "error"]


class LongLines(NamedTuple):
    """Which lines are too long for the model, and what is done with them."""

    limit: int  # pieces
    too_long: TooLong


class Job(NamedTuple):
    """A line prepared for the search: its encoded parts, or why it cannot be translated."""

    parts: Sequence[Part] = ()
    truncated: bool = False
    error: str | None = None
    words: Sequence[str] = ()  # the leaves of the tree, if the model parses
    wanted: Wanted = Wanted()


class LineJobs:
    """Prepares lines for the search, and answers them. Not to be shared between threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        long_lines: LongLines,
        outputs: WantedOutputs,
        answers: Answers,
        *,
        sampling: Sampling | None,
        words_of: Callable[[str], list[str]] | None,
        tag: Sequence[int] = (),
    ) -> None:
        """``words_of`` cuts a line into the words of its tree; None if the model does not parse.

        The pieces of ``tag`` come in front of every source.
        """
        self._tokenizer, self._long_lines = tokenizer, long_lines
        self._outputs, self._answers = outputs, answers
        self._sampling, self._words_of, self._tag = sampling, words_of, tag

    def prepare(self, requests: Sequence[Request]) -> list[Job]:
        """Return a job for each line. Raises LinesFailedError for a bug."""
        wanted = [self._outputs.wanted(request) for request in requests]
        jobs = [
            Job(error=why_not_unicode(request.text) or each.error)
            for request, each in zip(requests, wanted, strict=True)
        ]
        texts = {
            number: request.text
            for number, request in enumerate(requests)
            if jobs[number].error is None and not is_blank(request.text)
        }
        words: dict[int, list[str]] = {}
        if self._words_of is not None:
            cut = {number: self._words_of(line) for number, line in texts.items()}
            words = {number: leaves for number, leaves in cut.items() if leaves}
            texts = {number: " ".join(leaves) for number, leaves in words.items()}
        with naming_lines(list(texts)):
            encoded = encode_each(self._tokenizer, list(texts.values()))
        for (number, text), tokens in zip(texts.items(), encoded, strict=True):
            if isinstance(tokens, Failure):
                jobs[number] = Job(error=tokens.reason)
                continue
            try:
                job = self._job(text, tokens)
                own = words.get(number, ())
                jobs[number] = job._replace(words=own, wanted=wanted[number])
                if len(job.parts) > 1 and wanted[number].required:
                    jobs[number] = Job(error=NO_PLACE)
            except Exception as error:
                jobs[number] = Job(error=own_failure_of(number, error).reason)
        return jobs

    def sentences(self, job: Job) -> list[Sentence]:
        """Return what is searched for a line: its parts, or samples of the first, the second ..."""
        is_whole = len(job.parts) == 1 and not job.truncated
        words = job.words if is_whole else ()
        parts = [[*self._tag, *part.tokens] for part in job.parts]
        sentences = self._outputs.sentences(parts, words, job.wanted)
        if self._sampling is None:
            return sentences
        return self._sampling.samples_of(sentences, job.wanted.line, job.wanted.n_best)

    def answer(self, job: Job, outcomes: Sequence[Outcome]) -> Translation:
        """Return the translation of a line; ``outcomes`` are those of its sentences."""
        if self._sampling is not None:
            outcomes = gathered(outcomes, job.wanted.n_best)
        found: list[tuple[Hypothesis, ...]] = []
        for outcome in outcomes:
            if isinstance(outcome, Failure):
                return Translation(error=self._reason(outcome, job.wanted))
            found.append(outcome)
        if not found:
            return Translation(error=job.error)
        return self._answers.joined(job.parts, job.words, found, truncated=job.truncated)

    def _reason(self, failure: Failure, wanted: Wanted) -> str:
        """Return why a line has no translation; rules may be why no output is possible."""
        if failure.cause is Cause.IMPOSSIBLE and self._outputs.have_rules_for(wanted):
            return NOTHING_FOUND
        return failure.reason

    def _job(self, text: str, tokens: Sequence[int]) -> Job:
        limit, too_long = self._long_lines
        if len(tokens) <= limit:
            is_nothing = not tokens and self._words_of is None  # a parse needs no pieces
            return Job([] if is_nothing else [Part(tokens, "", text)])
        if too_long == "error":
            return Job(
                error=f"it has {len(tokens):,} pieces, the model takes {limit:,}; "
                "--too-long split translates it in parts"
            )
        if too_long == "truncate":
            return Job([Part(tokens[:limit], "", text)], truncated=True)
        return Job(parts_within(text, tokens, limit, self._tokenizer.encode))
