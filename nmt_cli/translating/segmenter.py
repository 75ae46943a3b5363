"""Cuts lines into segments, as the options of a translator, or those of a line itself, ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.ctranslate2_search import CTranslate2Model
from nmt_cli.translating.protection import Protection
from nmt_cli.translating.request import Request
from nmt_cli.translating.segments import Layout, Segments, SegmentsError, sentences, whole
from nmt_cli.translating.soft_glossary import SoftGlossary

if TYPE_CHECKING:
    from nmt_cli.model.transformer import Transformer
    from nmt_cli.translating.markup.blocks import Markup

ALIGNMENTS_OF_MARKUP = "alignments count the words of a text without tags"
LANGUAGE_MISSING = (
    "the rules for cutting sentences depend on the language, and this model does not name its "
    "source language; give --source-language"
)
PARSES = "this model parses, and cannot put the trees of several texts together"


class Segmenter:
    """Cuts lines into sentences, and markup into its blocks of text.

    ``language`` is a code, such as "de"; its rules cut sentences. A line may ask for something else
    than ``split_sentences`` and ``markup``. ``markup_refused`` is the reason why another option
    excludes markup, and ``alignments_refused`` why lines cannot ask for alignments; None: nothing
    excludes them. ``with_terms`` adds translations of a ``soft_glossary``. Raises UserError if the
    model excludes one of the two, and WrongUsageError if ``markup`` is given although another
    option excludes it.
    """

    def __init__(
        self,
        language: str,
        *,
        split_sentences: bool,
        markup: Markup | None,
        is_parser: bool,
        markup_refused: str | None,
        alignments_refused: str | None = None,
        soft_glossary: SoftGlossary | None = None,
    ) -> None:
        self._language, self._is_parser = language, is_parser
        self._split_sentences, self._markup = split_sentences, markup
        self._markup_refused, self._alignments_refused = markup_refused, alignments_refused
        self._soft_glossary = soft_glossary
        for option, is_given in (("--split-sentences", split_sentences), ("--markup", markup)):
            try:
                if is_given:
                    is_markup = option == "--markup"
                    self._cutter(is_split=not is_markup, is_markup=is_markup)("a")
            except SegmentsError as error:
                is_by_option = str(error) == markup_refused
                kind = WrongUsageError if is_by_option else UserError
                raise kind(f"{option}: {error}.") from None

    def with_terms(self, request: Request) -> Request:
        """Return a line with the translations of the terms that are shown to the model."""
        return request if self._soft_glossary is None else self._soft_glossary.marked(request)

    def layout(self, request: Request, protection: Protection | None = None) -> Layout | None:
        """Return the segments of a line; None if the line is one segment, or blank, as it is.

        No sentence ends within what ``protection`` finds. Raises SegmentsError if the line cannot
        be cut.
        """
        split = self._split_sentences if request.split is None else request.split
        markup = self._markup if request.markup is None else request.markup
        if markup == "none":
            markup = None
        if request.alignments:
            refused = ALIGNMENTS_OF_MARKUP if markup else self._alignments_refused
            if refused is not None:
                raise SegmentsError(refused)
        if not split and markup is None:
            return None
        try:
            cut = self._cutter(is_split=split, is_markup=markup is not None, protection=protection)
            if markup is None:
                return cut(request.text)
            # Takes time, which lines without markup need not wait for.
            from nmt_cli.translating.markup.placement import MarkupSegments

            return MarkupSegments(request.text, markup, cut)
        except UserError as error:
            raise SegmentsError(str(error)) from None

    def _cutter(
        self, *, is_split: bool, is_markup: bool, protection: Protection | None = None
    ) -> Callable[[str], Segments]:
        """Return what cuts a text. Raises SegmentsError if that is not possible."""
        if self._is_parser:
            raise SegmentsError(PARSES)
        if is_markup and self._markup_refused is not None:
            raise SegmentsError(self._markup_refused)
        if not is_split:
            return whole
        if self._language == UNKNOWN_LANGUAGE:
            raise SegmentsError(LANGUAGE_MISSING)
        return lambda text: sentences(text, self._language, protection)


def why_no_markup(
    model: Transformer | CTranslate2Model, *, keep_pieces: bool, alignments: bool
) -> str | None:
    """Return why a translator cannot translate markup; None if it can."""
    if isinstance(model, CTranslate2Model):
        return "tags follow attention, which --engine ctranslate2 does not have"
    if keep_pieces:
        return "tags are placed in text, but --keep-pieces asks for pieces"
    if alignments:
        return "--alignments count the words of a text without tags; leave one of them out"
    return None


def why_no_alignments(model: Transformer | CTranslate2Model, *, is_parser: bool) -> str | None:
    """Return why a line cannot ask for the alignment of its words; None if it can."""
    if isinstance(model, CTranslate2Model):
        return "alignments follow attention, which --engine ctranslate2 does not have"
    return "this model writes trees, which have no alignments" if is_parser else None
