"""Finds the characters of a source that a model never saw, such as emoji.

The model does not get them, because they would ruin its translation of the words around them. Each
run of them is put into the translation (``outputs/unseen_placement.py``). A letter is copied with
its word.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from nmt_cli.corpus.text.characters import COMMON, script_of
from nmt_cli.corpus.tokenizers.piece_words import is_of_script_without_spaces
from nmt_cli.translating.encoding.known_text import WITHIN_WORDS
from nmt_cli.translating.interface.protection import COMMON_PATTERNS

_EMOJI = re.compile(COMMON_PATTERNS["emoji"])
_BRACKETS = frozenset(
    map("".join, zip("([{<«»‹“„‘\"'（「『【《", ")]}>»«›”“’\"'）」』】》", strict=True))
)
_SENTENCE_ENDS = frozenset(".!?…。！？؟।")
CLOSING = frozenset(".,;:!?…%)]}»›”’、。，；：！？）」』】》؟،؛।")
LONGEST_CLUSTER = 64  # characters; normalizing takes time in proportion to the square


class RunPosition(Enum):
    """The place of a run among the other characters of its text."""

    FIRST = auto()
    BEFORE_WORDS = auto()  # behind punctuation
    AMONG_WORDS = auto()
    BEHIND_WORDS = auto()  # before punctuation
    LAST = auto()


class UnseenRun(NamedTuple):
    """Characters of a source that its translation copies, and what the model gets for them."""

    begin: int
    end: int
    # With the white space that is left out with them.
    first: int
    last: int
    written: str = ""  # what the model gets: a space between words, else nothing
    where: RunPosition = RunPosition.AMONG_WORDS
    text: str | None = None  # written in place of them, if they have terms

    def text_in(self, source: str) -> str:
        """Return what is written in the translation of ``source``."""
        return source[self.begin : self.end] if self.text is None else self.text


class _Span(NamedTuple):
    begin: int
    end: int
    is_word: bool  # whether a letter or a digit is in it


def runs_in(text: str, unknown: set[str], knows: Callable[[str], bool]) -> list[UnseenRun]:
    """Return the runs of ``text`` that have its ``unknown`` characters.

    A mark behind a letter is known if the model ``knows`` both as one character.
    """
    places = [place for place, character in enumerate(text) if character in unknown]
    found = sorted([*_words(text, places, knows), *_emoji(text, places)])
    spans = [_Span(*each, any(map(str.isalnum, text[slice(*each)]))) for each in found]
    extents = list(_widened(_joined(spans, text), text))
    words = _extent(text, extents, str.isalnum)
    visible = _extent(text, extents, lambda character: not character.isspace())
    runs, behind = list[UnseenRun](), 0
    for begin, end in extents:
        run = _with_spaces(text, begin, end)
        where = _where(begin, words, visible)
        runs.append(run._replace(first=max(run.first, behind), where=where))
        behind = run.last
    return runs


def _words(
    text: str, places: Sequence[int], knows: Callable[[str], bool]
) -> Iterator[tuple[int, int]]:
    """Yield where the characters at ``places`` are, with their marks and the rest of their word."""
    done = 0
    for place in places:
        if place < done:
            continue
        plain = WITHIN_WORDS.get(text[place])
        if plain and knows(plain) and _is_within_word(text, place):
            continue
        begin, end = _base(text, place), _behind_marks(text, place + 1)
        done = end
        if begin < place and end - begin <= LONGEST_CLUSTER:
            composed = unicodedata.normalize("NFC", text[begin:end])
            if all(map(knows, composed)):
                continue
        last = begin  # the last letter so far
        while begin > 0 and _are_of_one_word(text[_base(text, begin - 1)], text[begin]):
            begin = _base(text, begin - 1)
        while end < len(text) and _are_of_one_word(text[last], text[end]):
            last, end = end, _behind_marks(text, end + 1)
        done = end
        yield begin, end


def _is_within_word(text: str, place: int) -> bool:
    return text[max(0, place - 1) : place].isalpha() and text[place + 1 : place + 2].isalpha()


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _base(text: str, place: int) -> int:
    """Return the place of the character that the marks at ``place`` belong to."""
    while place > 0 and _is_mark(text[place]) and not text[place - 1].isspace():
        place -= 1
    return place


def _behind_marks(text: str, place: int) -> int:
    while place < len(text) and _is_mark(text[place]):
        place += 1
    return place


def _are_of_one_word(*letters: str) -> bool:
    """Return whether two letters beside each other belong to one word of one script.

    Scripts without spaces between words have no such words.
    """
    if not (all(map(str.isalnum, letters)) and have_spaces(*letters)):
        return False
    return len(set(map(script_of, letters)) - COMMON) < 2


def have_spaces(*characters: str) -> bool:
    """Return whether spaces separate the words of the script of each of ``characters``."""
    return not any(map(is_of_script_without_spaces, characters))


def _emoji(text: str, places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where emoji of several characters are that have one at ``places``."""
    for match in _EMOJI.finditer(text) if places else ():
        number = bisect_left(places, match.start())
        if number < len(places) and places[number] < match.end():
            yield match.span()


