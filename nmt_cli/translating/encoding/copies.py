"""Spans of a source that its translation copies, and the pieces that stand for them in the search.

These are the pieces of the span, or one that the vocabulary has for such spans, as ``<ph>``. The
search writes them, as it does with required phrases, and then the text of the span replaces them
(``attended_words.py``). So a span may have characters that the vocabulary lacks: ``<unk>`` stands
for these.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter, itemgetter
from typing import NamedTuple

from nmt_cli.corpus.text.glossary import is_border
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.rules.phrases import Constraint, Phrase, PhraseForm, are_too_many
from nmt_cli.translating.encoding.target_phrases import OneOf, TargetPhrase, TargetPhrases, shown
from nmt_cli.translating.encoding.unseen import RunPosition, UnseenRun
from nmt_cli.translating.interface.protection import Match
from nmt_cli.translating.interface.request import LineError

# Names of pieces that stand for any span; those with other names stand for matches of this name.
FOR_ANY = ("ph", "placeholder", "entity", "ent", "protected")
FIRST_PRIVATE = 0xF0000  # characters without a meaning
LAST_CHARACTER = 0x10FFFF
MOST_ROUNDS = 3  # in which matches free others; then no match belongs to a run
LETTER = "\u4e2d"  # of a script without spaces between words

FindRuns = Callable[[str], Sequence[UnseenRun]]  # in a text


class Copy(NamedTuple):
    """A span of a source that the translation copies."""

    match: Match  # its place in the source
    text: str  # as it is there
    begin: int  # in the text that the model gets
    written: str  # what stands for it there: its text, or a placeholder
    forms: Constraint  # its pieces, or those of the placeholder; none if nothing can stand for it
    is_exact: bool  # whether these pieces are written as its text
    run: UnseenRun | None = None  # which the search does not write: it is put into the translation

    @property
    def end(self) -> int:
        """The end of what stands for it, in the text that the model gets."""
        return self.begin + len(self.written)

    @property
    def phrases(self) -> OneOf:
        """Its pieces as phrases. Raises LineError if there are none."""
        if not self.forms:
            raise LineError(f"no pieces can stand for the text {shown(self.text)}")
        return tuple(TargetPhrase(form.ids, shown(self.text)) for form in self.forms)


class ProtectedText(NamedTuple):
    """A segment of a source, and the spans that its translation copies."""

    source: str
    copies: Sequence[Copy] = ()
    with_placeholders: str | None = None  # None: nothing stands for a span
    is_kept: bool = False  # it is its own translation, without the model
    known: str | None = None  # its translation in a memory, which then needs no model

    @property
    def text(self) -> str:
        """The text as the model gets it."""
        return self.source if self.with_placeholders is None else self.with_placeholders

    @property
    def around(self) -> str:
        """The text around the spans that the search writes."""
        return "".join(self._around(is_unseen=False))

    @property
    def around_runs(self) -> str:
        """The text around all spans."""
        return "".join(self._around(is_unseen=True))

    def _around(self, *, is_unseen: bool) -> Iterator[str]:
        place = 0
        for copy in self.copies:
            if is_unseen or copy.run is None:
                yield self.source[place : copy.match.begin]
                place = copy.match.end
        yield self.source[place:]

    @property
    def searched(self) -> Sequence[Copy]:
        """The spans that the search writes."""
        return [copy for copy in self.copies if copy.run is None]

    @property
    def runs(self) -> Sequence[UnseenRun]:
        """The spans that the model never saw."""
        return [copy.run for copy in self.copies if copy.run is not None]

    @property
    def needs_attention(self) -> bool:
        """Whether a run comes to a place that attention decides."""
        return any(run.where is RunPosition.AMONG_WORDS for run in self.runs)

    def source_place(self, place: int) -> int:
        """Return the place in ``source`` of what begins at a place in ``text``."""
        return self._source_place(place, bisect_right(self.copies, place, key=attrgetter("end")))

    def source_end(self, place: int) -> int:
        """Return the place in ``source`` where ends what ends at a place in ``text``."""
        number = bisect_left(self.copies, place, key=attrgetter("end"))
        if number < len(self.copies) and self.copies[number].begin < place:
            number += self.copies[number].end == place
        return self._source_place(place, number)

    def _source_place(self, place: int, num_before: int) -> int:
        """Return the place in ``source`` of a ``place`` behind so many spans."""
        if num_before < len(self.copies) and self.copies[num_before].begin < place:
            copy = self.copies[num_before]
            return min(copy.match.begin + place - copy.begin, copy.match.end - 1)
        if num_before == 0:
            return place
        last = self.copies[num_before - 1]
        return last.match.end + place - last.end

    def not_copied(self, output: str) -> tuple[str, ...]:
        """Return the texts of spans that ``output`` has more or less often than the source."""
        wanted = Counter(copy.text for copy in self.searched)
        if not wanted:
            return ()
        begin_words, end_words = set[str](), set[str]()
        for copy in self.searched:
            if is_border(self.source, copy.match.begin):
                begin_words.add(copy.text)
            if is_border(self.source, copy.match.end):
                end_words.add(copy.text)
        found, place = Counter[str](), 0
        # Of each text the next place, at one place the longest text first. This is no regular
        # expression, because Python would keep those of many lines.
        nexts = [(output.find(text), -len(text), text) for text in wanted]
        heapify(nexts)
        while nexts:
            begin, _, text = heappop(nexts)
            if begin >= place:
                end = begin + len(text)
                is_one = (text not in begin_words or is_border(output, begin)) and (
                    text not in end_words or is_border(output, end)
                )
                found[text] += is_one
                place = end if is_one else begin + 1
            if begin >= 0:
                heappush(nexts, (output.find(text, max(begin + 1, place)), -len(text), text))
        return tuple(text for text in wanted if found[text] != wanted[text])


class Part(NamedTuple):
    """A part of a line that is short enough for the model."""

    tokens: Sequence[int]
    separator: str  # put between the translations of the previous part and of this one
    text: str = ""
    copies: Sequence[Copy] = ()  # what its translation copies of it


class CollapsedText:
    """A text in which one character stands for each span, so that no cut is within a span."""

    def __init__(self, protected: ProtectedText, fits: Callable[[str], bool]) -> None:
        """A span is only kept whole if what stands for it ``fits`` into a part."""
        first = max(FIRST_PRIVATE, max(map(ord, protected.text), default=0) + 1)
        copies = [copy for copy in protected.copies if copy.forms and fits(copy.written)]
        copies = copies[: max(0, LAST_CHARACTER + 1 - first)]
        self._copies = {chr(first + number): copy for number, copy in enumerate(copies)}
        parts, place = list[str](), 0
        for character, copy in self._copies.items():
            parts += [protected.text[place : copy.begin], character]
            place = copy.end
        self.text = "".join([*parts, protected.text[place:]])

    def expanded(self, text: str) -> str:
        """Return a part of the collapsed text with its spans."""
        return "".join(
            self._copies[each].written if each in self._copies else each for each in text
        )

    def copies(self, text: str) -> list[Copy]:
        """Return the spans in a part of the collapsed text, with their places in the part."""
        found, place = list[Copy](), 0
        for character in text:
            copy = self._copies.get(character)
            if copy is not None:
                found.append(copy._replace(begin=place))
            place += 1 if copy is None else len(copy.written)
        return found


class SourceCopies:
    """Finds the pieces of the spans of sources, for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, phrases: TargetPhrases) -> None:
        self._tokenizer, self._phrases = tokenizer, phrases

    def of(
        self, source: str, matches: Sequence[Match], find_runs: FindRuns | None = None
    ) -> ProtectedText:
        """Return ``source`` with the spans that match, and with those that are placeholders.

        The model gets nothing of the runs that ``find_runs`` finds. A match in one of them belongs
        to it, unless a placeholder stands for it; no other match has a part in a run.
        """
        matches = self._with_placeholders(source, matches)
        runs: Sequence[UnseenRun] = ()
        if find_runs is not None:
            matches, runs = self._separated(source, matches, find_runs)
        spans: dict[Match, UnseenRun | None] = dict.fromkeys(matches)
        spans |= {Match(run.first, run.last, ""): run for run in runs}
        numbers = defaultdict[Sequence[str], dict[str, int]](dict)  # of texts, by placeholders
        text, place, copies = "", 0, list[Copy]()
        for match, run in sorted(spans.items(), key=itemgetter(0)):
            text += source[place : match.begin]
            if run is None:
                copy = self._copy(source, match, len(text), numbers)
            else:
                span = source[run.begin : run.end]
                copy = Copy(match, span, len(text), run.written, (), is_exact=False, run=run)
            copies.append(copy)
            text, place = text + copy.written, match.end
        text += source[place:]
        return ProtectedText(source, _with_equal_forms(copies), text)

    def _separated(
        self, source: str, matches: Sequence[Match], find_runs: FindRuns
    ) -> tuple[Sequence[Match], Sequence[UnseenRun]]:
        """Return the matches that belong to no run, and the runs of the text around them."""
        kept = {match for match in matches if self._placeholders(source, match)}
        for _ in range(MOST_ROUNDS):
            runs = find_runs(_masked(source, kept))
            more = {match for match in matches if not _is_within(match, runs)} - kept
            if not more:
                return sorted(kept), runs
            kept |= more
        return matches, find_runs(_masked(source, matches))

    def _copy(
        self,
        source: str,
        match: Match,
        begin: int,
        numbers: Mapping[Sequence[str], dict[str, int]],
    ) -> Copy:
        """Return the copy of a match, at ``begin`` in the text that the model gets.

        ``numbers`` are those of the texts that a placeholder has stood for.
        """
        span = source[match.begin : match.end]
        written, pieces = span, self._placeholders(source, match)
        if pieces:
            of_pieces = numbers[pieces]
            number = of_pieces.setdefault(span, len(of_pieces))
            written = pieces[min(number, len(pieces) - 1)]
        is_spaced = source[: match.begin][-1:].strip() == ""
        following = source[match.end : match.end + 1]
        goes_on = self._phrases.continues(following)
        forms = self._phrases.forms_of_copy(written, is_spaced=is_spaced, goes_on=goes_on)
        if are_too_many([form.ids for form in forms]):
            forms = ()
        is_exact = bool(forms) and self._tokenizer.decode(forms[0].ids) == span
        return Copy(match, span, begin, written, forms, is_exact)

    def _with_placeholders(self, source: str, matches: Sequence[Match]) -> Sequence[Match]:
        """Return ``matches`` and, in place of those that overlap them, placeholders in the text."""
        names = [*FOR_ANY, *(match.kind for match in matches)]
        pieces = {piece for name in names for piece in self._phrases.placeholders.get(name, ())}
        if not pieces:
            return matches
        pattern = "|".join(map(re.escape, sorted(pieces, key=len, reverse=True)))
        own = [Match(*each.span(), "") for each in re.finditer(pattern, source)]
        others = [
            match
            for match in matches
            if not any(match.begin < each.end and each.begin < match.end for each in own)
        ]
        return sorted([*own, *others])

    def _placeholders(self, source: str, match: Match) -> Sequence[str]:
        """Return the pieces that may stand for a match; none if its own pieces do."""
        known = self._phrases.placeholders
        span = source[match.begin : match.end]
        around = source[: match.begin][-1:] + source[match.end : match.end + 1]
        is_joined = self._phrases.have_spaces and around.strip() != ""
        if is_joined or any(character.isspace() for character in span):
            return ()
        return next((known[name] for name in (match.kind, *FOR_ANY) if name in known), ())


