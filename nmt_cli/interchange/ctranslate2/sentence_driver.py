"""CTranslate2 in place of our search: sentences in, hypotheses out. Nothing here needs torch.

Its beams are ours; two rules differ. It ends a search when as many hypotheses have ended as the
beam has, and it ranks them with length^p. So it is asked for all of them, with the p that is
nearest to our length penalty, and they are ranked here.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from nmt_cli.corpus.tokenizers.sentence_marks import without_end
from nmt_cli.hardware.choices import AUTO
from nmt_cli.hardware.cpu import usable_cores
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.extras import importing
from nmt_cli.recipe.model_config import ModelConfig
from nmt_cli.search.beams import (
    NOT_A_NUMBER,
    Hypothesis,
    SearchSettings,
    length_penalty,
    nearest_exponent,
)
from nmt_cli.search.rules.phrases import FORCED_PREFIX
from nmt_cli.search.sentences import (
    IMPOSSIBLE,
    BugError,
    Cause,
    Failure,
    Outcome,
    Sentence,
    own_failure,
)

# CTranslate2's names of our precisions.
COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
SENTENCES_OF_A_BATCH = 64  # with 32 to 128 it is fastest
SENTENCES_OF_A_SMALL_BATCH = 16  # so that all threads have work where few lines come
MOST_TOKENS = 1 << 14  # of the hypotheses of a batch: 64 sentences of 64 pieces with a beam of 4
NO_LIMIT = 0
UNKNOWN = math.nan  # a log-probability that CTranslate2 does not return with a translation
UNLIMITED_QUEUE = -1  # the caller decides how many lines wait
NO_RULES = Failure(
    Cause.ITSELF,
    "--engine ctranslate2 has no required and no banned phrases, no terms, no protected text and "
    "no rule about repeated pieces; leave them out, or translate without --engine",
)

Ticket = TypeVar("Ticket")
Entry = tuple[Ticket, Sentence]


class Threads(NamedTuple):
    """How CTranslate2 uses the CPU: batches that are translated at a time, and threads of each."""

    workers: int
    of_each: int = 1


def default_threads() -> Threads:
    """Return a thread for each core, each with batches of its own."""
    return Threads(usable_cores())


class _Group(NamedTuple):
    """What the sentences of a batch have in common."""

    beam_size: int
    length_penalty: float
    num_hypotheses: int


class Batch(NamedTuple):
    """Sentences that CTranslate2 translates together, and what it promised for each."""

    entries: Sequence[tuple[Any, Sentence]]
    group: _Group
    results: Sequence[Any]  # AsyncTranslationResult
    longest: int  # pieces, with </s> of those that end
    error: Exception | None = None  # why it did not take them


class CTranslate2Driver(Generic[Ticket]):
    """Translates sentences with an exported folder; has what a ``Translator`` uses of a driver.

    Raises UserError if ctranslate2 is not installed or cannot compute in ``precision`` here.
    """

    def __init__(
        self,
        folder: Path,
        architecture: ModelConfig,
        settings: SearchSettings,
        *,
        precision: str,
        threads: Threads,
        max_tokens: int | None = None,
    ) -> None:
        """A batch holds ``max_tokens`` tokens of hypotheses, or one sentence."""
        with importing("ctranslate2", "--engine ctranslate2 translates"):
            import ctranslate2
        ctranslate2.set_log_level(logging.ERROR)
        _refuse_precision(precision, ctranslate2.get_supported_compute_types("cpu"))
        self._translator: Any = ctranslate2.Translator(
            str(folder),
            device="cpu",
            compute_type=COMPUTE_TYPES[precision],
            inter_threads=threads.workers,
            intra_threads=threads.of_each,
            max_queued_batches=UNLIMITED_QUEUE,
        )
        self._architecture, self._settings = architecture, settings
        self._max_tokens = max_tokens or MOST_TOKENS
        self._source = read_vocabulary(folder, "source")
        self._target = read_vocabulary(folder, "target")
        self._ids = {piece: token for token, piece in enumerate(self._target)}

    def run(
        self,
        take: Callable[[], Entry[Ticket] | None],
        watch: Callable[[Iterable[Ticket]], Iterable[Ticket] | None] = lambda inside: None,
    ) -> Iterator[tuple[Ticket, Outcome]]:
        """Yield the outcome of each sentence when it is done; see ``search.driver.Driver.run``.

        A sentence can leave only before its batch begins.
        """
        while True:
            entries: list[Entry[Ticket]] = []
            while len(entries) < SENTENCES_OF_A_BATCH and (entry := take()) is not None:
                entries.append(entry)
            if not entries:
                return
            unwanted = set(watch([ticket for ticket, _ in entries]) or ())
            entries = [entry for entry in entries if entry[0] not in unwanted]
            yield from self.outcomes(self.begin(entries), bugs_are_outcomes=True)

    def run_window(
        self,
        sentences: Iterable[Entry[Ticket]],
        watch: Callable[[Iterable[Ticket]], Iterable[Ticket] | None] = lambda inside: None,
    ) -> Iterator[tuple[Ticket, Outcome]]:
        """Yield the outcome of each sentence when it is done. Raises BugError for a bug."""
        del watch
        return self.outcomes(self.begin(list(sentences)))

    def most_like(self, item: Sentence) -> int:
        """Return how many sentences as long as ``item`` are taken at a time, in any batches."""
        del item
        return SENTENCES_OF_A_BATCH

    def begin(self, entries: Sequence[Entry[Ticket]]) -> list[Batch]:
        """Let CTranslate2 translate sentences, longest first, without waiting for it."""
        groups: dict[_Group, list[Entry[Ticket]]] = {}
        for entry in entries:
            groups.setdefault(self._group_of(entry[1]), []).append(entry)
        most = SENTENCES_OF_A_BATCH
        if len(entries) < 2 * most:
            most = SENTENCES_OF_A_SMALL_BATCH
        batches: list[Batch] = []
        for group, members in groups.items():
            members.sort(key=lambda entry: len(entry[1].tokens), reverse=True)
            start = 0
            while start < len(members):
                longest = max(1, len(members[start][1].tokens))
                number = self._max_tokens // (longest * group.beam_size)
                end = start + max(1, min(most, number))
                batches.append(self._batch(members[start:end], group))
                start = end
        return batches

    def outcomes(
        self, batches: Sequence[Batch], *, bugs_are_outcomes: bool = False
    ) -> Iterator[tuple[Any, Outcome]]:
        """Yield the outcome of each sentence of ``batches``; waits for them in this order.

        The sentences of a batch that fails are translated again in halves. Raises BugError for a
        bug, unless ``bugs_are_outcomes``.
        """
        for batch in batches:
            try:
                yield from list(self._found(batch))
            except Exception as error:
                yield from self._again(batch, error, bugs_are_outcomes=bugs_are_outcomes)

    def _again(
        self, batch: Batch, error: Exception, *, bugs_are_outcomes: bool
    ) -> Iterator[tuple[Any, Outcome]]:
        entries, half = batch.entries, len(batch.entries) // 2
        if half:
            for part in (entries[:half], entries[half:]):
                again = [self._batch(part, batch.group)]
                yield from self.outcomes(again, bugs_are_outcomes=bugs_are_outcomes)
            return
        ((ticket, _),) = entries
        failure = own_failure(error)
        if failure is None and not bugs_are_outcomes:
            raise BugError([ticket], error)
        yield ticket, failure or Failure(Cause.BUG, str(error), error)

    def _group_of(self, sentence: Sentence) -> _Group:
        beam_size = sentence.beam_size or self._settings.beam_size
        alpha = sentence.length_penalty
        alpha = self._settings.length_penalty if alpha is None else alpha
        # Without a penalty a search ends when the best hypothesis has ended, and enough others.
        return _Group(beam_size, alpha, beam_size if alpha else self._n_best(sentence))

    def _batch(
        self,
        entries: Sequence[Entry[Ticket]],
        group: _Group,
        never: list[list[str]] | None = None,
    ) -> Batch:
        sentences = [sentence for _, sentence in entries]
        longest = max(1, *(each.longest_output for each in sentences))
        prefixes = [sentence.rule_data.get(FORCED_PREFIX, ()) for sentence in sentences]
        try:
            results = self._translator.translate_batch(
                [self._source_of(sentence) for sentence in sentences],
                [self._pieces(prefix) for prefix in prefixes] if any(prefixes) else None,
                asynchronous=True,
                beam_size=group.beam_size,
                num_hypotheses=group.num_hypotheses,
                length_penalty=nearest_exponent(group.length_penalty),
                suppress_sequences=never,
                return_scores=True,
                return_end_token=True,
                max_input_length=NO_LIMIT,
                max_decoding_length=longest,
                min_decoding_length=0,
            )
        except Exception as error:
            return Batch(entries, group, (), longest, error)
        return Batch(entries, group, results, longest)

    def _found(self, batch: Batch) -> Iterator[tuple[Any, Outcome]]:
        if batch.error is not None:
            raise batch.error
        alpha, sentences = batch.group.length_penalty, [sentence for _, sentence in batch.entries]
        results = [promised.result() for promised in batch.results]
        corrected = self._corrected(batch, results)
        founds = [
            self._hypotheses(sentence, corrected.get(place, result), alpha)
            for place, (sentence, result) in enumerate(zip(sentences, results, strict=True))
        ]
        for place in corrected:  # what is forbidden changes the probabilities of all others
            founds[place] = [each._replace(log_probability=UNKNOWN) for each in founds[place]]
        self._score(batch, founds)
        for (ticket, sentence), found in zip(batch.entries, founds, strict=True):
            yield ticket, self._outcome(sentence, found, alpha)

    def _corrected(self, batch: Batch, results: Sequence[Any]) -> dict[int, Any]:
        """Return new results, by the places of their sentences in the batch.

        Sentences are translated again if too few of their outputs are right.

        That is rare. So a batch has one limit for its outputs, that of the sentence which may have
        the longest, and ``<s>`` is forbidden only when sentences are translated again.
        """
        start = self._target[self._settings.bos_id]
        never = [[start]] if self._settings.bos_id != self._settings.eos_id else None
        again: dict[int, list[int]] = {}  # places, by the longest output
        for place, ((_, sentence), result) in enumerate(zip(batch.entries, results, strict=True)):
            is_wrong = sentence.longest_output < batch.longest or any(
                start in pieces for pieces in result.hypotheses
            )
            if is_wrong and len(self._ended(sentence, result)) < self._n_best(sentence):
                again.setdefault(sentence.longest_output, []).append(place)
        corrected: dict[int, Any] = {}
        for places in again.values():
            other = self._batch([batch.entries[place] for place in places], batch.group, never)
            if other.error is not None:
                raise other.error
            for place, promised in zip(places, other.results, strict=True):
                corrected[place] = promised.result()
        return corrected

    def _ended(self, sentence: Sentence, result: Any) -> list[tuple[list[str], float]]:
        """Return the outputs that ended within their length, with ``</s>``, and their scores."""
        start, end = (self._target[each] for each in (self._settings.bos_id, self._settings.eos_id))
        return [
            (pieces, score)
            for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            if pieces[-1:] == [end]
            and len(pieces) <= sentence.longest_output + 1
            and (start == end or start not in pieces)
        ]

    def _hypotheses(self, sentence: Sentence, result: Any, alpha: float) -> list[Hypothesis]:
        """Return the outputs that ended or, if they are too few, all: those that did not, end now.

        The log-probability may be unknown: theirs is without that of a prefix, and without that of
        a ``</s>`` that they do not have.
        """
        ended = self._ended(sentence, result)
        if len(ended) < self._n_best(sentence):
            complete = {tuple(pieces[:-1]) for pieces, _ in ended}
            outputs = [*complete, *map(tuple, result.hypotheses)]
            end = self._target[self._settings.eos_id]
            return [self._hypothesis(each, UNKNOWN) for each in outputs if end not in each]
        if FORCED_PREFIX in sentence.rule_data:
            return [self._hypothesis(pieces[:-1], UNKNOWN) for pieces, _ in ended]
        exponent = nearest_exponent(alpha)
        scored = [(pieces, score * len(pieces) ** exponent) for pieces, score in ended]
        # Ranked as pieces: only those that are returned become tokens.
        scored.sort(key=lambda found: -found[1] / length_penalty(len(found[0]), alpha))
        best = scored[: self._n_best(sentence)]
        return [self._hypothesis(pieces[:-1], log_probability) for pieces, log_probability in best]

    def _hypothesis(self, pieces: Iterable[str], log_probability: float) -> Hypothesis:
        return Hypothesis(tuple(map(self._ids.__getitem__, pieces)), log_probability, 0.0)

    def _score(self, batch: Batch, founds: list[list[Hypothesis]]) -> None:
        """Complete the hypotheses of a batch by the log-probabilities that are missing."""
        keeps = self._settings.token_scores
        places = [
            (number, rank)
            for number, found in enumerate(founds)
            for rank, each in enumerate(found)
            if keeps or math.isnan(each.log_probability)
        ]
        if not places:
            return
        results = self._translator.score_batch(
            [self._source_of(batch.entries[number][1]) for number, _ in places],
            [self._pieces(founds[number][rank].tokens) for number, rank in places],
            max_batch_size=SENTENCES_OF_A_BATCH,
            max_input_length=NO_LIMIT,
        )
        for (number, rank), result in zip(places, results, strict=True):
            scores = tuple(result.log_probs)
            founds[number][rank] = founds[number][rank]._replace(
                log_probability=sum(scores), token_scores=scores if keeps else ()
            )

    def _outcome(self, sentence: Sentence, found: Sequence[Hypothesis], alpha: float) -> Outcome:
        if sentence.rule_data.keys() - {FORCED_PREFIX}:
            return NO_RULES
        if not all(math.isfinite(each.log_probability) for each in found):
            return Failure(Cause.ITSELF, NOT_A_NUMBER)
        return tuple(self._ranked(sentence, found, alpha)) or IMPOSSIBLE

    def _ranked(
        self, sentence: Sentence, found: Sequence[Hypothesis], alpha: float
    ) -> list[Hypothesis]:
        """Return the n best with their scores, best first."""
        ranked = [
            each._replace(score=each.log_probability / length_penalty(len(each.tokens) + 1, alpha))
            for each in found
        ]
        ranked.sort(key=lambda hypothesis: -hypothesis.score)
        return ranked[: self._n_best(sentence)]

    def _n_best(self, sentence: Sentence) -> int:
        return sentence.n_best or self._settings.n_best

    def _source_of(self, sentence: Sentence) -> list[str]:
        tokens = without_end(sentence.tokens, self._architecture)  # it adds </s> itself
        return list(map(self._source.__getitem__, tokens))

    def _pieces(self, tokens: Iterable[int]) -> list[str]:
        return [self._target[token] for token in tokens]


def read_vocabulary(folder: Path, side: str) -> list[str]:
    """Return the pieces of an export by our ids, as CTranslate2 spells them."""
    path = folder / f"{side}_vocabulary.json"
    pieces: list[str] = json.loads(
        (path if path.exists() else folder / "shared_vocabulary.json").read_bytes()
    )
    return pieces


def chosen_precision(precision: str, quantization: str) -> str:
    """Return what ``precision`` means for weights of ``quantization``; "auto" keeps them.

    Raises UserError if there is no such precision.
    """
    if precision == AUTO:
        return "int8" if quantization.startswith("int8") else "fp32"
    if precision not in COMPUTE_TYPES:
        raise WrongUsageError(f"--precision must be auto, fp32, bf16 or int8, but is {precision}.")
    return precision


def _refuse_precision(precision: str, supported: Iterable[str]) -> None:
    if COMPUTE_TYPES[precision] not in supported:
        possible = [ours for ours, theirs in COMPUTE_TYPES.items() if theirs in supported]
        raise UserError(
            f"CTranslate2 does not compute --precision {precision} on this CPU; give "
            f"{' or '.join(possible)}."
        )
