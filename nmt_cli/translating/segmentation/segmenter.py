"""Cuts lines into segments, as the options of a translator, or those of a line itself, ask for.

Text without letters, such as 12:30, and the marks of lists, such as "1.", are their own
translation: models that have not seen such lines in training write sentences for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from nmt_cli.corpus.text.sentences import has_several
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import BYTE_PIECE
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, source_pieces
from nmt_cli.files.lines import is_blank
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE, ModelSettings
from nmt_cli.translating.encoding.sentence_builder import Wanted
from nmt_cli.translating.interface.options import TranslatorOptions
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.interface.request import LineError, Request
from nmt_cli.translating.interface.translation import MemoryMatch
from nmt_cli.translating.segmentation.list_marks import has_letters, is_mark, mark_before
from nmt_cli.translating.segmentation.segments import (
    Segments,
    joined_for,
    sentences,
    sentences_by_default,
    uncut,
    whole,
)

TREES_HAVE_NO_ALIGNMENTS = "this model writes trees, which have no alignments"
KEPT_PIECES = "tags are placed in text, but --keep-pieces asks for pieces"
ALIGNMENTS_OF_MARKUP = "alignments count the words of a text without tags"
LANGUAGE_MISSING = (
    "the rules for cutting sentences depend on the language, and this model does not name its "
    "source language; give --source-language"
)
PARSES = "this model parses, and cannot put the trees of several texts together"
MOST_MARKS = 4  # before a sentence
TAG = re.compile(r"<[^<>]+>")


class Segmenter:
    """Cuts lines into sentences, and markup into its blocks of text.

    The rules of ``source_language`` cut sentences; None: that of the model. A line may ask for
    something else than it, ``split_sentences`` and ``markup``. If neither says whether sentences
    are cut, those are of lines that certainly have several, for a model of single sentences. List
    marks are segments of their own.
    Raises UserError if the model excludes sentences or markup, and WrongUsageError if
    ``markup`` is given although another option excludes it.
    """

    def __init__(
        self, settings: ModelSettings, tokenizer: Tokenizer, options: TranslatorOptions
    ) -> None:
        language = options.source_language
        self._language = settings.text.source_language if language is None else language
        self._target_language, self._pairs = settings.text.target_language, settings.pairs
        self._is_parser = settings.trees is not None
        is_everything = options.translate_everything or options.keep_pieces
        # Whether text without letters, and list marks, are their own translation.
        self.keeps_text = not (is_everything or self._is_parser) and knows_letters(
            tokenizer, settings.characters or frozenset()
        )
        # Whether characters that the model never saw are copied. Else they may become <unk>.
        self.copies_unseen = self.keeps_text and not options.replace_unknown
        self._split_sentences, self._markup = options.split_sentences, options.markup
        limits = options.constraints.min_length or options.constraints.max_length  # of a whole line
        is_in_pieces = settings.text.type == "whitespace"  # in which marks may be parts of words
        self._may_split = settings.is_of_single_sentences and not (
            self._is_parser or is_in_pieces or limits
        )
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
                    self._cutter(self._language, is_split=not is_markup, is_markup=is_markup)
            except LineError as error:
                is_by_option = str(error) == self._markup_refused
                kind = WrongUsageError if is_by_option else UserError
                raise kind(f"{option}: {error}.") from None

    def layout(
        self,
        request: Request,
        wanted: Wanted,
        find: Callable[[str], MemoryMatch | None] | None = None,
    ) -> Segments:
        """Return the segments of a line.

        No segment ends within protected text. List marks are no segments if what is ``wanted``
        needs the model for all text. A text without tags that ``find`` finds in a memory is
        one segment. Raises LineError if the line cannot be cut.
        """
        split = self._split_sentences if request.split is None else request.split
        markup = self._markup if request.markup is None else request.markup
        if markup == "none":
            markup = None
        if request.alignments and (markup or self._is_parser):
            raise LineError(ALIGNMENTS_OF_MARKUP if markup else TREES_HAVE_NO_ALIGNMENTS)
        language = request.source_language or self._language
        if split is None and not self._splits_by_default(wanted, language, markup):
            split = False
        keeps_marks = self.keeps_text and not wanted.needs_model
        has_mark = keeps_marks and mark_before(request.text, language) is not None
        is_unseen = is_blank(request.text) and not request.text.isspace()
        if markup is None and (is_unseen or (split is False and not has_mark)):
            return uncut(request.text)
        cut = self._cutter(
            language, is_split=split, is_markup=markup is not None, protection=wanted.protection
        )
        if keeps_marks:
            cut = partial(with_marks, cut=cut, language=language, wanted=wanted)

        target = self._target_of(request.tag)

        def cut_joined(text: str) -> Segments:
            return joined_for(cut(text), language, target)

        def cut_unknown(text: str) -> Segments:
            return cut_joined(text) if find is None or find(text) is None else whole(text)

        if markup is None:
            found = cut_unknown(request.text)
            # A line of one segment is as it is without sentences, also around it.
            return uncut(request.text) if split is None and len(found.texts) == 1 else found
        # This import takes time; lines without markup do not need it.
        from nmt_cli.translating.segmentation.markup.placement import MarkupSegments

        return MarkupSegments(request.text, markup, cut_joined, request.tags, cut_unknown)

    def _splits_by_default(self, wanted: Wanted, language: str, markup: str | None) -> bool:
        """Return whether sentences may be cut of a line that does not say so.

        A prefix and required phrases are for the whole line, and a tag in a text is for all of it.
        """
        if not self._may_split or language == UNKNOWN_LANGUAGE or wanted.prefix or wanted.required:
            return False
        text = wanted.request.text
        first = "".join(text.split(maxsplit=1)[:1])
        if markup is None and (TAG.fullmatch(first) or first in {pair.tag for pair in self._pairs}):
            return False
        return markup is not None or has_several(text, language)

    def _target_of(self, tag: str | None) -> str:
        """Return the target language of a line with its own ``tag``."""
        if not tag:
            return self._target_language
        targets = {pair.target for pair in self._pairs if pair.tag == tag}
        return targets.pop() if len(targets) == 1 else UNKNOWN_LANGUAGE

    def _cutter(
        self,
        language: str,
        *,
        is_split: bool | None,
        is_markup: bool,
        protection: Protection | None = None,
    ) -> Callable[[str], Segments]:
        """Return what cuts a text; ``is_split`` is None for what is cut by default.

        Raises LineError if that is not possible.
        """
        if self._is_parser:
            raise LineError(PARSES)
        if is_markup and self._markup_refused is not None:
            raise LineError(self._markup_refused)
        if is_split is False:
            return whole
        if language == UNKNOWN_LANGUAGE:
            raise LineError(LANGUAGE_MISSING)
        cut = sentences_by_default if is_split is None else sentences
        return lambda text: cut(text, language, protection)


def needs_no_model(text: str) -> bool:
    """Return whether ``text`` is its own translation."""
    return not has_letters(text) or is_mark(text.strip())


def knows_letters(tokenizer: Tokenizer, characters: frozenset[str]) -> bool:
    """Return whether a source piece has a letter, or the ``characters`` of the training text have.

    Else the model was trained on other text. Names in angle brackets, such as <unk>, <0x0A> and
    <2de>, are no text.
    """
    names = set[str]()
    for piece in source_pieces(tokenizer):
        if not piece.startswith("<"):
            if has_letters(piece):
                return True
        elif not BYTE_PIECE.fullmatch(piece):
            names |= set(piece)
    return has_letters(characters - names)


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
    return Segments(texts, gaps, is_by_default=segments.is_by_default)


def _mark_before(text: str, language: str, wanted: Wanted) -> re.Match[str] | None:
    """Return the match of the mark before the sentence ``text``; None if there is none."""
    mark = mark_before(text, language)
    if mark is None:
        return None
    if wanted.glossary is not None and wanted.glossary.has_term_across(text, mark.end(2)):
        return None
    places = () if wanted.protection is None else wanted.protection.found_in(text)
    return None if any(each.begin < mark.end() < each.end for each in places) else mark
