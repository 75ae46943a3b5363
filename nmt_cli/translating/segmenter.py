"""Cuts lines into segments, as the options of a translator, or those of a line itself, ask for.

Text without letters, such as 12:30, and the marks of lists, such as "1.", are their own
translation: models that have not seen such lines in training write sentences for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial

from nmt_cli.corpus.text.language_codes import base_of
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, source_pieces
from nmt_cli.files.lines import INVISIBLE, is_blank
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE, ModelSettings
from nmt_cli.translating.options import TranslatorOptions
from nmt_cli.translating.protection import Protection
from nmt_cli.translating.request import LineError, Request
from nmt_cli.translating.segments import Segments, sentences, uncut, whole
from nmt_cli.translating.wanted_output import Wanted

TREES_HAVE_NO_ALIGNMENTS = "this model writes trees, which have no alignments"
KEPT_PIECES = "tags are placed in text, but --keep-pieces asks for pieces"
ALIGNMENTS_OF_MARKUP = "alignments count the words of a text without tags"
LANGUAGE_MISSING = (
    "the rules for cutting sentences depend on the language, and this model does not name its "
    "source language; give --source-language"
)
PARSES = "this model parses, and cannot put the trees of several texts together"

_BULLET = "[-*\u2013\u2014\u2022\u00b7\u2023\u2043\u25a0\u25aa\u25ab\u25cb\u25cf\u25e6]"
# No number of one letter: "V." may be an initial, "(I)" a word, and "(x)" a variable.
_IN_BRACKETS = (
    r"(?![(\uff08][ivxIVX][)\uff09])"
    r"[(\uff08]?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{2,5})[)\uff09]"
)
_WITH_DOT = r"(?:\d{1,3}(?:\.\d{1,3})*|[IVX]{2,5})\."
_SECTION = rf"\u00a7+\s?{_WITH_DOT}"
_CHINESE_DIGIT = "[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341]"
# These need no space. Between numbers the mark is a comma: 一、二年级 are the years one and two.
_CHINESE = f"\\d{{1,3}}\u3001(?!\\d)|{_CHINESE_DIGIT}{{1,3}}\u3001(?!{_CHINESE_DIGIT})"
_CERTAIN = f"{_BULLET}|{_IN_BRACKETS}|{_SECTION}"
_MARK = re.compile(f"{_CERTAIN}|{_WITH_DOT}|{_CHINESE}")
# Languages in which a number with a dot is an ordinal, which belongs to the sentence: in German
# "1. Mai 2020" is a date.
_WITH_ORDINALS = frozenset(
    "az bs cs csb da de dsb et eu fi fo gsw hr hsb hu is lb lt lv nb nds nn pl se sh sk sl sr "
    f"szl tk tr {UNKNOWN_LANGUAGE}".split()
)
MOST_MARKS = 4  # before a sentence


class Segmenter:
    """Cuts lines into sentences, and markup into its blocks of text.

    The rules of ``source_language`` cut sentences; None: that of the model. A line may ask for
    something else than ``split_sentences`` and ``markup``. List marks are segments of their own.
    Raises UserError if the model excludes sentences or markup, and WrongUsageError if
    ``markup`` is given although another option excludes it.
    """

    def __init__(
        self, settings: ModelSettings, tokenizer: Tokenizer, options: TranslatorOptions
    ) -> None:
        language = options.source_language
        self._language = settings.text.source_language if language is None else language
        self._is_parser = settings.trees is not None
        is_everything = options.translate_everything or options.keep_pieces
        # Whether text without letters, and list marks, are their own translation.
        self.keeps_text = not (is_everything or self._is_parser) and knows_letters(tokenizer)
        self._split_sentences, self._markup = options.split_sentences, options.markup
        self._markup_refused: str | None = None
        if options.keep_pieces:
            self._markup_refused = KEPT_PIECES
        elif options.alignments:
            self._markup_refused = f"--{ALIGNMENTS_OF_MARKUP}; leave one of them out"
        for option, is_given in (
            ("--split-sentences", options.split_sentences),
            ("--markup", options.markup),
        ):
            try:
                if is_given:
                    is_markup = option == "--markup"
                    self._cutter(is_split=not is_markup, is_markup=is_markup)("a")
            except LineError as error:
                is_by_option = str(error) == self._markup_refused
                kind = WrongUsageError if is_by_option else UserError
                raise kind(f"{option}: {error}.") from None

    def layout(self, request: Request, wanted: Wanted) -> Segments:
        """Return the segments of a line.

        No segment ends within protected text. List marks are no segments if what is ``wanted``
        needs the model for all text. Raises LineError if the line cannot be cut.
        """
        split = self._split_sentences if request.split is None else request.split
        markup = self._markup if request.markup is None else request.markup
        if markup == "none":
            markup = None
        if request.alignments and (markup or self._is_parser):
            raise LineError(ALIGNMENTS_OF_MARKUP if markup else TREES_HAVE_NO_ALIGNMENTS)
        keeps_marks = self.keeps_text and not wanted.needs_model
        has_mark = keeps_marks and _marks_before_text(self._language).match(request.text)
        is_unseen = is_blank(request.text) and not request.text.isspace()
        if markup is None and (is_unseen or not (split or has_mark)):
            return uncut(request.text)
        try:
            cut = self._cutter(
                is_split=split, is_markup=markup is not None, protection=wanted.protection
            )
            if keeps_marks:
                cut = partial(with_marks, cut=cut, language=self._language, wanted=wanted)
            if markup is None:
                return cut(request.text)
            # This import takes time; lines without markup do not need it.
            from nmt_cli.translating.markup.placement import MarkupSegments

            return MarkupSegments(request.text, markup, cut)
        except UserError as error:
            raise LineError(str(error)) from None

    def _cutter(
        self, *, is_split: bool, is_markup: bool, protection: Protection | None = None
    ) -> Callable[[str], Segments]:
        """Return what cuts a text. Raises LineError if that is not possible."""
        if self._is_parser:
            raise LineError(PARSES)
        if is_markup and self._markup_refused is not None:
            raise LineError(self._markup_refused)
        if not is_split:
            return whole
        if self._language == UNKNOWN_LANGUAGE:
            raise LineError(LANGUAGE_MISSING)
        return lambda text: sentences(text, self._language, protection)


def needs_no_model(text: str) -> bool:
    """Return whether ``text`` is its own translation."""
    return not has_letters(text) or _MARK.fullmatch(text.strip()) is not None


def has_letters(text: str) -> bool:
    """Return whether a character of ``text`` is a letter (of Unicode's categories L)."""
    return any(map(str.isalpha, text))


def knows_letters(tokenizer: Tokenizer) -> bool:
    """Return whether a source piece has a letter; else the model was trained on other text.

    Names in angle brackets, such as <unk>, <0x0A> and <2de>, are no text.
    """
    pieces = source_pieces(tokenizer)
    return any(has_letters(piece) for piece in pieces if not piece.startswith("<"))


def with_marks(
    text: str, cut: Callable[[str], Segments], language: str, wanted: Wanted
) -> Segments:
    """Return the segments that ``cut`` makes of ``text``, and list marks as segments of their own.

    No mark is cut off that is in protected text, or in a term, together with what follows.
    """
    segments = cut(text)
    texts, gaps = list[str](), [segments.gaps[0]]
    for segment, gap in zip(segments.texts, segments.gaps[1:], strict=True):
        rest = segment
        for _ in range(MOST_MARKS):
            mark = _mark_before(rest, language, wanted)
            if mark is None:
                break
            gaps[-1] += mark[1]
            texts.append(mark[2])
            gaps.append(rest[mark.end(2) : mark.end()])
            rest = rest[mark.end() :]
        # With its mark, sentencex takes an item of a list for one sentence.
        found = Segments([rest], ["", ""]) if rest is segment else cut(rest)
        gaps[-1] += found.gaps[0]
        texts += found.texts
        gaps += [*found.gaps[1:-1], found.gaps[-1] + gap]
    return Segments(texts, gaps)


def _mark_before(text: str, language: str, wanted: Wanted) -> re.Match[str] | None:
    """Return the match of the mark before the sentence ``text``; None if there is none."""
    mark = _marks_before_text(language).match(text)
    if mark is None or not has_letters(text[mark.end() :]):
        return None
    if wanted.glossary is not None and wanted.glossary.has_term_across(text, mark.end(2)):
        return None
    places = () if wanted.protection is None else wanted.protection.found_in(text)
    return None if any(each.begin < mark.end() < each.end for each in places) else mark


@lru_cache
def _marks_before_text(language: str) -> re.Pattern[str]:
    spaced = _CERTAIN if base_of(language) in _WITH_ORDINALS else f"{_CERTAIN}|{_WITH_DOT}"
    return re.compile(rf"([\s{INVISIBLE}]*)((?:{spaced})(?=\s)|{_CHINESE})[\s{INVISIBLE}]*")
