"""Turns lines into sentences of the search, and what was found for these into translations."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from nmt_cli.corpus.text.glossary import is_border
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.lines import is_blank, why_not_unicode
from nmt_cli.recipe.translation_options import TooLong
from nmt_cli.search.sentences import Cause, Failure, Outcome, Sentence, failure_of, gathered
from nmt_cli.translating.encoding.copies import (
    CollapsedText,
    FindRuns,
    Part,
    ProtectedText,
    are_possible,
)
from nmt_cli.translating.encoding.sentence_builder import SentenceBuilder, Wanted
from nmt_cli.translating.encoding.target_phrases import shown
from nmt_cli.translating.encoding.unseen import UnseenRun, runs_in
from nmt_cli.translating.interface.request import KEEPS_PIECES, LineError, Request
from nmt_cli.translating.interface.translation import Translation, in_groups
from nmt_cli.translating.outputs.line_job import LineJob, TicketedSentence
from nmt_cli.translating.outputs.translation_builder import TranslationBuilder
from nmt_cli.translating.segmentation.list_marks import has_letters
from nmt_cli.translating.segmentation.segmenter import Segmenter, needs_no_model
from nmt_cli.translating.segmentation.segments import uncut
from nmt_cli.translating.segmentation.too_long import parts_within

if TYPE_CHECKING:
    from nmt_cli.translating.interface.memory import TranslationMemory

NOTHING_FOUND = "the search found no translation that all its rules allow"
NO_PLACE = "it is too long for one part, and its required phrases have no certain part"
NO_SENTENCE = "it has several sentences, and its required phrases have no certain one"


class LineProcessor:
    """Prepares lines for the search, and answers them. Not to be shared between threads."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        builder: SentenceBuilder,
        translations: TranslationBuilder,
        segmenter: Segmenter,
        longest: int,
        too_long: TooLong,
        words_of: Callable[[str], list[str]] | None,
    ) -> None:
        """Lines of more than ``longest`` pieces, with their tag, are ``too_long``.

        ``words_of`` cuts a line into the words of its tree; None if the model does not parse.
        """
        self._tokenizer, self._builder, self._translations = tokenizer, builder, translations
        self._segmenter, self._soft_glossary = segmenter, builder.constraints.soft_glossary
        # Of the translations that are added to a source.
        self._soft_terms = (
            frozenset[str]() if self._soft_glossary is None else self._soft_glossary.characters
        )
        self._memory = builder.constraints.memory
        self._longest = longest
        self._too_long, self._words_of = too_long, words_of

    def for_another_thread(self) -> LineProcessor:
        """Return what prepares and answers lines as this does, and shares nothing that changes."""
        other = copy(self)
        other._builder = self._builder.for_another_thread()
        return other

    def prepare(self, request: Request) -> LineJob:
        """Return the job of a line. Raises a bug."""
        job = LineJob()
        try:
            memory, terms = self._memory, self._soft_glossary
            if terms is not None and (memory is None or memory.equal(request.text) is None):
                request = terms.marked(request)
            self._complete(job, request)
        except Exception as error:
            job.parts, job.error = [], _reason_unless_bug(error)
        return job

    def _complete(self, job: LineJob, request: Request) -> None:
        """Give ``job`` its parts and sentences; none if there is nothing to translate.

        Raises LineError if it cannot be translated.
        """
        if (reason := why_not_unicode(request.text)) is not None:
            raise LineError(reason)
        wanted = job.wanted = self._builder.wanted(request)
        find = self._memory.equal if self._memory is not None and _is_free(wanted) else None
        job.layout = self._segmenter.layout(wanted.request, wanted, find)
        if wanted.protection is not None and self._translations.keep_pieces:
            raise LineError(KEEPS_PIECES)
        if self._words_of is not None:
            job.words = [word for text in job.layout.texts for word in self._words_of(text)]
            job.layout = uncut(" ".join(job.words))
        job.sources = self._sources(job)
        job.parts_of_each = [self._parts(job, place) for place in range(len(job.sources))]
        job.parts = [part for parts in job.parts_of_each for part in parts]
        if len(job.parts) > 1 and wanted.required:
            raise LineError(NO_SENTENCE if len(job.sources) > 1 else NO_PLACE)
        job.sentences = self._sentences(job)

    def _sources(self, job: LineJob) -> list[ProtectedText]:
        """Return the segments with what is copied of each; a forced output needs the model."""
        wanted = job.wanted
        sources = [
            self._builder.protected(text, wanted.protection, self._find_runs(text, wanted))
            for text in job.layout.texts
        ]
        if self._memory is not None:
            sources = self._with_memory(self._memory, job, sources)
        kept = [
            self._is_kept(source, wanted) and not self._needs_model(source, wanted)
            for source in sources
        ]
        if wanted.required and all(kept):
            kept = [False] * len(kept)
        return [
            _kept(each) if is_kept else self._with_text(each, wanted)
            for each, is_kept in zip(sources, kept, strict=True)
        ]

    def _needs_model(self, source: ProtectedText, wanted: Wanted) -> bool:
        """Return whether a segment is not its own translation: for a prefix or a banned phrase.

        Copied characters may not have that phrase.
        """
        if not source.runs:
            return wanted.needs_model
        return bool(wanted.prefix) or self._translations.has_banned(source.source, wanted)

    def _with_text(self, source: ProtectedText, wanted: Wanted) -> ProtectedText:
        """Return ``source``, whose output the model must write, with something for the model."""
        if source.runs and is_blank(source.text):
            return self._builder.protected(source.source, wanted.protection, None)
        return source

    def _find_runs(self, text: str, wanted: Wanted) -> FindRuns | None:
        """Return what finds the runs that the model does not get; None if ``text`` has none.

        They have characters that it never saw. Terms of nothing else are translated in them, and
        the model gets the characters of other terms.
        """
        if not self._segmenter.copies_unseen:
            return None
        known_text = self._translations.known_text
        unknown = known_text.unknown_in(text) - self._soft_terms
        found = wanted.glossary.found_in(text) if unknown and wanted.glossary is not None else ()
        terms = {term.source.casefold(): term.targets[0] for term in found}
        for _ in range(2):  # characters of one term may be in another
            for term in found:
                if not unknown.issuperset("".join(term.source.split())):
                    unknown.difference_update(term.source)
                    terms.pop(term.source.casefold(), None)
        if not unknown:
            return None

        longest_first = sorted(terms, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)

        def find_runs(masked: str) -> Sequence[UnseenRun]:
            runs = runs_in(masked, unknown, known_text.knows)
            return [_with_terms(run, text, terms, pattern) for run in runs] if terms else runs

        return find_runs

    def _with_memory(
        self, memory: TranslationMemory, job: LineJob, sources: Sequence[ProtectedText]
    ) -> list[ProtectedText]:
        """Return the segments with their translations in the memory; ``job`` gets what is found.

        The memory does not know where tags belong in its translations, nor what else is wanted.
        """
        is_free = _is_free(job.wanted)
        answered = list[ProtectedText]()
        for source, has_tags in zip(sources, job.layout.need_spans, strict=True):
            match = memory.equal(source.source)
            if match is not None and is_free and not has_tags:
                source = ProtectedText(source.source, known=match.target)
            else:
                match = memory.similar(source.source)
            answered.append(source)
            job.matches += [] if match is None else [match]
        return answered

    def _is_kept(self, source: ProtectedText, wanted: Wanted) -> bool:
        """Return whether there is nothing to translate in a segment."""
        if source.known is not None:
            return True
        if self._segmenter.keeps_text:
            is_kept = needs_no_model(source.around) or not has_letters(source.around_runs)
        else:
            is_kept = bool(source.copies) and is_blank(source.around)
        has_terms = is_kept and wanted.glossary and wanted.glossary.found_in(source.text)
        return is_kept and not has_terms

    def answer(self, job: LineJob) -> Translation:
        """Return the translation of a line whose sentences have outcomes. Raises a bug."""
        try:
            return self._answer(job)
        except Exception as error:
            return Translation(error=_reason_unless_bug(error))

    def _answer(self, job: LineJob) -> Translation:
        if job.error is not None:
            raise LineError(job.error)
        outcomes: Sequence[Outcome] = [job.outcomes[place] for place in range(len(job.sentences))]
        if self._builder.sampling is not None:
            outcomes = gathered(outcomes, job.wanted.n_best)
        found = []
        for outcome in outcomes:
            if not isinstance(outcome, Failure):
                found.append(outcome)
            elif outcome.bug is not None:
                raise outcome.bug
            else:
                raise LineError(self._reason(outcome, job.wanted))
        translation = self._translations.build(job, found)
        return strict(translation) if job.wanted.is_strict else translation

    def without_copies(self, job: LineJob) -> list[TicketedSentence]:
        """Return the sentences that have no output with what is to be copied, now without that."""
        places = {
            place
            for place, outcome in job.outcomes.items()
            if isinstance(outcome, Failure)
            and outcome.cause is Cause.IMPOSSIBLE
            and place < len(job.parts)
            and job.parts[place].copies
            and not job.wanted.is_strict
        }
        if not places:
            return []
        for place in places:
            del job.outcomes[place]
        job.parts = [
            part._replace(copies=()) if place in places else part
            for place, part in enumerate(job.parts)
        ]
        job.parts_of_each = in_groups(job.parts, map(len, job.parts_of_each))
        job.sentences = self._sentences(job)
        return [(ticket, sentence) for ticket, sentence in job.ticketed() if ticket[1] in places]

    def _reason(self, failure: Failure, wanted: Wanted) -> str:
        """Return why a line has no translation; rules may be why no output is possible."""
        if failure.cause is Cause.IMPOSSIBLE and self._builder.have_rules_for(wanted):
            return NOTHING_FOUND
        return failure.reason

    def _sentences(self, job: LineJob) -> list[Sentence]:
        """Return the sentences for the parts of a line, with the terms in them."""
        parts = [part._replace(text=self._translations.known_text(part.text)) for part in job.parts]
        words = job.words if len(parts) == 1 and not job.truncated else ()
        of_segments = zip(job.layout.need_spans, job.sources, job.parts_of_each, strict=True)
        need_units = [
            need or source.needs_attention
            for need, source, of_segment in of_segments
            for _ in of_segment
        ]
        return self._builder.sentences(parts, words, job.wanted, need_units)

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(self._translations.known_text(text))

    def _parts(self, job: LineJob, place: int) -> list[Part]:
        """Return the parts of the segment at ``place``. Raises LineError if it is too long.

        Of one that is truncated, ``job`` keeps only the copies that the model gets.
        """
        source = job.sources[place]
        if source.is_kept:
            return []
        text, copies, longest = source.text, source.searched, self._longest - len(job.wanted.tag)
        tokens = self._encode(text)
        if self._too_long == "split" and (len(tokens) > longest or not are_possible(copies)):
            return self._parts_of(source, tokens, longest)
        if len(tokens) <= longest:
            is_nothing = not tokens and self._words_of is None  # a parse needs no pieces
            return [] if is_nothing else [Part(tokens, "", text, copies)]
        if self._too_long == "truncate":
            job.truncated = True
            start = self._start_of(source, tokens, longest)
            job.sources[place] = source = source._replace(copies=start.copies)
            return [start._replace(copies=source.searched)]
        raise LineError(
            f"it has {len(tokens):,} pieces, the model takes {longest:,}; "
            "--too-long split translates it in parts"
        )

    def _start_of(self, source: ProtectedText, tokens: Sequence[int], longest: int) -> Part:
        """Return as much of the start of a segment as the model takes.

        It ends before a copy of which only a part would fit, unless that is the first word. Its
        text, in which terms are looked for, is without a word of which only a part fits.
        """
        text = source.text
        # As many characters as have at most so many pieces.
        end = bisect_right(
            range(1, len(text)), longest, key=lambda size: len(self._encode(text[:size]))
        )
        cut = next((copy for copy in source.copies if copy.begin < end < copy.end), None)
        if cut is not None and not is_blank(text[: cut.begin]):
            end = cut.begin
            tokens = self._encode(text[:end])
        while not is_border(text, end):
            end -= 1
        copies = [copy for copy in source.copies if copy.end <= end]
        return Part(tokens[:longest], "", text[:end], copies)

    def _parts_of(self, source: ProtectedText, tokens: Sequence[int], longest: int) -> list[Part]:
        """Return the parts of a segment; no part begins or ends within a copy."""
        if not source.searched:
            return parts_within(source.text, tokens, longest, self._encode)
        collapsed = CollapsedText(source, lambda text: len(self._encode(text)) <= longest)
        parts = parts_within(
            collapsed.text,
            tokens,
            longest,
            lambda text: self._encode(collapsed.expanded(text)),
            lambda text: are_possible(collapsed.copies(text)),
        )
        return [
            part._replace(text=collapsed.expanded(part.text), copies=collapsed.copies(part.text))
            for part in parts
        ]