def _is_within(match: Match, runs: Sequence[UnseenRun]) -> bool:
    number = bisect_right(runs, match.begin, key=attrgetter("end"))
    return any(each.begin <= match.begin < match.end <= each.end for each in runs[number:][:1])


def _masked(text: str, matches: Iterable[Match]) -> str:
    """Return ``text`` with letters that join no word in place of ``matches``."""
    masked = list(text)
    for match in matches:
        masked[match.begin : match.end] = LETTER * (match.end - match.begin)
    return "".join(masked)


def _with_equal_forms(copies: Sequence[Copy]) -> list[Copy]:
    """Return ``copies``; those with the same pieces get the forms of all of them.

    If a next piece may continue the word of one of them, it may continue that of all.
    """
    together = defaultdict[Phrase, list[PhraseForm]](list)
    for copy in copies:
        together[_first_ids(copy)] += copy.forms
    forms = dict[Phrase, Constraint]()
    for first, each in together.items():
        is_text = all(form.is_text for form in each)
        different = sorted({form.ids for form in each}, key=len, reverse=True)
        forms[first] = tuple(PhraseForm(ids, is_text) for ids in different)
    return [copy._replace(forms=forms[_first_ids(copy)]) for copy in copies]


def _first_ids(copy: Copy) -> Phrase:
    return copy.forms[0].ids if copy.forms else ()