def _joined(spans: Sequence[_Span], text: str) -> list[_Span]:
    """Return ``spans``, those that belong together as one."""
    known = _extent(text, [(begin, end) for begin, end, _ in spans], str.isalnum)
    joined = list[_Span]()
    for span in spans:
        if joined:
            before = joined[-1]
            is_at_end = before.end <= known.start or span.begin >= known.stop
            between = text[before.end : span.begin]
            if _belong_together(before, span, between, is_at_end=is_at_end):
                is_word = before.is_word or span.is_word
                joined[-1] = _Span(before.begin, max(before.end, span.end), is_word)
                continue
        joined.append(span)
    return joined


def _extent(text: str, runs: Sequence[tuple[int, int]], is_one: Callable[[str], bool]) -> range:
    """Return the places from the first to the last character outside of ``runs`` that is one."""
    inside = bytearray(len(text))
    for begin, end in runs:
        inside[begin:end] = b"\1" * (end - begin)
    places = [place for place, each in enumerate(text) if is_one(each) and not inside[place]]
    return range(places[0], places[-1] + 1) if places else range(len(text), len(text))


def _where(begin: int, words: range, visible: range) -> RunPosition:
    """Return where a run begins; ``words`` and ``visible`` are where other characters are."""
    if begin < words.start:
        return RunPosition.FIRST if begin < visible.start else RunPosition.BEFORE_WORDS
    if begin >= words.stop:
        return RunPosition.LAST if begin >= visible.stop else RunPosition.BEHIND_WORDS
    return RunPosition.AMONG_WORDS


def _belong_together(one: _Span, other: _Span, between: str, *, is_at_end: bool) -> bool:
    if not between or between.isspace():
        return True
    if one.is_word and other.is_word:
        return not any(map(str.isalpha, between))
    is_free = not any(each.isalnum() or each in _SENTENCE_ENDS for each in between)
    return is_at_end and is_free


def _widened(spans: Sequence[_Span], text: str) -> Iterator[tuple[int, int]]:
    """Yield ``spans`` with the brackets around them, and punctuation behind one in front."""
    done = 0
    for begin, end, _ in spans:
        if end <= done:  # a bracket that the one before has widened over
            continue
        begin = max(begin, done)
        while begin > done and text[begin - 1] + text[end : end + 1] in _BRACKETS:
            begin, end = begin - 1, end + 1
        if done == 0 and not text[:begin].strip():
            while text[end : end + 1] in CLOSING:
                end += 1
        done = end
        yield begin, end


def _with_spaces(text: str, begin: int, end: int) -> UnseenRun:
    """Return a run with what is left out with it: of white space on both sides, that on one."""
    first, last = before_spaces(text, begin), behind_spaces(text, end)
    starts, ends = first == 0, last == len(text)
    if (starts or first < begin) and last > end and not ends:
        return UnseenRun(begin, end, begin, last)
    if ends or (first < begin and text[end] in CLOSING):
        return UnseenRun(begin, end, first, last)
    is_between_words = begin > 0 and text[begin - 1].isalnum() and text[end].isalnum()
    is_glued = is_between_words and have_spaces(text[begin - 1], text[end])
    return UnseenRun(begin, end, begin, end, " " if is_glued else "")


def before_spaces(text: str, place: int) -> int:
    """Return where the white space before ``place`` begins."""
    while place > 0 and text[place - 1].isspace():
        place -= 1
    return place


def behind_spaces(text: str, place: int) -> int:
    """Return where the white space behind ``place`` ends."""
    while place < len(text) and text[place].isspace():
        place += 1
    return place