def _is_free(wanted: Wanted) -> bool:
    """Return whether a memory may answer: it does not know what else is wanted."""
    return not (wanted.needs_model or wanted.required)


def strict(translation: Translation) -> Translation:
    """Return the translation without outputs that do not copy all, or an error if none does."""
    ranked = [each for each in translation.ranked if not each.not_copied]
    if len(ranked) == len(translation.ranked):
        return translation
    if not ranked:
        first = shown(translation.not_copied[0])
        return Translation(error=f"the protected text {first} is not copied exactly once")
    best, *others = ranked
    return replace(translation, **{**vars(best), "alternatives": tuple(others)})


def _with_terms(
    run: UnseenRun, source: str, terms: Mapping[str, str], pattern: re.Pattern[str]
) -> UnseenRun:
    """Return a run of ``source`` with the translations of the ``terms`` that ``pattern`` finds."""
    text = source[run.begin : run.end]

    def translated(found: re.Match[str]) -> str:
        is_whole = is_border(text, found.start()) and is_border(text, found.end())
        return terms.get(found[0].casefold(), found[0]) if is_whole else found[0]

    written = pattern.sub(translated, text)
    return run if written == text else run._replace(text=written)


def _kept(source: ProtectedText) -> ProtectedText:
    """Return a segment that the model does not get; terms in it have translations."""
    if source.known is not None or all(run.text is None for run in source.runs):
        return source._replace(is_kept=True)
    known, place = "", 0
    for run in source.runs:
        known += source.source[place : run.begin] + run.text_in(source.source)
        place = run.end
    return source._replace(is_kept=True, known=known + source.source[place:])


def _reason_unless_bug(error: Exception) -> str:
    """Return why a line could not be translated. Raises ``error`` if it is a bug."""
    if isinstance(error, LineError):
        return str(error)
    if (failure := failure_of(error)) is not None:
        return failure.reason
    raise error