def are_ambiguous(copies: Sequence[Copy]) -> bool:
    """Return whether different spans have the same pieces."""
    texts = defaultdict[Constraint, set[str]](set)
    for copy in copies:
        texts[copy.forms].add(copy.text)
    return any(len(each) > 1 for each in texts.values())


def limits_of(
    copies: Sequence[Copy], continuing: Array | None
) -> dict[Constraint, tuple[int, int]]:
    """Return how often an output has the pieces of each of ``copies``, at least and at most.

    Those that are also a part of the pieces of another span are there in addition. If the word goes
    on behind them, they are only counted until it does, so they raise the most alone.
    """
    own = Counter(copy.forms for copy in copies if copy.forms)
    limits = dict[Constraint, tuple[int, int]]()
    for forms, number in own.items():
        least = most = number
        for other in own.keys() - {forms}:
            of_least, of_most = _times_within(forms, other, continuing)
            least, most = least + of_least * own[other], most + of_most * own[other]
        limits[forms] = least, most
    return limits


def are_possible(copies: Sequence[Copy]) -> bool:
    """Return whether a search can require all ``copies``."""
    return not are_too_many([form.ids for each in {copy.forms for copy in copies} for form in each])


def _times_within(
    forms: Constraint, others: Constraint, continuing: Array | None
) -> tuple[int, int]:
    """Return how often ``forms`` are in ``others`` if no word goes on behind them, and at all."""
    counts = list[tuple[int, int]]()
    for other in others:
        ends = [
            (end, form.is_text)
            for end in range(1, len(other.ids) + 1)
            for form in forms
            if other.ids[max(0, end - len(form.ids)) : end] == form.ids
        ]
        broken = {
            end
            for end, is_text in ends
            if is_text
            and continuing is not None
            and any(continuing[list(other.ids[end : end + 1])])
        }
        different = {end for end, _ in ends}
        counts.append((len(different - broken), len(different)))
    return max(least for least, _ in counts), max(most for _, most in counts)
