"""Cuts lines into segments, as the options of a translator, or those of a line itself, ask for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.lines import is_blank
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE, ModelSettings
from nmt_cli.translating.answers import AnswerOptions
from nmt_cli.translating.kept_text import begins_with_mark, knows_letters, with_marks
from nmt_cli.translating.protection import Protection
from nmt_cli.translating.request import LineError, Request
from nmt_cli.translating.segments import Segments, sentences, uncut, whole

if TYPE_CHECKING:
    from nmt_cli.translating.markup.blocks import Markup
    from nmt_cli.translating.wanted_output import Wanted

TREES_HAVE_NO_ALIGNMENTS = "this model writes trees, which have no alignments"
KEPT_PIECES = "tags are placed in text, but --keep-pieces asks for pieces"
ALIGNMENTS_OF_MARKUP = "alignments count the words of a text without tags"
LANGUAGE_MISSING = (
    "the rules for cutting sentences depend on the language, and this model does not name its "
    "source language; give --source-language"
)
PARSES = "this model parses, and cannot put the trees of several texts together"


class Segmenter:
    """Cuts lines into sentences, and markup into its blocks of text.

    ``language`` is a code, such as "de", whose rules cut sentences; None: that of the model. A line
    may ask for something else than ``split_sentences`` and ``markup``. List marks are segments of
    their own. Raises UserError if the model excludes sentences or markup, and WrongUsageError if
    ``markup`` is given although another option excludes it.
    """

    def __init__(
        self,
        settings: ModelSettings,
        tokenizer: Tokenizer,
        answer_options: AnswerOptions,
        language: str | None,
        split_sentences: bool,
        markup: Markup | None,
    ) -> None:
        self._language = settings.text.source_language if language is None else language
        self._is_parser = settings.trees is not None
        is_everything = answer_options.translate_everything or answer_options.keep_pieces
        # Whether text without letters, and list marks, are their own translation.
        self.keeps_text = not (is_everything or self._is_parser) and knows_letters(tokenizer)
        self._split_sentences, self._markup = split_sentences, markup
        self._markup_refused: str | None = None
        if answer_options.keep_pieces:
            self._markup_refused = KEPT_PIECES
        elif answer_options.alignments:
            self._markup_refused = f"--{ALIGNMENTS_OF_MARKUP}; leave one of them out"
        for option, is_given in (("--split-sentences", split_sentences), ("--markup", markup)):
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
        has_mark = keeps_marks and begins_with_mark(request.text, self._language)
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
