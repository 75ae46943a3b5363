"""The segments of a line, which are translated each by itself, such as its sentences."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from nmt_cli.corpus.text.language_codes import subtags_of
from nmt_cli.corpus.text.sentences import certain_sentences, cut_sentences
from nmt_cli.files.lines import INVISIBLE, is_blank
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.segmentation.list_marks import is_mark

if TYPE_CHECKING:
    from nmt_cli.parsing.tree_output import Repairs

BLANKS = re.compile(rf"[\s{INVISIBLE}]*")
# Languages that write no blanks between sentences.
WITHOUT_BLANKS = frozenset(["cdo", "gan", "hak", "hsn", "ja", "lzh", "wuu", "yue", "zh"])
IDEOGRAPHIC_SPACE = "\u3000"


class Span(NamedTuple):
    """The place of a word of a translation, and of the word of the source that it attends to most.

    Places are in characters, those of the source in the segment's text.
    """

    begin: int
    end: int
    source_begin: int
    source_end: int
    # Where words of the source begin that this word attends to more than all other words do.
    attending: tuple[int, ...] = ()

    def moved(
        self,
        by: int,
        source_by: int,
        place_of: Callable[[int], int],
        end_of: Callable[[int], int],
    ) -> Span:
        """Return the span in a text with ``by`` characters before this one.

        The source has ``source_by`` characters before that of this one. ``place_of`` returns the
        place of one of them in the segment, and ``end_of`` the place where one ends.
        """
        return Span(
            self.begin + by,
            self.end + by,
            place_of(self.source_begin + source_by),
            end_of(self.source_end + source_by),
            tuple(place_of(place + source_by) for place in self.attending),
        )


class Insertion(NamedTuple):
    """A run of characters that the model never saw, which was put into a translation."""

    span: Span
    gap: int  # its place in the translation without runs
    moved: int  # by how many characters what is behind it was moved


class Output(NamedTuple):
    """The translation of a segment."""

    text: str
    spans: Sequence[Span] = ()  # of its words, in order, where they are asked for
    repairs: Repairs | None = None  # what made it a tree; only if the model parses
    insertions: Sequence[Insertion] = ()
    without_runs: str = ""  # its text without these, if there are any

    def place_of(self, place: int) -> int:
        """Return the place of what begins at a place of the text without runs."""
        return place + self._moved(bisect_right(self.insertions, place, key=attrgetter("gap")))

    def end_of(self, place: int) -> int:
        """Return the place where ends what ends at a place of the text without runs."""
        return place + self._moved(bisect_left(self.insertions, place, key=attrgetter("gap")))

    def _moved(self, num_before: int) -> int:
        return self.insertions[num_before - 1].moved if num_before else 0


@dataclass
class Segments:
    """The segments of a line, and the text around them, which stays as it is."""

    texts: Sequence[str]
    gaps: Sequence[str]  # before, between and after the segments: one more than there are segments
    is_cut: bool = True  # whether what is between segments may hold line ends
    target_gaps: Sequence[str] = ()  # those of the translation, where they are others
    is_by_default: bool = False  # whether sentences were cut without being asked for

    @property
    def separators(self) -> Sequence[str]:
        """What is before each segment; words go on where it has no white space."""
        return self.gaps[:-1]

    @property
    def target_separators(self) -> Sequence[str]:
        """What is before the translation of each segment."""
        return (self.target_gaps or self.gaps)[:-1]

    @property
    def need_spans(self) -> Sequence[bool]:
        """Which of the segments need the spans of their words."""
        return [False] * len(self.texts)

    def filled(self, outputs: Sequence[Output]) -> str:
        """Return the line with the translation of each segment in its place."""
        first, *gaps = self.target_gaps or self.gaps
        filled = [first]
        for output, gap in zip(outputs, gaps, strict=True):
            filled += [output.text, gap]
        return "".join(filled)


def joined_for(segments: Segments, source: str, target: str) -> Segments:
    """Return ``segments`` with what the language ``target`` writes between two sentences.

    Only one blank or none becomes that. Around list marks, and where both languages write the same
    or one is unknown, the gaps stay.
    """
    is_known = UNKNOWN_LANGUAGE not in {source, target}
    if not is_known or _has_blanks(source) == _has_blanks(target):
        return segments
    usual, written = ({" "}, "") if _has_blanks(source) else ({"", IDEOGRAPHIC_SPACE}, " ")
    gaps = list(segments.gaps)
    for place, (before, behind) in enumerate(pairwise(segments.texts), 1):
        if gaps[place] in usual and not (is_mark(before) or is_mark(behind)):
            gaps[place] = written
    return replace(segments, target_gaps=gaps)


def _has_blanks(language: str) -> bool:
    """Return whether a language writes blanks between sentences."""
    base, *others = subtags_of(language)
    return base not in WITHOUT_BLANKS or "latn" in others


def uncut(text: str) -> Segments:
    """Return a line as one segment, or as none if it is blank; nothing around it stays."""
    texts = [] if is_blank(text) else [text]
    return Segments(texts, [""] * (len(texts) + 1), is_cut=False)


def whole(text: str) -> Segments:
    """Return ``text``, which is not blank, as one segment without the white space around it."""
    segment = text.strip()
    start = text.index(segment)
    return Segments([segment], [text[:start], text[start + len(segment) :]])


def sentences_by_default(
    text: str, language: str, protection: Protection | None = None
) -> Segments:
    """Return the sentences of ``text`` if it certainly has several, and else all of it."""
    found = sentences(text, language, protection, certain_sentences)
    return replace(found, is_by_default=True) if len(found.texts) > 1 else whole(text)


def sentences(
    text: str,
    language: str,
    protection: Protection | None = None,
    cut: Callable[[str, str], list[str]] = cut_sentences,
) -> Segments:
    """Return the sentences of ``text``, by the rules of ``language`` or those of English.

    No sentence ends within what ``protection`` finds. White space and invisible characters between
    sentences belong to none of them.
    """
    segments = cut(text, language)
    if protection is not None:
        segments = list(_joined_within(segments, [m[:2] for m in protection.found_in(text)]))
    texts, gaps = list[str](), [""]
    for segment in segments:
        if is_blank(segment):
            gaps[-1] += segment
            continue
        start, end = _num_blanks(segment), len(segment) - _num_blanks(segment[::-1])
        gaps[-1] += segment[:start]
        texts.append(segment[start:end])
        gaps.append(segment[end:])
    return Segments(texts, gaps)


def _num_blanks(text: str) -> int:
    """Return how many characters at the start of ``text`` are white space or invisible."""
    blanks = BLANKS.match(text)
    assert blanks is not None  # it matches the empty text
    return blanks.end()


def _joined_within(segments: Iterable[str], places: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield segments of a text; two with their border within one of ``places`` are joined."""
    waiting, end, rest = "", 0, iter(places)
    begin_of, end_of = next(rest, (0, 0))
    for segment in segments:
        waiting, end = waiting + segment, end + len(segment)
        while end_of and end_of <= end:
            begin_of, end_of = next(rest, (0, 0))
        if not begin_of < end < end_of:
            yield waiting
            waiting = ""
    if waiting:
        yield waiting
